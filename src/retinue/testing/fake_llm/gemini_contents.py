"""Checks a conversation for Gemini: turns of user and model, and calls followed by their
responses."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from retinue.core.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.testing.fake_llm.dialect import FakeUnit, encode
from retinue.testing.fake_llm.gemini_checks import (
    CALL_TURN,
    RESPONSE_TURN,
    UNEVEN,
    UNSIGNED_CALL,
    camel_keys,
    inline_image,
    refuse_gemini,
    same_name,
    unknown_fields,
)
from retinue.testing.fake_llm.strict_checks import words

DATA = words(
    "text inlineData fileData functionCall functionResponse executableCode codeExecutionResult "
    "toolCall toolResponse"
)
PART_FIELDS = DATA | words("thought thoughtSignature videoMetadata mediaResolution partMetadata")
CONTENT_FIELDS = words("parts role")
CALL_FIELDS = words("id name args")
RESPONSE_FIELDS = words("id name response parts willContinue scheduling")
UNSIGNED = words("skip_thought_signature_validator context_engineering_is_the_way_to_go")
"""Signatures that Google takes for calls that another model made."""
PART = "contents[%d].parts[%d]"


class Contents:
    """Read strictly: a response turn answers the call turn right before it, part for part."""

    def __init__(self, is_signed: bool) -> None:
        self.messages: list[Message] = []
        self.units: list[FakeUnit] = []
        self._is_signed = is_signed
        self._open: list[ToolCall] = []
        self._ids: set[str] = set()
        self._unsigned = ""

    def system(self, value: Any) -> str:
        if value is None:
            return ""
        content = camel_keys(same_name(value, dict, "system_instruction"))
        unknown_fields(content, CONTENT_FIELDS, "system_instruction")
        parts = content.get("parts", [])
        return "\n\n".join(
            str(part.get("text", "")) for part in (parts if isinstance(parts, list) else [parts])
        )

    def read(self, value: Any) -> None:
        if not value:
            raise refuse_gemini("* GenerateContentRequest.contents: contents is not specified\n")
        before = ""
        for n, content in enumerate(same_name(value, list, "contents")):
            content = camel_keys(same_name(content, dict, "contents[%d]", n))
            unknown_fields(content, CONTENT_FIELDS, "contents[%d]", n)
            role = content.get("role", "user")
            if role not in ("user", "model"):
                raise refuse_gemini("Please use a valid role: user, model.")
            parts = self._parts(n, content.get("parts"))
            before = (
                self._model(n, parts, before) if role == "model" else self._user(n, parts, before)
            )
        if before in ("calls", "model"):
            self._settle()
            raise refuse_gemini(
                "Please ensure that single turn requests end with a user role or the role field "
                "is empty."
            )
        if self._unsigned:
            raise refuse_gemini(self._unsigned)

    def _parts(self, n: int, value: Any) -> list[dict[str, Any]]:
        if not value:
            raise refuse_gemini(
                f"* GenerateContentRequest.contents[{n}].parts: contents.parts must not be empty.\n"
            )
        parts = []
        for i, part in enumerate(same_name(value, list, "contents[%d].parts", n)):
            part = camel_keys(same_name(part, dict, PART, n, i))
            unknown_fields(part, PART_FIELDS, PART, n, i)
            kinds = part.keys() & DATA
            if len(kinds) != 1:
                text = (
                    "must have one initialized field"
                    if not kinds
                    else "oneof field 'data' is already set"
                )
                raise refuse_gemini(
                    f"* GenerateContentRequest.{PART % (n, i)}.data: required oneof field 'data' "
                    f"{text}\n"
                )
            if (
                "text" in part
                and not same_name(part["text"], str, PART, n, i)
                and "thoughtSignature" not in part
            ):
                raise refuse_gemini(
                    "Unable to submit request because it must have a text parameter."
                )
            if "thoughtSignature" in part:
                self._signature(PART % (n, i), part["thoughtSignature"])
            parts.append(part)
        return parts

    def _signature(self, at: str, value: Any) -> None:
        if value in UNSIGNED:
            return
        try:
            base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError, AttributeError):
            text = encode(value).decode()[:80]
            raise refuse_gemini(
                f"Invalid value at '{at}.thought_signature' (TYPE_BYTES), {text}"
            ) from None

    def _model(self, n: int, parts: list[dict[str, Any]], before: str) -> str:
        self._settle()
        texts, signatures = [], []
        calls: list[ToolCall] = []
        for i, part in enumerate(parts):
            if "functionCall" in part:
                call = self._call(n, i, part["functionCall"])
                if (
                    self._is_signed
                    and not calls
                    and "thoughtSignature" not in part
                    and not self._unsigned
                ):
                    self._unsigned = UNSIGNED_CALL.format(name=call.name, n=n + 1)
                calls.append(call)
            elif "text" in part and not part.get("thought"):
                texts.append(part["text"])
            elif "functionResponse" in part:
                raise refuse_gemini(RESPONSE_TURN)
            if "thoughtSignature" in part:
                signatures.append(part["thoughtSignature"])
        if calls and before not in ("user", "responses"):
            raise refuse_gemini(CALL_TURN)
        message = AssistantMessage(
            text="".join(texts),
            calls=tuple(calls),
            opaque=encode(signatures).decode() if signatures else "",
        )
        self._open = calls
        self.messages.append(message)
        size = (
            len(message.text)
            + len(message.opaque)
            + sum(len(c.name) + len(c.arguments_json) for c in calls)
        )
        self.units.append(FakeUnit(message, size, len(parts)))
        return "calls" if calls else "model"

    def _call(self, n: int, i: int, value: Any) -> ToolCall:
        at = PART + ".function_call"
        call = camel_keys(same_name(value, dict, at, n, i))
        unknown_fields(call, CALL_FIELDS, at, n, i)
        name = same_name(call.get("name", ""), str, at + ".name", n, i)
        if not name:
            raise refuse_gemini(
                f"* GenerateContentRequest.{at % (n, i)}.name: [REQUIRED_FIELD_MISSING]\n"
            )
        args = same_name(call.get("args") or {}, dict, at + ".args", n, i)
        call_id = same_name(call.get("id") or f"g_{len(self._ids)}", str, at + ".id", n, i)
        if call_id in self._ids:
            raise refuse_gemini(
                f"* GenerateContentRequest.{at % (n, i)}.id: Duplicate function call id: "
                f"{call_id}\n"
            )
        self._ids.add(call_id)
        return ToolCall(id=call_id, name=name, arguments_json=encode(args).decode())

    def _user(self, n: int, parts: list[dict[str, Any]], before: str) -> str:
        texts, images, results = [], [], []
        for i, part in enumerate(parts):
            if "functionResponse" in part:
                if before != "calls":
                    raise refuse_gemini(RESPONSE_TURN)
                results.append(self._response(n, i, part["functionResponse"]))
            elif "text" in part:
                texts.append(part["text"])
            elif "inlineData" in part:
                images.append(inline_image(part["inlineData"], PART + ".inline_data", n, i))
            elif "functionCall" in part:
                raise refuse_gemini(CALL_TURN)
        if results or self._open:
            self._settle()
        elif texts:
            self._unsigned = ""
        values: list[Message] = [*results]
        if texts or images:
            values.append(UserMessage(text="\n\n".join(texts), images=tuple(images)))
        self.messages += values
        size = sum(len(m.text) for m in values) + sum(len(image.data) for image in images)
        self.units.append(FakeUnit(tuple(values), size, len(parts)))
        return "responses" if results else "user"

    def _response(self, n: int, i: int, value: Any) -> ToolMessage:
        at = PART + ".function_response"
        response = camel_keys(same_name(value, dict, at, n, i))
        unknown_fields(response, RESPONSE_FIELDS, at, n, i)
        name = same_name(response.get("name", ""), str, at + ".name", n, i)
        if not name:
            raise refuse_gemini(
                f"* GenerateContentRequest.{at % (n, i)}.name: Name cannot be empty.\n"
            )
        content = response.get("response")
        if not isinstance(content, dict):
            kind = "type.googleapis.com/google.protobuf.Struct"
            content_text = encode(content).decode()[:80]
            raise refuse_gemini(
                f"Invalid value at '{at % (n, i)}.response' ({kind}), {content_text}"
            )
        call_id = response.get("id")
        call = next(
            (c for c in self._open if (c.id == call_id if call_id else c.name == name)), None
        )
        if call is None or call.name != name:
            raise refuse_gemini(UNEVEN)
        self._open = [c for c in self._open if c is not call]
        text = content.get("output", content.get("result", content.get("error")))
        return ToolMessage(
            call_id=call.id,
            text=text if isinstance(text, str) else encode(content).decode(),
            name=name,
            error="error" in content,
        )

    def _settle(self) -> None:
        if self._open:
            raise refuse_gemini(UNEVEN)
