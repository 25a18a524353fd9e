"""`retinue merge`: merges the branches of a run into the working files."""

from __future__ import annotations

import sys
from typing import Any

import click

from retinue.cli import exit_codes
from retinue.cli.command_help import GroupedCommand
from retinue.cli.commands.diff import branches_of
from retinue.cli.context import CommandContext, common, note, out, pass_context
from retinue.cli.foreground_run import line_to
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.terminal_style import size
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.listing import RunListing
from retinue.view.branch_table import amount, branch_lines, is_in_conflict, name_of
from retinue.view.cells import wrap
from retinue.view.format import json_line

EXAMPLES = """\
retinue merge 7f3a                 # every branch of the run, after a question
retinue merge 7f3a plugins --yes   # one of them, without"""


@click.command("merge", cls=GroupedCommand, examples=EXAMPLES)
@run_argument()
@click.argument("agents", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Merge without a question.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of each branch as JSON.")
@common
@pass_context
def command(
    context: CommandContext, run: str, agents: tuple[str, ...], yes: bool, as_json: bool
) -> int:
    """Merge what a run's copies of the files changed into the files of its directory. A branch that
    conflicts is not changed, and is named; your own branch and what you have staged are not
    touched."""
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    with line_to(context) as client:
        unmerged = [one for one in branches_of(client, line.id) if one["state"] == "kept"]
        chosen_branches = _named(unmerged, agents)
        # A branch that was named is tried; else only those that are known to fit.
        left_out = [] if agents else [one for one in chosen_branches if is_in_conflict(one)]
        chosen_branches = [one for one in chosen_branches if one not in left_out]
        if not unmerged:
            context.say(f"Nothing of {line.short} is left to be merged.")
            return exit_codes.OK
        if chosen_branches and not yes and not _is_wanted(chosen_branches, left_out):
            context.say("Nothing was merged.")
            return exit_codes.FAILED
        merges = [
            client.ask(requests.MergeRequest(run=one["run"]))["merge"] for one in chosen_branches
        ]
    merges += [one["merge"] for one in left_out]
    if as_json:
        out(json_line(merges))
    else:
        _report(merges)
    return (
        exit_codes.OK
        if all(one["state"] in ("merged", "empty") for one in merges)
        else exit_codes.FAILED
    )


def _named(branches: list[dict[str, Any]], agents: tuple[str, ...]) -> list[dict[str, Any]]:
    labels = {one["label"] for one in branches}
    if unknown := [name for name in agents if name not in labels]:
        raise click.UsageError(
            f"No branch of {unknown[0]!r} is left to be merged. There are: "
            f"{', '.join(sorted(labels)) or 'none'}."
        )
    return [one for one in branches if not agents or one["label"] in agents]


def _is_wanted(branches: list[dict[str, Any]], left_out: list[dict[str, Any]]) -> bool:
    from retinue.cli.terminal.typed_answer import line_after

    if not (sys.stdin and sys.stdin.isatty()):
        raise click.UsageError("Nobody can be asked here. To merge all the same, pass --yes.")
    for row in branch_lines([*branches, *left_out], size(sys.stderr)[0]):
        note(row)
    names = " and ".join(map(name_of, left_out))
    rest = f" {names} {'is' if len(left_out) == 1 else 'are'} not merged." if left_out else ""
    question = f"Merge {_count(len(branches))} into your files ({amount(branches)})?{rest} [y/N] "
    *first, last = wrap(question.rstrip(), max(20, size(sys.stderr)[0] - 3))
    for text in first:
        note(text)
    answer = line_after(f"{last} ")
    return answer is not None and answer.strip().lower() in ("y", "yes")


def _count(n: int) -> str:
    return "1 branch" if n == 1 else f"{n} branches"


def _report(merges: list[dict[str, Any]]) -> None:
    merged = [one for one in merges if one["state"] in ("merged", "empty")]
    if merged:
        branches = "its branch" if len(merged) == 1 else "their branches"
        note(f"✓ done: {len(merged)} of {len(merges)} merged, {branches} removed. Review: git diff")
    for one in merges:
        if one["state"] == "conflict":
            paths = ", ".join(one_line(path, 80) for path in one.get("conflicts", ()))
            n = len(one.get("places", ())) or 1
            conflicts = f"{n} conflict{'' if n == 1 else 's'} in {paths}"
            note(f"! {one_line(one['label'], 40)} has {conflicts}. Nothing of it was changed.")
            # git merges nothing into files that have changes of their own.
            branch = one_line(one.get("branch", ""), 80)
            note('  Resolve: git commit -am "Before the merge"')
            note(f"           git merge {branch}")
        elif one["state"] == "kept":
            note(f"! {one_line(one['label'], 40)} was not merged: {one_line(one.get('why', ''))}")
