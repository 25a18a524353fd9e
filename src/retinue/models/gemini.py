"""Gemini's generateContent: contents of parts, with a signature on the part that a thought led to.

A reply that carries signatures keeps, in order, its signed parts as they came; plain text and plain
calls around them are only counted, because the message has them already."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from retinue.core.history import OUR_ID
from retinue.core.messages import Assistant, Call, Image, Message, Reply, Result, User
from retinue.core.values import ToolSchema, Usage
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.formats.safe_text import clean
from retinue.formats.sse import SseParser
from retinue.models.codec import Options, arguments, count, keep_opaque, opaque_for
from retinue.models.gemini_errors import error_in, failure_of
from retinue.models.provider_errors import worded

MAX_BODY = 64 << 20
NOTHING = "(empty)"
NO_SIGNATURE = "skip_thought_signature_validator"
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

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
# Every escape of a JSON text; half a surrogate pair is in the group.
ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL
)

_ENCODER = msgspec.json.Encoder()

Part = dict[str, msgspec.Raw]


class _FunctionCall(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Content(msgspec.Struct):
    parts: list[Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    index: int | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    prompt_feedback: dict[str, Any] | None = None
    usage_metadata: dict[str, Any] | None = None
    model_version: str | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)
_TEXT = msgspec.json.Decoder(str | None)
_FLAG = msgspec.json.Decoder(bool | None)
_CALL = msgspec.json.Decoder(_FunctionCall | None)
_KEPT = msgspec.json.Decoder(list[int | Part | None])
_PART = msgspec.json.Decoder(Part)
_BROKEN = (msgspec.DecodeError, UnicodeError, RecursionError)


class GeminiCodec:
    """The codec. Prompt caching is implicit here: there is nothing to mark."""

    dialect = "gemini"

    def head(
        self, model: str, instructions: str, tools: Sequence[ToolSchema], options: Options
    ) -> bytes:
        request: dict[str, Any] = {}
        if instructions:
            request["systemInstruction"] = {"parts": [{"text": instructions}]}
        told = [
            {"name": t.name, "description": t.description, "parametersJsonSchema": t.parameters}
            for t in tools
        ]
        if told:
            request["tools"] = [{"functionDeclarations": told}]
        extra = {
            k: v for k, v in options.extra.items() if k not in ("contents", "generationConfig")
        }
        start = _encoded(_merged(request, extra))[:-1]
        return start + (b"," if len(start) > 1 else b"") + b'"contents":['

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        contents: list[dict[str, Any]] = []
        responses, pictures, calls = list[Any](), list[Any](), dict[str, tuple[str, str]]()
        for message in messages:
            match message:
                case User():
                    contents.append(
                        {
                            "role": "user",
                            "parts": _parts(message.text, message.images) or _parts(NOTHING),
                        }
                    )
                case Assistant():
                    parts, ids = _said(message)
                    contents.append({"role": "model", "parts": parts or _parts(NOTHING)})
                    calls = {
                        c.id: (wire, c.name) for c, wire in zip(message.calls, ids, strict=True)
                    }
                case Result():
                    wire, name = calls.get(message.call_id, (message.call_id, message.name))
                    responses.append(_response(message, wire, _name(name)))
                    if message.images:
                        pictures += _parts(
                            f"What {_name(name)} returned beside its text:", message.images
                        )
        # Models before Gemini 3 refuse media in or among the responses of parallel calls, but not
        # in the next content.
        contents += [{"role": "user", "parts": parts} for parts in (responses, pictures) if parts]
        return _encoded(contents)[1:-1]

    def unsealed(self, message: Assistant) -> Assistant:
        """Where a model wants a signature on the first call of a reply, this word stands for one
        that is lost."""
        if not message.calls:
            return message
        call = message.calls[0]
        wire = "" if _is_ours(0, call.id) else call.id
        part = {"functionCall": _function_call(call, wire), "thoughtSignature": NO_SIGNATURE}
        kept: list[Any] = [
            *([len(message.text)] if message.text else []),
            part,
            *([None] * (len(message.calls) - 1)),
        ]
        return replace(message, opaque=keep_opaque(self.dialect, _encoded(kept).decode()))

    def tail(self, max_output: int, options: Options | None = None) -> bytes:
        """The dialect has one object for the output's cap and for the options, so that they have to
        meet here."""
        options = options or Options()
        config: dict[str, Any] = {"maxOutputTokens": max_output}
        if options.temperature is not None:
            config["temperature"] = options.temperature
        if options.thinking_tokens is not None:
            config["thinkingConfig"] = {"thinkingBudget": options.thinking_tokens}
        elif options.effort:
            config["thinkingConfig"] = {"thinkingLevel": options.effort.upper()}
        if options.output_schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = options.output_schema
        extra = options.extra.get("generationConfig")
        return (
            b'],"generationConfig":'
            + _encoded(_merged(config, extra if isinstance(extra, dict) else {}))
            + b"}"
        )

    def path(self, model: str, options: Options) -> str:
        name = quote(model if "/" in model else f"models/{model}", safe="/")
        return f"/v1beta/{name}:" + (
            "streamGenerateContent?alt=sse" if options.stream else "generateContent"
        )

    def headers(self, key: str) -> dict[str, str]:
        plain = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
        }
        return {"x-goog-api-key": key, **plain} if key else plain

    def decoder(self, options: Options) -> GeminiDecoder:
        return GeminiDecoder(stream=options.stream)

    def whole(self, body: bytes) -> Reply | None:
        return None

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        try:
            value = msgspec.json.decode(_repaired(body))
        except _BROKEN:
            text = body[:4000].decode("utf-8", "replace")
            value = "" if "<" in text else text
        return failure_of(status, {k.lower(): v for k, v in headers.items()}, error_in(value))


def _merged(ours: Any, theirs: Any) -> Any:
    """What a caller adds to the body: objects are joined key by key, lists are appended, anything
    else is replaced."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**ours, **{k: _merged(ours[k], v) if k in ours else v for k, v in theirs.items()}}
    return ours + theirs if isinstance(ours, list) and isinstance(theirs, list) else theirs


