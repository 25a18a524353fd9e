"""Text as models write it: from its beginning, once, and never behind the reply that it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from retinue import Agent, Retinue, events, steps
from retinue.core.events import ModelFailed, Replied
from retinue.core.messages import AssistantMessage, ModelReply
from retinue.core.model_price import Price
from retinue.core.values import ModelInfo
from retinue.errors import ModelUnavailable
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.runtime.text_pieces import OpenReplies, TextPiece, TextReader
from retinue.testing import VirtualClock
from tests.api.scripted_agents import ended, on_virtual_time

WORDS = ("one ", "two ", "three ", "four")


class SlowWriter:
    """Writes a word every ten seconds. The first attempts break off after two words."""

    info = ModelInfo(name="slow", price=Price(input=0, output=0))

    def __init__(self, n_broken: int = 0) -> None:
        self._n_broken = n_broken

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        for n, word in enumerate(WORDS):
            emit(word)
            await asyncio.sleep(10)
            if n == 1 and request.attempt <= self._n_broken:
                raise ModelUnavailable("the connection broke", "broken")
        return ModelReply(message=AssistantMessage(text="".join(WORDS)))


async def text_until(stream: object, *ends: type) -> list[str]:
    """The text of each attempt; nothing may come behind its end."""
    attempts: dict[int, str] = {}
    over = set[int]()
    async for item in stream:  # type: ignore[attr-defined]
        if isinstance(item, TextPiece):
            assert item.attempt not in over and item.start == len(attempts.get(item.attempt, ""))
            attempts[item.attempt] = attempts.get(item.attempt, "") + item.text
        elif isinstance(item, Step) and isinstance(item.entry.event, Replied | ModelFailed):
            over.add(item.entry.event.attempt)
    return list(attempts.values())


@on_virtual_time
async def test_text_never_comes_behind_its_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PAGE", 1)
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(Agent("one", model=SlowWriter()), "Go.")
        watching = retinue.steps(run, deltas=True)
        first = await anext(watching)  # from now on text is kept for this watcher
        await ended(retinue, run)
        assert isinstance(first, Step) and await text_until(watching) == []


@on_virtual_time
async def test_text_of_an_attempt_that_failed_does_not_come_behind_its_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "PAGE", 1)
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(Agent("one", model=SlowWriter(n_broken=1)), "Go.")
        watching = retinue.steps(run, deltas=True)
        await anext(watching)
        await asyncio.sleep(31)
        assert await text_until(watching) == ["".join(WORDS)]
        await ended(retinue, run)


@pytest.mark.parametrize("seconds", [0, 5, 15, 25, 35])
@on_virtual_time
async def test_a_watcher_that_comes_late_gets_the_text_from_its_beginning(seconds: float) -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(Agent("one", model=SlowWriter()), "Go.")
        await asyncio.sleep(seconds)
        assert await text_until(retinue.steps(run, deltas=True)) == ["".join(WORDS)]


@on_virtual_time
async def test_a_stream_of_events_says_where_text_belongs() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(Agent("one", model=SlowWriter()), "Go.")
        await asyncio.sleep(15)
        request = [e async for e in retinue.stream(run) if isinstance(e, events.TextDelta)]
    assert [(e.start, e.text) for e in request] == [(0, "one two "), (8, "three "), (14, "four")]


@on_virtual_time
async def test_nothing_is_kept_of_replies_that_are_over() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        for n_broken in (0, 2):
            await retinue.run(Agent("one", model=SlowWriter(n_broken)), "Go.")
        run = await retinue.spawn(Agent("one", model=SlowWriter()), "Go.")
        await asyncio.sleep(15)
        open_replies = retinue._engine.bus.open_replies
        assert [piece.text for piece in open_replies] == ["one two "]
        await retinue.cancel(run)
        assert list(open_replies) == []


def test_a_reader_takes_each_character_once() -> None:
    reader, replies = TextReader(), OpenReplies()
    pieces = [replies.add("a", 1, "ab"), replies.add("a", 1, "cd"), replies.add("a", 2, "x")]
    assert [(p.start, p.text) for p in pieces] == [(0, "ab"), (2, "cd"), (0, "x")]
    assert [reader.new_part(p) for p in (*pieces, *pieces)] == [*pieces, None, None, None]
    whole = TextPiece("b", 1, "abcdef")
    assert reader.new_part(TextPiece("b", 1, "ab")) is not None
    assert reader.new_part(TextPiece("b", 1, "ef", 4)) is None, "its beginning is missing"
    assert reader.new_part(whole) == TextPiece("b", 1, "cdef", 2)
    assert [piece.text for piece in replies] == ["x"]
