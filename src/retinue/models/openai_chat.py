"""Chat Completions, as OpenAI speaks it and as the many servers that copied it do.

What a server wants differently is a field of `OpenAIChatCodec`; what it merely sends oddly, the one
decoder reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from retinue.core.ids import digest
from retinue.core.messages import Assistant, Call, Image, Message, Reply, Result, User
from retinue.core.values import ToolSchema, Usage
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.formats.safe_text import clean
from retinue.formats.sse import SseParser
from retinue.models.codec import Options, arguments, count, keep_opaque, opaque_for
from retinue.models.openai_chat_errors import as_a as _as
from retinue.models.openai_chat_errors import as_json as _json
from retinue.models.openai_chat_errors import failure
from retinue.models.openai_chat_reply import plain_reply
from retinue.models.tool_limit import OPENAI
from retinue.models.usage_checks import grown

MAX_BODY = 64 << 20
NOTHING_SAID = "(empty reply)"
FILTERED = "[The provider's content filter stopped the reply.]"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(kw_only=True, slots=True, eq=False)
class OpenAIChatCodec:
    """The codec. The defaults are OpenAI's. `Options.thinking_tokens` and cache marks have no
    counterpart here."""

    limit_field: str = "max_completion_tokens"  # most other servers know only `max_tokens`
    system_role: str = "system"
    stream_options: bool = True  # whether it may be sent, which asks for the usage of a stream
    cache_key: bool = (
        True  # whether `prompt_cache_key` may be sent: many servers refuse what they do not know
    )
    strict_ids: bool = (
        False  # ids of nine letters and digits, for Mistral; OpenAI takes up to 40 characters
    )
    strict_schema: bool = (
        False  # hold output to its schema to the letter; OpenAI then takes few schemas
    )
    done_marker: bool = (
        True  # a stream without `[DONE]` was cut; if False, a finish reason is enough
    )
    auth: Literal["bearer", "api-key"] = "bearer"
    endpoint: str = (
        "/chat/completions"  # below the base URL; `{model}` is filled in, for deployments of Azure
    )
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
        wanted = {"name": "output", "schema": options.output_schema, "strict": self.strict_schema}
        asked = {
            "model": model,
            "stream": options.stream or None,
            "stream_options": {"include_usage": True}
            if options.stream and self.stream_options
            else None,
            "temperature": options.temperature,
            "reasoning_effort": options.effort or None,
            "prompt_cache_key": (self.cache_key and options.cache_key) or None,
            "response_format": None
            if wanted["schema"] is None
            else {"type": "json_schema", "json_schema": wanted},
            "tools": [{"type": "function", "function": tool} for tool in tools] or None,
        }
        body = {name: value for name, value in asked.items() if value is not None}
        ours = ("messages", "stream", self.limit_field)
        body.update((name, value) for name, value in options.extra.items() if name not in ours)
        system = (
            _json({"role": self.system_role, "content": instructions}) + b","
            if instructions
            else b""
        )
        return _json(body)[:-1] + b',"messages":[' + system

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        if not self.bridge and not self.reasoning:
            try:
                return _encode([self._plain(message) for message in messages])[1:-1]
            except (_NotPlain, UnicodeEncodeError):
                pass
        out: list[bytes] = []
        pictures: list[dict[str, Any]] = []
        for message in messages:
            match message:
                case User():
                    out += self._user(message.text, [_picture(image) for image in message.images])
                case Assistant():
                    out.append(self._assistant(message))
                case Result(call_id=call, text=text):
                    out.append(
                        _json({"role": "tool", "tool_call_id": self._id(call), "content": text})
                    )
                    if message.images:
                        of = (
                            f"Images in the result of {message.name or 'the call'} "
                            f"({self._id(call)}):"
                        )
                        pictures += [{"type": "text", "text": of}, *map(_picture, message.images)]
        # A tool's message takes text only, and nothing may stand between the results of one reply.
        return b",".join(out + self._user("", pictures) if pictures else out)

    def _plain(self, message: Message) -> dict[str, Any]:
        """A message that has neither pictures nor thoughts: nearly all, so that they are written at
        one go."""
        if isinstance(message, Assistant):
            return self._said(message)
        if message.images:
            raise _NotPlain
        if isinstance(message, User):
            return {"role": "user", "content": message.text}
        return {"role": "tool", "tool_call_id": self._id(message.call_id), "content": message.text}

    def unsealed(self, message: Assistant) -> Assistant:
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

    def decoder(self, options: Options) -> _Decoder:
        return _Decoder(self)

    def whole(self, body: bytes) -> Reply | None:
        return plain_reply(body)

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        try:
            value = _load(body[: 1 << 20])
        except ValueError:
            value = body[: 1 << 16].decode("utf-8", "replace")
        return failure(status, value, headers)

    def _user(self, text: str, pictures: list[dict[str, Any]]) -> list[bytes]:
        parts = [{"type": "text", "text": text}, *pictures] if text else pictures
        message = _json({"role": "user", "content": parts if pictures else text})
        return (
            [_json({"role": "assistant", "content": self.bridge}), message]
            if self.bridge
            else [message]
        )

    def _said(self, message: Assistant) -> dict[str, Any]:
        if not message.calls:
            return {"role": "assistant", "content": message.text or NOTHING_SAID}
        calls = [
            {
                "id": self._id(call.id),
                "type": "function",
                "function": {"name": _function_name(call.name), "arguments": _object(call.args)},
            }
            for call in message.calls
        ]
        return {"role": "assistant", "content": message.text or None, "tool_calls": calls}

    def _assistant(self, message: Assistant) -> bytes:
        said = self._said(message)
        kept = opaque_for(self.dialect, message)
        if self.reasoning and kept.startswith(f'{{"{self.reasoning}":'):
            return _json(said)[:-1] + b"," + clean(kept[1:]).encode()
        if self.reasoning == "reasoning_content" and message.calls:
            said["reasoning_content"] = (
                ""  # DeepSeek refuses calls without it, also those of another model
            )
        return _json(said)

    def _id(self, call: str) -> str:
        if self.strict_ids:
            return call if re.fullmatch("[A-Za-z0-9]{9}", call) else digest(call)[:9]
        return call if 0 < len(call) <= 40 else f"call_{digest(call)}"


def _load(data: bytes) -> Any:
    """JSON, or `ValueError`. Lone surrogates and broken UTF-8 come through, to be cleaned with the
    text."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        try:
            return json.loads(data.decode("utf-8-sig", "replace"))
        except RecursionError:
            raise ValueError("nested too deep") from None


