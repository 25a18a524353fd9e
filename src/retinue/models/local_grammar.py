"""The grammar that makes a local model write valid tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from retinue.core.values import ToolSchema

OPEN, CLOSE = "<tool_call>", "</tool_call>"

MAX_CALLS = 8


def grammar(
    tools: Sequence[ToolSchema], *, is_call: bool, output: Mapping[str, Any] | None = None
) -> str:
    """The replies that are allowed, in the engine's own notation. From the tag on, a call has the
    schema of its tool.

    `is_call`: one call and nothing else. Otherwise a text (or an `output`), or a few words and then
    calls; without tools no call can be begun. An engine that cannot read a schema decodes freely;
    calls are then recovered from the text."""
    rules = ["%llguidance {}"]
    if is_call:
        rules.append("start: call")
    elif output is not None:
        rules.append(f"start: answer | call{{1,{MAX_CALLS}}}" if tools else "start: answer")
        rules.append(f"answer: %json {_json(output)}")
    else:
        rules.append(
            f'start: TEXT | head body "{CLOSE}" call{{0,{MAX_CALLS - 1}}}'
            if tools
            else "start: TEXT"
        )
        rules.append(f"TEXT: ~/(?s:.*){OPEN}(?s:.*)/")
        rules += [f'head[suffix="{OPEN}"]: /(?s:.*)/'] if tools else []
    if tools:
        rules.append(f'call: "{OPEN}" body "{CLOSE}"')
        rules.append("body: " + " | ".join(f"tool_{n}" for n in range(len(tools))))
    for n, tool in enumerate(tools):
        opening = f'{{"name": {json.dumps(tool.name)}, "arguments": '
        rules.append(f'tool_{n}: {json.dumps(opening)} args_{n} "}}"')
        rules.append(f"args_{n}: %json {_json(_schema(tool.parameters))}")
    return "\n".join(rules) + "\n"


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Without the setting, spaces and line breaks are allowed everywhere, and a small model
    continues with them."""
    return {**(_closed(schema) or {"type": "object"}), "x-guidance": {"whitespace_flexible": False}}


def _closed(schema: Any) -> Any:
    """Only the properties that there are, unless the schema says more: a small model invents
    others."""
    if not isinstance(schema, Mapping):
        return schema
    closed = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(parts := closed.get(key), Mapping):
            closed[key] = {name: _closed(part) for name, part in parts.items()}
    for key in ("anyOf", "oneOf"):
        if isinstance(parts := closed.get(key), list):
            closed[key] = [_closed(part) for part in parts]
    if "items" in closed:
        closed["items"] = _closed(closed["items"])
    if (
        "properties" in closed and "allOf" not in closed
    ):  # what the parts of an allOf leave open, another may need
        closed.setdefault("additionalProperties", False)
    return closed


def _json(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()
