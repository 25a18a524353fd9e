"""`POST /v1/chat/completions`: takes a conversation and returns an agent's answer, whole or as a
stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from retinue.core.values import Usage
from retinue.errors import RetinueError
from retinue.host.event_response import EventStreamResponse
from retinue.host.host import Host
from retinue.host.server_events import DataEvent
from retinue.open_questions import OpenQuestion
from retinue.outcomes import Outcome
from retinue.server.openai.agent_requests import (
    AgentRequests,
    body_of,
    estimated_tokens,
    json_response,
    runtime_facts,
    usage_numbers,
)
from retinue.server.openai.api_errors import ApiProblem, error_body
from retinue.server.openai.chat_requests import (
    ChatRequest,
    chat_tools,
    check_chat,
    read_request,
    text_of,
)
from retinue.server.openai.client_calls import CallsWaiting
from retinue.server.openai.dialogue import read_dialogue
from retinue.server.openai.utility_answers import UtilityAnswer, utility_answer
from retinue.server.run_turns import RunTurn
from retinue.server.turn_events import MessageDone, TurnEnded, TurnParked, TurnText

BREAK = "\n\n"
"""Between what an agent says in one turn of its model and in the next."""


async def chat_completions(host: Host, request: Request) -> Response:
    body = read_request(await body_of(request), ChatRequest)
    client = AgentRequests(host, request)
    texts = [text_of(m.content) for m in body.messages if m.role in ("user", "system")]
    utility = utility_answer(texts)
    if utility is not None:
        return _utility(host, body, utility)
    check_chat(body)
    talk = read_dialogue(body.messages)
    turn = await client.turn(body.model, talk, chat_tools(body.tools))
    chat = ChatAnswer(client, turn, body.model)
    if body.stream:
        options = body.stream_options
        is_counted = bool(options is not None and options.include_usage)
        return client.streamed(turn, chat.chunks(is_counted))
    return json_response(await client.collected(turn, chat.whole()))


class ChatAnswer:
    """The answer of one turn."""

    def __init__(self, client: AgentRequests, turn: RunTurn, model: str) -> None:
        self._client, self._turn, self._model = client, turn, model
        self._shape = ChatShape(f"chatcmpl-{turn.run}-{turn.start}", model)

    async def whole(self) -> dict[str, Any]:
        """The final answer; what the agent has said on its way is in the stream only."""
        content, calls, finish = "", list[dict[str, Any]](), "stop"
        outcome: Outcome | None = None
        async for event in self._client.turns.follow(self._turn).events():
            if isinstance(event, MessageDone):
                content = event.message.text
            elif isinstance(event, TurnParked):
                waiting = await self._waiting(event.questions)
                calls = waiting.chat_calls()
                content = BREAK.join(filter(None, [content, *waiting.words]))
                finish = "tool_calls" if calls else "stop"
            elif isinstance(event, TurnEnded):
                outcome = event.outcome
                content, finish = _ended(outcome)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if calls:
            message |= {"content": content or None, "tool_calls": calls}
        usage = await self._client.turns.used_in(self._turn)
        return self._shape.completion(message, finish, usage) | runtime_facts(outcome)

    async def chunks(self, is_counted: bool) -> AsyncIterator[Any]:
        try:
            async for chunk in self._deltas():
                yield DataEvent(chunk)
            if is_counted:
                usage = await self._client.turns.used_in(self._turn)
                yield DataEvent(self._shape.usage_chunk(usage))
        except (RetinueError, ApiProblem) as error:
            yield DataEvent({"error": error_body(error)[1]["error"]})
        yield DataEvent(None)

    async def _deltas(self) -> AsyncIterator[dict[str, Any]]:
        shape, text_sent, is_new = self._shape, "", False
        yield shape.chunk({"role": "assistant", "content": ""})
        async for event in self._client.turns.follow(self._turn, in_pieces=True).events():
            if isinstance(event, TurnText):
                text = BREAK + event.text if text_sent and is_new else event.text
                text_sent, is_new = text_sent + text, False
                yield shape.chunk({"content": text})
            elif isinstance(event, MessageDone):
                is_new = True
            elif isinstance(event, TurnParked):
                waiting = await self._waiting(event.questions)
                for words in waiting.words:
                    yield shape.chunk({"content": BREAK + words if text_sent else words})
                calls = waiting.chat_calls()
                for index, call in enumerate(calls):
                    yield shape.chunk({"tool_calls": [{"index": index, **call}]})
                yield shape.chunk({}, "tool_calls" if calls else "stop")
            else:
                text, finish = _ended(event.outcome)
                if text and not text_sent.endswith(text):
                    yield shape.chunk({"content": BREAK + text if text_sent else text})
                yield shape.chunk({}, finish) | runtime_facts(event.outcome)

    async def _waiting(self, questions: Sequence[OpenQuestion]) -> CallsWaiting:
        return CallsWaiting(await self._client.host.row(self._turn.run), questions)


class ChatShape:
    """The objects of the chat API, all of one answer."""

    def __init__(self, id: str, model: str) -> None:
        self._id, self._model, self._at = id, model, int(time.time())

    def completion(self, message: dict[str, Any], finish: str, usage: Usage) -> dict[str, Any]:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._object("chat.completion", [choice], chat_usage(usage))

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._object("chat.completion.chunk", [choice], None)

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        return self._object("chat.completion.chunk", [], chat_usage(usage))

    def _object(self, kind: str, choices: list[Any], usage: Any) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._at,
            "model": self._model,
            "choices": choices,
            "usage": usage,
        }


def chat_usage(usage: Usage) -> dict[str, Any]:
    n_in, n_out = usage_numbers(usage)
    return {
        "prompt_tokens": n_in,
        "completion_tokens": n_out,
        "total_tokens": n_in + n_out,
        "prompt_tokens_details": {"cached_tokens": max(0, usage.cache_read)},
        **estimated_tokens(usage),
    }


def _ended(outcome: Outcome) -> tuple[str, str]:
    """The text of a run that has ended, and why it stops there. Raises `ApiProblem` for one that
    has come to nothing."""
    if outcome.state == "completed":
        return outcome.text, "stop"
    if outcome.state == "incomplete":
        return outcome.text, "length"
    why = outcome.error or outcome.stop
    status = 409 if outcome.state == "cancelled" else 502
    raise ApiProblem(
        status,
        f"Run {outcome.id} ended as {outcome.state}: {why.rstrip('.')}. What it has done is kept.",
        code=outcome.state,
    )


def _utility(host: Host, body: ChatRequest, answer: UtilityAnswer) -> Response:
    shape = ChatShape("chatcmpl-utility", body.model)
    text = msgspec.json.encode(answer.fields).decode()
    tool = (body.tools or [{}])[0].get("function") or {}
    if tool and body.tool_choice not in (None, "none", "auto"):
        function = {"name": tool.get("name", ""), "arguments": text}
        call = {"id": "call_utility", "type": "function", "function": function}
        message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
        delta = {"role": "assistant", "tool_calls": [{"index": 0, **call}]}
        finish = "tool_calls"
    else:
        is_json = answer.is_json or body.response_format is not None
        message = {"role": "assistant", "content": text if is_json else answer.plain}
        delta, finish = message, "stop"
    if not body.stream:
        return json_response(shape.completion({**message, "refusal": None}, finish, Usage()))

    async def chunks() -> AsyncIterator[Any]:
        yield DataEvent(shape.chunk(delta))
        yield DataEvent(shape.chunk({}, finish))
        yield DataEvent(None)

    return EventStreamResponse(chunks(), host.left())
