"""A program that writes each span to a file as it ends. Its first process kills itself in the
middle of the work; the second one finishes it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from retinue import Agent, Context, Retinue, tool
from retinue.models.base import ModelRequest
from retinue.otel import OpenTelemetry, export_otlp
from retinue.testing import Scripted, call

FOLDER = Path(sys.argv[1])
IS_FIRST = not (FOLDER / "first").exists()


class ToFile(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with open(FOLDER / "spans.jsonl", "a") as file:
            for span in spans:
                parent = span.parent.span_id if span.parent is not None else 0
                line = [span.name, span.context.trace_id, span.context.span_id, parent]
                file.write(json.dumps([*line, span.start_time, IS_FIRST]) + "\n")
        return SpanExportResult.SUCCESS


def work(request: ModelRequest) -> str:
    if request.messages[0].text == "second" and IS_FIRST:
        (FOLDER / "first").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "Done."


worker = Agent("worker", model=Scripted(work, name="small"))


@tool(restart="pure")
async def both(ctx: Context) -> str:
    """Work twice."""
    return (await ctx.run(worker, "first")).text + (await ctx.run(worker, "second")).text


lead = Agent("lead", model=Scripted([call("both"), "All."]), tools=[both], staff=[worker])


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    telemetry = OpenTelemetry(tracer_provider=provider)
    async with Retinue(FOLDER / "runs.db", agents=[lead], telemetry=telemetry) as retinue:
        run = await retinue.spawn(lead, "Go.", key="once")
        await retinue.wait(run)
        await export_otlp(retinue, run, FOLDER / "trace.json")


asyncio.run(main())
