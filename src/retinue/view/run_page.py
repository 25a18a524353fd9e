"""The page of `retinue show`: what a run is, what it may still spend, which runs need a person, its
tree, what to do next, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from retinue.core.account import DIMENSIONS
from retinue.formats.money import OFFLINE
from retinue.formats.safe_text import one_line, several_lines
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view import parked_runs, totals
from retinue.view.cells import Cells, Line, fits, right, wrap_line
from retinue.view.grid import clock
from retinue.view.run_row import RunRow
from retinue.view.state_marks import MARKS, loudest
from retinue.view.stored_tree import stored_lines

LABEL = 9
BAR = 29


class ShownRun(NamedTuple):
    """What a page is made of: the record, its rows from top to bottom, the directory of the
    project, and when the run began, in words."""

    final: TreeRecord
    rows: Sequence[RunRow]
    root: str
    began: str


def run_page(run: ShownRun, width: int, now: int, *, is_wrapped: bool) -> list[Line]:
    """`is_wrapped`: lines that are longer than the terminal continue below their beginning."""
    lines = [*_head(run, width, now), *_facts(run, width, now)]
    if is_wrapped:
        lines = [part for line in lines for part in wrap_line(line, width - 1, LABEL)]
    lines += stored_lines(run.rows, width, is_named=True)
    lines += [_amounts(run), *_labelled("cache", view_format.cache(_cache(run)))]
    lines += [*_next(run), *_result(run.final)]
    return lines


def _head(run: ShownRun, width: int, now: int) -> list[Line]:
    top, row = run.rows[0], run.final.rows[0]
    id = f"run {top.short}"
    title = fits(top.task or top.label, max(8, width - 2 - len(id) - 1))
    pad = right(id, max(len(id), width - 1 - cell_len(title)))
    mark = MARKS[loudest(top.mark, (one.mark for one in run.rows[1:]))]
    end = totals.ending(row)
    since = "since" if end is None else "started"
    span = view_format.span(totals.elapsed(row, now)) if end is not None else clock(top)
    parts = [f"{since} {run.began}, {'' if end is None else 'took '}{span}"]
    parts.append(f"{top.label} on {one_line(top.model)}")
    mode = (row.run.permissions or row.spec.permissions).mode
    parts.append(f"mode {mode or 'manual'}")
    if end is not None and end.stop and end.state != "completed":
        parts.insert(0, end.stop.replace("_", " "))
    state: Line = [
        Cells(mark.glyph, mark.role, is_glyph=True),
        Cells(" "),
        Cells(mark.word, mark.role),
        Cells("".join(f" · {part}" for part in parts)),
    ]
    return [[Cells(title, "title"), Cells(pad, "quiet")], state]


def _labelled(label: str, text: str) -> list[Line]:
    return [[Cells(f"{label:<{LABEL}}", "quiet"), Cells(text)]] if text else []


def _facts(run: ShownRun, width: int, now: int) -> list[Line]:
    top = run.final.rows[0]
    request = top.spec.request
    where = "" if request.cwd in ("", run.root) else one_line(request.cwd)
    lines = [*_labelled("where", where), *_budget(run.final, width)]
    lines += _labelled("missing", one_line(totals.missing(top)))
    lines += _labelled("files", ", ".join(_files(run.final)))
    for row in run.rows:
        if row.needs_you and not row.is_over:
            lines += _labelled("needs", f"{row.label}: {row.now}")
    lines += _waits(run.final, now)
    if top.spec.resumes:
        lines += _labelled("resumes", f"the end of run {view_format.short_id(top.spec.resumes)}")
    return lines


def _waits(final: TreeRecord, now: int) -> list[Line]:
    """What the first of those who wait at a provider or a limit waits for, and what to do."""
    row = next((row for row in final.rows if totals.waits_for(row)), None)
    if row is None:
        return []
    about, why = totals.limit_of(row), totals.waits_for(row)
    who = view_format.short_id(about or final.rows[0].spec.id)
    advice = parked_runs.advice(
        totals.waits_kind(row), why, row.spec.model, who, totals.more_of(row)
    )
    if (wait := totals.provider_wait(row)) is not None:
        advice = parked_runs.provider_advice(wait, why, row.spec.model, who, now)
    return _labelled("asks" if about else "waits", one_line(advice, 400))


def _files(final: TreeRecord) -> list[str]:
    """The files that are part of an agent's instructions, each once. How many tokens they take is
    counted here, not by a provider."""
    files = {f.sha256 + f.path: f for row in final.rows for f in row.spec.request.instruction_files}
    return [
        f"{one_line(f.path)} (~{view_format.count(f.tokens)} tokens in every turn)"
        for f in files.values()
    ]


def _budget(final: TreeRecord, width: int) -> list[Line]:
    """For each limit: what is spent, reserved for calls under way, and left."""
    account = final.account
    lines: list[Line] = []
    for i, name in enumerate(DIMENSIONS if account is not None else ()):
        assert account is not None
        limit, spent = account.limit[i], account.spent[i]
        if limit is None:
            continue
        reserve = min(account.held[i] + account.reserve[i], max(0, limit - spent))
        rest = max(0, limit - spent - reserve)
        is_bound = name in ("tokens", "usd") and bool(account.guess[i])
        money = view_format.bound(_amount(i, spent), is_bound=is_bound)
        parts = [f"spent {money}", f"reserved {_amount(i, reserve)}" if reserve else ""]
        text = ", ".join([*filter(None, parts), f"left {_amount(i, rest)}"])
        unit = "" if name == "usd" else f" {'tool calls' if name == 'calls' else name}"
        label = "" if lines else "budget"
        lines += [
            [
                Cells(f"{label:<{LABEL}}", "quiet"),
                Cells(f"{_bar(spent, reserve, limit, width - LABEL - 3 - len(text + unit))}  "),
                Cells(f"{text}{unit}"),
            ]
        ]
    return lines


def _amount(i: int, amount: int) -> str:
    return view_format.money(amount / 1e9) if DIMENSIONS[i] == "usd" else view_format.count(amount)


def _bar(spent: int, reserve: int, limit: int, room: int) -> str:
    """What is begun counts as a whole cell."""
    size = max(8, min(BAR, room))
    full = min(size, -(-size * spent // limit)) if limit else size
    both = min(size, -(-size * (spent + reserve) // limit)) if limit else size
    return "█" * full + "▒" * (both - full) + "░" * (size - both)


def _amounts(run: ShownRun) -> Line:
    """What the run has spent itself, and with all runs below it."""
    top, spent = run.final.rows[0].run.usage, totals.spent(run.final)
    if spent.is_offline:
        return [Cells(" " * LABEL), Cells(OFFLINE, "quiet")]
    tokens = view_format.tokens(top.tokens, is_bound=bool(top.estimated))
    usd = view_format.money(
        top.usd if spent.usd is not None else None, is_bound=bool(top.nanos_estimated)
    )
    own = f"self {tokens} tokens, {usd}"
    return [Cells(" " * LABEL), Cells(f"{own} · tree {', '.join(spent.words)}", "quiet")]


def _cache(run: ShownRun) -> dict[str, object]:
    return totals.cache_use(totals.tree_cache(run.final))


def _next(run: ShownRun) -> list[Line]:
    top = run.rows[0]
    id, asking = top.short, [row for row in run.rows if row.needs_you and not row.is_over]
    if top.mark == "paused":
        return _labelled("next", f"retinue resume {id} · logs {id}")
    if not top.is_over:
        active = asking or [row for row in run.rows[1:] if not row.is_over]
        about = f"{id}/{active[0].label}" if active and active[0].id != top.id else id
        first = [f"approve {id}"] if asking else []
        return _labelled(
            "next", "retinue " + " · ".join([*first, f"attach {id}", f"logs {about} -f"])
        )
    has_work = any(end.work for row in run.final.rows if (end := totals.ending(row)) is not None)
    parts = [f"logs {id}", *([f"diff {id}"] if has_work else []), f'resume {id} "..."']
    return _labelled("next", "retinue " + " · ".join(parts))


def _result(final: TreeRecord) -> list[Line]:
    end = totals.ending(final.rows[0])
    if end is None:
        return []
    texts = [several_lines(end.text)] if end.text else []
    if end.error and end.state != "completed":
        texts.append(f"error: {several_lines(end.error)}")
    lines: list[Line] = [line for text in texts for line in ([], *_text(text))]
    return lines + [
        [Cells(f"artifact {a.sha256} ({a.size} bytes): the full text", "quiet")]
        for a in end.artifacts
    ]


def _text(text: str) -> list[Line]:
    return [[Cells(part)] for part in text.split("\n")]
