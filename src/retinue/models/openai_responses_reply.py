"""Reads a reply of the Responses API, from a stream or from one body."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue.core.messages import ModelReply
from retinue.core.values import Usage
from retinue.errors import ModelRejected, ModelUnavailable
from retinue.models.openai_responses_errors import fault_of, text_of
from retinue.models.openai_responses_items import Item, item_json, parse_as
from retinue.models.openai_responses_output import WholeResponse, reply_of, usage_of
from retinue.models.reply_body import event_parser
from retinue.models.usage_checks import never_smaller

MAX_BODY = 64 << 20


VISIBLE = ("response.output_text.delta", "response.refusal.delta")
TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}


class _Event(msgspec.Struct):
    type: Any = ""
    sequence_number: Any = None
    output_index: Any = 0
    delta: Any = ""
    error: Any = None
    item: msgspec.Raw = msgspec.Raw(b"{}")
    response: msgspec.Raw = msgspec.Raw(b"{}")


class OpenAIResponsesDecoder:
    def __init__(self, stream: bool) -> None:
        self.contents = 0
        self.done = False
        self._events = event_parser()
        self._body = None if stream else bytearray()
        self._size = self._length = 0
        self._usage = Usage()
        self._said: list[str] = []
        self._items: dict[int, bytes] = {}
        self._numbers: dict[int, str] | None = {}
        self._model = ""
        self._reply: ModelReply | None = None

    def feed(self, data: bytes) -> list[str]:
        if self.done:
            return []
        self._size += len(data)
        if self._size > MAX_BODY:
            raise ModelRejected(
                "the provider sent a reply of more than 64 MiB", kind="response_too_large"
            )
        if self._body is not None:
            self._body += data
            self.contents += bool(data.strip())
            return []
        pieces = [self._take(name, payload) for name, payload in self._events.feed(data)]
        return [piece for piece in pieces if piece]

    def finish(self) -> ModelReply:
        if self._body is not None:
            return self._whole(bytes(self._body).strip())
        for name, payload in () if self.done else self._events.rest():
            try:
                parse_as(payload, _Event)
            except ModelUnavailable:
                break
            self._take(name, payload)
        if self._reply is None:
            raise ModelUnavailable("the stream ended before the reply was complete", kind="network")
        return self._reply

    def so_far(self) -> tuple[Usage, int]:
        return self._usage, self._length + len(self._body or b"")

    def _whole(self, body: bytes) -> ModelReply:
        try:
            response = parse_as(body, WholeResponse)
        except ModelUnavailable:
            raise ModelUnavailable("the answer is not a complete reply", kind="network") from None
        status = text_of(response.status) or (
            "completed" if bytes(response.output) and not response.error else "failed"
        )
        self._reply = reply_of(status, response, response.listed())
        self.done = True
        return self._reply

    def _take(self, name: str, payload: bytes) -> str:
        if self.done or payload.strip() in (b"", b"[DONE]"):
            return ""
        event = parse_as(payload, _Event)
        kind = text_of(event.type) or name
        if self._is_repeated(kind, event.sequence_number):
            return ""
        if kind in TERMINAL:
            self._end(kind, parse_as(event.response, WholeResponse))
        elif kind == "error" or event.error:
            raise fault_of(0, event.error or parse_as(payload, Item), {})
        elif kind in ("response.created", "response.in_progress"):
            response = parse_as(event.response, WholeResponse)
            self._model, self._usage = (
                text_of(response.model) or self._model,
                never_smaller(self._usage, usage_of(response.usage)),
            )
        elif kind.endswith((".delta", ".done", ".added")):
            self.contents += 1
            self._length += len(text_of(event.delta))
        if kind == "response.output_item.done":
            self._items[event.output_index if isinstance(event.output_index, int) else 0] = bytes(
                event.item
            )
        if kind in VISIBLE:
            self._said.append(text_of(event.delta))
            return self._said[-1]
        return ""

    def _is_repeated(self, kind: str, number: Any) -> bool:
        """Numbers on events of two kinds are ignored: some servers give all events the same."""
        if self._numbers is None or type(number) is not int:
            return False
        is_known = number in self._numbers
        if self._numbers.setdefault(number, kind) != kind:
            self._numbers = None
        return is_known and self._numbers is not None

    def _end(self, kind: str, response: WholeResponse) -> None:
        """Servers differ in what they omit: the last event's list of items counts where the stream
        had less."""
        listed, raws = response.listed(), [raw for _, raw in sorted(self._items.items())]
        if len(listed) > len(raws):
            raws = listed
        if not raws and self._said:
            raws = [
                item_json(
                    {
                        "type": "message",
                        "content": [{"type": "output_text", "text": "".join(self._said)}],
                    }
                )
            ]
        response.model = response.model or self._model
        self._usage = never_smaller(self._usage, usage_of(response.usage))
        self._reply = reply_of(text_of(response.status) or TERMINAL[kind], response, raws)
        self.done = True
