"""A program's OpenTelemetry gets a span for each run, model call and tool call, and metrics."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from retinue import (
    Agent,
    ConfigError,
    Context,
    ModelInfo,
    ModelRejected,
    ModelReply,
    ModelUnavailable,
    Retinue,
    Retry,
    ToolError,
    Usage,
    tool,
)
from retinue.core.messages import AssistantMessage
from retinue.models.base import ModelRequest
from retinue.otel import OpenTelemetry
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import on_virtual_time
from tests.otel.collected import Collected, attributes_of, id_of, parent_of

SECRET = "sk-a-very-secret-value-1234567890"

reader = Agent("reader", model=Scripted(["It says no."], name="small", delay=2.0))


@tool
async def read(ctx: Context, question: str) -> str:
    """Ask a reader."""
    return (await ctx.run(reader, question)).text


def lead(*turns: Any, **fields: Any) -> Agent:
    script = list(turns) or [call("read", question="What?"), f"The answer is {SECRET}."]
    return Agent("lead", model=Scripted(script, name="big"), tools=[read], staff=[reader], **fields)


@on_virtual_time
async def test_a_tree_is_one_trace_with_the_call_between_parent_and_child() -> None:
    reply = Collected()
    async with Retinue(clock=VirtualClock(), telemetry=reply.telemetry) as retinue:
        run = (await retinue.run(lead(), "Go.", meta={"customer": "7"})).id
    names = sorted(span.name for span in reply.spans)
    assert names == [
        *("chat big", "chat big", "chat small", "execute_tool read"),
        *("invoke_agent lead", "invoke_agent reader"),
    ]
    top, below = reply.span("invoke_agent lead"), reply.span("invoke_agent reader")
    reading, small = reply.span("execute_tool read"), reply.span("chat small")
    assert len({span.context.trace_id for span in reply.spans}) == 1
    assert parent_of(top) == 0 and parent_of(reading) == id_of(top)
    assert parent_of(below) == id_of(reading) and parent_of(small) == id_of(below)
    assert {parent_of(s) for s in reply.spans if s.name == "chat big"} == {id_of(top)}
    assert small.kind == SpanKind.CLIENT and reading.kind == SpanKind.INTERNAL
    assert small.end_time - small.start_time == 2_000_000_000
    assert top.start_time <= reading.start_time <= below.start_time < reading.end_time
    attributes = dict(small.attributes)
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == attributes["gen_ai.response.model"] == "small"
    assert attributes["gen_ai.conversation.id"] == attributes["session.id"] == run
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.usage.output_tokens"] > 0
    assert attributes_of(top)["gen_ai.agent.name"] == "lead"
    assert attributes_of(top)["retinue.meta.customer"] == "7"
    assert attributes_of(top)["retinue.run.state"] == "completed"
    assert attributes_of(reading)["gen_ai.tool.name"] == "read"
    assert {span.status.status_code for span in reply.spans} == {StatusCode.UNSET}


@on_virtual_time
async def test_tokens_and_durations_are_measured() -> None:
    reply = Collected()
    async with Retinue(clock=VirtualClock(), telemetry=reply.telemetry) as retinue:
        await retinue.run(lead(), "Go.")
    metrics = reply.metrics()
    assert set(metrics) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.token.usage",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
    }
    calls = {
        p.attributes["gen_ai.request.model"]: p for p in metrics["gen_ai.client.operation.duration"]
    }
    assert calls["big"].count == 2 and calls["small"].sum == 2.0
    kinds = {p.attributes["gen_ai.token.type"] for p in metrics["gen_ai.client.token.usage"]}
    assert kinds == {"input", "output"}
    assert not any(
        name.endswith(".id")
        for p in metrics["gen_ai.invoke_agent.duration"]
        for name in p.attributes
    )


class Priced:
    """A model with a provider's name, a cache and a price."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info

    async def complete(self, request: ModelRequest, emit: Any) -> ModelReply:
        usage = Usage(input=1_000, output=100, cache_read=600, cache_write=300)
        return ModelReply(message=AssistantMessage(text="Yes."), usage=usage, model="gemini:pro-9")


