"""The current state of a response, read from its run's record."""

from __future__ import annotations

from typing import Any

from retinue.core.messages import Message
from retinue.core.values import Usage
from retinue.errors import NotFound
from retinue.host.client_tools import tools_of
from retinue.host.requests import MOST_RUNS, OutcomeRequest, ShowRequest, TranscriptRequest
from retinue.outcomes import Outcome
from retinue.server.openai import response_objects as objects
from retinue.server.openai.agent_requests import runtime_facts
from retinue.server.openai.api_errors import ApiProblem
from retinue.server.openai.response_objects import AskedResponse, ResponsePart
from retinue.server.run_turns import RunTurn, RunTurns
from retinue.server.turn_events import parked_on

DEFAULTS = {
    "max_output_tokens": None,
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""What the API always has and an agent decides for itself."""
STATUS = {"completed": "completed", "incomplete": "incomplete", "cancelled": "cancelled"}


class StoredResponses:
    """The responses that one client sees."""

    def __init__(self, turns: RunTurns) -> None:
        self._turns = turns

    async def find(self, id: str, param: str | None = None) -> RunTurn:
        """The turn of a response. Raises `ApiProblem` for one that is not there, or is not theirs,
        in the same words."""
        named = objects.read_id(id)
        try:
            if named is None:
                raise NotFound(id)
            await self._turns.host.check_visible([named[0]], self._turns.who)
            row = await self._turns.host.row(named[0])
            if AskedResponse.of(row.spec.meta) is None:
                raise NotFound(id)
        except NotFound:
            raise ApiProblem(
                404, f"Response {id[:100]!r} not found.", param=param, code="not_found"
            ) from None
        first = row.spec.base.length if row.spec.base is not None else 0
        return RunTurn(named[0], named[1] or first)

    async def id_of(self, turn: RunTurn) -> str:
        row = await self._turns.host.row(turn.run)
        first = row.spec.base.length if row.spec.base is not None else 0
        return objects.response_id(turn.run, turn.start if turn.start > first else 0)

    async def terms(self, turn: RunTurn) -> AskedResponse:
        row = await self._turns.host.row(turn.run)
        return AskedResponse.of(row.spec.meta) or AskedResponse()

    async def part(self, turn: RunTurn) -> ResponsePart:
        host, messages = self._turns.host, list[Message]()
        row = await host.row(turn.run)
        while True:
            page = TranscriptRequest(
                run=turn.run, start=turn.start + len(messages), limit=MOST_RUNS
            )
            reply = await host.transcript(page, self._turns.who)
            messages += reply.messages
            if turn.start + len(messages) >= reply.length or not reply.messages:
                break
        tools = {tool.name: tool for tool in tools_of(row.spec.meta)}
        return ResponsePart(turn.run, turn.start, messages, tools)

    async def read(self, turn: RunTurn, usage: Usage | None = None) -> dict[str, Any]:
        """The whole object."""
        host, who = self._turns.host, self._turns.who
        part = await self.part(turn)
        messages, is_handed_over = part.whole()
        is_last = not messages or messages[-1][1] + 1 >= turn.start + len(part.messages)
        is_parked = is_handed_over and not is_last
        outcome = None
        if not is_parked:
            outcome = (await host.outcome(OutcomeRequest(run=turn.run), who)).outcome
            is_parked = outcome is None and bool(await parked_on(host, who, turn.run))
        items = part.items() if is_parked or outcome is not None else _messages(part)
        if outcome is not None:
            items += objects.result_item(part, outcome, items)
        out = await self._frame(turn)
        out |= {"output": items, **_status(outcome, is_parked=is_parked), **runtime_facts(outcome)}
        if out["status"] != "in_progress":
            usage = usage or (await self._turns.used_in(turn) if outcome is not None else None)
            out["usage"] = None if usage is None else objects.response_usage(usage)
        return out

    async def _frame(self, turn: RunTurn) -> dict[str, Any]:
        host = self._turns.host
        detail = await host.show(ShowRequest(run=turn.run), self._turns.who)
        row, id = await host.row(turn.run), await self.id_of(turn)
        terms = AskedResponse.of(row.spec.meta) or AskedResponse()
        is_first = id == objects.response_id(turn.run, 0)
        previous = terms.previous if is_first else objects.response_id(turn.run, 0)
        return {
            "id": id,
            "object": "response",
            "created_at": detail.created_at // 1000,
            "completed_at": None if detail.ended_at is None else detail.ended_at // 1000,
            "background": terms.background,
            "error": None,
            "incomplete_details": None,
            "instructions": terms.instructions,
            "metadata": terms.metadata,
            "model": detail.label,
            "previous_response_id": previous or None,
            "tools": [objects.response_tool(tool) for tool in tools_of(row.spec.meta)],
            "usage": None,
            **DEFAULTS,
        }


def _messages(part: ResponsePart) -> list[dict[str, Any]]:
    """What an agent that is still at work has said: its calls may be its own business yet."""
    return [item for item in part.items() if item["type"] == "message"]


def _status(outcome: Outcome | None, *, is_parked: bool) -> dict[str, Any]:
    if is_parked:
        return {"status": "completed"}
    if outcome is None:
        return {"status": "in_progress"}
    status: dict[str, Any] = {"status": STATUS.get(outcome.state, "failed")}
    if outcome.state == "incomplete":
        status["incomplete_details"] = {"reason": "max_output_tokens"}
    if status["status"] == "failed":
        text = outcome.error or outcome.stop
        status["error"] = {"code": "server_error", "message": f"{text} ({outcome.state})"}
    return status
