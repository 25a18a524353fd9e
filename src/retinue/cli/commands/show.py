"""`retinue show`: one run, with its tree, its result, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.cli.run_argument import run_argument
from retinue.core.values import Usage
from retinue.formats.safe_text import one_line, several_lines
from retinue.host.listing import RunListing
from retinue.host.record import RecordReader
from retinue.steps import RunRecord, TreeRecord
from retinue.view import format as view_format
from retinue.view import parked_runs
from retinue.view import totals as facts
from retinue.view.format import json_line
from retinue.view.stream_json import StreamHeader, StreamJsonWriter


@click.command("show")
@run_argument(default="latest")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@common
@pass_context
def command(context: CommandContext, run: str, as_json: bool) -> None:
    """Show one run: its sub-agents, result and cost. RUN is part of an id, a name, or RUN/AGENT."""
    with RunListing(context.places) as listing:
        line = listing.resolve(run)
    with RecordReader(context.places) as record:
        final = record.tree(line.id)
        if as_json:
            teller = StreamJsonWriter(StreamHeader())
            for item in record.history(final):
                for _ in teller.tell(item):
                    pass
            out(
                json_line(
                    {**teller.result(final), "agents": [_agent(row, final) for row in final.rows]}
                )
            )
            return
    out(
        "\n".join(
            [
                *_header(final, line.state),
                "",
                *_tree(final, line.state == "paused"),
                *_result(final),
            ]
        )
    )


def _agent(row: RunRecord, final: TreeRecord) -> dict[str, object]:
    end = facts.ending(row)
    return {
        "id": row.spec.id,
        "parent": row.spec.parent,
        "label": view_format.agent_label(row.spec.request.label or row.spec.request.agent),
        "agent": view_format.agent_label(row.spec.request.agent),
        "state": facts.word(row),
        "stop": end.stop if end is not None else "",
        "missing": facts.missing(row),
        "waits_for": facts.waits_for(row),
        "provider_wait": wait._asdict() if (wait := facts.provider_wait(row)) else None,
        "limit_of": facts.limit_of(row),
        "task": row.spec.request.task,
        "model": row.run.model_used or row.spec.model,
        "turns": row.run.turn,
        "usage": facts.usage_json(row.run.usage),
        "cost_usd": row.run.usage.usd,
        "cost_is_known": row.run.usage.cost_is_known and (final.priced or row.run.usage.nanos > 0),
        "is_offline": facts.is_offline(row),
        "price_tag": facts.tag_json(row.spec),
        "cache": facts.cache_use(row.run.cache),
        "files_loaded": facts.plain(row.spec.request.instruction_files),
    }


def _header(final: TreeRecord, state: str) -> list[str]:
    top = final.rows[0]
    request, spent = top.spec.request, ", ".join(facts.spent(final).words)
    end = facts.ending(top)
    shown = _shown(top, state)
    lines = [
        f"run      {top.spec.id} ({view_format.short_id(top.spec.id)})",
        f"task     {one_line(request.task, 200)}",
        f"state    {view_format.glyph(shown)} {view_format.state_text(shown)}"
        + (f" ({end.stop})" if end is not None else ""),
        f"agent    {one_line(view_format.agent_label(request.agent))}, "
        f"{one_line(top.run.model_used or top.spec.model)}",
        f"where    {one_line(request.cwd) or '-'}",
        f"started  {_clock(top.spec.created_at)}, "
        f"{view_format.span(facts.elapsed(top, int(time.time() * 1000)))}",
        f"spent    {spent}, {top.run.turn} own turns",
    ]
    if lacking := facts.missing(top):
        lines.append(f"missing  {one_line(lacking)}")
    if cached := view_format.cache(facts.cache_use(facts.tree_cache(final))):
        lines.append(f"cache    {cached}")
    for row in final.rows:
        if why := facts.waits_for(row):
            about = facts.limit_of(row)
            kind, more, who = (
                facts.waits_kind(row),
                facts.more_of(row),
                view_format.short_id(about or top.spec.id),
            )
            advice = parked_runs.advice(kind, why, row.spec.model, who, more)
            if (wait := facts.provider_wait(row)) is not None:
                now = int(time.time() * 1000)
                advice = parked_runs.provider_advice(wait, why, row.spec.model, who, now)
            lines.append(f"{'asks ' if about else 'waits'}    {one_line(advice, 400)}")
            break
    if (limits := _limits(final)) is not None:
        lines.append(limits)
    lines += _loaded(final)
    if top.spec.resumes:
        lines.append(f"continues {view_format.short_id(top.spec.resumes)}")
    return lines


def _shown(row: RunRecord, state: str) -> str:
    """What screens tell apart beyond the state of a run."""
    wait = facts.provider_wait(row)
    return wait.state if wait is not None and state == "waiting" else state


def _loaded(final: TreeRecord) -> list[str]:
    """The files that are part of an agent's instructions, each once, and what they cost in every
    turn."""
    files = {f.sha256 + f.path: f for row in final.rows for f in row.spec.request.instruction_files}
    if not files:
        return []
    each = [
        f"{one_line(f.path)} ({f.bytes} bytes, about {view_format.count(f.tokens)} tokens)"
        for f in files.values()
    ]
    total = (
        f"         about {view_format.count(sum(f.tokens for f in files.values()))} tokens a turn"
    )
    lines = [f"{'files' if n == 0 else '':<9}{text}" for n, text in enumerate(each)]
    return lines + ([total] if len(each) > 1 else [])


def _limits(final: TreeRecord) -> str | None:
    account = final.account
    if account is None or all(limit is None for limit in account.limit):
        return None
    parts = []
    shows: tuple[Callable[[int], str], ...] = (
        view_format.count,
        lambda n: view_format.money(n / 1e9),
        str,
        str,
    )
    for limit, used, show, guess in zip(
        account.limit, account.spent, shows, (*account.guess[:2], 0, 0), strict=True
    ):
        if limit is not None:
            filled = min(10, round(10 * used / limit)) if limit else 10
            spent = view_format.bound(show(used), is_bound=bool(guess))
            parts.append(f"{'▓' * filled}{'░' * (10 - filled)} {spent} of {show(limit)}")
    return "budget   " + ", ".join(parts)


def _tree(final: TreeRecord, is_paused: bool) -> list[str]:
    below: dict[str, list[RunRecord]] = {}
    for row in final.rows[1:]:
        below.setdefault(row.spec.parent, []).append(row)
    totals: dict[str, Usage] = {}
    for row in reversed(final.rows):
        total = row.run.usage
        for child in below.get(row.spec.id, []):
            total = total.plus(totals[child.spec.id])
        totals[row.spec.id] = total
    out_lines: list[str] = []
    todo = [(final.rows[0], "", "")]
    while todo:
        row, lead, branch = todo.pop()
        is_held = is_paused and facts.ending(row) is None
        state = "paused" if is_held else _shown(row, facts.word(row))
        label = one_line(
            view_format.agent_label(row.spec.request.label or row.spec.request.agent), 24
        )
        out_lines.append(
            f"{lead}{branch}{view_format.glyph(state)} {label} "
            f"{view_format.short_id(row.spec.id)}  {view_format.state_text(state)}  "
            f"{view_format.span(facts.elapsed(row, int(time.time() * 1000)))}  self "
            f"{_tokens(row.run.usage)}  tree {_tokens(totals[row.spec.id])}  turn {row.run.turn}"
            + _cached(row)
            + (f"  {one_line(facts.says(row), 60)}" if facts.says(row) else "")
        )
        children = below.get(row.spec.id, [])
        margin = "   " if branch.startswith("└") else "│  "
        inner = lead + (margin if branch else "")
        for n, child in reversed(list(enumerate(children))):
            todo.append((child, inner, "└─ " if n == len(children) - 1 else "├─ "))
    return out_lines


def _tokens(usage: Usage) -> str:
    return view_format.tokens(usage.tokens, is_bound=bool(usage.estimated), is_short=True)


def _cached(row: RunRecord) -> str:
    """What its prompts were to find in the provider's cache, and found."""
    cached = row.run.cache
    return (
        f"  cache {view_format.count(cached.read)}/{view_format.count(cached.expected)}"
        if cached.expected or cached.read
        else ""
    )


def _result(final: TreeRecord) -> list[str]:
    end = facts.ending(final.rows[0])
    if end is None:
        return []
    lines = ["", several_lines(end.text)] if end.text else []
    if end.error and end.state != "completed":
        lines += ["", f"error: {several_lines(end.error)}"]
    return lines + [f"artifact {a.sha256} ({a.bytes} bytes): the full text" for a in end.artifacts]


def _clock(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at / 1000))
