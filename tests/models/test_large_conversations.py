"""Conversations with large pictures: in memory as they came and as they were written, and no longer
than they are needed. Nothing here waits for the garbage to be collected: a picture of megabytes is
one object, and a host makes few of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator

import pytest

from retinue import Agent, Retinue, tool
from retinue.core.history import MOST_WAYS, SMALL, Conversation
from retinue.core.image_checks import MOST_SHOWN, taken_in
from retinue.core.messages import AssistantMessage, Image, Message, ToolMessage, UserMessage
from retinue.errors import ModelError
from retinue.models.base import ModelRequest
from retinue.runtime import tool_events
from retinue.testing import Scripted, call
from retinue.tools.base import ToolResult
from tests.models.http_world import asking, complete, history, talking
from tests.pictures import encoded, png


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def picture(n: int, size: int = 0) -> Image:
    return Image(media_type="image/png", data=encoded(png(1 + n, 1, b"x" * size)))


@pytest.mark.parametrize("fault", ["F1", "F4", "F10", "F35", "F40"])
def test_the_body_of_a_request_that_failed_is_let_go_at_once(fault: str) -> None:
    async def story() -> None:
        async with talking(faults=[fault] * 8) as (_, model):
            output = history(UserMessage(text="Look.", images=(picture(1),)))
            request: ModelRequest | None = asking(messages=output)
            conversation = weakref.ref(output.conversation)
            del output
            with contextlib.suppress(ModelError):
                await complete(model, request)
            request = None
            assert conversation() is None

    asyncio.run(story())


def test_a_conversation_is_let_go_with_what_was_written_of_it() -> None:
    output = history(UserMessage(text="Look."), AssistantMessage(text="I see."))
    output.encode("one", lambda unit: b"x" * len(unit))
    conversation = weakref.ref(output.conversation)
    del output
    assert conversation() is None


def written(unit: object) -> bytes:
    assert isinstance(unit, list | tuple)
    return b"".join(
        i.data.encode() for m in unit if not isinstance(m, AssistantMessage) for i in m.images
    )


def kept(conversation: Conversation) -> int:
    return sum(way.size for way in (conversation.encoded or {}).values())


def test_a_large_conversation_is_kept_as_it_was_written_last() -> None:
    """Each picture that is refused makes another way to write the rest."""
    conversation = Conversation()
    for n in range(4):
        conversation.append(UserMessage(text="", images=(picture(n, SMALL // 2),)))
    size = conversation.picture_bytes(0)
    pieces = [
        b"".join(conversation.encode(f"without {n}", 0, len(conversation), written))
        for n in (0, 1, 2, 3, 0)
    ]
    assert len(set(pieces)) == 1 and len(pieces[0]) >= size
    assert kept(conversation) <= len(pieces[0]) + 16


def test_the_forks_of_a_large_conversation_share_one_prefix() -> None:
    conversation = Conversation()
    for n in range(4):
        conversation.append(UserMessage(text="", images=(picture(n, SMALL // 2),)))
    for stop in (2, 3, 4):
        conversation.prefix("one", 0, stop, written)
    assert len(conversation.of_dialect("one").shared) == 1


def test_a_small_conversation_is_kept_in_several_ways() -> None:
    conversation = Conversation()
    conversation.append(UserMessage(text="Hello."))
    for n in range(MOST_WAYS):
        conversation.encode(f"way {n}", 0, 1, written)
    assert len(conversation.encoded or {}) == MOST_WAYS
    conversation.encode("one more", 0, 1, written)
    assert len(conversation.encoded or {}) == 1


def test_a_picture_for_which_there_is_no_room_is_told_in_words() -> None:
    one, two = picture(1), picture(2)
    text, images = taken_in("Here.", (one, two), len(one.data))
    assert images == (one,)
    assert "shows 50 MB of pictures already" in text and "sub-agent" in text
    assert taken_in("", (one, two))[1] == (one, two)
    assert len(picture(3, 4_000_000).data) * 20 > MOST_SHOWN


def test_a_model_is_shown_no_more_pictures_than_a_request_can_carry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one turn and over several; the calls of one turn come back at once."""
    size = len(picture(1).data)
    monkeypatch.setattr(tool_events, "MOST_SHOWN", 3 * size)

    @tool
    def show() -> ToolResult:
        """Show a picture."""
        return ToolResult(text="Here.", images=(picture(1),))

    def script(request: ModelRequest) -> object:
        n = sum(isinstance(m, AssistantMessage) for m in request.messages)
        return [call("show"), call("show")] if n < 3 else "done"

    async def story() -> list[Message]:
        agent = Agent("one", model=Scripted(script), tools=[show])
        async with Retinue() as retinue:
            outcome = await retinue.run(agent, "Look.")
            return list(await retinue.messages(outcome.id))

    results = [m for m in asyncio.run(story()) if isinstance(m, ToolMessage)]
    assert [len(m.images) for m in results] == [1, 1, 1, 0, 0, 0]
    assert all("is not shown" in m.text for m in results[3:])
