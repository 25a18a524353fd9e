"""A response as a stream of events. In the background each message is one piece of text: the events
follow from the record alone, so that their numbers are the same whenever they are asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from retinue.core.messages import AssistantMessage
from retinue.errors import RetinueError
from retinue.host.problem_documents import HttpProblem
from retinue.host.server_events import ServerEvent
from retinue.server.openai import response_objects as objects
from retinue.server.openai.api_errors import error_body
from retinue.server.openai.stored_responses import StoredResponses
from retinue.server.run_turns import RunTurn, RunTurns
from retinue.server.turn_events import MessageDone, TurnParked, TurnText

FINAL = {
    "failed": "response.failed",
    "incomplete": "response.incomplete",
    "cancelled": "response.incomplete",
}


class ResponseStream:
    """The events of one response, without their numbers."""

    def __init__(
        self, turns: RunTurns, stored: StoredResponses, turn: RunTurn, *, in_pieces: bool
    ) -> None:
        self._turns, self._stored, self._turn = turns, stored, turn
        self._in_pieces = in_pieces
        self._n_items, self._open, self._text = 0, "", ""

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        start = await self._stored.read(self._turn)
        for event in beginning(start):
            yield event
        follower = self._turns.follow(self._turn, in_pieces=self._in_pieces)
        async for item in follower.events():
            if isinstance(item, TurnText):
                for event in self._piece(item) if self._in_pieces else ():
                    yield event
            elif isinstance(item, MessageDone):
                for event in self._message(item.message):
                    yield event
            else:
                is_parked = isinstance(item, TurnParked)
                usage = await self._turns.used_in(self._turn)
                end = await self._stored.read(self._turn, usage)
                if is_parked and end["status"] == "in_progress":
                    end["status"] = "completed"
                for event in self._rest(end):
                    yield event
                yield final(end)

    @property
    def _id(self) -> str:
        return objects.text_id(self._turn.run, self._turn.start, self._n_items)

    def _piece(self, piece: TurnText) -> Iterator[dict[str, Any]]:
        """More text of an item, which the first piece begins."""
        if not self._open:
            self._open = self._id
            yield from objects.opening(self._open, self._n_items)
        self._text += piece.text
        yield objects.text_delta(self._open, self._n_items, piece.text)

    def _message(self, message: AssistantMessage) -> Iterator[dict[str, Any]]:
        if not message.text:
            return
        item = objects.text_item(self._id, self._text or message.text, objects.phase_of(message))
        if self._open:
            yield from objects.closing(item, self._n_items)
        else:
            yield from objects.item_events(item, self._n_items)
        self._n_items, self._open, self._text = self._n_items + 1, "", ""

    def _rest(self, end: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What the response has beside the messages that were streamed: calls for the client, its
        questions, a result that was submitted."""
        for index, item in enumerate(end["output"]):
            if index >= self._n_items:
                yield from objects.item_events(item, index)


def beginning(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    fresh = {**response, "status": "in_progress", "output": [], "usage": None, "error": None}
    fresh |= {"incomplete_details": None, "completed_at": None}
    yield {"type": "response.created", "response": fresh}
    yield {"type": "response.in_progress", "response": fresh}


def final(response: dict[str, Any]) -> dict[str, Any]:
    kind = FINAL.get(response["status"], "response.completed")
    return {"type": kind, "response": response}


def replay(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a response that is over."""
    yield from beginning(response)
    for index, item in enumerate(response["output"]):
        yield from objects.item_events(item, index)
    yield final(response)


async def numbered(
    events: AsyncIterator[dict[str, Any]], after: int = -1
) -> AsyncIterator[ServerEvent]:
    """The events behind number `after`. An error ends the stream as one of them."""
    number = -1
    try:
        async for event in events:
            number += 1
            if number > after:
                yield ServerEvent(event["type"], {**event, "sequence_number": number})
    except (RetinueError, HttpProblem) as error:
        problem = error_body(error)[1]["error"]
        fields = {"code": problem["code"], "message": problem["message"], "param": problem["param"]}
        yield ServerEvent("error", {"type": "error", **fields, "sequence_number": number + 1})
