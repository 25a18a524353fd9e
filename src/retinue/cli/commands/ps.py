"""`retinue ps`: the runs of a project, read from its file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence

import click

from retinue.cli.context import CommandContext, Duration, common, out, pass_context
from retinue.formats.safe_text import json_text, one_line
from retinue.host.held_lookup import with_held
from retinue.host.listing import ListedRun, RunListing
from retinue.view import format as view_format
from retinue.view import parked_runs

RECENT_MS = 3_600_000
HEADINGS = ("RUN", "AGENT", "STATE", "TASK", "MODEL", "AGE", "TOKENS", "COST")


@click.command("ps")
@click.option("--tree", is_flag=True, help="Include the sub-agents of each run.")
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Include runs that ended more than an hour ago."
)
@click.option("--json", "form", flag_value="json", help="Print a JSON list.")
@click.option("--jsonl", "form", flag_value="jsonl", help="Print JSON, one run per line.")
@click.option(
    "-w", "--watch", is_flag=True, help="Keep watching: print again on every change, until Ctrl-C."
)
@click.option(
    "--state",
    default="",
    metavar="STATES",
    help="Only runs in these states, e.g. running,failed; `open` is every run that has not ended.",
)
@click.option(
    "--since",
    type=Duration(),
    metavar="TIME",
    help="Only runs started within this time, e.g. 2h.",
)
@click.option("-n", "--limit", type=int, default=1_000, show_default=True)
@common
@pass_context
def command(
    context: CommandContext,
    tree: bool,
    everything: bool,
    form: str | None,
    watch: bool,
    state: str,
    since: float | None,
    limit: int,
) -> None:
    """List the runs of this project: open runs, and those that ended within the last hour."""
    states = [s.strip().replace(" ", "_") for s in state.split(",") if s.strip()]
    last = None
    while True:
        with RunListing(context.places) as listing:
            lines = _lines(listing, tree, everything or bool(states) or since is not None, limit)
            open_runs = with_held(listing.open_runs(), context.places)
        waiting = {line.root: line for line in reversed(open_runs) if line.waits_for}
        waiting_lines = {line.id: line for line in open_runs if line.provider_wait is not None}
        lines = [waiting_lines.get(line.id, line) for line in lines]
        accounts = {line.limit_of for line in waiting.values()}
        lines = [
            line._replace(waits_for=waiting[line.id].waits_for) if line.id in waiting else line
            for line in lines
        ]
        lines = [
            line._replace(state=_asking(line.state)) if line.id in accounts else line
            for line in lines
        ]
        if since is not None:
            first = time.time() * 1000 - since * 1000
            lines = [line for line in lines if line.created_at >= first]
        if states:
            lines = [line for line in lines if view_format.is_wanted(line.state, states)]
        asking = _asking_roots(open_runs)
        text = _as_json(lines, form) if form else _table(lines, tree, asking)
        if not form and lines:
            text += _waits(lines, waiting) + _needs_you(lines, asking)
        if text != last:
            _print(text, clear=watch and not form and sys.stdout.isatty())
            if not text and not form and not watch:
                context.say(_nothing(context, everything))
        if not watch:
            return
        last = text
        time.sleep(0.5)


def _lines(listing: RunListing, tree: bool, everything: bool, limit: int) -> list[ListedRun]:
    recent = None if everything else int(time.time() * 1000) - RECENT_MS
    roots = listing.roots(recent_since=recent, limit=limit)
    if not tree:
        return roots
    return [line for root in roots for line in (root, *ordered(root.id, listing.below(root.id)))]


def ordered(root: str, below: Sequence[ListedRun]) -> list[ListedRun]:
    """Children behind their parents."""
    by_parent: dict[str, list[ListedRun]] = {}
    for line in below:
        by_parent.setdefault(line.parent, []).append(line)
    out: list[ListedRun] = []
    todo = list(reversed(by_parent.get(root, [])))
    while todo:
        line = todo.pop()
        out.append(line)
        todo.extend(reversed(by_parent.get(line.id, [])))
    return out


def _print(text: str, *, clear: bool) -> None:
    if clear:
        sys.stdout.write("\x1b[H\x1b[2J")
    if text:
        out(text)


def _nothing(context: CommandContext, everything: bool) -> str:
    more = "" if everything else " Run `retinue ps --all` to see older ones."
    return f'No runs in {context.places.root}.{more} Start one with: retinue run "..."'


def _asking(state: str) -> str:
    """A run with an open question about its limit needs a person, whichever run of its tree waits
    for it."""
    return state if state in view_format.ENDS or state == "paused" else "needs_input"


def _as_json(lines: Sequence[ListedRun], form: str) -> str:
    rows = [json_text(json.dumps(line.as_json(), ensure_ascii=False)) for line in lines]
    return "\n".join(rows) if form == "jsonl" else f"[{', '.join(rows)}]"


def _waits(lines: Sequence[ListedRun], waiting: Mapping[str, ListedRun]) -> str:
    """For each run that waits for its provider, itself or in its tree: what for, and what to do
    next."""
    roots = dict.fromkeys(line.root for line in lines if line.root in waiting)
    sentences = []
    for root, line in ((r, waiting[r]) for r in roots):
        about, verb = (
            view_format.short_id(line.limit_of or root),
            "asks" if line.limit_of else "waits",
        )
        advice = parked_runs.advice(line.waits_kind, line.waits_for, line.model, about, line.more)
        if (wait := line.provider_wait) is not None:
            now = int(time.time() * 1000)
            advice = parked_runs.provider_advice(wait, line.waits_for, line.model, about, now)
        sentences.append(f"{about} {verb}: {advice}")
    return "\n" + "\n".join(one_line(text, 400) for text in sentences) if sentences else ""


def _asking_roots(open_runs: Sequence[ListedRun]) -> frozenset[str]:
    """The runs in whose tree a run needs a person."""
    return frozenset(line.root for line in open_runs if line.state == "needs_input")


def _needs_you(lines: Sequence[ListedRun], asking: frozenset[str]) -> str:
    """`1 run needs you: retinue approve 7f3a`."""
    roots = [line for line in lines if line.id in asking and line.state != "paused"]
    if not roots:
        return ""
    names = f" {roots[0].short}" if len(roots) == 1 else ""
    verb = "run needs" if len(roots) == 1 else "runs need"
    return f"\n{len(roots)} {verb} you: retinue approve{names}"


def _shown(line: ListedRun, asking: frozenset[str] = frozenset()) -> str:
    """What screens tell apart beyond the state of a run: of a tree that is listed by its first run
    alone, whether any run in it needs a person."""
    if line.id in asking and line.state not in ("paused", *view_format.ENDS):
        return "needs_input"
    is_waiting = line.state == "waiting" and line.provider_wait is not None
    return line.provider_wait.state if is_waiting and line.provider_wait else line.state


def _table(lines: Sequence[ListedRun], tree: bool, asking: frozenset[str]) -> str:
    if not lines:
        return ""
    now = time.time() * 1000
    rows = [HEADINGS]
    if not tree:  # open runs first, the oldest at the top; then those that have ended
        lines = [
            *(line for line in reversed(lines) if line.ended_at is None),
            *(line for line in lines if line.ended_at is not None),
        ]
    for line in lines:
        state = _shown(line, frozenset() if tree else asking)
        lasted = (line.ended_at or now) - line.created_at
        lead = "  " * line.depth if tree else ""
        rows.append(
            (
                line.short,
                (lead + one_line(line.label, 24))[:24],
                f"{view_format.glyph(state)} {view_format.state_text(state)}",
                one_line(f"{line.group}: {line.task}" if line.group else line.task, 40),
                one_line(line.model, 28),
                view_format.span(lasted),
                *view_format.amounts(line),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    right = (5, 6, 7)
    return "\n".join(
        "  ".join(
            c.rjust(w) if i in right else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
