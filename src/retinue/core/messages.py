"""Messages of a conversation, and the reply of a model that carries one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import msgspec

from retinue.core.values import Usage, Value


class ToolCall(Value, rename={"arguments_json": "args"}):
    """One tool call as the model wrote it; `arguments_json` is its raw JSON text (stored as
    `args`), parsed once by the toolbox."""

    id: str
    name: str
    arguments_json: str = "{}"

    @property
    def arguments(self) -> dict[str, Any]:
        """Its arguments by name; none when they are no JSON object."""
        try:
            value = msgspec.json.decode(self.arguments_json)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def replace(self, *, arguments: Mapping[str, Any] | None = None, **changes: Any) -> Self:
        """A copy with other arguments, or with some fields changed."""
        if arguments is not None:
            changes["arguments_json"] = msgspec.json.encode(dict(arguments)).decode()
        return super().replace(**changes)


class Image(Value):
    """A picture in a message: its bytes in base64."""

    media_type: str
    data: str


class UserMessage(Value, tag="user", tag_field="role"):
    """A message to the model. `sender` is set by the runtime: "" for the user or program that
    started the run."""

    text: str
    sender: str = ""
    images: tuple[Image, ...] = ()
    kind: Literal["task", "mail", "news", "note", "nudge", "summary"] = "task"


class AssistantMessage(Value, tag="assistant", tag_field="role"):
    """A reply of the model. `opaque` keeps provider fields that must go back byte for byte."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    opaque: str = ""


class ToolMessage(Value, tag="tool", tag_field="role"):
    """The result of one call. Results are in order of completion; a codec may sort them. `denied`:
    a rule or a person did not permit the call."""

    call_id: str
    text: str
    name: str = ""
    error: bool = False
    denied: bool = False
    images: tuple[Image, ...] = ()


Message = UserMessage | AssistantMessage | ToolMessage


class ModelReply(Value):
    """One whole answer of a model: what it said, what it cost, why it stopped, which model it
    really was. `is_priced`: the dollars in `usage` are what it has cost, also if there are none."""

    message: AssistantMessage
    usage: Usage = Usage()
    stop: Literal["end", "calls", "length", "refusal"] = "end"
    model: str = ""
    is_priced: bool = False

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return self.message.calls
