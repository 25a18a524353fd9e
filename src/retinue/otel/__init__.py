"""OpenTelemetry (extra `otel`): GenAI spans with parents across the tree and across restarts, and
metrics; and a tree on record as a trace file, without a collector and without the extra."""

from __future__ import annotations

from retinue.otel.live_spans import OpenTelemetry
from retinue.otel.trace_export import export_otlp, export_perfetto

__all__ = ["OpenTelemetry", "export_otlp", "export_perfetto"]