class _NotPlain(Exception):
    """A message takes more than one look."""


@lru_cache(1_024)
def _function_name(name: str) -> str:
    """A model may call what is not a name; OpenAI refuses a history with such a call in it."""
    return re.sub("[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def _is_object(text: str) -> bool:
    with suppress(ValueError, RecursionError):
        return _decode_object(text) is not None
    return False


def _object(args: str) -> str:
    """Arguments as they were written, if they are an object: servers that parse them refuse
    anything else."""
    return args if _is_object(args) else _json(arguments(args)).decode()


def _picture(image: Image) -> dict[str, Any]:
    return {
        "type": "image_url",
        "image_url": {"url": f"data:{image.media_type};base64,{image.data}"},
    }


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


@dataclass(slots=True)
class _Open:
    """A call on its way in."""

    id: str = ""
    name: str = ""
    args: list[str] = field(default_factory=list)

    def is_left(self, call_id: str, name: str, args: str, *, numbered: bool) -> bool:
        """Whether a delta in the place of this call begins another: some servers give each call the
        number 0, or no number, and some repeat the name in each delta."""
        if not name or not self.name:
            return False
        if call_id and self.id:
            return call_id != self.id
        if name != self.name:
            return bool(self.args) or not numbered
        is_seam = args.lstrip()[:1] == "{" and "".join(self.args[-1:]).rstrip()[-1:] == "}"
        return (
            is_seam and len(self.args) < 100 and _is_object("".join(self.args))
        )  # a bound on the work

    def take(self, call_id: str, name: str, args: str) -> None:
        self.id = self.id or call_id
        if not self.args and name:
            self.name = name if name.startswith(self.name) else self.name + name
        if args:
            self.args.append(args)


_BROKEN = {
    "error": "server_error",
    "abort": "server_error",
    "insufficient_system_resource": "overloaded",
}


class _Decoder:
    """One reply, from a stream or from a single JSON body: which of them it is, its first byte
    tells."""

    def __init__(self, codec: OpenAIChatCodec) -> None:
        self.contents = self._size = 0
        self.done = False
        self._codec = codec
        self._events: SseParser | None = None
        self._body: bytearray | None = None
        self._is_answer = self._is_refused = False
        self._model = self._reason = ""
        self._usage = Usage()
        self._text: list[str] = []
        self._calls: list[_Open] = []
        self._places: dict[int | str, _Open] = {}
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []

    def feed(self, data: bytes) -> list[str]:
        self._size += len(data)
        if self._size > MAX_BODY:
            raise ModelRejected(
                "the provider sent a reply of more than 64 MiB", kind="response_too_large"
            )
        if self._events is None and self._body is None:
            data = data.lstrip(b"\xef\xbb\xbf \t\r\n")
            if data[:1] in (b"{", b"["):
                self._body = bytearray()
            elif data:
                self._events = SseParser()
        if self._body is not None:
            self._body += data
            self.contents += bool(data.strip())
        if self._events is None or self.done:
            return []
        try:
            return [piece for event in self._events.feed(data) for piece in self._event(*event)]
        except ValueError:
            raise ModelUnavailable(
                "the provider sent an event that is not JSON", kind="server_error"
            ) from None

    def finish(self) -> Reply:
        if self._body is not None and (plain := plain_reply(bytes(self._body))) is not None:
            self.done = True
            return plain
        with suppress(ValueError):  # what was cut is not JSON, and nothing ends the reply then
            if self._body is not None:
                self._chunk(_load(bytes(self._body)))
                self.done, self._reason = True, self._reason or "stop"
            for event in self._events.rest() if self._events is not None else ():
                self._event(*event)
        is_ended = bool(self._reason) or (self.done and not self._text and not self._calls)
        if not self._is_answer or not is_ended or not (self.done or not self._codec.done_marker):
            raise ModelUnavailable(
                "the connection ended before the reply was complete", kind="network"
            )
        self.done = True
        return self._reply()

    def so_far(self) -> tuple[Usage, int]:
        args = [piece for call in self._calls for piece in call.args]
        return self._usage, sum(map(len, (*self._text, *self._thoughts, *args, self._body or b"")))

    def _event(self, name: str, data: bytes) -> list[str]:
        data = data.strip()
        if self.done or not data:
            return []
        self.done = data.startswith(b"[DONE]")
        chunk = {} if self.done else _load(data)
        if name == "error" and not self.done:
            raise failure(0, chunk)
        return self._chunk(chunk)

    def _chunk(self, chunk: Any) -> list[str]:
        chunk = _as(dict, chunk[0] if isinstance(chunk, list) and chunk else chunk)
        choices = [choice for choice in _dicts(chunk.get("choices")) if not choice.get("index")]
        for told in (chunk, *choices):
            if told.get("error") or told.get("object") == "error":
                raise failure(0, told)
            if used := told.get("usage") or (
                "x_groq" in told and _as(dict, told["x_groq"]).get("usage")
            ):
                self._usage = grown(self._usage, _usage(used))
        self._model = self._model or _as(str, chunk.get("model"))
        self._is_answer = self._is_answer or isinstance(chunk.get("choices"), list)
        return [clean(piece) for choice in choices for piece in self._choice(choice)]

    def _choice(self, choice: dict[str, Any]) -> list[str]:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            # Some servers repeat the whole message at the end of a stream of deltas.
            delta = {} if self._text or self._calls else _as(dict, choice.get("message"))
        content, refusal = delta.get("content"), _as(str, delta.get("refusal"))
        # Mistral sends a list in which thinking stands beside the text.
        parts = (
            [content]
            if isinstance(content, str)
            else [_as(str, part.get("text")) for part in _dicts(content)]
        )
        pieces = [part for part in (*parts, refusal) if part]
        self._text += pieces
        self._is_refused = self._is_refused or bool(refusal)
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._thoughts.append(_as(str, thought))
        details, calls = _dicts(delta.get("reasoning_details")), _dicts(delta.get("tool_calls"))
        self._details += details
        for call in calls:
            self._call(call)
        self.contents += bool(pieces or thought or details or calls)
        self._reason = _as(str, choice.get("finish_reason")) or self._reason
        if self._reason in _BROKEN:
            raise ModelUnavailable(
                f"the provider gave the reply up: {self._reason}", kind=_BROKEN[self._reason]
            )
        return pieces

    def _call(self, delta: dict[str, Any]) -> None:
        function = _as(dict, delta.get("function"))
        call_id, name, args = (
            _as(str, delta.get("id")),
            _as(str, function.get("name")),
            function.get("arguments"),
        )
        if not isinstance(args, str):
            args = "" if args is None else _json(args).decode()
        index = delta.get("index")
        place: int | str = index if isinstance(index, int) else call_id
        call = self._places.get(place) if place != "" else None
        if call is None and self._calls and not isinstance(index, int) and not (call_id and name):
            call = self._calls[-1]
        if call is None or call.is_left(call_id, name, args, numbered=isinstance(index, int)):
            call = _Open()
            self._calls.append(call)
        if place != "":
            self._places[place] = call
        call.take(call_id, name, args)

    def _reply(self) -> Reply:
        stop: Literal["end", "calls", "length", "refusal"] = "calls" if self._calls else "end"
        if self._is_refused or self._reason == "content_filter":
            stop = "refusal"
            self._text += [] if self._is_refused else ["\n\n" * bool(self._text), FILTERED]
        elif self._reason in ("length", "max_tokens", "model_length"):
            stop = "length"
        message = Assistant(
            text=clean("".join(self._text)), calls=_named(self._calls), opaque=self._opaque()
        )
        return Reply(message=message, usage=self._usage, stop=stop, model=clean(self._model))

    def _opaque(self) -> str:
        wanted = self._codec.reasoning
        kept = _merged(self._details) if wanted == "reasoning_details" else "".join(self._thoughts)
        return (
            keep_opaque(self._codec.dialect, _json({wanted: kept}).decode())
            if wanted and kept
            else ""
        )


def _named(calls: list[_Open]) -> tuple[Call, ...]:
    """The calls with ids that are there and differ."""
    out: dict[str, Call] = {}
    for n, call in enumerate(calls):
        call_id, args = clean(call.id), clean("".join(call.args))
        while not call_id or call_id in out:
            call_id, n = f"call_{n}", n + len(calls)
        out[call_id] = Call(id=call_id, name=clean(call.name), args=args if args.strip() else "{}")
    return tuple(out.values())


def _merged(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenRouter cuts the text of a detail into deltas, and wants the whole back."""
    out: list[dict[str, Any]] = []
    for detail in details:
        last = out[-1] if out else {}
        text = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(
            _as(str, detail.get("type"))
        )
        if text and all(detail.get(name) == last.get(name) for name in ("type", "index")):
            told = {name: value for name, value in detail.items() if value is not None}
            out[-1] = {**last, **told, text: _as(str, last.get(text)) + _as(str, detail.get(text))}
        else:
            out.append(detail)
    return out


def _usage(told: Any) -> Usage:
    told = _as(dict, told)
    prompt, details = _count(told, "prompt_tokens"), _as(dict, told.get("prompt_tokens_details"))
    read = (
        _count(details, "cached_tokens")
        or _count(told, "prompt_cache_hit_tokens")
        or _count(told, "cached_tokens")
    )
    # xAI and Gemini leave reasoning out of `completion_tokens`; only the total has it.
    output = max(
        _count(told, "completion_tokens"), _count(told, "total_tokens") - prompt if prompt else 0
    )
    return Usage(
        input=prompt,
        output=output,
        cache_read=read,
        cache_write=_count(details, "cache_write_tokens"),
    )


def _count(told: dict[str, Any], name: str) -> int:
    return count(told.get(name))


# The first that fits the status and the body in lower case. Status 0 is an error inside a stream
# that gives none.
