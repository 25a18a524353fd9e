"""`retinue show`: shows one run: its tree, result and cost."""

from __future__ import annotations

import sys

import click

from retinue.cli.context import CommandContext, common, now_ms, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.line_output import print_lines
from retinue.cli.terminal.terminal_style import size
from retinue.cli.terminal.wall_clock import moment
from retinue.host.held_lookup import HostWaits, host_waits
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader
from retinue.tree_record import RunRecord, TreeRecord
from retinue.view import format as view_format
from retinue.view import totals
from retinue.view.format import json_line
from retinue.view.run_page import ShownRun, run_page
from retinue.view.stored_tree import stored_rows
from retinue.view.stream_json import StreamHeader, StreamJsonWriter


@click.command("show")
@run_argument(default="latest")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@common
@pass_context
def command(context: CommandContext, run: str, as_json: bool) -> None:
    """Show one run: its sub-agents, result and cost. RUN is part of an id, a name, or RUN/AGENT."""
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    with RecordReader(context.paths) as record:
        final = record.tree(line.id)
        if as_json:
            writer = StreamJsonWriter(StreamHeader())
            for item in record.history(final):
                for _ in writer.lines(item):
                    pass
            out(
                json_line(
                    {**writer.result(final), "agents": [_agent(row, final) for row in final.rows]}
                )
            )
            return
        is_open = line.ended_at is None
        waits, lacks = host_waits(context.paths) if is_open else HostWaits({}, {})
        rows = stored_rows(
            record, final, now_ms(), is_paused=line.is_paused, waits=waits, lacks=lacks
        )
    top = final.rows[0]
    began = moment(top.run.started_at or top.spec.created_at, now_ms())
    page = ShownRun(final, rows, context.paths.root, began)
    is_wrapped = sys.stdout.isatty()
    print_lines(context, run_page(page, size(sys.stdout)[0], now_ms(), is_wrapped=is_wrapped))


def _agent(row: RunRecord, final: TreeRecord) -> dict[str, object]:
    end = totals.ending(row)
    return {
        "id": row.spec.id,
        "parent": row.spec.parent,
        "label": view_format.agent_label(row.spec.request.label or row.spec.request.agent),
        "agent": view_format.agent_label(row.spec.request.agent),
        "state": totals.word(row),
        "stop": end.stop if end is not None else "",
        "missing": totals.missing(row),
        "waits_for": totals.waits_for(row),
        "provider_wait": wait._asdict() if (wait := totals.provider_wait(row)) else None,
        "limit_of": totals.limit_of(row),
        "task": row.spec.request.task,
        "model": row.run.model_used or row.spec.model,
        "turns": row.run.turn,
        "usage": totals.usage_json(row.run.usage),
        "cost_usd": row.run.usage.usd,
        "cost_is_known": row.run.usage.cost_is_known and (final.priced or row.run.usage.nanos > 0),
        "is_offline": totals.is_offline(row),
        "price_tag": totals.tag_json(row.spec),
        "cache": totals.cache_use(row.run.cache),
        "files_loaded": totals.plain(row.spec.request.instruction_files),
    }
