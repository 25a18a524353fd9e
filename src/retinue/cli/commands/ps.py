"""`retinue ps`: lists the runs of a project, read from its store."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from retinue.cli.context import CommandContext, Duration, common, now_ms, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.cli.terminal.terminal_style import detect_style, size
from retinue.formats.safe_text import json_text, one_line
from retinue.host.held_lookup import with_held
from retinue.host.listing import ListedRun, RunListing
from retinue.host.provider_waits import NO_KEY
from retinue.view import format as view_format
from retinue.view import parked_runs
from retinue.view.run_table import TableLine, loudest_of, run_table

RECENT_MS = 3_600_000


@click.command("ps")
@run_argument(default="")
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
    run: str,
    tree: bool,
    everything: bool,
    form: str | None,
    watch: bool,
    state: str,
    since: float | None,
    limit: int,
) -> None:
    """List the runs of this project: open runs, and those that ended within the last hour. With
    RUN, only that one."""
    states = tuple(s.strip().replace(" ", "_") for s in state.split(",") if s.strip())
    is_all = everything or bool(states) or since is not None
    last = None
    while True:
        look = _read_rows(context, run, tree, is_all, limit)
        look.keep(states, since)
        text = _as_json(look.lines, form) if form else _text(context, look, tree)
        if text != last:
            _print(text, clear=watch and not form and sys.stdout.isatty())
            if not text and not form and not watch:
                context.say(_nothing(context, everything))
        if not watch:
            return
        last = text
        time.sleep(0.5)


@dataclass
class _Rows:
    """What is listed: `lines`, every run that is open, and those that wait at their provider or at
    a limit, by the root of their trees."""

    lines: list[ListedRun]
    open_runs: list[ListedRun]
    waiting: Mapping[str, ListedRun]

    def keep(self, states: Sequence[str], since: float | None) -> None:
        if since is not None:
            first = now_ms() - since * 1000
            self.lines = [line for line in self.lines if line.created_at >= first]
        if states:
            self.lines = [line for line in self.lines if view_format.is_wanted(line.state, states)]


def _read_rows(
    context: CommandContext, run: str, tree: bool, everything: bool, limit: int
) -> _Rows:
    with RunListing(context.paths) as listing:
        recent = None if everything else now_ms() - RECENT_MS
        one = listing.resolve(run) if run else None
        roots = [one] if one is not None else listing.roots(recent_since=recent, limit=limit)
        lines = roots
        if tree:
            lines = [line for root in roots for line in (root, *_below(listing, root))]
        open_runs = with_held(listing.open_runs(), context.paths)
    waiting = {line.root: line for line in reversed(open_runs) if line.waits_for}
    waits = {line.id: line for line in open_runs if line.provider_wait or line.waits_kind == NO_KEY}
    lines = [waits.get(line.id, line)._replace(n_agents=line.n_agents) for line in lines]
    lines = [
        line._replace(waits_for=waiting[line.id].waits_for) if line.id in waiting else line
        for line in lines
    ]
    accounts = {line.limit_of for line in waiting.values()}
    lines = [
        line._replace(state=_asking(line.state)) if line.id in accounts else line for line in lines
    ]
    return _Rows(lines, open_runs, waiting)


def _below(listing: RunListing, top: ListedRun) -> list[ListedRun]:
    """Those below a run, children behind their parents."""
    by_parent: dict[str, list[ListedRun]] = {}
    for line in listing.below(top.root):
        by_parent.setdefault(line.parent, []).append(line)
    out: list[ListedRun] = []
    todo = list(reversed(by_parent.get(top.id, [])))
    while todo:
        line = todo.pop()
        out.append(line)
        todo.extend(reversed(by_parent.get(line.id, [])))
    return out


def _text(context: CommandContext, look: _Rows, tree: bool) -> str:
    """What a person reads: the table or the trees, and what to do about them."""
    if not look.lines:
        return ""
    asking = _asking_roots(look.open_runs)
    lines = [
        *sorted((line for line in look.lines if line.ended_at is None), key=_start),
        *(line for line in look.lines if line.ended_at is not None),
    ]
    if tree:
        text = _trees(context, look, list(dict.fromkeys(line.root for line in lines)))
    else:
        marks = {line.id: loudest_of(line, look.open_runs) for line in lines}
        text = _painted(context, run_table(lines, marks, size(sys.stdout)[0], now_ms()))
    text += _groups(look.lines, look.open_runs)
    return text + _waits(look.lines, look.waiting) + _needs_you(look.lines, asking)


def _groups(lines: Sequence[ListedRun], open_runs: Sequence[ListedRun]) -> str:
    """Background work that can be ended as a whole."""
    roots = {line.root for line in lines}
    groups = [run.group for run in open_runs if run.group and run.root in roots]
    return "".join(
        f"\n{id}: {groups.count(id)} in the background. End them: retinue cancel {id}"
        for id in dict.fromkeys(groups)
    )


def _start(line: ListedRun) -> int:
    return line.created_at


def _painted(context: CommandContext, lines: Sequence[TableLine]) -> str:
    if not detect_style(context.environ, sys.stdout).color:
        return "\n".join(line.text for line in lines)
    from retinue.cli.terminal.line_output import shown
    from retinue.view.cells import Cells

    return shown(
        context,
        [
            [
                Cells(line.lead, "" if line.role else "quiet"),
                Cells(line.glyph, line.role, is_glyph=True),
                Cells(line.word, line.role or "quiet"),
                Cells(line.tail, "" if line.role else "quiet"),
            ]
            for line in lines
        ],
    )[0]


def _trees(context: CommandContext, look: _Rows, roots: Sequence[str]) -> str:
    """The rows of the grid that the live view has."""
    from retinue.cli.terminal.line_output import shown
    from retinue.host.record import RecordReader
    from retinue.view.stored_tree import stored_lines, stored_rows, with_loudest

    listed = {line.id: line for line in look.lines}
    waits = {
        line.id: line.provider_wait for line in look.open_runs if line.provider_wait is not None
    }
    lacks = {line.id: line.waits_for for line in look.open_runs if line.waits_kind == NO_KEY}
    out_lines = []
    with RecordReader(context.paths) as record:
        for root in roots:
            top = root if root in listed else next(i for i in listed if listed[i].root == root)
            is_paused = listed[top].state == "paused"
            tree = record.tree(top)
            rows = stored_rows(
                record, tree, now_ms(), is_paused=is_paused, waits=waits, lacks=lacks
            )
            rows_shown = [row for row in with_loudest(rows) if row.id in listed]
            out_lines += stored_lines(rows_shown, size(sys.stdout)[0])
    return shown(context, out_lines)[0]


def _print(text: str, *, clear: bool) -> None:
    if clear:
        sys.stdout.write("\x1b[H\x1b[2J")
    if text:
        out(text, styled=True)


def _nothing(context: CommandContext, everything: bool) -> str:
    more = "" if everything else " Run `retinue ps --all` to see older ones."
    return f'No runs in {context.paths.root}.{more} Start one with: retinue run "..."'


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
    return "".join(f"\n{_fitted(one_line(text, 400))}" for text in sentences)


def _fitted(text: str) -> str:
    """On a terminal in lines that fit it."""
    if not sys.stdout.isatty():
        return text
    from retinue.view.cells import wrap  # it costs time, and a pipe needs none of it

    return "\n  ".join(wrap(text, max(20, size(sys.stdout)[0] - 3)))


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