@on_virtual_time
async def test_costs_are_told_where_a_price_is_known_and_never_as_nothing() -> None:
    reply = Collected()
    free = ModelInfo(name="gemini:pro")
    dear = ModelInfo(name="xai:pro", price_in=1_000, price_out=2_000)
    async with Retinue(clock=VirtualClock(), telemetry=reply.telemetry) as retinue:
        await retinue.run(Agent("unpriced", model=Priced(free)), "Go.")
        await retinue.run(Agent("priced", model=Priced(dear)), "Go.")
    first, second = (dict(s.attributes) for s in reply.spans if s.name == "chat pro")
    assert "operation.cost" not in first and second["operation.cost"] == 0.0012
    assert first["gen_ai.usage.cache_read.input_tokens"] == 600
    assert first["gen_ai.usage.cache_creation.input_tokens"] == 300
    assert [a["gen_ai.provider.name"] for a in (first, second)] == ["gcp.gemini", "x_ai"]
    assert first["gen_ai.response.model"] == "pro-9"
    tops = [dict(s.attributes) for s in reply.spans if s.name.startswith("invoke_agent")]
    assert ["retinue.tree.usd" in attributes for attributes in tops] == [False, True]


@on_virtual_time
async def test_what_is_only_a_bound_is_not_among_the_costs() -> None:
    spans = Collected()
    info = ModelInfo(name="xai:pro", price_in=1_000, price_out=2_000)
    usage = Usage(input=100, output=10, estimated=50)
    async with Retinue(clock=VirtualClock(), telemetry=spans.telemetry) as retinue:
        await retinue.run(Agent("one", model=Scripted(["Yes."], info=info, usage=usage)), "Go.")
    (call,) = (dict(s.attributes) for s in spans.spans if s.name.startswith("chat"))
    (top,) = (dict(s.attributes) for s in spans.spans if s.name.startswith("invoke_agent"))
    assert call["operation.cost"] == top["retinue.tree.usd"] == 0.00012
    assert call["retinue.usage.estimated_usd"] == top["retinue.tree.estimated_usd"] == 0.00005
    assert top["retinue.tree.estimated_tokens"] == 50


@tool
def broken() -> str:
    """Fail."""
    raise ToolError(f"No luck with {SECRET}.")


@on_virtual_time
async def test_failures_have_a_type_and_their_words_only_with_content() -> None:
    n = iter(range(9))

    def script(request: ModelRequest) -> Any:
        if next(n) == 0:
            raise ModelUnavailable("The house is on fire.", kind="overloaded")
        if len(request.messages) > 1:
            raise ModelRejected("No.", kind="refused")
        return call("broken")

    for content in (False, True):
        n = iter(range(9))
        reply = Collected(content=content)
        unlucky = Agent("unlucky", model=Scripted(script, name="m"), tools=[broken])
        async with Retinue(clock=VirtualClock(), telemetry=reply.telemetry) as retinue:
            outcome = await retinue.run(unlucky, "Go.", retry=Retry(attempts=2))
        assert outcome.state == "failed"
        errors = {
            s.name: attributes_of(s)["error.type"]
            for s in reply.spans
            if "error.type" in attributes_of(s)
        }
        assert errors["chat m"] and errors["execute_tool broken"] == "tool_error"
        assert errors["invoke_agent unlucky"] == outcome.stop
        failed = [s for s in reply.spans if s.status.status_code == StatusCode.ERROR]
        assert {s.name for s in failed} == set(errors)
        first = next(s for s in failed if s.name == "chat m")
        assert attributes_of(first)["error.type"] == "overloaded"
        assert ("on fire" in (first.status.description or "")) == content


