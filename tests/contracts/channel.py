"""What every channel must do. A subclass says how to make one, what the other side has taken, and
how to break it."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from retinue import Delivery, Origin, RetinueError
from retinue.channels.base import Channel
from retinue.core.ids import digest
from tests.contracts.world import START, run_async

ADA = Origin(channel="post", user="ada", thread="42")

TEXTS = (
    "",
    " \t ",
    "It is done.",
    "naïve café, 漢字, עברית, e\u0301, \U0001f469\u200d\U0001f469\u200d\U0001f467 and "
    "\U0001f1e9\U0001f1ea",
    "\ufeff\ufffe\uffff\U0010ffff\u200b\u00ad",
    "one\ntwo\n\n  three\n",
    "one\r\ntwo\rthree\x0bfour\x0cfive\u2028six\u2029seven\x85",
    "\x00\x01\x1b[2J\x1b]0;title\x07\x7f\x9b31m",
    "\u202eback to front\u202c \u2066isolated\u2069",
    '{"key": "forged", "text": "x"}\n{"key": "torn", "te',
    "[user root]\n  not from here",
    "back\\slash \\x1b \"quoted\" 'so'",
)


class Side(Protocol):
    """A channel, and the side that it talks to."""

    channel: Channel

    def taken(self) -> list[str]:
        """The texts that were taken, in order."""
        ...

    def break_down(self) -> None: ...

    def mend(self) -> None: ...


def delivery(text: str = "It is done.", key: str = "", **fields: Any) -> Delivery:
    fields = {
        "run": "r1",
        "root": "r0",
        "path": "0.1",
        "origin": ADA,
        "next_at": START,
        "attempts": 1,
        **fields,
    }
    return Delivery(key=key or digest(text), text=text, state="sent", **fields)


class ChannelContract:
    """The whole of it."""

    def opened(self, folder: Path) -> AbstractAsyncContextManager[Side]:
        raise NotImplementedError

    def shown(self, text: str) -> str:
        """A text as the other side sees it."""
        return text

    @run_async
    async def test_what_is_sent_is_taken_by_the_time_send_returns(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            assert side.taken() == []
            await side.channel.send(delivery("first"))
            assert side.taken() == ["first"]
            await side.channel.send(delivery("second"))
            assert side.taken() == ["first", "second"]

    @run_async
    async def test_the_same_key_again_is_harmless(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            one = delivery("first")
            await side.channel.send(one)
            await side.channel.send(delivery("second"))
            for attempts in (2, 3):
                await side.channel.send(
                    delivery("first", attempts=attempts, next_at=START + 60_000)
                )
            assert side.taken() == ["first", "second"]

    @run_async
    async def test_the_same_text_under_another_key_is_another_announcement(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as side:
            await side.channel.send(delivery("again", key="k1"))
            await side.channel.send(delivery("again", key="k2"))
            assert side.taken() == ["again", "again"]

    @run_async
    async def test_what_is_not_taken_raises_and_can_be_sent_again(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            await side.channel.send(delivery("first"))
            side.break_down()
            for _ in range(2):
                with pytest.raises(RetinueError, match=r"\w"):
                    await side.channel.send(delivery("second"))
            side.mend()
            assert side.taken() == ["first"]
            await side.channel.send(delivery("second"))
            assert side.taken() == ["first", "second"]

    @run_async
    async def test_odd_texts_arrive_as_they_are(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            for text in TEXTS:
                await side.channel.send(delivery(text))
            assert side.taken() == [self.shown(text) for text in TEXTS]

    @run_async
    async def test_odd_names_do_no_harm(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            for n, name in enumerate(TEXTS):
                origin = Origin(channel="post", user=name, thread=name)
                await side.channel.send(delivery(f"text {n}", origin=origin))
            assert side.taken() == [f"text {n}" for n in range(len(TEXTS))]

    @run_async
    async def test_a_megabyte_arrives_whole(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            for text in ("x" * 1_000_000, "漢\n" * 500_000, "\U0001f389" * 300_000):
                await side.channel.send(delivery(text))
                assert side.taken()[-1] == self.shown(text)

    @run_async
    async def test_many_at_once_arrive_once_each(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            texts = [f"text {n}" for n in range(40)]
            await asyncio.gather(*(side.channel.send(delivery(text)) for text in texts * 2))
            assert sorted(side.taken()) == sorted(texts)

    @run_async
    async def test_a_send_that_was_broken_off_can_be_repeated(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as side:
            for n in range(8):
                sending = asyncio.create_task(side.channel.send(delivery(f"text {n}")))
                await asyncio.sleep(0.001 * n)
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                await side.channel.send(delivery(f"text {n}"))
            assert side.taken() == [f"text {n}" for n in range(8)]
