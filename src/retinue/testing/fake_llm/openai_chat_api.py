"""OpenAI's chat completions: what they refuse, and how they answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.core.messages import Assistant, Call, Image, Message, Result, User
from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import (
    CREATED,
    Dialect,
    FakeError,
    FakeReply,
    FakeUnit,
    ParsedPrompt,
    Stop,
    StreamEvent,
    pieces,
)
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.openai_shared import (
    empty,
    error,
    function,
    headers,
    image,
    limit,
    missing,
    name_field,
    read_body,
    refuse,
    text_field,
    too_long,
    tool_list,
    unknown_field,
    wrong_type,
    wrong_value,
)
from retinue.testing.fake_llm.strict_checks import Memory, words

FIELDS = words(
    "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
    "max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction "
    "presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention "
    "reasoning_effort response_format safety_identifier seed service_tier stop store stream "
    "stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options"
)
USER_FIELDS = words("role content name")
ASSISTANT_FIELDS = words("role content refusal name tool_calls function_call audio annotations")
RESULT_FIELDS = words("role content tool_call_id name")
ROLES = "'system', 'assistant', 'user', 'function', 'tool', and 'developer'"
MAX_CALL_ID = 40
REASONS = re.compile(r"(o\d|gpt-[5-9])")
"""Models that think refuse `max_tokens`."""
STOPS: Mapping[Stop, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "filter": "content_filter",
}


class OpenAIChatApi:
    """`POST /v1/chat/completions`."""

    dialect: Dialect = "openai_chat"

    def __init__(self) -> None:
        self._memory = Memory()

    def read(self, ask: HttpRequest, model: str) -> ParsedPrompt:
        body = read_body(ask)
        for name in body:
            if name not in FIELDS:
                raise refuse(f"Unrecognized request argument supplied: {name}")
        most = self._limit(body)
        tools = self._memory.tools(body["tools"], _tools) if body.get("tools") is not None else None
        for name in ("tool_choice", "parallel_tool_calls"):
            if tools is None and body.get(name) is not None:
                raise refuse(f"'{name}' is only allowed when 'tools' are specified.", name)
        options = body.get("stream_options")
        if options is not None and not body.get("stream"):
            raise refuse(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                "stream_options",
            )
        talk = _Talk()
        talk.read(body.get("messages"))
        return ParsedPrompt(
            model=body["model"],
            system=talk.system,
            messages=tuple(talk.messages),
            tools=tools.schemas if tools else (),
            units=[tools.unit, *talk.units] if tools else talk.units,
            stream=body.get("stream") or False,
            max_output=most,
            wants_usage=bool((options or {}).get("include_usage")),
        )

    def _limit(self, body: Mapping[str, Any]) -> int | None:
        old, new = limit(body, "max_tokens", 1), limit(body, "max_completion_tokens", 1)
        if old is not None and new is not None:
            text = (
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not "
                "supported."
            )
            raise refuse(text, None, "invalid_parameter_combination")
        if old is not None and REASONS.match(body["model"]):
            text = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead."
            )
            raise refuse(text, "max_tokens", "unsupported_parameter")
        return new if old is None else old

    def headers(self, n: int) -> dict[str, str]:
        return headers(n)

    def error(self, trouble: FakeError, n: int) -> dict[str, Any]:
        return error(trouble, n)

    def body(self, said: FakeReply) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": said.text or None,
            "refusal": said.refusal or None,
        }
        if said.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.args},
                }
                for call in said.calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": STOPS.get(said.stop, "stop"),
        }
        return {**_frame(said, "chat.completion"), "choices": [choice], "usage": _usage(said)}

    def events(self, said: FakeReply, n_deltas: int) -> list[StreamEvent]:
        frame = _frame(said, "chat.completion.chunk")
        if said.wants_usage:
            frame["usage"] = None

        def event(kind: Any, delta: Mapping[str, Any], finish: str | None = None) -> StreamEvent:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return StreamEvent(kind, "", {**frame, "choices": [choice]})

        events = [
            event(
                "start",
                {"role": "assistant", "content": None if said.calls else "", "refusal": None},
            )
        ]
        events += [event("text", {"content": part}) for part in pieces(said.text, n_deltas)]
        events += [event("text", {"refusal": part}) for part in pieces(said.refusal, n_deltas)]
        for index, call in enumerate(said.calls):
            named = {"name": call.name, "arguments": ""}
            first = {"index": index, "id": call.id, "type": "function", "function": named}
            events.append(event("call", {"tool_calls": [first]}))
            for part in pieces(call.args, n_deltas):
                more = {"index": index, "function": {"arguments": part}}
                events.append(event("args", {"tool_calls": [more]}))
        events.append(event("stop", {}, STOPS.get(said.stop, "stop")))
        if said.wants_usage:
            events.append(StreamEvent("stop", "", {**frame, "choices": [], "usage": _usage(said)}))
        events.append(StreamEvent("last", "", "[DONE]"))
        return events


def _frame(said: FakeReply, kind: str) -> dict[str, Any]:
    return {
        "id": said.id,
        "object": kind,
        "created": CREATED,
        "model": said.model,
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }


def _usage(said: FakeReply) -> dict[str, Any]:
    usage = said.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": len(said.thinking) // 4,
            "audio_tokens": 0,
        },
    }


def _tools(value: Any) -> tuple[ToolSchema, ...]:
    schemas = []
    for n, tool in enumerate(tool_list(value)):
        if tool["type"] == "custom":
            continue
        if tool["type"] != "function":
            raise wrong_value(f"tools[{n}].type", tool["type"], "'function' and 'custom'")
        if not isinstance(tool.get("function"), dict):
            raise missing(f"tools[{n}].function")
        unknown_field(tool, words("type function"), f"tools[{n}]")
        unknown_field(
            tool["function"], words("name description parameters strict"), f"tools[{n}].function"
        )
        schemas.append(function(tool["function"], f"tools[{n}].function"))
    return tuple(schemas)


class _Talk:
    """The conversation, message by message: results stand right behind the message that called."""

    def __init__(self) -> None:
        self.system = ""
        self.messages: list[Message] = []
        self.units: list[FakeUnit] = []
        self._names: dict[str, str] = {}
        self._open: list[str] = []
        self._is_called = False

    def read(self, value: Any) -> None:
        if value is None:
            raise missing("messages")
        if not isinstance(value, list):
            raise wrong_type("messages", "an array of objects", value)
        if not value:
            raise empty("messages")
        for n, message in enumerate(value):
            if not isinstance(message, dict):
                raise wrong_type(f"messages[{n}]", "an object", message)
            if "role" not in message:
                raise missing(f"messages[{n}].role")
            self._message(n, message)
        self._settle(len(value))

    def _message(self, n: int, message: Mapping[str, Any]) -> None:
        role, at = message["role"], f"messages[{n}]"
        if role not in ("system", "assistant", "user", "function", "tool", "developer"):
            raise wrong_value(f"{at}.role", role, ROLES)
        if role == "tool":
            return self._result(n, message)
        self._settle(n)
        self._is_called = False
        if role == "assistant":
            return self._assistant(at, message)
        unknown_field(message, USER_FIELDS, at)
        text, images = _content(message.get("content"), f"{at}.content", role == "user")
        if role == "user":
            self.messages.append(User(text=text, images=tuple(images)))
        else:
            self.system = f"{self.system}\n\n{text}" if self.system else text
        size = len(text) + sum(len(image.data) for image in images)
        self.units.append(FakeUnit((role, text, tuple(images)), size))
        return None

    def _assistant(self, at: str, message: Mapping[str, Any]) -> None:
        unknown_field(message, ASSISTANT_FIELDS, at)
        calls = message.get("tool_calls")
        if calls is not None:
            if not isinstance(calls, list):
                raise wrong_type(f"{at}.tool_calls", "an array of objects", calls)
            if not calls:
                raise empty(f"{at}.tool_calls")
        content = message.get("content")
        if content is None and not calls and message.get("refusal") is None:
            raise refuse(
                "Invalid value for 'content': expected a string, got null.", f"{at}.content"
            )
        text = _content(content, f"{at}.content", False)[0] if content is not None else ""
        read = tuple(
            self._call(f"{at}.tool_calls[{i}]", call) for i, call in enumerate(calls or ())
        )
        said = Assistant(text=text, calls=read)
        self._is_called = bool(read)
        self.messages.append(said)
        self.units.append(
            FakeUnit(said, len(text) + sum(len(c.name) + len(c.args) for c in read), 1 + len(read))
        )

    def _call(self, at: str, call: Any) -> Call:
        if not isinstance(call, dict):
            raise wrong_type(at, "an object", call)
        call_id = too_long(text_field(call.get("id"), f"{at}.id"), MAX_CALL_ID, f"{at}.id")
        if call.get("type") != "function":
            raise wrong_value(f"{at}.type", call.get("type"), "'function' and 'custom'")
        named = call.get("function")
        if not isinstance(named, dict):
            raise missing(f"{at}.function")
        name = name_field(named.get("name"), f"{at}.function.name")
        args = text_field(named.get("arguments"), f"{at}.function.arguments")
        if not call_id or call_id in self._open:
            raise refuse(f"Duplicate value for 'tool_call_id' of '{call_id}' in {at}.", f"{at}.id")
        self._names[call_id] = name
        self._open.append(call_id)
        return Call(id=call_id, name=name, args=args)

    def _result(self, n: int, message: Mapping[str, Any]) -> None:
        at = f"messages[{n}]"
        unknown_field(message, RESULT_FIELDS, at)
        call_id = text_field(message.get("tool_call_id"), f"{at}.tool_call_id")
        text, _ = _content(message.get("content"), f"{at}.content", False)
        if not self._is_called:
            raise refuse(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
                "message with 'tool_calls'.",
                f"messages.[{n}].role",
            )
        if call_id not in self._open:
            raise refuse(
                f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of "
                "previous message.",
                f"messages.[{n}].tool_call_id",
            )
        self._open.remove(call_id)
        result = Result(call_id=call_id, text=text, name=self._names[call_id])
        self.messages.append(result)
        self.units.append(FakeUnit(result, len(text)))

    def _settle(self, n: int) -> None:
        if self._open:
            raise refuse(
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                f"response messages: {', '.join(self._open)}",
                f"messages.[{n}].role",
            )


def _content(value: Any, param: str, takes_images: bool) -> tuple[str, list[Image]]:
    if isinstance(value, str):
        return value, []
    if value is None:
        raise refuse("Invalid value for 'content': expected a string, got null.", param)
    if not isinstance(value, list):
        raise wrong_type(param, "one of a string or array of objects", value)
    if not value:
        raise empty(param)
    texts, images = [], []
    for n, part in enumerate(value):
        at = f"{param}[{n}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(text_field(part.get("text"), f"{at}.text"))
        elif kind == "image_url" and takes_images:
            images.append(image((part.get("image_url") or {}).get("url"), f"{at}.image_url.url"))
        elif kind != "refusal" and not (takes_images and kind in ("input_audio", "file")):
            raise wrong_value(
                f"{at}.type",
                kind,
                "'text', 'image_url', 'input_audio', 'refusal', 'audio', and 'file'",
            )
    return "\n\n".join(texts), images
