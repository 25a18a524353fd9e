"""A server with a tool, resources, templates and prompts: `content_server.py [pids=FILE]
[bare]`. With `pids` each start is written there, with `bare` it has a tool only."""

import json
import os
import sys

OPTIONS = dict(a.partition("=")[::2] for a in sys.argv[1:])
PAGES = [
    {
        "resources": [{"uri": "notes://one", "name": "one", "mimeType": "text/plain"}],
        "nextCursor": "2",
    },
    {"resources": [{"uri": "notes://two", "name": "two", "description": "The \u001b[31msecond."}]},
]
TEMPLATES = [{"uriTemplate": "notes://day/{day}", "name": "a day"}]
PROMPTS = [
    {
        "name": "summarize",
        "description": "Summarize notes.",
        "arguments": [{"name": "topic", "required": True}, {"name": "style"}],
    },
    {"name": "talk"},
]


def contents(uri):
    if not uri.startswith("notes://"):
        return None
    words = f"The text of {uri}, token {os.environ.get('TOKEN', 'none')}."
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": words}]}


def message(role, words):
    return {"role": role, "content": {"type": "text", "text": words}}


def prompt(params):
    arguments = params.get("arguments", {})
    if params["name"] == "talk":
        return {"messages": [message("user", "Hello."), message("assistant", "Hello to you.")]}
    if params["name"] != "summarize":
        return None
    return {
        "messages": [
            message("user", f"Summarize {arguments['topic']}: {arguments.get('style', '-')}")
        ]
    }


def answer(method, params):
    if method == "initialize":
        offered = (
            {"tools": {}} if "bare" in OPTIONS else {"tools": {}, "resources": {}, "prompts": {}}
        )
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": offered,
            "serverInfo": {"name": "content", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "note", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"noted by {os.getpid()}"}]}
    if method == "resources/list":
        return PAGES[1 if params.get("cursor") else 0]
    if method == "resources/templates/list":
        return {"resourceTemplates": TEMPLATES}
    if method == "resources/read":
        return contents(params["uri"])
    if method == "prompts/list":
        return {"prompts": PROMPTS}
    return prompt(params) if method == "prompts/get" else None


if "pids" in OPTIONS:
    with open(OPTIONS["pids"], "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params", {}))
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "there is no such thing"}
    else:
        reply["result"] = result
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
