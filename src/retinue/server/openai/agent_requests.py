"""Turns a conversation into a turn of a run: a known conversation continues its run, and a waiting
call gets its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from retinue.core.values import ToolSchema, Usage
from retinue.errors import NotFound, RetinueError
from retinue.host.app import carry_out, idempotency_key, identity_of, json_body, while_connected
from retinue.host.event_response import EventStreamResponse
from retinue.host.host import Host
from retinue.host.problem_documents import HttpProblem
from retinue.host.requests import DefinitionsRequest, OutcomeRequest, RunTerms, SendRequest
from retinue.host.server_events import ServerEvent
from retinue.outcomes import Outcome
from retinue.server.openai import dialogue as dialogues
from retinue.server.openai.api_errors import ApiProblem, error_response
from retinue.server.openai.dialogue import Dialogue
from retinue.server.run_turns import RunTurn, RunTurns
from retinue.server.turn_events import text_questions


class AgentRequests:
    """The requests of one client."""

    def __init__(self, host: Host, request: Request) -> None:
        self.host, self.request = host, request
        self.turns = RunTurns(host, identity_of(request))

    async def turn(
        self,
        model: str,
        talk: Dialogue,
        tools: tuple[ToolSchema, ...],
        meta: dict[str, str] | None = None,
    ) -> RunTurn:
        """The turn that this conversation asks for."""
        await self.check_model(model)
        if talk.results:
            return await self.bring(await self.turns.caller(talk.results), talk)
        if not talk.task:
            raise ApiProblem(400, "The last message must be the user's.", param="messages")
        words = {dialogues.META: talk.digest, **(meta or {})}
        terms = self.terms(talk.instructions, tools, words)
        earlier = await self._earlier(talk) if talk.answer else ""
        if earlier:
            return await self.turns.go_on(earlier, talk.task, terms)
        key = idempotency_key(self.request)
        return await self.turns.begin(model, talk.whole_task, terms, key)

    async def bring(self, run: str, talk: Dialogue) -> RunTurn:
        """The results of calls to the run that waits for them."""
        if not run:
            raise ApiProblem(
                400,
                "No run waits for these tool results. They may have been sent before, or the run "
                "has ended. Start again from the last message of the user.",
                param="messages",
                code="unknown_tool_call",
            )
        turn = await self.turns.bring(run, talk.results)
        if talk.remark:
            send = SendRequest(run=run, text=talk.remark)
            await carry_out(self.host, send, self.turns.who)
        return turn

    def terms(
        self, instructions: str, tools: tuple[ToolSchema, ...], meta: dict[str, str]
    ) -> RunTerms:
        return RunTerms(instructions=instructions, client_tools=tools, meta=meta)

    async def check_model(self, model: str) -> None:
        """Raises `ApiProblem` for a model that is none of our agents."""
        reply = await carry_out(self.host, DefinitionsRequest(), self.turns.who)
        if model not in [agent.name for agent in reply.agents]:
            raise ApiProblem(
                404,
                f"The model {model[:80]!r} does not exist. Models are the agents here: see "
                "/v1/models.",
                param="model",
                code="model_not_found",
            )

    async def _earlier(self, talk: Dialogue) -> str:
        """The run that has given the last answer of a conversation, "" if it is not known. The same
        words can be the beginning of several: the answer tells them apart."""
        who = self.turns.who
        for line in await self.host.runs_with({dialogues.META: talk.digest_before}, who):
            if talk.answer.endswith((await self._answer(line.id)).strip()):
                return line.id
        return ""

    async def _answer(self, run: str) -> str:
        reply = await self.host.outcome(OutcomeRequest(run=run), self.turns.who)
        if reply.outcome is not None:
            return reply.outcome.text
        return "\n\n".join(q.text for q in await text_questions(self.host, self.turns.who, run))

    async def collected(self, turn: RunTurn, work: Awaitable[Any]) -> Any:
        """What a turn comes to, unless its client leaves before."""
        try:
            return await while_connected(self.request, work)
        except HttpProblem as error:
            if error.status == 408:
                self.turns.client_left(turn.run)
            raise

    def streamed(
        self, turn: RunTurn, events: AsyncIterator[ServerEvent], *, is_detached: bool = False
    ) -> Response:
        """Events for as long as the client listens. Who leaves before the end takes the request
        back, unless it is detached."""
        stream = events if is_detached else self._until_left(turn, events)
        return EventStreamResponse(stream, self.host.left())

    async def _until_left(
        self, turn: RunTurn, events: AsyncIterator[ServerEvent]
    ) -> AsyncIterator[ServerEvent]:
        is_over = False
        try:
            async for event in events:
                yield event
            is_over = True
        finally:
            if not is_over:
                self.turns.client_left(turn.run)


def usage_numbers(usage: Usage) -> tuple[int, int]:
    """Tokens in and out: never less than nothing, whatever was booked meanwhile."""
    return max(0, usage.input), max(0, usage.output)


def estimated_tokens(usage: Usage) -> dict[str, int]:
    """The tokens that no provider has counted, in a field of their own: the others are facts."""
    return {"estimated_tokens": usage.estimated} if usage.estimated > 0 else {}


def runtime_facts(outcome: Outcome | None) -> dict[str, Any]:
    """Facts of the runtime about a result: sub-agents that never returned. They have their own
    field, which no model can write or omit."""
    missing = outcome.missing if outcome is not None else ""
    return {"retinue": {"missing": missing}} if missing else {}


Handler = Callable[[Host, Request], Awaitable[Response]]


def guarded(host: Host, name: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose errors have the shape that its clients read; counted like every request."""

    async def answer(request: Request) -> Response:
        who = None
        try:
            who = identity_of(request)
            await host.wake_clients()
            response = await handler(host, request)
        except asyncio.CancelledError:
            raise
        except NotFound as error:
            response = error_response(ApiProblem(404, str(error), code="not_found"))
        except (RetinueError, HttpProblem, OSError) as error:
            response = error_response(error)
        host.counters[who.user if who else "", name, response.status_code] += 1
        return response

    return answer


async def body_of(request: Request) -> dict[str, Any]:
    return await json_body(request)


def json_response(value: Any) -> Response:
    return Response(
        msgspec.json.encode(value), 200, {"cache-control": "no-store"}, "application/json"
    )
