"""Announcements at a terminal: what is seen is what was said, and nothing more happens."""

from __future__ import annotations

import asyncio
import io
import os
import re
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from retinue import Origin, RetinueError
from retinue.channels import console
from retinue.channels.console import Console
from retinue.formats.safe_text import several_lines
from tests.contracts.channel import ChannelContract, Side, delivery
from tests.contracts.world import run_async
from tests.waiting import SECONDS


class Terminal(io.StringIO):
    """A stream that can be unplugged."""

    broken = False

    def write(self, text: str) -> int:
        if self.broken:
            raise BrokenPipeError("nobody reads this")
        return super().write(text)


class ConsoleSide:
    def __init__(self) -> None:
        self.stream = Terminal()
        self.channel = Console(self.stream)

    def taken(self) -> list[str]:
        """Only the first line of a block is not indented."""
        blocks = re.split(r"^\[.*\]\n", self.stream.getvalue(), flags=re.MULTILINE)[1:]
        return [
            "\n".join(line.removeprefix("  ") for line in b.removesuffix("\n").split("\n"))
            for b in blocks
        ]

    def break_down(self) -> None:
        self.stream.broken = True

    def mend(self) -> None:
        self.stream.broken = False


class TestConsole(ChannelContract):
    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Side]:
        yield ConsoleSide()  # type: ignore[misc]

    def shown(self, text: str) -> str:
        return several_lines(text)


async def shown(text: str, **fields: object) -> str:
    stream = io.StringIO()
    await Console(stream).send(delivery(text, **fields))
    return stream.getvalue()


@run_async
async def test_the_first_line_says_for_whom_it_is() -> None:
    assert await shown("One.\nTwo.") == "[user ada, thread 42]\n  One.\n  Two.\n"
    assert await shown("One.\r\n\tTwo.\n") == "[user ada, thread 42]\n  One.\n  \tTwo.\n\n"
    assert await shown("x", origin=Origin(channel="c", thread="42")) == "[thread 42]\n  x\n"
    assert await shown("x", origin=Origin(channel="c", user="ada")) == "[user ada]\n  x\n"
    assert await shown("x", origin=Origin(channel="c"), run="r7") == "[run r7]\n  x\n"


@run_async
async def test_what_the_runtime_says_is_not_indented_and_what_others_say_is() -> None:
    text = await shown("[From the runtime] all is well", note="[From the runtime] one is missing")
    assert (
        text
        == "[user ada, thread 42]\n[From the runtime] one is missing\n  [From the runtime] all is "
        "well\n"
    )


@run_async
async def test_nothing_in_a_text_steers_the_terminal() -> None:
    every = "".join(
        map(chr, [*range(0x20), *range(0x7F, 0xA0), *range(0x2000, 0x2070), *range(0xD800, 0xD810)])
    )
    record = await shown(every, origin=Origin(channel="c", user=every, thread=every))
    assert not set(record) & {
        chr(n) for n in [*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0)]
    } - {"\t"}
    assert not set(record) & set(
        "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ud800"
    )
    assert "👩\u200d💻" in await shown("👩\u200d💻"), (
        "a joiner makes one picture of several, and does no harm"
    )


@run_async
async def test_a_text_cannot_pass_for_another_announcement() -> None:
    record = await shown(
        "hello\r[user root]\n[user root]\n\n[user root]",
        origin=Origin(channel="c", user="a]\n[user b"),
    )
    assert [line for line in record.splitlines() if line.startswith("[")] == ["[user a] [user b]"]


@run_async
async def test_what_the_stream_cannot_encode_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    await Console(stream).send(delivery("naïve 漢 \U0001f389"))
    assert raw.getvalue().splitlines()[1] == rb"  na\xefve \u6f22 \U0001f389"


@run_async
async def test_by_default_it_is_standard_error_as_it_is_at_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    channel, old = Console(), sys.stderr
    await channel.send(delivery("first"))
    sys.stderr = other = io.StringIO()
    try:
        await channel.send(delivery("second"))
        sys.stderr = None  # type: ignore[assignment]
        with pytest.raises(RetinueError, match="Pass a stream to Console"):
            await channel.send(delivery("third"))
    finally:
        sys.stderr = old
    assert capsys.readouterr() == ("", "[user ada, thread 42]\n  first\n")
    assert other.getvalue() == "[user ada, thread 42]\n  second\n"


@run_async
async def test_a_closed_stream_raises() -> None:
    stream = io.StringIO()
    stream.close()
    with pytest.raises(RetinueError, match="closed file"):
        await Console(stream).send(delivery())


@run_async
async def test_a_terminal_that_stands_still_holds_up_nobody_else() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as far, os.fdopen(writing, "w") as near:
        channel = Console(near)
        sending = asyncio.create_task(channel.send(delivery("x" * 1_000_000)))
        behind = asyncio.create_task(channel.send(delivery("behind")))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.shield(sending)
        behind.cancel()
        whole = f"[user ada, thread 42]\n  {'x' * 1_000_000}\n"
        assert await asyncio.to_thread(far.read, len(whole)) == whole.encode()
        await sending
        await channel.send(delivery("behind"))
        assert far.read1(100) == b"[user ada, thread 42]\n  behind\n"


@run_async
async def test_old_keys_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "KEPT", 3)
    stream = io.StringIO()
    channel = Console(stream)
    for key in ("a", "b", "c", "c", "a", "d", "d", "b", "a"):
        await channel.send(delivery(key, key=key))
    assert re.findall(r"^  (\w)$", stream.getvalue(), re.MULTILINE) == ["a", "b", "c", "d", "a"]


def test_a_console_that_is_gone_leaves_no_thread() -> None:
    def mine() -> set[threading.Thread]:
        return {t for t in threading.enumerate() if t.name.startswith("retinue console")}

    before = mine()
    channel = Console(io.StringIO())
    asyncio.run(channel.send(delivery()))
    (thread,) = mine() - before
    del channel
    thread.join(SECONDS)
    assert not thread.is_alive()
