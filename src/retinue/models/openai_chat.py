"""The codec for Chat Completions, as OpenAI and the many compatible servers speak it.

What a server wants differently is a field of `OpenAIChatCodec`; what it merely sends oddly, the one
decoder reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from retinue.core.ids import digest
from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ModelReply,
    ToolMessage,
    UserMessage,
)
from retinue.core.values import ToolSchema
from retinue.errors import ModelError
from retinue.formats.safe_text import clean
from retinue.models.codec import Options, arguments, opaque_for
from retinue.models.openai_chat_errors import failure
from retinue.models.openai_chat_json import as_json, is_object, load_json
from retinue.models.openai_chat_reply import plain_reply
from retinue.models.openai_chat_stream import OpenAIChatDecoder
from retinue.models.tool_limit import OPENAI

NOTHING_SAID = "(empty reply)"

_encode = msgspec.json.Encoder().encode


@dataclass(kw_only=True, slots=True, eq=False)
class OpenAIChatCodec:
    """The codec. The defaults are OpenAI's. `Options.thinking_tokens` and cache marks have no
    counterpart here."""

    limit_field: str = "max_completion_tokens"  # most other servers know only `max_tokens`
    system_role: str = "system"
    stream_options: bool = True  # whether it may be sent, which asks for the usage of a stream
    # Whether `prompt_cache_key` may be sent: many servers refuse what they do not know.
    cache_key: bool = True
    # Ids of nine letters and digits, for Mistral; OpenAI takes up to 40 characters.
    strict_ids: bool = False
    # Hold output to its schema to the letter; OpenAI then takes few schemas.
    strict_schema: bool = False
    # Hold calls to the schema of a tool that asks for it; other servers may refuse the word.
    strict_tools: bool = True
    # A stream without `[DONE]` was cut; if False, a finish reason is enough.
    done_marker: bool = True
    auth: Literal["bearer", "api-key"] = "bearer"
    # Below the base URL; `{model}` is filled in, for deployments of Azure.
    endpoint: str = "/chat/completions"
    # Said by the assistant before each user message, for servers (Mistral) that refuse one behind a
    # tool's message.
    bridge: str = ""
    # The field in which a server wants its reasoning back with the next request; "" when it does
    # not.
    reasoning: Literal["", "reasoning_content", "reasoning", "reasoning_details"] = ""
    most_tools: int = OPENAI  # 0: as many as there are
    dialect: str = field(default="openai_chat", init=False)

    def head(
        self, model: str, instructions: str, tools: Sequence[ToolSchema], options: Options
    ) -> bytes:
        schema = {"name": "output", "schema": options.output_schema, "strict": self.strict_schema}
        fields = {
            "model": model,
            "stream": options.stream or None,
            "stream_options": {"include_usage": True}
            if options.stream and self.stream_options
            else None,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "stop": list(options.stop) or None,
            "seed": options.seed,
            "reasoning_effort": options.effort or None,
            "prompt_cache_key": (self.cache_key and options.cache_key) or None,
            "response_format": None
            if schema["schema"] is None
            else {"type": "json_schema", "json_schema": schema},
            "tools": [{"type": "function", "function": self._tool(tool)} for tool in tools] or None,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        ours = ("messages", "stream", self.limit_field)
        body.update((name, value) for name, value in options.extra.items() if name not in ours)
        system = (
            as_json({"role": self.system_role, "content": instructions}) + b","
            if instructions
            else b""
        )
        return as_json(body)[:-1] + b',"messages":[' + system

    def _tool(self, tool: ToolSchema) -> ToolSchema:
        return replace(tool, strict=False) if tool.strict and not self.strict_tools else tool

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        if not self.bridge and not self.reasoning:
            try:
                if len(messages) == 1:
                    return _encode(self._plain(messages[0]))
                return _encode([self._plain(message) for message in messages])[1:-1]
            except (_NotPlain, UnicodeEncodeError):
                pass
        out: list[bytes] = []
        pictures: list[dict[str, Any]] = []
        for message in messages:
            match message:
                case UserMessage():
                    out += self._user(message.text, [_picture(image) for image in message.images])
                case AssistantMessage():
                    out.append(self._assistant(message))
                case ToolMessage(call_id=call, text=text):
                    out.append(
                        as_json({"role": "tool", "tool_call_id": self._id(call), "content": text})
                    )
                    if message.images:
                        of = (
                            f"Images in the result of {message.name or 'the call'} "
                            f"({self._id(call)}):"
                        )
                        pictures += [{"type": "text", "text": of}, *map(_picture, message.images)]
        # A tool's message takes text only, and nothing may be between the results of one reply.
        return b",".join(out + self._user("", pictures) if pictures else out)

    def _plain(self, message: Message) -> dict[str, Any]:
        """A message that has neither pictures nor thoughts: nearly all, so that they are written at
        one go."""
        if isinstance(message, AssistantMessage):
            return self._assistant_message(message)
        if message.images:
            raise _NotPlain
        if isinstance(message, UserMessage):
            return {"role": "user", "content": message.text}
        return {"role": "tool", "tool_call_id": self._id(message.call_id), "content": message.text}

    def unsealed(self, message: AssistantMessage) -> AssistantMessage:
        return message

    def tail(self, max_output: int, options: Options | None = None) -> bytes:
        return b'],"%b":%d}' % (self.limit_field.encode(), max_output)

    def path(self, model: str, options: Options) -> str:
        return self.endpoint.replace("{model}", quote(model, safe=""))

    def headers(self, key: str) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
        }
        name, value = (
            ("Authorization", f"Bearer {key}") if self.auth == "bearer" else ("api-key", key)
        )
        return {**headers, name: value} if key else headers

    def decoder(self, options: Options) -> OpenAIChatDecoder:
        return OpenAIChatDecoder(self)

    def whole(self, body: bytes) -> ModelReply | None:
        return plain_reply(body)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        try:
            value = load_json(body[: 1 << 20])
        except ValueError:
            value = body[: 1 << 16].decode("utf-8", "replace")
        return failure(status, value, headers)

    def _user(self, text: str, pictures: list[dict[str, Any]]) -> list[bytes]:
        parts = [{"type": "text", "text": text}, *pictures] if text else pictures
        message = as_json({"role": "user", "content": parts if pictures else text})
        return (
            [as_json({"role": "assistant", "content": self.bridge}), message]
            if self.bridge
            else [message]
        )

    def _assistant_message(self, message: AssistantMessage) -> dict[str, Any]:
        if not message.calls:
            return {"role": "assistant", "content": message.text or NOTHING_SAID}
        calls = [
            {
                "id": self._id(call.id),
                "type": "function",
                "function": {
                    "name": _function_name(call.name),
                    "arguments": _object(call.arguments_json),
                },
            }
            for call in message.calls
        ]
        return {"role": "assistant", "content": message.text or None, "tool_calls": calls}

    def _assistant(self, message: AssistantMessage) -> bytes:
        fields = self._assistant_message(message)
        seal = opaque_for(self.dialect, message)
        if self.reasoning and seal.startswith(f'{{"{self.reasoning}":'):
            return as_json(fields)[:-1] + b"," + clean(seal[1:]).encode()
        if self.reasoning == "reasoning_content" and message.calls:
            # DeepSeek refuses calls without it, also those of another model.
            fields["reasoning_content"] = ""
        return as_json(fields)

    def _id(self, call: str) -> str:
        if self.strict_ids:
            return call if re.fullmatch("[A-Za-z0-9]{9}", call) else digest(call)[:9]
        return call if 0 < len(call) <= 40 else f"call_{digest(call)}"


class _NotPlain(Exception):
    """A message takes more than one look."""


@lru_cache(1_024)
def _function_name(name: str) -> str:
    """A model may call what is not a name; OpenAI refuses a history with such a call in it."""
    return re.sub("[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def _object(args: str) -> str:
    """Arguments as they were written, if they are an object: servers that parse them refuse
    anything else."""
    return args if is_object(args) else as_json(arguments(args)).decode()


def _picture(image: Image) -> dict[str, Any]:
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{image.media_type};base64,{image.data}"},
    }
