"""A tree of runs in other formats. Each function takes what is exported and returns the text."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from retinue import __version__
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.core.state import RunRecord
from retinue.formats.safe_text import json_text, one_line, several_lines
from retinue.host.record import RecordReader
from retinue.otel.otlp_file import otlp_json
from retinue.otel.perfetto_file import perfetto_json
from retinue.otel.trace_export import spans_of
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view import stream_json, totals
from retinue.view.format import json_line
from retinue.view.summary import end_line

FENCE = "```"


class ExportSource(NamedTuple):
    """What is exported: a tree, the open store that has its conversations and steps, and the day
    on which the tree was started, as people write it. `has_content`: also prompts and replies,
    where a format can do without."""

    record: RecordReader
    tree: TreeRecord
    day: str
    has_content: bool = False


def as_markdown(source: ExportSource) -> str:
    """To read: every run with its conversation."""
    top = source.tree.rows[0]
    lines = [f"# {one_line(top.spec.request.task, 120)}", "", end_line(source.tree), ""]
    for row in source.tree.rows:
        level = "#" * min(6, 2 + row.spec.depth - top.spec.depth)
        lines += [f"{level} {_label(row)} · {view_format.state_text(totals.word(row))}", ""]
        lines += [
            f"{one_line(row.run.model_used or row.spec.model)}, "
            f"{view_format.span(totals.elapsed(row))}, {row.run.turn} turns",
            "",
        ]
        lines += [f"missing: {one_line(lacking)}", ""] if (lacking := totals.missing(row)) else []
        for message in source.record.conversation(
            row, row.spec.base.length if row.spec.base is not None else 0
        ):
            lines += [*_message(message), ""]
        end = totals.ending(row)
        if end is not None and end.error and end.state != "completed":
            lines += [f"**{end.state}** ({end.stop}): {one_line(end.error)}", ""]
    return several_lines("\n".join(lines))


def _message(message: Message) -> list[str]:
    if isinstance(message, AssistantMessage):
        out = ["**assistant**", "", message.text] if message.text else []
        for call in message.calls:
            out += ["", f"calls `{_name(call.name)}`", "", *_fenced(call.arguments_json, "json")]
        return out
    if isinstance(message, ToolMessage):
        return [
            f"`{_name(message.name) or 'tool'}` {'failed' if message.error else 'returned'}",
            "",
            *_fenced(message.text),
        ]
    return [f"**{message.kind if message.kind != 'task' else 'user'}**", "", message.text]


def _name(name: str) -> str:
    """A tool's name between backticks: a model can call what no tool is called."""
    return one_line(name, 200).replace("`", "'")


def _fenced(text: str, kind: str = "") -> list[str]:
    """In a fence that the text cannot close."""
    fence = FENCE
    while fence in text:
        fence += "`"
    return [fence + kind, text, fence]


def as_jsonl(source: ExportSource) -> str:
    """To process: specs, steps and messages as they are stored, one a line."""
    return "\n".join(
        json_text(msgspec.json.encode(item).decode()) for item in source.record.history(source.tree)
    )


def as_stream_json(source: ExportSource) -> str:
    """As `retinue run --output-format stream-json` would have written it."""
    head = stream_json.StreamHeader(version=__version__)
    return "\n".join(
        json_line(line)
        for line in stream_json.lines(head, source.record.history(source.tree), source.tree)
    )


def as_perfetto(source: ExportSource) -> str:
    """To see the times: a trace in Chrome's format, which ui.perfetto.dev opens."""
    return perfetto_json(spans_of(source.record.events(source.tree.rows[0])))


def as_otlp(source: ExportSource) -> str:
    """For trace backends: the spans that OpenTelemetry would have been given, with the same ids."""
    events = source.record.events(source.tree.rows[0])
    return otlp_json(spans_of(events, content=source.has_content))


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root {{ color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; \
background: color-mix(in srgb, currentColor 8%, transparent);
  padding: .6rem; border-radius: .4rem }}
details {{ margin-left: 1rem }}
summary {{ cursor: pointer }}
.who {{ opacity: .7; margin: .8rem 0 .2rem }}
</style></head><body>
<h1>{title}</h1><p>{footer}</p>
{body}
<p class="who">retinue {version}, {date}</p>
</body></html>
"""


def as_html(source: ExportSource) -> str:
    """To share: one page without scripts. Everything in it is text, whatever a model wrote. The
    day on it is `source.day`."""
    parts = []
    for n, row in enumerate(source.tree.rows):
        head = (
            f"{_label(row)} · {view_format.state_text(totals.word(row))} · "
            f"{view_format.span(totals.elapsed(row))}"
        )
        parts.append(f"<details{' open' if n == 0 else ''}><summary>{html.escape(head)}</summary>")
        if lacking := totals.missing(row):
            parts.append(f'<p class="who">missing: {html.escape(one_line(lacking))}</p>')
        for message in source.record.conversation(
            row, row.spec.base.length if row.spec.base is not None else 0
        ):
            parts.append(_html_message(message))
        parts.append("</details>")
    title = html.escape(one_line(source.tree.rows[0].spec.request.task, 120))
    footer = html.escape(end_line(source.tree))
    return PAGE.format(
        title=title,
        footer=footer,
        body="\n".join(parts),
        version=__version__,
        date=source.day,
    )


def _html_message(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        who, text = (
            "assistant",
            "\n\n".join(
                [message.text, *(f"{c.name} {c.arguments_json}" for c in message.calls)]
            ).strip(),
        )
    elif isinstance(message, ToolMessage):
        who, text = f"{message.name or 'tool'}{' (failed)' if message.error else ''}", message.text
    else:
        who, text = "user" if message.kind == "task" else message.kind, message.text
    who, text = html.escape(one_line(who, 200)), html.escape(several_lines(text))
    return f'<p class="who">{who}</p><pre>{text}</pre>'


def _label(row: RunRecord) -> str:
    return one_line(view_format.agent_label(row.spec.request.label or row.spec.request.agent), 200)


FORMATS: dict[str, Callable[[ExportSource], str]] = {
    "md": as_markdown,
    "jsonl": as_jsonl,
    "stream-json": as_stream_json,
    "perfetto": as_perfetto,
    "otlp": as_otlp,
    "html": as_html,
}
