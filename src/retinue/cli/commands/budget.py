"""`retinue budget`: shows a run's limits, spending and reserved amounts, and raises the limits."""

from __future__ import annotations

import time
from typing import Any

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, Duration, common, note, out, pass_context
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal import limit_answer
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.listing import ListedRun, RunListing
from retinue.host.record import RecordReader
from retinue.tree_record import RunRecord
from retinue.view import format as view_format
from retinue.view import parked_runs, totals
from retinue.view.budget_table import (
    AT_LIMIT,
    NAMES,
    Account,
    account_json,
    amount_text,
    has_limits,
    table,
)
from retinue.view.format import json_line


@click.command("budget")
@run_argument(default="latest")
@click.option(
    "--add-usd",
    "usd",
    type=float,
    default=0.0,
    metavar="USD",
    help="Raise the limit by this many US dollars.",
)
@click.option(
    "--add-tokens",
    "tokens",
    type=int,
    default=0,
    metavar="N",
    help="Raise the limit by this many tokens.",
)
@click.option(
    "--add-turns",
    "turns",
    type=int,
    default=0,
    metavar="N",
    help="Raise the limit by this many turns.",
)
@click.option(
    "--add-calls",
    "calls",
    type=int,
    default=0,
    metavar="N",
    help="Raise the limit by this many tool calls.",
)
@click.option(
    "--add-seconds",
    "seconds",
    type=Duration(),
    default=0.0,
    metavar="TIME",
    help="Move the deadline by this time, e.g. 90s, 10m, 1h.",
)
@click.option(
    "--land", "then", flag_value="land", help="At the limit: allow one last turn to finish."
)
@click.option("--ask", "then", flag_value="ask", help="At the limit: wait and ask you.")
@click.option("--end", "then", flag_value="end", help="Cancel the run and its sub-agents now.")
@click.option("--json", "as_json", is_flag=True)
@common
@pass_context
def command(
    context: CommandContext, /, run: str, then: str | None, as_json: bool, **more: Any
) -> int:
    """Show or change what a run and its sub-agents may spend.

    A run that waits at its limit continues when you raise the limit (--add-usd 1), finishes with
    what it has (--land), or is cancelled (--end). You can raise a limit before it is reached.
    What a sub-agent gets is taken from its parent's budget."""
    if then == "end" and any(more.values()):
        raise click.UsageError("--end cannot be combined with raising a limit.")
    if min(more.values()) < 0:
        raise click.UsageError("Limits can be raised, not lowered.")
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    if then == "end":
        with line_to(context) as client:
            states = client.ask(requests.CancelRequest(runs=(line.id,), reason=limit_answer.ENDED))[
                "states"
            ]
        context.say(f"{line.name} {states[line.id]}")
        return exit_codes.OK
    if then or any(more.values()):
        with line_to(context) as client:
            fields: dict[str, Any] = {"on_limit": then or "", **more}
            spending = client.ask(requests.BudgetRequest(run=line.id, **fields))["spending"]
        _report(context, line, spending, then, more)
        if as_json:
            out(json_line(spending))
        return exit_codes.OK
    _show_budget(context, line, as_json)
    return exit_codes.OK


def _report(
    context: CommandContext,
    line: ListedRun,
    spending: dict[str, Any],
    then: str | None,
    more: dict[str, Any],
) -> None:
    added = [amount_text(name, more[name]) for name in NAMES if more[name]]
    added += [f"{view_format.span(more['seconds'] * 1000)} of time"] * bool(more["seconds"])
    name = line.name
    if added:
        limits = [
            amount_text(n, spending["limit"][n])
            for n in NAMES
            if spending.get("limit", {}).get(n) is not None
        ]
        context.say(
            f"Added {' and '.join(added)}. {name} may now spend "
            f"{', '.join(limits) or 'without limit'} in total."
        )
    if then:
        context.say(f"At its limit, {name} will: {AT_LIMIT[then]}")
    if spending.get("questions"):
        note(f"retinue: {name} is still waiting: it needs more. Run `retinue budget {line.short}`.")


def _show_budget(context: CommandContext, line: ListedRun, as_json: bool) -> None:
    with RecordReader(context.paths) as record:
        final = record.tree(line.id)
        row, account = final.rows[0], final.account or Account(id=line.id)
        questions = {totals.waits_for(r): r for r in final.rows if totals.limit_of(r) == line.id}
        above = _above(record, row)
    if as_json:
        out(json_line(_as_json(line, row, account, list(questions), above)))
        return
    if not has_limits(account):
        out(f"{line.name} has no limit of its own. {_whose(above)}")
    else:
        out(table(line.name, account))
    if row.run.deadline is not None and not totals.has_ended(row):
        out(f"deadline  in {view_format.span(max(0, row.run.deadline - int(time.time() * 1000)))}")
    for text, waiting in questions.items():
        out(f"asks      {one_line(text, 400)}")
        add = parked_runs.raise_it(line.short, totals.waits_kind(waiting), totals.more_of(waiting))
        out(f"          {add}, or --land, or --end")


def _above(record: RecordReader, row: RunRecord) -> RunRecord | None:
    """The nearest run above it that has limits."""
    while row.spec.parent and (up := record.row(row.spec.parent)) is not None:
        account = record.account(up.spec.id)
        if has_limits(account):
            return up
        row = up
    return None


def _whose(above: RunRecord | None) -> str:
    if above is None:
        return "Nothing above it has a limit either."
    request, id = above.spec.request, view_format.short_id(above.spec.id)
    return (
        f"It draws from {one_line(view_format.agent_label(request.label or request.agent), 40)} "
        f"{id}: retinue budget {id}"
    )


def _as_json(
    line: ListedRun, row: RunRecord, account: Account, questions: list[str], above: RunRecord | None
) -> dict[str, Any]:
    return {
        "run": line.id,
        **account_json(account),
        "deadline": row.run.deadline,
        "asks": questions,
        "draws_from": above.spec.id if above is not None else "",
    }
