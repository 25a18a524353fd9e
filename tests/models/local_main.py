"""How good a local model is at the simplest of tool calls: `python -m tests.models.local_main
[PATH]`.

Twenty requests, five tools, temperature 0. A call is right if its tool is, and if its arguments are
word for word those that were asked for."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from retinue.core.messages import UserMessage
from retinue.core.values import ToolSchema
from retinue.models.base import ModelRequest
from retinue.models.codec import Options
from retinue.models.local import LocalModel, local_model


class Score(NamedTuple):
    """Out of `asked`: replies with a call, with the right tool, and with the right arguments
    too."""

    asked: int
    called: int
    named: int
    right: int
    seconds: float


def tool(name: str, description: str, **properties: str) -> ToolSchema:
    fields = {key: {"type": kind} for key, kind in properties.items()}
    schema = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
    return ToolSchema(name=name, description=description, parameters=schema)


TOOLS = (
    tool("get_weather", "Tell the current weather in a city.", city="string"),
    tool("add", "Add two whole numbers.", a="integer", b="integer"),
    tool("read_file", "Read a file and return its text.", path="string"),
    tool("search", "Search the web for a query.", query="string"),
    tool("send_mail", "Send a mail to an address.", to="string", text="string"),
)
REQUESTS: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("What is the weather in Paris?", "get_weather", {"city": "Paris"}),
    ("Tell me the weather in Tokyo.", "get_weather", {"city": "Tokyo"}),
    ("How is the weather in Berlin today?", "get_weather", {"city": "Berlin"}),
    ("Is it raining in London?", "get_weather", {"city": "London"}),
    ("Add 2 and 3.", "add", {"a": 2, "b": 3}),
    ("What is 17 plus 25?", "add", {"a": 17, "b": 25}),
    ("Add the numbers 100 and 250.", "add", {"a": 100, "b": 250}),
    ("Please compute 7 + 8.", "add", {"a": 7, "b": 8}),
    ("Read the file notes.txt.", "read_file", {"path": "notes.txt"}),
    ("Show me the text of README.md.", "read_file", {"path": "README.md"}),
    ("What is in the file data.csv?", "read_file", {"path": "data.csv"}),
    ("Open the file src/main.py and read it.", "read_file", {"path": "src/main.py"}),
    ("Search the web for red pandas.", "search", {"query": "red pandas"}),
    ("Search for the history of tea.", "search", {"query": "the history of tea"}),
    ("Look up cheap flights on the web.", "search", {"query": "cheap flights"}),
    ("Do a web search for python asyncio.", "search", {"query": "python asyncio"}),
    (
        'Send a mail to ann@example.com with the text "hello".',
        "send_mail",
        {"to": "ann@example.com", "text": "hello"},
    ),
    (
        'Mail "I am late" to bob@example.com.',
        "send_mail",
        {"to": "bob@example.com", "text": "I am late"},
    ),
    (
        'Send "thank you" to eve@example.com by mail.',
        "send_mail",
        {"to": "eve@example.com", "text": "thank you"},
    ),
    (
        'Write a mail to joe@example.com saying "yes".',
        "send_mail",
        {"to": "joe@example.com", "text": "yes"},
    ),
)


def request(
    text: str, *, tools: tuple[ToolSchema, ...] = (), max_output: int = 96, **fields: Any
) -> ModelRequest:
    values: dict[str, Any] = {
        "run": "r",
        "root": "r",
        "path": "0",
        "agent": "a",
        "model": "local",
        "turn": 0,
        "attempt": 1,
        "purpose": "turn",
        "instructions": "",
        "messages": [UserMessage(text=text)],
        "tools": tools,
        "declared": tools,
        "max_output": max_output,
        "key": "r/1",
    }
    return ModelRequest(**{**values, **fields})


async def measure(model: LocalModel) -> Score:
    called = named = right = 0
    start = time.monotonic()
    for text, name, arguments in REQUESTS:
        reply = await model.complete(request(text, tools=TOOLS), lambda delta: None)
        calls = reply.message.calls
        called += bool(calls)
        if calls and calls[0].name == name:
            named += 1
            right += msgspec.json.decode(calls[0].arguments_json) == arguments
    return Score(len(REQUESTS), called, named, right, time.monotonic() - start)


async def speed(path: str) -> str:
    """How long it takes to load, and how many tokens a second it reads and writes."""
    options = Options(temperature=0.0, extra={"ignore_eos": True})
    model = local_model("local", path, os.environ, options)
    seconds: list[float] = []
    for text, n_tokens in (("", 1), ("river " * 400, 1), ("river " * 400, 101)):
        start = time.monotonic()
        reply = await model.complete(request(text, max_output=n_tokens), lambda delta: None)
        seconds.append(time.monotonic() - start)
    await model.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    read = (reply.usage.input - 30) / seconds[1]
    return (
        f"loaded in {seconds[0]:.1f} s; {read:.0f} tokens/s read, {100 / seconds[2]:.0f} "
        f"written; {memory} MB\n"
    )


async def main(path: str) -> None:
    sys.stdout.write(await speed(path))
    for must_call, how in (
        (False, "free to call or to answer"),
        (True, "every reply must be a call"),
    ):
        model = local_model(
            "local", path, os.environ, Options(temperature=0.0), must_call=must_call, window=2_048
        )
        score = await measure(model)
        await model.close()
        sys.stdout.write(
            f"{how}: {score.called} calls, {score.named} with the right tool, {score.right} right "
            "in all, "
            f"of {score.asked}; {score.seconds / score.asked:.2f} s each\n"
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "smollm2"))
