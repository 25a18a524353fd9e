"""Exports a recorded tree as a trace file: OTLP JSON for trace backends, or a trace for
ui.perfetto.dev."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.events import Event
from retinue.otel.otlp_file import otlp_json
from retinue.otel.perfetto_file import perfetto_json
from retinue.otel.span_builder import SpanBuilder, TraceSpan

if TYPE_CHECKING:
    from retinue.api import Retinue

DEEPEST = 1 << 30


async def export_otlp(
    retinue: Retinue[Any], run: str, path: str | Path, *, content: bool = False
) -> None:
    """Write a run and everything below it, as far as it is on record, as OTLP JSON. Any backend
    that takes OTLP over HTTP takes this file (`POST /v1/traces`). `content`: with prompts and
    replies."""
    text = otlp_json(await _spans(retinue, run, content))
    await asyncio.to_thread(_write, path, text)


async def export_perfetto(retinue: Retinue[Any], run: str, path: str | Path) -> None:
    """Write a run and everything below it, as far as it is on record, as a trace that
    ui.perfetto.dev opens."""
    text = perfetto_json(await _spans(retinue, run, False))
    await asyncio.to_thread(_write, path, text)


def _write(path: str | Path, text: str) -> None:
    """A link that a run may have put there is not followed: OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
        file.write(text)


async def _spans(retinue: Retinue[Any], run: str, content: bool) -> list[TraceSpan]:
    events = [event async for event in retinue.recorded(run)]
    return spans_of(events, content=content, clean=retinue.redactor.clean)


def spans_of(
    events: Iterable[Event], *, content: bool = False, clean: Callable[[str], str] = str
) -> list[TraceSpan]:
    """The spans of a tree, or of a part of it, by their start."""
    builder = SpanBuilder(content=content, clean=clean)
    spans = [span for event in events for span in builder.take(event)]
    return sorted([*spans, *builder.rest()], key=_order)


def _order(span: TraceSpan) -> tuple[int, int, int]:
    """By start; of what starts together, runs before what they do, and parents before children."""
    depth = span.attributes.get("retinue.run.depth", DEEPEST)
    return span.start, depth, -span.end
