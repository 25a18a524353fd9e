"""A tree on record as a file: the spans that a backend would have been given, and a picture of
the times."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from retinue import Agent, Retinue, tool
from retinue.otel import export_otlp, export_perfetto
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import agent, lead_of, on_virtual_time
from tests.otel.collected import Collected, attributes_of, id_of, parent_of


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "slept"


naps = [call("nap", seconds=5.0), call("nap", seconds=9.0), call("nap", seconds=1.0)]


def tree() -> Agent:
    """A lead whose children each make calls that overlap."""
    child = agent("child", [naps, "Rested."], tools=[nap], seconds=1.0)
    return lead_of(child, 2)


@on_virtual_time
async def test_a_file_has_the_spans_that_were_sent_and_the_official_parser_reads_it(
    tmp_path: Path,
) -> None:
    reply, path = Collected(), tmp_path / "trace.json"
    async with Retinue(clock=VirtualClock(), telemetry=reply.telemetry) as retinue:
        run = (await retinue.run(tree(), "Go.")).id
        await export_otlp(retinue, run, path)
    message = json_format.Parse(path.read_text(), ExportTraceServiceRequest())
    (resource,) = message.resource_spans
    assert resource.resource.attributes[0].value.string_value == "retinue"
    spans = {_hex(span.span_id): span for span in resource.scope_spans[0].spans}
    assert len(spans) == len(reply.spans) == 1 + 2 + 2 + 1 + 2 * (2 + 3)
    for item in reply.spans:
        span = spans[f"{id_of(item):016x}"]
        assert span.name == item.name and _hex(span.trace_id) == f"{item.context.trace_id:032x}"
        assert int(_hex(span.parent_span_id) or "0", 16) == parent_of(item)
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (
            *(item.start_time, item.end_time),
        )
        assert span.kind == (3 if item.name.startswith("chat") else 1)
        values = {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}
        assert values.keys() == dict(item.attributes).keys()
        assert values["gen_ai.operation.name"] == attributes_of(item)["gen_ai.operation.name"]


def _hex(data: bytes) -> str:
    """OTLP writes ids as hexadecimal text, which a reader of plain protobuf takes for base64."""
    return base64.b64encode(data).decode()


@on_virtual_time
async def test_a_picture_has_a_process_for_each_run_and_no_overlap_on_a_track(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.json"
    async with Retinue(clock=VirtualClock()) as retinue:
        run = (await retinue.run(tree(), "Go.")).id
        await export_perfetto(retinue, run, path)
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "i", "s", "f"}
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["lead", "child", "child"]
    slices = [e for e in events if e["ph"] == "X"]
    assert sum(e["cat"] == "execute_tool" for e in slices) == 1 + 2 * 3
    child = [e for e in slices if e["pid"] == 2 and e["cat"] == "execute_tool"]
    assert len({e["tid"] for e in child}) == 3 and max(e["dur"] for e in child) == 9_000_000
    _check_nesting(slices)
    arrows = [e for e in events if e["ph"] in "sf"]
    assert [(e["ph"], e["pid"]) for e in arrows] == [("s", 1), ("f", 2), ("s", 1), ("f", 3)]
    assert all(isinstance(e["ts"], int) for e in events if e["ph"] != "M")


def _check_nesting(slices: list[dict[str, Any]]) -> None:
    """Slices of one track are inside of each other or apart: the viewer needs that."""
    for one in slices:
        for other in slices:
            if (one["pid"], one["tid"]) != (other["pid"], other["tid"]):
                continue
            a, b = (one["ts"], one["ts"] + one["dur"]), (other["ts"], other["ts"] + other["dur"])
            apart = a[1] <= b[0] or b[1] <= a[0]
            assert apart or a[0] <= b[0] <= b[1] <= a[1] or b[0] <= a[0] <= a[1] <= b[1], (a, b)


@on_virtual_time
async def test_a_tree_that_is_still_open_is_written_as_far_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sleeper = agent("sleeper", [call("nap", seconds=1_000.0), "Rested."], tools=[nap])
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(sleeper, "Go.")
        await asyncio.sleep(5)
        await export_otlp(retinue, run, path, content=True)
        assert await retinue.outcome(run) is None, "it did not wait for the end"
    (group,) = json.loads(path.read_text())["resourceSpans"][0]["scopeSpans"]
    is_open = {
        span["name"]: any(a["key"] == "retinue.is_open" for a in span["attributes"])
        for span in group["spans"]
    }
    assert is_open == {
        "invoke_agent sleeper": True,
        "chat model of sleeper": False,
        "execute_tool nap": True,
    }
    assert "1000.0" in path.read_text()


@on_virtual_time
async def test_no_link_is_followed_that_a_run_has_put_in_the_place_of_a_file(
    tmp_path: Path,
) -> None:
    outside, path = tmp_path / "outside", tmp_path / "trace.json"
    outside.write_text("of somebody else")
    path.symlink_to(outside)
    async with Retinue(clock=VirtualClock()) as retinue:
        run = (await retinue.run(agent("one", ["Done."]), "Go.")).id
        for export in (export_otlp, export_perfetto):
            with pytest.raises(OSError, match=r"trace\.json"):
                await export(retinue, run, path)
    assert outside.read_text() == "of somebody else"


@on_virtual_time
async def test_a_part_of_a_tree_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    async with Retinue(clock=VirtualClock()) as retinue:
        run = (await retinue.run(tree(), "Go.")).id
        child = (await retinue.tree(run)).children[1].id
        await export_otlp(retinue, child, path)
    (group,) = json.loads(path.read_text())["resourceSpans"][0]["scopeSpans"]
    assert len(group["spans"]) == 6 and "invoke_agent lead" not in path.read_text()


@contextmanager
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A server that takes OTLP over HTTP."""
    requests: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_collector_gets_the_spans_over_http() -> None:
    reply, quick = Collected(), Agent("quick", model=Scripted(["Done."], name="m"))

    async def main() -> str:
        async with Retinue(telemetry=reply.telemetry) as retinue:
            return (await retinue.run(quick, "Go.")).id

    with collector() as (url, requests):
        reply.tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=url)))
        run = asyncio.run(main())
        reply.tracers.shutdown()
    spans = [s for r in requests for g in r.resource_spans[0].scope_spans for s in g.spans]
    assert [span.name for span in spans] == ["chat m", "invoke_agent quick"]
    assert spans[0].parent_span_id == spans[1].span_id and not spans[1].parent_span_id
    values = {a.key: a.value.string_value for a in spans[1].attributes}
    assert values["retinue.run.id"] == run