def _encoded(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_cleaned(value))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(k): _cleaned(v) for k, v in value.items()}
    return [_cleaned(v) for v in value] if isinstance(value, list | tuple) else value


def _parts(text: str, images: Sequence[Image] = ()) -> list[Any]:
    pictures = [{"inlineData": {"mimeType": i.media_type, "data": i.data}} for i in images]
    return [{"text": text}, *pictures] if text else pictures


def _name(name: str) -> str:
    """A history with a name that could not be a function's is refused as a whole."""
    return name if NAME.fullmatch(name) else ("_" + re.sub(r"[^A-Za-z0-9_.:-]", "_", name))[:64]


def _function_call(call: Call, wire: str) -> dict[str, Any]:
    try:
        args = arguments(call.args)
    except RecursionError:
        args = {"invalid_json": call.args}
    return {**({"id": wire} if wire else {}), "name": _name(call.name), "args": args}


def _response(result: Result, wire: str, name: str) -> dict[str, Any]:
    body = {"error" if result.error else "output": result.text}
    return {"functionResponse": {**({"id": wire} if wire else {}), "name": name, "response": body}}


def _said(message: Assistant) -> tuple[list[Any], list[str]]:
    """The parts of a reply, and for each call the id that the provider gave it, or "" when we
    did."""
    ids = ["" if _is_ours(n, c.id) else c.id for n, c in enumerate(message.calls)]
    spliced = _spliced(message, ids)
    calls = [
        {"functionCall": _function_call(c, i)} for c, i in zip(message.calls, ids, strict=True)
    ]
    return spliced or (_parts(message.text) + calls, ids)


def _is_ours(n: int, id: str) -> bool:
    """Whether an id was made here: the provider gave none, or one that another call has."""
    return id == f"call_{n}" or id.startswith(OUR_ID)


def _spliced(message: Assistant, ids: list[str]) -> tuple[list[Any], list[str]] | None:
    """The reply around its kept parts; None when they are not those of this text and these
    calls."""
    parts: list[Any] = []
    ids, at, n = list(ids), 0, 0
    try:
        for item in _KEPT.decode(
            opaque_for(GeminiCodec.dialect, message).encode("utf-8", "replace")
        ):
            if isinstance(item, int):
                parts.append({"text": message.text[at : at + item]})
                at += item
            elif item is None:
                parts.append({"functionCall": _function_call(message.calls[n], ids[n])})
                n += 1
            else:
                text, call = _read(item)
                at += len(text)
                if call is not None:
                    given = call.id or ""
                    if given and given != message.calls[n].id:
                        # Another call of this conversation has that id; without one it is found by
                        # its place.
                        named = {
                            k: v for k, v in _PART.decode(item["functionCall"]).items() if k != "id"
                        }
                        given, item = "", {**item, "functionCall": msgspec.Raw(_encoded(named))}
                    ids[n] = given
                    n += 1
                parts.append(item)
    except (*_BROKEN, IndexError):
        return None
    return (parts, ids) if at == len(message.text) and n == len(message.calls) else None


def _read(part: Part) -> tuple[str, _FunctionCall | None]:
    """The visible text of a part, and its call."""
    is_thought = "thought" in part and _FLAG.decode(part["thought"])
    text = _TEXT.decode(part["text"]) if "text" in part and not is_thought else ""
    return text or "", _CALL.decode(part["functionCall"]) if "functionCall" in part else None


def _repaired(data: bytes) -> bytes:
    """Half surrogate pairs and bytes that are no UTF-8 become U+FFFD."""
    data = data.decode("utf-8", "replace").encode()
    return ESCAPES.sub(lambda m: rb"\ufffd" if m[1] else m[0], data)


