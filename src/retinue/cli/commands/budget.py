"""`retinue budget`: what a run may spend, has spent and holds; and more of it."""

from __future__ import annotations

import time
from typing import Any

import click

from retinue.cli import exit_codes as exits
from retinue.cli.context import CommandContext, Duration, common, note, out, pass_door
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal import limit_answer as raising
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.listing import ListedRun, RunListing
from retinue.host.record import RecordReader
from retinue.steps import Row
from retinue.view import format as words
from retinue.view import parked_runs as parked
from retinue.view import totals as facts
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
    "--add-usd", "usd", type=float, default=0.0, metavar="USD", help="So many dollars more."
)
@click.option(
    "--add-tokens", "tokens", type=int, default=0, metavar="N", help="So many tokens more."
)
@click.option("--add-turns", "turns", type=int, default=0, metavar="N", help="So many turns more.")
@click.option(
    "--add-calls", "calls", type=int, default=0, metavar="N", help="So many tool calls more."
)
@click.option(
    "--add-seconds",
    "seconds",
    type=Duration(),
    default=0.0,
    metavar="TIME",
    help="Its deadline, later.",
)
@click.option(
    "--land", "then", flag_value="land", help="At its limit: one last turn, with what there is."
)
@click.option("--ask", "then", flag_value="ask", help="At its limit: wait, and ask a person.")
@click.option("--end", "then", flag_value="end", help="End it now, and everything below it.")
@click.option("--json", "as_json", is_flag=True)
@common
@pass_door
def command(door: CommandContext, /, run: str, then: str | None, as_json: bool, **more: Any) -> int:
    """Show what a run and everybody below it may spend, have spent and hold; or change it.

    A run that waits at its limit goes on when it is raised (--add-usd 1), hands in what it has
    (--land), or is ended (--end). A limit can be raised before it is reached, too. What a sub-agent
    gets more is taken from its parent."""
    if then == "end" and any(more.values()):
        raise click.UsageError("--end and adding to the limit do not go together.")
    if min(more.values()) < 0:
        raise click.UsageError("a limit can be raised, not lowered.")
    with RunListing(door.places) as shelf:
        line = shelf.resolve(run)
    if then == "end":
        with line_to(door) as client:
            states = client.ask(requests.CancelRequest(runs=(line.id,), reason=raising.ENDED))[
                "states"
            ]
        door.say(f"{line.name} {states[line.id]}")
        return exits.OK
    if then or any(more.values()):
        with line_to(door) as client:
            fields: dict[str, Any] = {"on_limit": then or "", **more}
            done = client.ask(requests.BudgetRequest(run=line.id, **fields))["spending"]
        _told(door, line, done, then, more)
        if as_json:
            out(json_line(done))
        return exits.OK
    _look(door, line, as_json)
    return exits.OK


def _told(
    door: CommandContext,
    line: ListedRun,
    done: dict[str, Any],
    then: str | None,
    more: dict[str, Any],
) -> None:
    added = [amount_text(name, more[name]) for name in NAMES if more[name]]
    added += [f"{words.span(more['seconds'] * 1000)} of time"] * bool(more["seconds"])
    name = line.name
    if added:
        limits = [
            amount_text(n, done["limit"][n])
            for n in NAMES
            if done.get("limit", {}).get(n) is not None
        ]
        door.say(
            f"added {' and '.join(added)}: {name} may spend "
            f"{', '.join(limits) or 'without limit'} in all"
        )
    if then:
        door.say(f"at a limit of {name}: {AT_LIMIT[then]}")
    if done.get("questions"):
        note(f"retinue: {name} still waits, it needs more than that: retinue budget {line.short}")


def _look(door: CommandContext, line: ListedRun, as_json: bool) -> None:
    with RecordReader(door.places) as book:
        final = book.tree(line.id)
        row, account = final.rows[0], final.account or Account(id=line.id)
        asked = {facts.waits_for(r): r for r in final.rows if facts.limit_of(r) == line.id}
        above = _above(book, row)
    if as_json:
        out(json_line(_as_json(line, row, account, list(asked), above)))
        return
    if not has_limits(account):
        out(f"{line.name} has no limit of its own and draws from {_whose(above)}.")
    else:
        out(table(line.name, account))
    if row.run.deadline is not None and not facts.has_ended(row):
        out(f"deadline  in {words.span(max(0, row.run.deadline - int(time.time() * 1000)))}")
    for text, waiting in asked.items():
        out(f"asks      {one_line(text, 400)}")
        add = parked.raise_it(line.short, facts.waits_kind(waiting), facts.more_of(waiting))
        out(f"          {add}, or --land, or --end")


def _above(book: RecordReader, row: Row) -> Row | None:
    """The nearest run above it that has limits."""
    while row.spec.parent and (up := book.row(row.spec.parent)) is not None:
        account = book.account(up.spec.id)
        if has_limits(account):
            return up
        row = up
    return None


def _whose(above: Row | None) -> str:
    if above is None:
        return "nobody's: nothing limits it"
    order, id = above.spec.order, words.short_id(above.spec.id)
    return (
        f"{one_line(words.agent_label(order.label or order.agent), 40)} {id}: retinue budget {id}"
    )


def _as_json(
    line: ListedRun, row: Row, account: Account, asked: list[str], above: Row | None
) -> dict[str, Any]:
    return {
        "run": line.id,
        **account_json(account),
        "deadline": row.run.deadline,
        "asks": asked,
        "draws_from": above.spec.id if above is not None else "",
    }
