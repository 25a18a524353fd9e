"""Spans as a trace in Chrome's format, which ui.perfetto.dev opens: a process for each run; in it
a track for the run and its model calls, and one for each tool call that others overlap. Arrows
lead from the call that started a run to that run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from retinue import __version__
from retinue.formats.safe_text import json_text
from retinue.otel.span_builder import TraceSpan

RUN_TRACK = 1


def perfetto_json(spans: Iterable[TraceSpan]) -> str:
    spans = list(spans)
    starts = (span for span in spans if span.operation == "invoke_agent")
    numbers = {span.run: n for n, span in enumerate(starts, 1)}
    tracks = _tracks(spans)
    events: list[dict[str, Any]] = []
    for span in spans:
        pid, tid = numbers[span.run], tracks[span.id]
        if span.operation == "invoke_agent":
            events += _names(pid, str(span.attributes["retinue.run.label"]))
        events.append(_slice(span, pid, tid))
        events += (
            {"ph": "i", "s": "t", "pid": pid, "tid": tid, "name": e.name, "cat": "event"}
            | {"ts": e.at // 1000, "args": e.attributes}
            for e in span.events
        )
    events += _arrows(spans, numbers, tracks)
    body = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"retinue": __version__}}
    return json_text(msgspec.json.encode(body).decode())


def _tracks(spans: list[TraceSpan]) -> dict[int, int]:
    """A track for each span, so that those of one track never overlap in part."""
    tracks: dict[int, int] = {}
    ends: dict[str, list[int]] = {}
    for span in spans:
        if span.operation != "execute_tool":
            tracks[span.id] = RUN_TRACK
            continue
        free = ends.setdefault(span.run, [])
        n = next((n for n, end in enumerate(free) if end <= span.start), len(free))
        free[n : n + 1] = [max(span.end, span.start + 1)]
        tracks[span.id] = RUN_TRACK + 1 + n
    return tracks


def _names(pid: int, label: str) -> list[dict[str, Any]]:
    named = {"process_name": label, "process_sort_index": pid}
    return [
        {"ph": "M", "pid": pid, "tid": RUN_TRACK, "name": name}
        | {"args": {"sort_index" if isinstance(value, int) else "name": value}}
        for name, value in named.items()
    ]


def _slice(span: TraceSpan, pid: int, tid: int) -> dict[str, Any]:
    """Nothing is shorter than a microsecond, and a run is that much longer than what is in it."""
    micros = (span.end - span.start) // 1000
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": span.name,
        "cat": span.operation,
        "ts": span.start // 1000,
        "dur": micros + 1 if span.operation == "invoke_agent" else max(1, micros),
        "args": {**span.attributes, **({"open": True} if span.is_open else {})},
    }


def _arrows(
    spans: list[TraceSpan], numbers: dict[str, int], tracks: dict[int, int]
) -> Iterable[dict[str, Any]]:
    by_id = {span.id: span for span in spans}
    for span in spans:
        above = by_id.get(span.parent_id)
        if span.operation != "invoke_agent" or above is None:
            continue
        shared: dict[str, Any] = {"name": "starts", "cat": "start", "id": str(numbers[span.run])}
        shared["ts"] = span.start // 1000
        yield {"ph": "s", "pid": numbers[above.run], "tid": tracks[above.id], **shared}
        yield {"ph": "f", "bp": "e", "pid": numbers[span.run], "tid": RUN_TRACK, **shared}
