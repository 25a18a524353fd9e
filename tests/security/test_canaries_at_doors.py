"""Secrets that come in through the doors for other programs (the HTTP API, A2A, the API of OpenAI,
MCP, editors): in every field that a client can fill, and in what a model says. None is found in
anything that is written, shown to a client later, logged, or put on a command line."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from acp import schema

from retinue.testing import call
from tests.acp.editor import Editor, opened
from tests.cli.private_home import PrivateHome, private_home
from tests.mcp.raw_client import VERSION, RawClient, envelope
from tests.mcp.test_http import post, request
from tests.security.canaries import ProcessList, Search, every_form, planted
from tests.security.served import ADMIN, ServedProject, serving
from tests.tools.mcp.client_support import FAKE

SECRETS = planted("SERVICE_TOKEN", "OPENAI_API_KEY", "PGPASSWORD")
SECRET = SECRETS["SERVICE_TOKEN"]
OF_EDITOR = planted("OF_EDITOR")
TERMS = {
    "label": f"l {SECRET}",
    "meta": {"k": SECRET, SECRET: "v"},
    "instructions": f"i {SECRET}",
    "mode": "bypassPermissions",
}
MESSAGE = {
    "messageId": "m",
    "contextId": f"c-{SECRET}",
    "role": "ROLE_USER",
    "parts": [{"text": f"do {SECRET}"}, {"data": {SECRET: SECRET}}],
    "metadata": {"m": SECRET},
}
TOOL = {
    "name": "look_up",
    "description": SECRET,
    "parameters": {"type": "object", "properties": {"x": {"type": "string", "title": SECRET}}},
}
DIALOGUE = [
    {"role": "system", "content": f"s {SECRET}"},
    {"role": "user", "content": f"u {SECRET}"},
]
PARTS = ("", "/tree", "/transcript", "/outcome", "/branches", "/budget", "/events?deltas=true")
LISTS = ("runs", "overview", "costs", "deliveries", "health", "metrics", "models", "tools")


def thief(source: Any) -> Any:
    if not any(type(m).__name__ == "ToolMessage" for m in source.messages):
        return [call("read", path=".env"), call("think", thought=every_form(SECRETS.values()))]
    is_asked_by_editor = any("hello" in m.text for m in source.messages)
    known = {**SECRETS, **(OF_EDITOR if is_asked_by_editor else {})}
    return f"Done: {every_form(known.values())}"


def over_http(served: ServedProject, search: Search) -> None:
    """Through all doors of the server; then everything that can be read is read."""

    def ask(method: str, path: str, body: Any = None, *, code: int = 200) -> Any:
        status, answer = served.ask(ADMIN, method, path, body)
        assert status == code, (path, status, answer)
        search.look(f"{method} {path.partition('?')[0]}", repr(answer))
        return answer

    def a2a(name: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": name, "params": params}
        return ask("POST", "/a2a?A2A-Version=1.0", body)["result"]

    def mcp(name: str, **arguments: Any) -> None:
        body = request("tools/call", name=name, arguments=arguments)
        headers = {"Mcp_Protocol_Version": VERSION, "Mcp_Method": "tools/call", "Mcp_Name": name}
        status, answer = post(f"{served.address}/mcp", body, ADMIN, **headers)
        assert status == 200 and b'"isError":true' not in answer, answer
        search.look(f"mcp {name}", answer)

    run = ask("POST", "/api/v1/runs", {"task": f"go {SECRET}", "terms": TERMS}, code=201)["run"]
    ask("POST", "/api/v1/wait", {"runs": [run]})
    for verb in ("resume", "fork"):
        body = {"task": f"again {SECRET}", "terms": {"meta": {"k": SECRET}}}
        more = ask("POST", f"/api/v1/runs/{run}/{verb}", body, code=201)["run"]
        ask("POST", "/api/v1/wait", {"runs": [more]})
    task = a2a("SendMessage", message=MESSAGE)["task"]["id"]
    a2a("GetTask", id=task)
    a2a("ListTasks")
    agent = ask("GET", "/v1/models")["data"][0]["id"]
    chat = {"model": agent, "messages": DIALOGUE, "user": SECRET, "metadata": {"a": SECRET}}
    ask("POST", "/v1/chat/completions", {**chat, "tools": [{"type": "function", "function": TOOL}]})
    response_request = {"model": agent, "input": f"u {SECRET}", "instructions": f"i {SECRET}"}
    reply = ask("POST", "/v1/responses", {**response_request, "metadata": {"a": SECRET}})
    ask("GET", f"/v1/responses/{reply['id']}")
    mcp("delegate", tasks=[f"t {SECRET}"])
    mcp("agents")
    for part in PARTS:
        ask("GET", f"/api/v1/runs/{run}{part}")
    for name in LISTS:
        ask("GET", f"/api/v1/{name}")


def over_pipes(home: PrivateHome, search: Search) -> None:
    with RawClient(home) as client:
        for name, arguments in (("delegate", {"tasks": [f"x {SECRET}"]}), ("agents", {})):
            params = {"name": name, "arguments": arguments, "_meta": envelope()}
            reply = client.ask("tools/call", params)
            assert not reply.get("isError"), reply
            search.look(f"mcp {name}", repr(reply))
    search.look("what mcp serve logged", client.errors)

    async def main() -> None:
        editor, token = Editor(), OF_EDITOR["OF_EDITOR"]
        server = schema.McpServerStdio(
            name="fake",
            command=sys.executable,
            args=["-I", "-S", str(FAKE)],
            env=[schema.EnvVariable(name="TOKEN", value=token)],
        )
        async with opened(home, editor):
            session = await editor.agent.new_session(cwd=str(home.project), mcp_servers=[server])
            prompt = await editor.prompt(session.session_id, f"hello {SECRET}")
            assert prompt.stop_reason == "end_turn"
            listed = await editor.agent.list_sessions(cwd=str(home.project))
        # The title of a session is what its person has just written.
        updates = [u for u in editor.updates if u.session_update != "session_info_update"]
        search.look("updates of an editor", "\n".join(map(repr, [*updates, listed])))

    asyncio.run(main())


@pytest.mark.timeout(240)
def test_no_secret_that_comes_through_a_door_is_kept_or_shown(tmp_path: Path) -> None:
    search = Search({**SECRETS, **OF_EDITOR})
    with private_home(tmp_path, thief) as home, ProcessList() as processes:
        home.env |= SECRETS
        text = "".join(f"{name}={value}\n" for name, value in SECRETS.items())
        (home.project / ".env").write_text(text)
        with serving(home, tmp_path / "tokens") as served:
            over_http(served, search)
            search.look_below(home.folder / "data", home.folder / "state")
        over_pipes(home, search)
        home.ok("host", "stop")
        folders = ("data", "state", "run", "config", "cache")
        search.look_below(*(home.folder / name for name in folders))
    for line in processes.seen:
        search.look("a command line", line)
    assert search.found == []
    assert search.n_bytes > 300_000, "there was something to look at"
