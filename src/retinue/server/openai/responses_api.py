"""`/v1/responses`: a response is a part of a run. One continues another by its id, in the
background it continues without its client, and all of them can be read again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from retinue.host.app import identity_of
from retinue.host.event_response import EventStreamResponse
from retinue.host.host import Host
from retinue.server.openai.agent_requests import AgentRequests, body_of, json_response
from retinue.server.openai.api_errors import ApiProblem
from retinue.server.openai.chat_requests import read_request, response_tools
from retinue.server.openai.dialogue import Dialogue, read_dialogue
from retinue.server.openai.response_objects import AskedResponse
from retinue.server.openai.response_requests import ResponseRequest, check_response, messages_of
from retinue.server.openai.response_stream import ResponseStream, numbered, replay
from retinue.server.openai.stored_responses import StoredResponses
from retinue.server.run_turns import RunTurn, RunTurns
from retinue.server.turn_events import TurnEvent


async def create_response(host: Host, request: Request) -> Response:
    body = read_request(await body_of(request), ResponseRequest)
    check_response(body)
    client = AgentRequests(host, request)
    stored = StoredResponses(client.turns)
    talk = read_dialogue(messages_of(body))
    turn = await _turn(client, stored, body, talk)
    is_detached = bool(body.background)
    if body.stream:
        stream = ResponseStream(client.turns, stored, turn, in_pieces=not is_detached)
        events = numbered(stream.events())
        return client.streamed(turn, events, is_detached=is_detached)
    if not is_detached:
        await client.collected(turn, _end_of(client.turns, turn))
    usage = None if is_detached else await client.turns.used_in(turn)
    return json_response(await stored.read(turn, usage))


async def _turn(
    client: AgentRequests, stored: StoredResponses, body: ResponseRequest, talk: Dialogue
) -> RunTurn:
    tools, previous = response_tools(body.tools), body.previous_response_id or ""
    want = AskedResponse(
        previous=previous,
        background=bool(body.background),
        instructions=body.instructions,
        metadata=body.metadata or {},
    )
    if not previous:
        return await client.turn(body.model, talk, tools, want.meta)
    before = await stored.find(previous, "previous_response_id")
    label = (await stored.read(before))["model"]
    if body.model not in ("", label):
        raise ApiProblem(
            400,
            f"Response {previous} is one of the agent {label!r}, which continues it. To ask "
            "another agent, start without previous_response_id.",
            param="model",
        )
    if talk.results:
        run = await client.turns.caller(talk.results)
        return await client.bring(run if run == before.run else "", talk)
    if not talk.task:
        raise ApiProblem(400, "The input has nothing that the user says.", param="input")
    return await client.turns.go_on(
        before.run, talk.task, client.terms(talk.instructions, tools, want.meta)
    )


async def _end_of(turns: RunTurns, turn: RunTurn) -> TurnEvent | None:
    """The last thing that happens in a turn."""
    last = None
    async for event in turns.follow(turn).events():
        last = event
    return last


async def one_response(host: Host, request: Request) -> Response:
    """`GET /v1/responses/{id}`, as it is now or, of one in the background, as a stream from any
    event on."""
    identity_of(request).need("read", "This request")
    turns = RunTurns(host, identity_of(request), scope="read")
    stored = StoredResponses(turns)
    turn = await stored.find(request.path_params["response_id"])
    if request.query_params.get("stream", "").lower() != "true":
        return json_response(await stored.read(turn))
    if not (await stored.terms(turn)).background:
        raise ApiProblem(400, "Only a response in the background can be streamed again.")
    after = request.query_params.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal() or len(after) > 9:
        raise ApiProblem(400, "starting_after is not a sequence number.", param="starting_after")
    events = numbered(_again(turns, stored, turn), after=int(after))
    return EventStreamResponse(events, host.left())


async def _again(
    turns: RunTurns, stored: StoredResponses, turn: RunTurn
) -> AsyncIterator[dict[str, Any]]:
    now = await stored.read(turn)
    if now["status"] != "in_progress":
        for event in replay(now):
            yield event
        return
    async for event in ResponseStream(turns, stored, turn, in_pieces=False).events():
        yield event


async def cancel_response(host: Host, request: Request) -> Response:
    """`POST /v1/responses/{id}/cancel`. One that is over stays as it is."""
    await body_of(request)
    turns = RunTurns(host, identity_of(request))
    stored = StoredResponses(turns)
    turn = await stored.find(request.path_params["response_id"])
    if not (await stored.terms(turn)).background:
        raise ApiProblem(400, "Only a response in the background can be cancelled.")
    if (await stored.read(turn))["status"] == "in_progress":
        await turns.cancel(turn.run, "cancelled by the client")
    return json_response(await stored.read(turn))
