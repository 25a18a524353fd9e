"""A reply in the Responses dialect, from its events or from one body."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from retinue.core.messages import Assistant, Call, Reply
from retinue.core.values import Usage
from retinue.errors import ModelRejected, ModelUnavailable
from retinue.models.codec import count, keep_opaque
from retinue.models.openai_responses_errors import fault_of, text_of
from retinue.models.openai_responses_items import DIALECT, Item, call_item, item_json, parse_as
from retinue.models.provider_errors import worded
from retinue.models.reply_body import event_parser
from retinue.models.usage_checks import grown

MAX_BODY = 64 << 20


# Items that may stand in a later input without an answer of ours.
REPLAYABLE = {
    "reasoning",
    "message",
    "function_call",
    "compaction",
    "web_search_call",
    "file_search_call",
    "mcp_call",
}
VISIBLE = ("response.output_text.delta", "response.refusal.delta")
TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
FILTERED = "The provider's content filter stopped this reply."


class _Event(msgspec.Struct):
    type: Any = ""
    sequence_number: Any = None
    output_index: Any = 0
    delta: Any = ""
    error: Any = None
    item: msgspec.Raw = msgspec.Raw(b"{}")
    response: msgspec.Raw = msgspec.Raw(b"{}")


class _Response(msgspec.Struct):
    status: Any = ""
    model: Any = ""
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None
    output: msgspec.Raw = msgspec.Raw()

    def listed(self) -> list[bytes]:
        is_list = bytes(self.output).startswith(b"[")
        return [bytes(item) for item in parse_as(self.output, list[msgspec.Raw])] if is_list else []


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
        self._reply: Reply | None = None

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

    def finish(self) -> Reply:
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

    def _whole(self, body: bytes) -> Reply:
        try:
            response = parse_as(body, _Response)
        except ModelUnavailable:
            raise ModelUnavailable("the answer is not a complete reply", kind="network") from None
        status = text_of(response.status) or (
            "completed" if bytes(response.output) and not response.error else "failed"
        )
        self._reply = _reply(status, response, response.listed())
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
            self._end(kind, parse_as(event.response, _Response))
        elif kind == "error" or event.error:
            raise fault_of(0, event.error or parse_as(payload, Item), {})
        elif kind in ("response.created", "response.in_progress"):
            begun = parse_as(event.response, _Response)
            self._model, self._usage = (
                text_of(begun.model) or self._model,
                grown(self._usage, _usage(begun.usage)),
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
        """Numbers that stand on events of two kinds count nothing: some servers give all events the
        same."""
        if self._numbers is None or type(number) is not int:
            return False
        is_known = number in self._numbers
        if self._numbers.setdefault(number, kind) != kind:
            self._numbers = None
        return is_known and self._numbers is not None

    def _end(self, kind: str, response: _Response) -> None:
        """Servers differ in what they leave out: the last event's list of items counts where the
        stream had less."""
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
        self._usage = grown(self._usage, _usage(response.usage))
        self._reply = _reply(text_of(response.status) or TERMINAL[kind], response, raws)
        self.done = True


def _reply(status: str, response: _Response, raws: list[bytes]) -> Reply:
    if status == "failed":
        raise fault_of(0, response.error, {})
    if status not in ("completed", "incomplete"):
        raise ModelUnavailable(
            f"the provider ended its answer with status {worded(status)}", kind="server_error"
        )
    items = [parse_as(raw, Item) for raw in raws]
    contents = [item.get("content") for item in items if item.get("type") == "message"]
    parts = [
        part
        for content in contents
        if isinstance(content, list)
        for part in content
        if isinstance(part, dict)
    ]
    text = "".join(
        text_of(part.get("refusal" if part.get("type") == "refusal" else "text")) for part in parts
    )
    calls = _calls(items)
    stop: Literal["end", "calls", "length", "refusal"] = "calls" if calls else "end"
    why = response.incomplete_details
    if status == "incomplete" and isinstance(why, dict) and why.get("reason") == "content_filter":
        text, stop = f"{text}\n\n{FILTERED}".strip(), "refusal"
    elif any(part.get("type") == "refusal" for part in parts):
        stop = "refusal"
    elif status == "incomplete" or any(item.get("status") == "incomplete" for item in items):
        stop = "length"
    kept = _keep(items, raws, calls) if stop in ("calls", "end") else ""
    message = Assistant(text=text, calls=tuple(calls), opaque=keep_opaque(DIALECT, kept))
    return Reply(
        message=message, usage=_usage(response.usage), stop=stop, model=text_of(response.model)
    )


def _calls(items: list[Item]) -> list[Call]:
    """The calls, each with an id of its own: results are matched by it."""
    calls: dict[str, Call] = {}
    for item in items:
        if item.get("type") == "function_call":
            id = text_of(item.get("call_id")) or text_of(item.get("id")) or f"call_{len(calls)}"
            while id in calls:
                id = f"{id}_{len(calls)}"
            args = item.get("arguments") or "{}"
            args = args if isinstance(args, str) else item_json(args).decode()
            calls[id] = Call(id=id, name=text_of(item.get("name")), args=args)
    return list(calls.values())


def _keep(items: list[Item], raws: list[bytes], calls: list[Call]) -> str:
    """The items as JSON, if text and calls cannot stand for them and the API would take them back.

    It refuses reasoning that is not encrypted (it looks for the item, and nothing was stored) or
    that nothing follows."""
    while items and items[-1].get("type") == "reasoning":
        items = items[:-1]
    kinds = {text_of(item.get("type")) for item in items}
    is_more = not kinds <= {"message", "function_call"} or any(item.get("phase") for item in items)
    is_bare = any(
        item.get("type") == "reasoning" and not item.get("encrypted_content") for item in items
    )
    if not is_more or is_bare or not kinds <= REPLAYABLE:
        return ""
    left = iter(calls)
    kept = []
    for item, raw in zip(items, raws, strict=False):
        if (
            item["type"] == "function_call"
            and not (sound := call_item(next(left))).items() <= item.items()
        ):
            raw = item_json({**item, **sound})
        kept.append(raw.decode("utf-8", "replace"))
    return f"[{','.join(kept)}]"


def _usage(told: Any) -> Usage:
    def counted(of: Any, name: str) -> int:
        return count(of.get(name)) if isinstance(of, dict) else 0

    details = told.get("input_tokens_details") if isinstance(told, dict) else None
    return Usage(
        input=counted(told, "input_tokens"),
        output=counted(told, "output_tokens"),
        cache_read=counted(details, "cached_tokens"),
        cache_write=counted(details, "cache_write_tokens"),
    )
