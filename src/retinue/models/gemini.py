"""The codec for Gemini's generateContent: contents made of parts, with the signature on the part
that a thought led to.

A reply that carries signatures keeps, in order, its signed parts as they came; plain text and plain
calls around them are only counted, because the message has them already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message, ModelReply, ToolMessage, UserMessage
from retinue.core.values import ToolSchema
from retinue.errors import ModelError
from retinue.models.codec import Options, encode_json, keep_opaque
from retinue.models.gemini_errors import error_in, failure_of
from retinue.models.gemini_parts import (
    BROKEN,
    DIALECT,
    function_call,
    function_name,
    is_our_id,
    parts_of,
    repaired,
    reply_parts,
    response_part,
)
from retinue.models.gemini_reply import GeminiDecoder

NOTHING = "(empty)"
NO_SIGNATURE = "skip_thought_signature_validator"


class GeminiCodec:
    """The codec. Prompt caching is implicit here: there is nothing to mark."""

    dialect = DIALECT

    def head(
        self, model: str, instructions: str, tools: Sequence[ToolSchema], options: Options
    ) -> bytes:
        request: dict[str, Any] = {}
        if instructions:
            request["systemInstruction"] = {"parts": [{"text": instructions}]}
        declarations = [
            {"name": t.name, "description": t.description, "parametersJsonSchema": t.parameters}
            for t in tools
        ]
        if declarations:
            request["tools"] = [{"functionDeclarations": declarations}]
        extra = {
            k: v for k, v in options.extra.items() if k not in ("contents", "generationConfig")
        }
        start = encode_json(_merged(request, extra))[:-1]
        return start + (b"," if len(start) > 1 else b"") + b'"contents":['

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        contents: list[dict[str, Any]] = []
        responses, pictures, calls = list[Any](), list[Any](), dict[str, tuple[str, str]]()
        for message in messages:
            match message:
                case UserMessage():
                    contents.append(
                        {
                            "role": "user",
                            "parts": parts_of(message.text, message.images) or parts_of(NOTHING),
                        }
                    )
                case AssistantMessage():
                    parts, ids = reply_parts(message)
                    contents.append({"role": "model", "parts": parts or parts_of(NOTHING)})
                    calls = {c.id: (id, c.name) for c, id in zip(message.calls, ids, strict=True)}
                case ToolMessage():
                    id, name = calls.get(message.call_id, (message.call_id, message.name))
                    responses.append(response_part(message, id, function_name(name)))
                    if message.images:
                        pictures += parts_of(
                            f"Images returned by {function_name(name)}:", message.images
                        )
        # Models before Gemini 3 refuse media in or among the responses of parallel calls, but not
        # in the next content.
        contents += [{"role": "user", "parts": parts} for parts in (responses, pictures) if parts]
        return encode_json(contents)[1:-1]

    def unsealed(self, message: AssistantMessage) -> AssistantMessage:
        """Where a model wants a signature on the first call of a reply, this word replaces one that
        is lost."""
        if not message.calls:
            return message
        call = message.calls[0]
        id = "" if is_our_id(0, call.id) else call.id
        part = {"functionCall": function_call(call, id), "thoughtSignature": NO_SIGNATURE}
        parts: list[Any] = [
            *([len(message.text)] if message.text else []),
            part,
            *([None] * (len(message.calls) - 1)),
        ]
        return replace(message, opaque=keep_opaque(self.dialect, encode_json(parts).decode()))

    def tail(self, max_output: int, options: Options | None = None) -> bytes:
        """The dialect has one object for the output's cap and for the options, so that they have to
        meet here."""
        options = options or Options()
        config: dict[str, Any] = {"maxOutputTokens": max_output}
        if options.temperature is not None:
            config["temperature"] = options.temperature
        if options.top_p is not None:
            config["topP"] = options.top_p
        if options.stop:
            config["stopSequences"] = list(options.stop)
        if options.seed is not None:
            config["seed"] = options.seed
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
            + encode_json(_merged(config, extra if isinstance(extra, dict) else {}))
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

    def whole(self, body: bytes) -> ModelReply | None:
        return None

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        try:
            value = msgspec.json.decode(repaired(body))
        except BROKEN:
            text = body[:4000].decode("utf-8", "replace")
            value = "" if "<" in text else text
        return failure_of(status, {k.lower(): v for k, v in headers.items()}, error_in(value))


def _merged(ours: Any, theirs: Any) -> Any:
    """What a user adds to the body: objects are joined key by key, lists are appended, anything
    else is replaced."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**ours, **{k: _merged(ours[k], v) if k in ours else v for k, v in theirs.items()}}
    return ours + theirs if isinstance(ours, list) and isinstance(theirs, list) else theirs
