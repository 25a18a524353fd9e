"""What a program's OpenTelemetry got, in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from retinue.otel import OpenTelemetry


class Collected:
    """One process with its providers. `telemetry` is given to a runtime."""

    def __init__(self, *, content: bool = False, sampler: Any = None) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = OpenTelemetry(
            tracer_provider=self.tracers, meter_provider=meters, content=content
        )

    @property
    def spans(self) -> list[Any]:
        return list(self._exporter.get_finished_spans())

    def span(self, name: str) -> Any:
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def id_of(span: Any) -> int:
    return span.context.span_id


def parent_of(span: Any) -> int:
    return span.parent.span_id if span.parent is not None else 0


def attributes_of(span: Any) -> dict[str, Any]:
    return dict(span.attributes or {})
