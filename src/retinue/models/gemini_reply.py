"""Reads a reply of Gemini, from a stream or from one body."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import Usage
from retinue.errors import ModelRejected, ModelUnavailable
from retinue.models.codec import count, encode_json, keep_opaque
from retinue.models.gemini_chunk import parse_chunk
from retinue.models.gemini_errors import error_in, failure_of
from retinue.models.gemini_parts import (
    BROKEN,
    DIALECT,
    NAME,
    FunctionCall,
    Part,
    function_call,
    read_part,
)
from retinue.models.provider_errors import worded
from retinue.models.reply_body import event_parser

MAX_BODY = 64 << 20


# A part with one of these has to go back as it came.
KEPT = {
    "thoughtSignature",
    "executableCode",
    "codeExecutionResult",
    "inlineData",
    "toolCall",
    "toolResponse",
}

UNSET = (None, "", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED")
CUT = {"MAX_TOKENS", "CONTINUATION"}
# The model wrote a call that cannot be read: there is no reply, and the machine asks again.
VOID = {
    "MALFORMED_FUNCTION_CALL",
    "MALFORMED_RESPONSE",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
}
REFUSED = {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"}
REFUSED |= {"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"}


class GeminiDecoder:
    """Each event of the stream is a whole response object with the parts that are new; the last one
    has a reason."""

    def __init__(self, *, stream: bool) -> None:
        self.contents = 0
        self.done = False
        self._events = event_parser() if stream else None
        self._body = bytearray()
        self._size = self._n_chunks = 0
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._seen: set[tuple[str, str, str]] = set()
        self._kept: list[int | Part | None] = []
        self._counts, self._length = Counter[str](), 0
        self._model = self._reason = self._why = ""
        self._is_answered = False

    def feed(self, data: bytes) -> list[str]:
        self._size += len(data)
        if self._size > MAX_BODY:
            raise ModelRejected(
                "the provider sent a reply of more than 64 MiB", kind="response_too_large"
            )
        if self._events is None:
            self._body += data
            return []
        out: list[str] = []
        if not self.done:
            try:
                for _, payload in self._events.feed(data):
                    out += self._take(payload)
            except BROKEN as error:
                raise ModelUnavailable(
                    f"the provider sent an unreadable reply: {error}", "server_error"
                ) from None
        return out

    def finish(self) -> ModelReply:
        if not self.done:
            try:
                for payload in (
                    [bytes(self._body)]
                    if self._events is None
                    else [d for _, d in self._events.rest()]
                ):
                    self._take(payload)
            except BROKEN:
                raise ModelUnavailable("the reply was truncated", kind="network") from None
        if self.done:
            return self._reply()
        if self._n_chunks and not self._is_answered:
            return ModelReply(message=AssistantMessage(), usage=self._counted(), model=self._model)
        raise ModelUnavailable("the reply ended too early", kind="network")

    def so_far(self) -> tuple[Usage, int]:
        return self._counted(), self._length + len(self._body)

    def _take(self, payload: bytes) -> list[str]:
        if self.done:
            return []
        chunk = parse_chunk(payload)
        if chunk.error is not None:
            error = error_in(chunk.error)
            code = error.get("code")
            raise failure_of(code if isinstance(code, int) and 399 < code < 600 else 500, {}, error)
        self._n_chunks += 1
        self._model = chunk.model_version or self._model
        for name, number in (chunk.usage_metadata or {}).items():
            self._counts[name] = max(self._counts[name], count(number))
        feedback = chunk.prompt_feedback or {}
        if feedback.get("blockReason") not in UNSET:
            self._end(
                "SAFETY",
                f"prompt blocked: {feedback['blockReason']}",
                feedback.get("blockReasonMessage"),
            )
            return []
        out: list[str] = []
        for candidate in chunk.candidates or ():
            if not candidate.index:
                self._is_answered = True
                out += self._take_parts(
                    (candidate.content.parts if candidate.content else None) or []
                )
                if candidate.finish_reason not in UNSET:
                    self._end(
                        candidate.finish_reason or "",
                        candidate.finish_reason or "",
                        candidate.finish_message,
                    )
        return out

    def _end(self, reason: str, why: str, more: Any) -> None:
        self.done, self._reason = True, reason
        self._why = f"{why}: {more}" if more else why

    def _take_parts(self, parts: list[Part]) -> list[str]:
        self.contents += bool(parts)
        earlier = frozenset(self._seen)
        out: list[str] = []
        for part in parts:
            text, call_part = read_part(part)
            self._length += sum(map(len, map(bytes, part.values())))
            call = self._called(call_part, earlier) if call_part is not None else None
            if call_part is not None and call is None:
                continue
            if KEPT & part.keys():
                if call is not None and not (
                    NAME.fullmatch(call.name) and call.arguments_json.startswith("{")
                ):
                    id = (call_part.id if call_part else "") or ""
                    part = {
                        **part,
                        "functionCall": msgspec.Raw(encode_json(function_call(call, id))),
                    }
                self._kept.append(
                    {k: msgspec.Raw(msgspec.json.format(v, indent=-1)) for k, v in part.items()}
                )
            elif call is not None:
                self._kept.append(None)
            elif text and self._kept and isinstance(last := self._kept[-1], int):
                self._kept[-1] = last + len(text)
            elif text:
                self._kept.append(len(text))
            if call is not None:
                self._calls.append(call)
            if text:
                self._text.append(text)
                out.append(text)
        return out

    def _called(
        self, call_part: FunctionCall, earlier: frozenset[tuple[str, str, str]]
    ) -> ToolCall | None:
        """The call with an id that is unique in this reply; None when an earlier event brought it
        already."""
        args = bytes(msgspec.json.format(call_part.args, indent=-1)).decode("utf-8", "replace")
        args, name, id = "{}" if args == "null" else args, call_part.name or "", call_part.id or ""
        if id and (id, name, args) in earlier:
            return None
        self._seen.add((id, name, args))
        ids = {c.id for c in self._calls}
        unique = id if id and id not in ids else f"call_{len(self._calls)}"
        while unique in ids:
            unique += "_"
        return ToolCall(id=unique, name=name, arguments_json=args)

    def _counted(self) -> Usage:
        """Totals: one that is smaller than an earlier one was not taken."""
        used = self._counts
        prompt = used["promptTokenCount"] + used["toolUsePromptTokenCount"]
        spent = used["candidatesTokenCount"] + used["thoughtsTokenCount"]
        return Usage(input=prompt, output=spent, cache_read=used["cachedContentTokenCount"])

    def _reply(self) -> ModelReply:
        usage, model, reason = self._counted(), self._model, self._reason
        why = "" if reason == "STOP" else worded(self._why)
        if reason in REFUSED:
            message = AssistantMessage(text=f"The provider refused to answer ({why}).")
            return ModelReply(message=message, usage=usage, stop="refusal", model=model)
        if reason in VOID:
            return ModelReply(message=AssistantMessage(), usage=usage, model=model)
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise ModelRejected(
                f"the provider expects a signature that the conversation lacks ({why})",
                "invalid_request",
            )
        if reason != "STOP" and reason not in CUT:
            raise ModelUnavailable(f"the provider stopped the reply ({why})", kind="server_error")
        is_signed = any(isinstance(item, dict) for item in self._kept)
        opaque = (
            keep_opaque(DIALECT, encode_json(self._kept).decode("utf-8", "replace"))
            if is_signed
            else ""
        )
        message = AssistantMessage(
            text="".join(self._text), calls=tuple(self._calls), opaque=opaque
        )
        if reason in CUT:
            return ModelReply(message=message, usage=usage, stop="length", model=model)
        return ModelReply(
            message=message, usage=usage, stop="calls" if message.calls else "end", model=model
        )
