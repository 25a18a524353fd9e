"""`retinue migrate`: moves a store from a file to a database, or back."""

from __future__ import annotations

import json
import os
import sys

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.host.migration import is_postgres, move_store, shown, wrong_address


@click.command("migrate")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@common
@pass_context
def command(context: CommandContext, source: str, target: str, as_json: bool) -> int:
    """Copy a whole store into an empty one and compare them: a SQLite file to PostgreSQL, or back.
    FROM and TO are files or addresses such as postgresql://USER@HOST/DATABASE. Nothing may have
    them open. FROM stays as it is: do not continue its runs, since TO continues them."""
    source, target = (
        one
        if is_postgres(one) or wrong_address(one)
        else os.path.join(context.cwd or "", os.path.expanduser(one))
        for one in (source, target)
    )
    show = _show if sys.stderr.isatty() and not context.is_quiet else _silent
    counts = move_store(source, target, show)
    if as_json:
        out(json.dumps({"from": shown(source), "to": shown(target), "rows": counts}))
    else:
        context.say(
            f"{counts['runs']} runs with {counts['events']} events and {counts['artifacts']} "
            f"artifacts are now in {shown(target)}. The logs of {counts['trees']} trees were "
            "compared: they are equal."
        )
    return exit_codes.OK


def _silent(what: str, n_done: int, total: int) -> None:
    pass


def _show(what: str, n_done: int, total: int) -> None:
    end = "\n" if n_done >= total else ""
    percent = n_done * 100 // max(1, total)
    click.echo(f"\r{what}: {percent:3} % of {total} rows{end}", nl=False, err=True)
