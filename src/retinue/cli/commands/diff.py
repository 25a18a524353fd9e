"""`retinue diff`: shows what runs in worktrees have changed."""

from __future__ import annotations

import sys
from typing import Any

import click

from retinue.cli.command_help import GroupedCommand
from retinue.cli.context import CommandContext, common, out, pass_context, put
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.terminal_style import detect_style, size
from retinue.formats.safe_text import one_line, reveal
from retinue.host import requests
from retinue.host.client import HostClient
from retinue.host.listing import RunListing
from retinue.view.branch_table import branch_lines
from retinue.view.format import json_line

EXAMPLES = """\
retinue diff                       # the branches of the latest run
retinue diff 7f3a/plugins          # what one sub-agent has changed
retinue diff 7f3a/plugins | git apply"""
SIGNS = {"+": "32", "-": "31", "@": "2"}


@click.command("diff", cls=GroupedCommand, examples=EXAMPLES)
@run_argument(default="latest")
@click.option("--json", "as_json", is_flag=True, help="Print the branches as JSON.")
@common
@pass_context
def command(context: CommandContext, run: str, as_json: bool) -> None:
    """Show what a run's copies of the files changed: a line for each branch, or the diff of the
    one that RUN/AGENT names."""
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    with line_to(context) as client:
        branches = branches_of(client, line.id)
        if as_json:
            out(json_line(branches))
            return
        own = [one for one in branches if one["run"] == line.id]
        if own:
            _print(context, client.ask(requests.DiffRequest(run=line.id)))
            return
    if not branches:
        context.say(f"{line.short} has no copies: its agents worked in the files themselves.")
        return
    out("\n".join(branch_lines(branches, size(sys.stdout)[0])))
    unmerged = [one for one in branches if one["state"] == "kept"]
    if unmerged:
        first = one_line(unmerged[-1]["label"], 40)
        merge = f"retinue merge {line.short}{' [AGENT...]' if len(unmerged) > 1 else ''}"
        context.say(f"See one: retinue diff {line.short}/{first}   Merge: {merge}")


def branches_of(client: HostClient, run: str) -> list[dict[str, Any]]:
    """The copies of a run and of those below it, oldest first."""
    return list(client.ask(requests.BranchesRequest(run=run))["branches"])


def _print(context: CommandContext, data: bytes) -> None:
    """A diff as it is for a pipe; on a terminal with colours for what is added and removed, and
    nothing in it hidden."""
    if not sys.stdout.isatty():
        put(data)
        return
    text = reveal(data.decode("utf-8", "replace")).rstrip("\n")
    if not detect_style(context.environ, sys.stdout, context.color).color:
        out(text)
        return
    lines = (
        f"\x1b[{SIGNS[line[0]]}m{line}\x1b[0m" if line[:1] in SIGNS else line
        for line in text.split("\n")
    )
    out("\n".join(lines), styled=True)
