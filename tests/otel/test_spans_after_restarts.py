"""Runs that go on in another process go on in the same trace, and no span comes twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from retinue import events as ev
from retinue.core.shared import Shared
from retinue.event_translation import Translator
from retinue.models.base import ModelRequest
from retinue.otel.span_builder import SpanBuilder, TraceSpan
from retinue.runtime.bus import Step
from tests.api.dying import die
from tests.api.scripted_agents import STORES, Home, agent, ended, lead_of, on_virtual_time
from tests.otel.collected import Collected, id_of, parent_of
from tests.simulation.pure import Simulation


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("is_clean", [True, False])
@on_virtual_time
async def test_a_restarted_runtime_continues_the_trace(
    kind: str, is_clean: bool, tmp_path: Path
) -> None:
    async def work(request: ModelRequest) -> str:
        await asyncio.sleep(10 + 10 * int(request.messages[0].text[-1]))
        return "did it"

    home, lead = Home(kind, tmp_path), lead_of(agent("child", work), 4)
    before, after = Collected(), Collected()
    first = home.open(telemetry=before.telemetry)
    await first.__aenter__()
    start = home.clock.now() * 1_000_000
    run = await first.spawn(lead, "Go.")
    await asyncio.sleep(25)
    await (first.__aexit__(None, None, None) if is_clean else die(first))
    async with home.open(agents=[lead], telemetry=after.telemetry) as retinue:
        await ended(retinue, run)
    spans = [*before.spans, *after.spans]
    counts = Counter(id_of(span) for span in spans)
    assert len({span.context.trace_id for span in spans}) == 1
    assert set(counts.values()) == {1} and len(before.spans) == 5
    assert {parent_of(span) for span in spans} <= {0, *counts}
    names = Counter(span.name for span in spans)
    assert names["invoke_agent child"] == 4 and names["invoke_agent lead"] == 1
    (top,) = (span for span in after.spans if span.name == "invoke_agent lead")
    assert top.start_time == start, "it began in the process before"
    if not is_clean:
        await first.__aexit__(None, None, None)


def test_a_process_that_is_killed_leaves_no_gap_but_what_had_no_end_and_nothing_twice(
    tmp_path: Path,
) -> None:
    program = [sys.executable, str(Path(__file__).with_name("dying_process.py")), str(tmp_path)]
    codes = [subprocess.run(program, timeout=120).returncode for _ in range(2)]
    assert codes == [-9, 0]
    lines = [json.loads(line) for line in (tmp_path / "spans.jsonl").read_text().splitlines()]
    by_id = {line[2]: line for line in lines}
    assert len(by_id) == len(lines) and len({line[1] for line in lines}) == 1
    assert any(line[5] for line in lines), "the first process told what it had finished"
    assert {line[3] for line in lines} <= {0, *by_id}
    exported = json.loads((tmp_path / "trace.json").read_text())
    spans = exported["resourceSpans"][0]["scopeSpans"][0]["spans"]
    record = {int(span["spanId"], 16): span["name"] for span in spans}
    assert {id: line[0] for id, line in by_id.items()}.items() <= record.items()
    assert Counter(record.values())["invoke_agent worker"] == 2


def events_of(seed: int) -> list[ev.Event]:
    """A schedule of the simulator: crashes, restarts, cancels, limits, questions."""
    simulation = Simulation(seed)
    simulation.run()
    translator = Translator(Shared(simulation.rules))
    log = enumerate(simulation.books.log, 1)
    return [event for seq, entry in log for event in translator.take(Step(seq, entry))]


def built(builder: SpanBuilder, events: list[ev.Event]) -> list[TraceSpan]:
    return [span for event in events for span in builder.take(event)]


@pytest.mark.parametrize("seed", range(12))
def test_wherever_a_process_ends_the_next_one_tells_the_rest_and_nothing_twice(seed: int) -> None:
    events = events_of(seed)
    whole = built(SpanBuilder(content=True), events)
    ids = [span.id for span in whole]
    assert len(ids) == len(set(ids))
    starts = {str(event.run): event for event in events if isinstance(event, ev.RunStarted)}
    for span in whole:
        assert span.start <= span.end
        parent = starts[span.run].parent
        assert span.parent_id in ids or span.operation == "invoke_agent"
        assert (span.parent_id == 0) == (span.operation == "invoke_agent" and parent is None)
    for position in range(0, len(events), max(1, len(events) // 20)):
        first, second = SpanBuilder(content=True), SpanBuilder(content=True)
        text = built(first, events[:position])
        built(second, events[:position])
        assert text + built(second, events[position:]) == whole
