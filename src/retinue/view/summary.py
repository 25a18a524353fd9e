"""What a run came to, in the last lines that a person reads of it: one line, more only when there
is more to say, and always the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from retinue.core.account import DIMENSIONS
from retinue.core.budget_shares import written
from retinue.core.messages import ToolCall
from retinue.core.state import RunRecord
from retinue.formats.money import OFFLINE
from retinue.formats.safe_text import one_line
from retinue.tree_record import TreeRecord
from retinue.view import format as view_format
from retinue.view import totals
from retinue.view.call_summary import describe
from retinue.view.merge_lines import merge_end_lines
from retinue.view.state_marks import LIMITS, mark
from retinue.view.states import canceller

FAILED = ("failed", "timed_out", "interrupted", "incomplete")


def end_lines(
    final: TreeRecord, code: int = 0, merges: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """The end of a run for people, with its exit code where it is not 0. `merges` say what became
    of the changes of writers that worked in parallel."""
    top = final.rows[0]
    id = view_format.short_id(top.spec.id)
    costs = _cost_lines(final)
    is_bare = bool(costs) and end_state(top) == "completed"
    first = view_format.with_exit(_first(final, top, id, has_cost=not is_bare), code)
    state = end_state(top)
    lines = [first]
    if state == "cancelled":
        lines.append(f"  {_kept(final)}Continue: retinue resume {id}")
    elif state == "at_limit":
        lines.append(f"  Continue: retinue resume {id}{_more(final)}")
    elif state != "completed":
        lines.append(f"  Continue: retinue resume {id}")
    files = _files_line(final, id, {one["run"] for one in merges})
    lines += [*costs, *_failed_line(final, id), *files]
    return [*lines, *merge_end_lines(merges, id)]


def end_line(final: TreeRecord) -> str:
    """The end of a run where one line is all there is."""
    top = final.rows[0]
    return _first(final, top, view_format.short_id(top.spec.id), has_cost=True)


def end_state(row: RunRecord) -> str:
    """How a run ended, as screens tell it apart."""
    end = totals.ending(row)
    if end is None:
        return totals.word(row)
    at_limit = end.state == "timed_out" or any(word in end.stop for word in LIMITS)
    return "at_limit" if end.state != "completed" and at_limit else end.state


def _kept(final: TreeRecord) -> str:
    """What a cancelled tree leaves: results, and branches of those that had copies."""
    ends = [end for row in final.rows if (end := totals.ending(row)) is not None]
    parts = [
        _counted(sum(end.state == "completed" for end in ends), "result"),
        _counted(sum(end.work is not None for end in ends), "branch"),
    ]
    return f"Kept: {', '.join(filter(None, parts))}. " if any(parts) else ""


def _counted(n: int, noun: str) -> str:
    ending = "es" if noun.endswith("ch") else "s"
    return f"{n} {noun}{ending if n > 1 else ''}" if n else ""


def _first(final: TreeRecord, top: RunRecord, id: str, *, has_cost: bool) -> str:
    end, state = totals.ending(top), end_state(top)
    span, sign = view_format.span_text(totals.elapsed(top)), mark(state)
    if state == "completed":
        parts = [f"{sign.glyph} done in {span}", *_agents(final)]
        spent = totals.spent(final)
        if has_cost:
            parts += [cost(final), *(() if spent.is_offline else spent.words[:1])]
        return " · ".join([*parts, f"retinue show {id}"])
    if end is None:
        return f"{sign.glyph} {sign.word} after {span} · {cost(final)} · retinue show {id}"
    if state == "cancelled":
        n = sum(end_state(row) == "cancelled" for row in final.rows)
        agents = f"all {n} stopped" if n > 1 else f"after {span}"
        why = f": {one_line(end.reason, 100)}" if end.reason else ""
        return f"{sign.glyph} cancelled {canceller(end)}{why} · {agents} · {cost(final)}"
    if state == "at_limit":
        partial = " · partial answer kept" if end.text else ""
        return f"{sign.glyph} stopped at limit: {_limit(final, top)} after {span}{partial}"
    why = one_line(end.error or end.stop.replace("_", " "), 300).rstrip(".")
    return f"{mark('failed').glyph} failed after {span}: {why}"


def _agents(final: TreeRecord) -> list[str]:
    """`14 agents: 12 done, 1 failed, 1 cancelled`, of several."""
    n = len(final.rows)
    if n == 1:
        return []
    states = Counter(mark(end_state(row)).word for row in final.rows)
    if states["done"] == n:
        return [f"{n} agents"]
    return [f"{n} agents: " + ", ".join(f"{k} {word}" for word, k in states.most_common())]


def cost(final: TreeRecord) -> str:
    """What a tree has cost, in a sentence: a fact, or it says what else it is."""
    if totals.spent(final).is_offline:
        return OFFLINE
    spent = totals.spent(final)
    if spent.usd is None:
        return "n/a"
    return view_format.sum_text(max(0.0, spent.usd - spent.usd_estimated), spent.usd, False)


def _cost_lines(final: TreeRecord) -> list[str]:
    """What one word does not say of the costs: those of a tree, a limit, a bound, an unknown
    price."""
    spent, account = totals.spent(final), final.account
    if spent.is_offline or not spent.tokens:
        return []
    cached = totals.tree_usage(final).cache_read
    size = spent.words[0] + (f", {view_format.tokens(cached)} from cache" if cached else "")
    if spent.usd is None:
        models = dict.fromkeys(row.run.model_used or row.spec.model for row in final.rows)
        return [f"  cost    n/a: no price known for {one_line(', '.join(models), 80)} · {size}"]
    if spent.usd_estimated:
        why = "replies were cut off before their usage came"
        return [f"  cost    {cost(final)} ({why}) · {size}"]
    if end_state(final.rows[0]) != "completed":
        return []
    limit = account.limit[1] if account is not None else None
    if limit is not None:
        of = f" of {view_format.money(limit / 1e9)}"
        return [f"  cost    {view_format.money(spent.usd)}{of} · {size}"]
    return [f"  cost    {cost(final)} · {size}"] if len(final.rows) > 1 else []


def _limit(final: TreeRecord, top: RunRecord) -> str:
    end, account = totals.ending(top), final.account
    if end is not None and end.state == "timed_out":
        return "time"
    if end is not None and end.stop == "turn_limit":
        return f"{top.run.turn} turns"
    if account is not None:
        for n, _ in enumerate(DIMENSIONS):
            limit = account.limit[n]
            if limit is not None and account.spent[n] + account.held[n] >= 0.8 * limit:
                return f"{written(n, account.spent[n])} of {written(n, limit)}"
    return one_line(end.error or end.stop, 80) if end is not None else "a limit"


def _more(final: TreeRecord) -> str:
    limit = final.account.limit[1] if final.account is not None else None
    return f" --max-budget-usd {2 * limit / 1e9:g}" if limit else ""


def _failed_line(final: TreeRecord, id: str) -> list[str]:
    failed = [row for row in final.rows[1:] if end_state(row) in FAILED]
    if not failed:
        return []
    end = totals.ending(failed[0])
    assert end is not None
    why = one_line(end.error or end.stop.replace("_", " "), 100).rstrip(".")
    request = failed[0].spec.request
    name = one_line(view_format.agent_label(request.label or request.agent), 40)
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return [f"  failed  {name}: {why}{others}. Retry: retinue resume {id} --from-failed"]


def _files_line(final: TreeRecord, id: str, paths: Collection[str]) -> list[str]:
    """What is on branches of runs, without the `known` ones: the result of their merge is already
    known."""
    works = [
        end.work
        for row in final.rows
        if row.spec.id not in paths and (end := totals.ending(row)) and end.work
    ]
    if not works:
        return []
    files, added = sum(w.files for w in works), sum(w.added for w in works)
    removed, n = sum(w.removed for w in works), len(works)
    where = f"{n} branch{'es' if n > 1 else ''}"
    size = f"{files} changed, +{added} -{removed} in {where}"
    return [f"  files   {size}. See: retinue diff {id}"]


def denial_text(denial: Mapping[str, Any]) -> str:
    """The call that was denied, in its shortest true form."""
    args = totals.json_text_of(denial["tool_input"])
    return describe(ToolCall(id="", name=denial["tool_name"], arguments_json=args))


def denial_lines(denials: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> list[str]:
    """At the end: what was denied, and the rules that would allow it."""
    if not denials:
        return []
    each = [
        f"{one_line(denial_text(d), 100)} ({one_line(labels.get(d['agent_id'], ''), 40)})"
        for d in denials
    ]
    calls = "1 call was" if len(each) == 1 else f"{len(each)} calls were"
    rules = " ".join(f'"{rule}"' for rule in dict.fromkeys(map(_rule, denials)))
    return [
        f"{calls} denied: {'; '.join(each[:5])}{'; ...' if len(each) > 5 else ''}",
        f"To allow {'it' if len(each) == 1 else 'them'}: --allowed-tools {rules}",
    ]


def _rule(denial: Mapping[str, Any]) -> str:
    args = denial["tool_input"]
    named = [args[name] for name in ("path", "command", "url") if isinstance(args.get(name), str)]
    subject = named[0] if named else ""
    name = one_line(denial["tool_name"], 80)
    return f"{name}({one_line(subject, 200)})" if subject else name
