"""Spans and metrics in real time, for the OpenTelemetry SDK of the program. Nothing of
OpenTelemetry is imported before an `OpenTelemetry` is made."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retinue import __version__
from retinue.errors import ConfigError
from retinue.events import Event
from retinue.otel.span_builder import SpanBuilder, TraceSpan

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

log = logging.getLogger("retinue.otel")
SCOPE = "retinue"
LABELS = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.agent.name",
    "gen_ai.tool.name",
    "error.type",
)
"""What distinguishes measurements: few values each, and no ids."""
SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
TOKENS = [4.0**n for n in range(14)]
DURATIONS = {
    "chat": "gen_ai.client.operation.duration",
    "invoke_agent": "gen_ai.invoke_agent.duration",
    "execute_tool": "gen_ai.execute_tool.duration",
}


class OpenTelemetry:
    """`Retinue(telemetry=OpenTelemetry())`. Prompts and replies are omitted unless `content` is
    on; then secrets are taken out of them. Without providers, those of the process are used
    (`opentelemetry.trace.set_tracer_provider`)."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
            from opentelemetry.sdk.trace import TracerProvider as _  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                f"OpenTelemetry needs packages that are not installed ({error.name}). "
                "Run: pip install 'retinue[otel]'"
            ) from None
        self._content = content
        self._spans = _SpanWriter(tracer_provider or trace.get_tracer_provider())
        self._measures = _Measures(meter_provider or metrics.get_meter_provider())
        self._builder = SpanBuilder(content=content)

    def open(self, clean: Callable[[str], str]) -> None:
        """A runtime starts; `clean` takes its secrets out of a text."""
        self._builder = SpanBuilder(content=self._content, clean=clean)

    def take(self, event: Event, *, is_new: bool) -> None:
        """One event of the record. Those of an earlier process (not `is_new`) are known to it
        only: what they have ended was sent by that process."""
        for span in self._builder.take(event):
            if is_new:
                self._spans.write(span)
                self._measures.add(span)


class _DerivedIds:
    """Gives the SDK the ids that a span has by its record."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """They are digests: evenly spread, which is what samplers rely on."""
        return True


class _SpanWriter:
    """Hands spans that are over to a tracer provider: its sampler, limits, processors and
    exporters apply as to any other span."""

    def __init__(self, provider: Any) -> None:
        self._ids, self._lock = _DerivedIds(), threading.Lock()
        tracer = _sdk_tracer(provider.get_tracer(SCOPE, __version__))
        if tracer is None:
            log.warning(
                "There is no OpenTelemetry SDK to give spans to. Call set_tracer_provider() first, "
                "or write OpenTelemetry(tracer_provider=...)."
            )
        else:
            # A copy, because the SDK gives the same tracer to all who name this scope.
            tracer = copy.copy(tracer)
            tracer.id_generator = self._ids
        self._tracer = tracer

    def write(self, span: TraceSpan) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        if self._tracer is None:
            return
        context = Context()
        if span.parent_id:
            flags = trace.TraceFlags(int(self._is_sampled(span)))
            above = trace.SpanContext(span.place.trace_id, span.parent_id, False, flags)
            context = trace.set_span_in_context(trace.NonRecordingSpan(above), context)
        kind = trace.SpanKind.CLIENT if span.operation == "chat" else trace.SpanKind.INTERNAL
        with self._lock:
            self._ids.trace_id, self._ids.span_id = span.place.trace_id, span.id
            out = self._tracer.start_span(
                span.name, context, kind, span.attributes, start_time=span.start
            )
        for event in span.events:
            out.add_event(event.name, event.attributes, event.at)
        if span.error:
            out.set_status(trace.Status(trace.StatusCode.ERROR, span.message or None))
        out.end(span.end)

    def _is_sampled(self, span: TraceSpan) -> bool:
        """Whether the trace is kept: as its caller says, or as the sampler says of its root, which
        ends last."""
        if span.place.is_sampled is not None:
            return span.place.is_sampled
        result = self._tracer.sampler.should_sample(None, span.place.trace_id, span.name)
        return bool(result.decision.is_sampled())


def _sdk_tracer(tracer: Any) -> Any:
    """The tracer of the SDK, also behind a wrapper such as logfire's; None if there is none."""
    for _ in range(4):
        if hasattr(tracer, "id_generator") and hasattr(tracer, "sampler"):
            return tracer
        tracer = getattr(tracer, "tracer", None) or getattr(tracer, "_tracer", None)
    return None


class _Measures:
    """The metrics of the GenAI conventions: tokens of model calls, and durations."""

    def __init__(self, provider: Any) -> None:
        meter = provider.get_meter(SCOPE, __version__)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )
        self._durations = {
            operation: meter.create_histogram(
                name,
                unit="s",
                description=f"How long {operation} took.",
                explicit_bucket_boundaries_advisory=SECONDS,
            )
            for operation, name in DURATIONS.items()
        }

    def add(self, span: TraceSpan) -> None:
        own = {name: span.attributes[name] for name in LABELS if name in span.attributes}
        self._durations[span.operation].record((span.end - span.start) / 1e9, own)
        for kind in ("input", "output"):
            tokens = span.attributes.get(f"gen_ai.usage.{kind}_tokens")
            if tokens is not None:
                self._tokens.record(tokens, {**own, "gen_ai.token.type": kind})