@pytest.mark.parametrize("content", [False, True])
@on_virtual_time
async def test_what_was_said_is_left_out_unless_asked_for_and_then_without_secrets(
    content: bool,
) -> None:
    reply = Collected(content=content)
    async with Retinue(
        clock=VirtualClock(), telemetry=reply.telemetry, secrets={"KEY": SECRET}
    ) as retinue:
        await retinue.run(lead(), "The task of today.")
    text = "\n".join(span.to_json() for span in reply.spans)
    assert SECRET not in text
    for words in ("The task of today.", "What?", "It says no.", "redacted:KEY"):
        assert (words in text) == content, words
    if content:
        first = next(span for span in reply.spans if span.name == "chat big")
        assert attributes_of(first)["gen_ai.input.messages"] == (
            '[{"role":"user","parts":[{"type":"text","content":"The task of today."}]}]'
        )
        assert '"type":"tool_call"' in attributes_of(first)["gen_ai.output.messages"]


@on_virtual_time
async def test_a_trace_is_sampled_as_a_whole() -> None:
    reply = Collected(sampler=ParentBased(TraceIdRatioBased(0.5)))
    async with Retinue(clock=VirtualClock(), telemetry=reply.telemetry) as retinue:
        await asyncio.gather(*(retinue.run(lead(), f"Task {n}.") for n in range(24)))
    sizes = [
        sum(span.context.trace_id == trace for span in reply.spans)
        for trace in {span.context.trace_id for span in reply.spans}
    ]
    assert set(sizes) == {6} and 1 <= len(sizes) < 24


@on_virtual_time
async def test_a_run_continues_the_trace_that_its_caller_names() -> None:
    reply = Collected()
    async with Retinue(clock=VirtualClock(), telemetry=reply.telemetry) as retinue:
        with reply.tracers.get_tracer("web").start_as_current_span("POST /orders") as request:
            context = request.get_span_context()
            parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
            await retinue.run(lead(), "Go.", meta={"traceparent": parent})
        await retinue.run(lead(), "Go.", meta={"traceparent": "00-nonsense"})
    tops = [span for span in reply.spans if span.name == "invoke_agent lead"]
    assert tops[0].context.trace_id == context.trace_id and parent_of(tops[0]) == context.span_id
    inside = [s for s in reply.spans if s.context.trace_id == context.trace_id]
    assert len(inside) == 7 and "retinue.meta.traceparent" not in tops[0].attributes
    assert parent_of(tops[1]) == 0


@on_virtual_time
async def test_what_telemetry_does_wrong_does_not_reach_the_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def open(self, clean: Any) -> None:
            return

        def take(self, event: Any, *, is_new: bool) -> None:
            raise RuntimeError("no room")

    async with Retinue(telemetry=Broken()) as retinue:
        assert (await retinue.run(lead(), "Go.")).state == "completed"
    warnings = [r for r in caplog.records if r.name == "retinue.otel"]
    assert len(warnings) == 1 and "runs continue" in warnings[0].getMessage()


def test_a_program_without_an_sdk_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "retinue.otel"):
        OpenTelemetry(tracer_provider=NoOpTracerProvider())
    assert "set_tracer_provider()" in caplog.text


def test_without_the_packages_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'retinue\[otel\]'"):
        OpenTelemetry()


OFF = """
import asyncio, sys
from retinue import Agent, Retinue
from retinue.testing import Scripted
async def main():
    async with Retinue() as retinue:
        await retinue.run(Agent("a", model=Scripted(["Done."])), "Go.")
        assert retinue._feed is None and not retinue._engine.bus.busy
asyncio.run(main())
print([name for name in sys.modules if "opentelemetry" in name or "otel" in name])
import retinue.otel
print([name for name in sys.modules if "opentelemetry" in name])
"""


def test_when_it_is_off_nothing_of_it_is_imported_or_runs() -> None:
    process = subprocess.run(
        [sys.executable, "-c", OFF], capture_output=True, text=True, timeout=120
    )
    assert (process.stdout, process.stderr) == ("[]\n[]\n", "")
