"""Reads the output of a whole response as a reply."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import Usage
from retinue.errors import ModelUnavailable
from retinue.models.codec import count, keep_opaque
from retinue.models.openai_responses_errors import fault_of, text_of
from retinue.models.openai_responses_items import DIALECT, Item, call_item, item_json, parse_as
from retinue.models.provider_errors import worded

# Items that may be in a later input without an answer of ours.
REPLAYABLE = {
    "reasoning",
    "message",
    "function_call",
    "compaction",
    "web_search_call",
    "file_search_call",
    "mcp_call",
}


FILTERED = "The provider's content filter stopped this reply."


class WholeResponse(msgspec.Struct):
    status: Any = ""
    model: Any = ""
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None
    output: msgspec.Raw = msgspec.Raw()

    def listed(self) -> list[bytes]:
        is_list = bytes(self.output).startswith(b"[")
        return [bytes(item) for item in parse_as(self.output, list[msgspec.Raw])] if is_list else []


def reply_of(status: str, response: WholeResponse, raws: list[bytes]) -> ModelReply:
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
    seal = _keep(items, raws, calls) if stop in ("calls", "end") else ""
    message = AssistantMessage(text=text, calls=tuple(calls), opaque=keep_opaque(DIALECT, seal))
    return ModelReply(
        message=message, usage=usage_of(response.usage), stop=stop, model=text_of(response.model)
    )


def _calls(items: list[Item]) -> list[ToolCall]:
    """The calls, each with an id of its own: results are matched by it."""
    calls: dict[str, ToolCall] = {}
    for item in items:
        if item.get("type") == "function_call":
            id = text_of(item.get("call_id")) or text_of(item.get("id")) or f"call_{len(calls)}"
            while id in calls:
                id = f"{id}_{len(calls)}"
            args = item.get("arguments") or "{}"
            args = args if isinstance(args, str) else item_json(args).decode()
            calls[id] = ToolCall(id=id, name=text_of(item.get("name")), arguments_json=args)
    return list(calls.values())


def _keep(items: list[Item], raws: list[bytes], calls: list[ToolCall]) -> str:
    """The items as JSON, if text and calls cannot replace them and the API would accept them back.

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
    rest = iter(calls)
    texts = []
    for item, raw in zip(items, raws, strict=False):
        if (
            item["type"] == "function_call"
            and not (sound := call_item(next(rest))).items() <= item.items()
        ):
            raw = item_json({**item, **sound})
        texts.append(raw.decode("utf-8", "replace"))
    return f"[{','.join(texts)}]"


def usage_of(usage: Any) -> Usage:
    def counted(of: Any, name: str) -> int:
        return count(of.get(name)) if isinstance(of, dict) else 0

    details = usage.get("input_tokens_details") if isinstance(usage, dict) else None
    return Usage(
        input=counted(usage, "input_tokens"),
        output=counted(usage, "output_tokens"),
        cache_read=counted(details, "cached_tokens"),
        cache_write=counted(details, "cache_write_tokens"),
    )
