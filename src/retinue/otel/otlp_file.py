"""Spans as OTLP JSON, the wire format of OpenTelemetry: ids in hexadecimal, whole numbers of 64
bits as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from retinue import __version__
from retinue.formats.safe_text import json_text
from retinue.otel.span_builder import TraceSpan

INTERNAL, CLIENT = 1, 3
ERROR = 2


def otlp_json(spans: Iterable[TraceSpan], *, service: str = "retinue") -> str:
    """One request of the OTLP trace service."""
    scope = {"name": "retinue", "version": __version__}
    resource = {"attributes": _attributes({"service.name": service})}
    group = {"scope": scope, "spans": [_span(span) for span in spans]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [group]}]}
    return json_text(msgspec.json.encode(body).decode())


def _span(span: TraceSpan) -> dict[str, Any]:
    out: dict[str, Any] = {
        "traceId": f"{span.place.trace_id:032x}",
        "spanId": f"{span.id:016x}",
        "name": span.name,
        "kind": CLIENT if span.operation == "chat" else INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes({**span.attributes, **_openness(span)}),
    }
    if span.parent_id:
        out["parentSpanId"] = f"{span.parent_id:016x}"
    if span.events:
        out["events"] = [
            {"timeUnixNano": str(e.at), "name": e.name, "attributes": _attributes(e.attributes)}
            for e in span.events
        ]
    if span.error:
        out["status"] = {"code": ERROR, "message": span.message}
    return out


def _openness(span: TraceSpan) -> dict[str, Any]:
    return {"retinue.is_open": True} if span.is_open else {}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case tuple():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case _:
            return {"stringValue": str(value)}