def _parsed(data: bytes) -> _Chunk:
    try:
        return _CHUNK.decode(data)
    except _BROKEN:
        return _CHUNK.decode(_repaired(data))


class GeminiDecoder:
    """Each event of the stream is a whole response object with the parts that are new; the last one
    has a reason."""

    def __init__(self, *, stream: bool) -> None:
        self.contents = 0
        self.done = False
        self._events = SseParser() if stream else None
        self._body = bytearray()
        self._size = self._n_chunks = 0
        self._text: list[str] = []
        self._calls: list[Call] = []
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
            except _BROKEN as error:
                raise ModelUnavailable(
                    f"the provider sent what cannot be read: {error}", "server_error"
                ) from None
        return out

    def finish(self) -> Reply:
        if not self.done:
            try:
                for payload in (
                    [bytes(self._body)]
                    if self._events is None
                    else [d for _, d in self._events.rest()]
                ):
                    self._take(payload)
            except _BROKEN:
                raise ModelUnavailable("the reply was cut", kind="network") from None
        if self.done:
            return self._reply()
        if self._n_chunks and not self._is_answered:
            return Reply(message=Assistant(), usage=self._counted(), model=self._model)
        raise ModelUnavailable("the reply ended before its end", kind="network")

    def so_far(self) -> tuple[Usage, int]:
        return self._counted(), self._length + len(self._body)

    def _take(self, payload: bytes) -> list[str]:
        if self.done:
            return []
        chunk = _parsed(payload)
        if chunk.error is not None:
            error = error_in(chunk.error)
            code = error.get("code")
            raise failure_of(code if isinstance(code, int) and 399 < code < 600 else 500, {}, error)
        self._n_chunks += 1
        self._model = chunk.model_version or self._model
        for name, told in (chunk.usage_metadata or {}).items():
            self._counts[name] = max(self._counts[name], count(told))
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
        seen = frozenset(self._seen)
        out: list[str] = []
        for part in parts:
            text, wire = _read(part)
            self._length += sum(map(len, map(bytes, part.values())))
            call = self._called(wire, seen) if wire is not None else None
            if wire is not None and call is None:
                continue
            if KEPT & part.keys():
                if call is not None and not (
                    NAME.fullmatch(call.name) and call.args.startswith("{")
                ):
                    given = (wire.id if wire else "") or ""
                    part = {
                        **part,
                        "functionCall": msgspec.Raw(_encoded(_function_call(call, given))),
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

    def _called(self, wire: _FunctionCall, seen: frozenset[tuple[str, str, str]]) -> Call | None:
        """The call with an id that is unique in this reply; None when an earlier event brought it
        already."""
        args = bytes(msgspec.json.format(wire.args, indent=-1)).decode("utf-8", "replace")
        args, name, given = "{}" if args == "null" else args, wire.name or "", wire.id or ""
        if given and (given, name, args) in seen:
            return None
        self._seen.add((given, name, args))
        taken = {c.id for c in self._calls}
        unique = given if given and given not in taken else f"call_{len(self._calls)}"
        while unique in taken:
            unique += "_"
        return Call(id=unique, name=name, args=args)

    def _counted(self) -> Usage:
        """Totals: one that is smaller than an earlier one was not taken."""
        used = self._counts
        prompt = used["promptTokenCount"] + used["toolUsePromptTokenCount"]
        spent = used["candidatesTokenCount"] + used["thoughtsTokenCount"]
        return Usage(input=prompt, output=spent, cache_read=used["cachedContentTokenCount"])

    def _reply(self) -> Reply:
        usage, model, reason = self._counted(), self._model, self._reason
        why = "" if reason == "STOP" else worded(self._why)
        if reason in REFUSED:
            said = Assistant(text=f"The provider refused to answer ({why}).")
            return Reply(message=said, usage=usage, stop="refusal", model=model)
        if reason in VOID:
            return Reply(message=Assistant(), usage=usage, model=model)
        if reason == "MISSING_THOUGHT_SIGNATURE":
            raise ModelRejected(
                f"the provider misses a signature in the conversation ({why})", "invalid_request"
            )
        if reason != "STOP" and reason not in CUT:
            raise ModelUnavailable(f"the provider broke off the reply ({why})", kind="server_error")
        is_signed = any(isinstance(item, dict) for item in self._kept)
        opaque = (
            keep_opaque(GeminiCodec.dialect, _encoded(self._kept).decode("utf-8", "replace"))
            if is_signed
            else ""
        )
        said = Assistant(text="".join(self._text), calls=tuple(self._calls), opaque=opaque)
        if reason in CUT:
            return Reply(message=said, usage=usage, stop="length", model=model)
        return Reply(message=said, usage=usage, stop="calls" if said.calls else "end", model=model)
