"""How a fault is asked for and met, in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FAULTS, FakeLLM, FakeSettings
from tests.testing.fake_llm_support import Got, good, send

BOTH = [False, True]
FAST = FakeSettings(
    drip_seconds=0.0,
    settle_seconds=0.005,
    huge_bytes=3 << 20,
    bomb_bytes=8 << 20,
    header_bytes=100_000,
    long_text=100_000,
)
TEXT = "Grüße aus der Küche, 你好, and a good day to you."
CALLS = [call("read", path="a.txt", options={"policy": "inherit"}), call("read", path="b.txt")]


def hit(
    name: str,
    dialect: str,
    stream: bool,
    script: Sequence[Any] = (TEXT,),
    settings: FakeSettings = FAST,
    first: float = 10.0,
    quiet: float = 10.0,
) -> Got:
    async def story() -> Got:
        async with FakeLLM(script, settings=settings) as llm:
            post = good(dialect, stream=stream)
            post.headers["x-fault"] = name
            reply = await send(llm, post, first=first, quiet=quiet)
            assert llm.injected == [(1, name)]
            assert llm.violations == []
            return reply

    return asyncio.run(story())


def with_dialects(*names: str) -> list[tuple[str, str]]:
    return [(name, dialect) for name in names for dialect in FAULTS[name].dialects]


def at(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value[int(step)] if step.isdigit() else value[step]
    return value


def is_ended(dialect: str, reply: Got) -> bool:
    """Whether the reply says that it is complete."""
    match dialect:
        case "anthropic":
            return b"event: message_stop" in reply.body
        case "openai_chat":
            return b"data: [DONE]" in reply.body
        case "openai_responses":
            return b"event: response.completed" in reply.body
        case _:
            return b"finishReason" in reply.body
