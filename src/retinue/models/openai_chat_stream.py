"""Reads a reply of Chat Completions, from a stream or from one body."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from retinue.core.messages import AssistantMessage, ModelReply
from retinue.core.values import Usage
from retinue.errors import ModelRejected, ModelUnavailable
from retinue.formats.safe_text import clean
from retinue.formats.sse import SseParser
from retinue.models.codec import count, keep_opaque
from retinue.models.openai_chat_calls import CallDraft, named_calls
from retinue.models.openai_chat_errors import failure
from retinue.models.openai_chat_json import as_a, as_json, load_json
from retinue.models.openai_chat_reply import plain_reply
from retinue.models.reply_body import event_parser
from retinue.models.usage_checks import never_smaller

if TYPE_CHECKING:
    from retinue.models.openai_chat import OpenAIChatCodec

MAX_BODY = 64 << 20
FILTERED = "[The provider's content filter stopped the reply.]"


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_BROKEN = {
    "error": "server_error",
    "abort": "server_error",
    "insufficient_system_resource": "overloaded",
}


class OpenAIChatDecoder:
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
        self._calls: list[CallDraft] = []
        self._places: dict[int | str, CallDraft] = {}
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
                self._events = event_parser()
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

    def finish(self) -> ModelReply:
        if self._body is not None and (plain := plain_reply(bytes(self._body))) is not None:
            self.done = True
            return plain
        with suppress(ValueError):  # what was cut is not JSON, and nothing ends the reply then
            if self._body is not None:
                self._chunk(load_json(bytes(self._body)))
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
        chunk = {} if self.done else load_json(data)
        if name == "error" and not self.done:
            raise failure(0, chunk)
        return self._chunk(chunk)

    def _chunk(self, chunk: Any) -> list[str]:
        chunk = as_a(dict, chunk[0] if isinstance(chunk, list) and chunk else chunk)
        choices = [choice for choice in _dicts(chunk.get("choices")) if not choice.get("index")]
        for part in (chunk, *choices):
            if part.get("error") or part.get("object") == "error":
                raise failure(0, part)
            if used := part.get("usage") or (
                "x_groq" in part and as_a(dict, part["x_groq"]).get("usage")
            ):
                self._usage = never_smaller(self._usage, _usage(used))
        self._model = self._model or as_a(str, chunk.get("model"))
        self._is_answer = self._is_answer or isinstance(chunk.get("choices"), list)
        return [clean(piece) for choice in choices for piece in self._choice(choice)]

    def _choice(self, choice: dict[str, Any]) -> list[str]:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            # Some servers repeat the whole message at the end of a stream of deltas.
            delta = {} if self._text or self._calls else as_a(dict, choice.get("message"))
        content, refusal = delta.get("content"), as_a(str, delta.get("refusal"))
        # Mistral sends a list in which thinking is next to the text.
        parts = (
            [content]
            if isinstance(content, str)
            else [as_a(str, part.get("text")) for part in _dicts(content)]
        )
        pieces = [part for part in (*parts, refusal) if part]
        self._text += pieces
        self._is_refused = self._is_refused or bool(refusal)
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
            self._thoughts.append(as_a(str, reasoning))
        details, calls = _dicts(delta.get("reasoning_details")), _dicts(delta.get("tool_calls"))
        self._details += details
        for call in calls:
            self._call(call)
        self.contents += bool(pieces or reasoning or details or calls)
        self._reason = as_a(str, choice.get("finish_reason")) or self._reason
        if self._reason in _BROKEN:
            raise ModelUnavailable(
                f"the provider stopped the reply: {self._reason}", kind=_BROKEN[self._reason]
            )
        return pieces

    def _call(self, delta: dict[str, Any]) -> None:
        function = as_a(dict, delta.get("function"))
        call_id, name, args = (
            as_a(str, delta.get("id")),
            as_a(str, function.get("name")),
            function.get("arguments"),
        )
        if not isinstance(args, str):
            args = "" if args is None else as_json(args).decode()
        index = delta.get("index")
        place: int | str = index if isinstance(index, int) else call_id
        call = self._places.get(place) if place != "" else None
        if call is None and self._calls and not isinstance(index, int) and not (call_id and name):
            call = self._calls[-1]
        if call is None or call.is_left(call_id, name, args, numbered=isinstance(index, int)):
            call = CallDraft()
            self._calls.append(call)
        if place != "":
            self._places[place] = call
        call.take(call_id, name, args)

    def _reply(self) -> ModelReply:
        stop: Literal["end", "calls", "length", "refusal"] = "calls" if self._calls else "end"
        if self._is_refused or self._reason == "content_filter":
            stop = "refusal"
            self._text += [] if self._is_refused else ["\n\n" * bool(self._text), FILTERED]
        elif self._reason in ("length", "max_tokens", "model_length"):
            stop = "length"
        message = AssistantMessage(
            text=clean("".join(self._text)), calls=named_calls(self._calls), opaque=self._opaque()
        )
        return ModelReply(message=message, usage=self._usage, stop=stop, model=clean(self._model))

    def _opaque(self) -> str:
        field = self._codec.reasoning
        thoughts = (
            _merged(self._details) if field == "reasoning_details" else "".join(self._thoughts)
        )
        return (
            keep_opaque(self._codec.dialect, as_json({field: thoughts}).decode())
            if field and thoughts
            else ""
        )


def _merged(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """OpenRouter cuts the text of a detail into deltas, and wants the whole back."""
    out: list[dict[str, Any]] = []
    for detail in details:
        last = out[-1] if out else {}
        text = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(
            as_a(str, detail.get("type"))
        )
        if text and all(detail.get(name) == last.get(name) for name in ("type", "index")):
            fields = {name: value for name, value in detail.items() if value is not None}
            out[-1] = {
                **last,
                **fields,
                text: as_a(str, last.get(text)) + as_a(str, detail.get(text)),
            }
        else:
            out.append(detail)
    return out


def _usage(usage: Any) -> Usage:
    usage = as_a(dict, usage)
    prompt, details = _count(usage, "prompt_tokens"), as_a(dict, usage.get("prompt_tokens_details"))
    read = (
        _count(details, "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")
        or _count(usage, "cached_tokens")
    )
    # xAI and Gemini leave reasoning out of `completion_tokens`; only the total has it.
    output = max(
        _count(usage, "completion_tokens"), _count(usage, "total_tokens") - prompt if prompt else 0
    )
    return Usage(
        input=prompt,
        output=output,
        cache_read=read,
        cache_write=_count(details, "cache_write_tokens"),
    )


def _count(counts: dict[str, Any], name: str) -> int:
    return count(counts.get(name))
