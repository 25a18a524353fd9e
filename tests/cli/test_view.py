"""The rows of a view, folded from what real runs have told (tests/cli/fixtures, made by
tests/cli/record.py)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from retinue.core.events import (
    Asked,
    CancelAsked,
    ChildEnded,
    LogEntry,
    ModelFailed,
    ModelRegistered,
    Replied,
)
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import NOTHING, Run, Thinking
from retinue.core.state_names import ENDS
from retinue.core.values import ModelInfo, ProviderTrouble, Usage
from retinue.formats.safe_text import one_line
from retinue.host import tree_items
from retinue.runtime.held_calls import HeldCall
from retinue.view.rows import TreeView, view
from retinue.view.run_row import RunRow
from retinue.view.updates import feed
from tests.cli.record import SCENES, load, record

START = 1_800_000_000_000


def moments(
    name: str, items: list[tree_items.TreeItem] | None = None
) -> list[tuple[int, list[RunRow]]]:
    """The rows after each thing that was told, with its time."""
    records, at, out = TreeView(), START, []
    for item in load(name) if items is None else items:
        feed(records, item, 0)
        at = item.entry.at if isinstance(item, tree_items.Stepped) else at
        out.append((at, records.rows(at)))
    return out


def last(name: str) -> list[RunRow]:
    return moments(name)[-1][1]


def says(name: str, label: str) -> list[str]:
    """Everything that rows of a label have said they do, each once."""
    return list(
        dict.fromkeys(row.now for _, rows in moments(name) for row in rows if row.label == label)
    )


@pytest.mark.parametrize("name", SCENES)
def test_the_recordings_are_what_the_engine_tells_today(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    today = moments(name, record(name))[-1][1]
    assert today == last(name), "run `python -m tests.cli.record` and look at what has changed"


@pytest.mark.parametrize("name", SCENES)
def test_a_row_stays_where_it_was_first_seen(name: str) -> None:
    before: list[str] = []
    for _, rows in moments(name):
        ids = [row.id for row in rows]
        assert [id for id in ids if id in before] == before
        before = ids
        for n, row in enumerate(rows):
            assert not row.parent or row.parent in ids[:n]


@pytest.mark.parametrize("name", SCENES)
def test_who_comes_late_sees_how_each_run_stands(name: str) -> None:
    """It is told all steps from the beginning, with the first of a run how that stands now."""

    def stands(rows: list[RunRow]) -> list[tuple[object, ...]]:
        return [(row.id, row.state, row.mark, len(row.questions)) for row in rows]

    items = load(name)
    whole = [n for n, item in enumerate(items) if isinstance(item, tree_items.RunChanged)]
    live, at = TreeView(), 0
    for n, item in enumerate(items):
        feed(live, item, 0)
        at = item.entry.at if isinstance(item, tree_items.Stepped) else at
        if n not in whole or n + 1 in whole:
            continue
        beginning = items[: n + 1]
        records = {i.row.run.id: i for i in beginning if isinstance(i, tree_items.RunChanged)}
        late = TreeView()
        for earlier in beginning:
            if isinstance(earlier, tree_items.RunAdded | tree_items.Stepped):
                feed(late, earlier, 0)
            if isinstance(earlier, tree_items.RunAdded) and earlier.spec.id in records:
                feed(late, records[earlier.spec.id], 0)
        assert stands(late.rows(at)) == stands(live.rows(at)), f"after item {n}"


@pytest.mark.parametrize("name", SCENES)
def test_amounts_of_a_tree_are_its_own_and_those_of_its_children(name: str) -> None:
    for _, rows in moments(name):
        for row in rows:
            below = [r for r in rows if r.parent == row.id]
            assert row.tree_tokens == row.tokens + sum(r.tree_tokens for r in below)
            if row.tree_usd is not None:
                assert row.tree_usd == pytest.approx(
                    (row.usd or 0) + sum(r.tree_usd or 0 for r in below)
                )
            assert (row.n_children, row.n_over) == (len(below), sum(r.is_over for r in below))


@pytest.mark.parametrize("name", SCENES)
def test_what_is_counted_is_what_is_there_and_everything_ends(name: str) -> None:
    records = TreeView()
    for item in load(name):
        feed(records, item, 0)
        states = [node.state for node in records.nodes.values()]
        assert {k: n for k, n in records.counts.items() if n} == {
            s: states.count(s) for s in set(states)
        }
    assert all(row.is_over and row.state in ENDS for row in records.rows(START))


@pytest.mark.parametrize("name", SCENES)
def test_rows_survive_the_way_through_json(name: str) -> None:
    rows = last(name)
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[RunRow]) == rows


def test_the_fold_in_one_go_is_the_same() -> None:
    specs: list[Any] = []
    for item in load("tree"):
        match item:
            case tree_items.RunAdded():
                specs.append(item.spec)
            case tree_items.Stepped():
                specs.append(item.entry)
            case tree_items.RunChanged():
                specs.append(item.row.run)
    assert (
        [r.state for r in view(specs, START)]
        == [r.state for r in last("tree")]
        == ["completed"] * 5
    )


def test_children_and_grandchildren_have_their_place_and_their_words() -> None:
    rows = last("tree")
    assert [(r.depth, r.label, r.is_last) for r in rows] == [
        (0, "lead", True),
        (1, "areas", False),
        (2, "reader", True),
        (1, "areas", True),
        (2, "reader", True),
    ]
    assert [r.now for r in rows] == [
        "The map.",
        "Areas",
        "5 files, 4 key types",
        "Areas",
        "5 files, 4 key types",
    ]
    assert says("tree", "lead")[:5] == [
        "",
        "reads its task",
        "hire",
        "after hire",
        "for 2 sub-agents",
    ]
    assert says("tree", "reader") == [
        "",
        "reads its task",
        "look",
        "after look",
        "writes: 5 files, 4 key types",
        "5 files, 4 key types",
    ]
    assert "lane one: 1 of 1 busy" in says("tree", "areas") and "for a sub-agent" in says(
        "tree", "areas"
    )
    assert {r.max_turns for r in rows if r.label == "areas"} == {10}


def test_failures_are_told_apart_and_have_a_headline() -> None:
    rows = {r.task: r for r in last("failures")}
    assert {task: r.state for task, r in rows.items()} == {
        "try four ways": "completed",
        "fails": "failed",
        "well": "completed",
        "slow": "timed_out",
        "turns": "incomplete",
    }
    assert rows["fails"].error == "ValueError: cannot read that at all"
    assert (rows["slow"].word, rows["slow"].error) == ("failed", "timed out after 5.0 s")
    assert rows["turns"].now == "no turns left" and rows["well"].error == ""
    assert [rows[t].glyph for t in ("fails", "well", "slow")] == ["✗", "✓", "✗"]


def test_a_price_that_nobody_knows_is_not_nothing() -> None:
    rows = {r.task: r for r in last("failures")}
    assert rows["well"].tokens > 0 and rows["well"].usd is None and rows["well"].tree_usd is None
    assert rows["try four ways"].usd and rows["try four ways"].tree_usd is None, (
        "one unknown price is in the sum"
    )


def test_a_price_of_nothing_is_told_when_it_is_known() -> None:
    records = TreeView()
    for name in ("known", "unknown", "offline/explorer"):
        records.take(
            LogEntry(
                run="",
                at=START,
                event=ModelRegistered(model=ModelInfo(name="known", price_in=0, price_out=0)),
            )
        )
        records.take(
            RunSpec(
                id=name,
                request=RunRequest(agent="a", task="t"),
                root=name,
                model=name,
                created_at=START,
            )
        )
        thinking = Thinking(attempt=1, purpose="turn", hold=NOTHING, max_output=1)
        records.take(Run(id=name, state=thinking, usage=Usage(input=10)))
    assert [r.usd for r in records.rows(START)] == [0.0, None, 0.0]


def test_a_cancelled_parent_stays_in_front_of_those_that_stop_with_it() -> None:
    rows = last("cancel")
    assert [r.state for r in rows] == ["cancelled", "completed", "cancelled", "cancelled"]
    assert rows[0].now == "by you"
    words = [r.word for _, rows in moments("cancel") for r in rows]
    assert "stopping" in words


def test_who_asks_needs_you_until_it_is_answered() -> None:
    needing = [(at, [r for r in rows if r.needs_you]) for at, rows in moments("questions")]
    most = max((rows for _, rows in reversed(needing)), key=len)
    assert [(r.word, r.glyph, r.now) for r in most] == [
        ("needs you", "◆", "edit docs/A.md"),
        ("needs you", "◆", "asks: Which one?"),
    ]
    assert [[(q.kind, q.tool) for q in r.questions] for r in most] == [
        [("permission", "scribe")],
        [("question", "ask")],
    ]
    assert all(q.id for r in most for q in r.questions)
    assert needing[-1][1] == []


def test_waiting_for_the_provider_is_told_with_the_seconds_left() -> None:
    text = says("retries", "lead")
    assert any(" of 4" in now and " s, " in now for now in text), text
    assert "try 3" in text and text[-1] == "at last"
    records, waits = TreeView(), 0
    for item in load("retries"):
        feed(records, item, 0)
        if not isinstance(item, tree_items.RunChanged):
            continue
        wait = records.row(item.row.spec.id, 0).wait
        if wait is not None and wait.retry_at is not None:
            waits += 1
            row = records.row(item.row.spec.id, wait.retry_at - 5_000)
            assert (row.state, row.word) in (("waiting", "rate limited"), ("waiting", "retrying"))
            assert f": 5 s, {wait.tries + 1} of 4" in row.now
            assert "now" in records.row(item.row.spec.id, wait.retry_at + 1).now
    assert waits == 2


def test_a_call_that_is_held_for_others_waits_until_it_is_let_go() -> None:
    records = TreeView()
    records.take(
        RunSpec(id="a", request=RunRequest(agent="a", task="t"), root="a", model="anthropic:m")
    )
    thinking = Thinking(attempt=1, purpose="turn", hold=NOTHING, max_output=1)
    records.take(Run(id="a", state=thinking, started_at=START))
    trouble = ProviderTrouble(provider="anthropic", answer="429")
    call = HeldCall(run="a", kind="rate_limit", retry_at=START + 24_000, trouble=trouble)
    feed(records, tree_items.CallsHeld(calls=(call,)), START)
    row = records.row("a", START)
    assert (row.state, row.word, row.now) == ("waiting", "rate limited", "anthropic 429: 24 s")
    feed(records, tree_items.CallsHeld(), START)
    assert (records.row("a", START).state, records.row("a", START).wait) == ("running", None)


def test_what_is_told_of_the_past_does_not_end_a_wait_of_today() -> None:
    tree_view = TreeView()
    tree_view.take(
        RunSpec(id="a", request=RunRequest(agent="a", task="t"), root="a", model="anthropic:m")
    )
    waiting = Thinking(
        attempt=2,
        purpose="turn",
        hold=NOTHING,
        max_output=1,
        tries=1,
        retry_at=START + 24_000,
        waits_kind="rate_limit",
    )
    tree_view.take(Run(id="a", state=waiting, started_at=START, attempt=2, turn=1))
    reply = ModelReply(message=AssistantMessage(text="Earlier."))
    question = Asked(turn=0, index=0, call_id="c", name="ask", question="Which?")
    failed = ModelFailed(attempt=1, kind="rate_limit", message="429")
    for event in (question, failed, Replied(attempt=1, reply=reply)):
        tree_view.take(LogEntry(run="a", at=START, event=event))
        row = tree_view.row("a", START)
        assert (row.state, row.word) == ("waiting", "rate limited"), event
        assert row.now.endswith("24 s, 2 of 6"), row.now


def test_a_restart_is_seen_and_nothing_is_counted_twice() -> None:
    rows = last("restart")
    assert [(r.state, r.turn) for r in rows] == [("completed", 2), ("completed", 4)]
    assert "resumed after a restart" in says("restart", "worker")


def test_silence_is_measured_while_it_works_and_what_is_written_ends_it() -> None:
    records = TreeView()
    records.take(
        RunSpec(id="a", request=RunRequest(agent="a", task="t"), root="a", created_at=START)
    )
    thinking = Thinking(attempt=1, purpose="turn", hold=NOTHING, max_output=1)
    records.take(Run(id="a", state=thinking, started_at=START))
    assert records.row("a", START + 240_000).silent_ms == 240_000
    records.add_text("a", 1, "Now I ", START + 239_000)
    records.add_text("a", 1, "see", START + 240_000)
    row = records.row("a", START + 241_000)
    assert (row.silent_ms, row.now, row.elapsed_ms) == (1_000, "writes: Now I see", 241_000)
    records.add_text("a", 2, "again", START + 242_000)
    assert records.row("a", START + 242_000).now == "writes: again"


def test_what_is_refused_changes_nothing_and_a_child_that_was_not_kept_has_ended() -> None:
    records = TreeView()
    for id, parent in (("a", ""), ("b", "a")):
        records.take(
            RunSpec(
                id=id,
                parent=parent,
                root="a",
                request=RunRequest(agent="x", task="t"),
                depth=len(parent),
            )
        )
    records.take(LogEntry(run="b", at=1, event=CancelAsked(), stale="it has ended"))
    assert records.row("b", 1).state == "queued"
    records.take(LogEntry(run="a", at=1, event=ChildEnded(child="b")))
    assert records.row("b", 1).is_over and records.row("a", 1).n_over == 1
    records.take(LogEntry(run="nobody", at=1, event=CancelAsked()))
    records.take(
        Run(id="nobody", state=Thinking(attempt=1, purpose="turn", hold=NOTHING, max_output=1))
    )
    assert list(records.nodes) == ["a", "b"]


def test_several_calls_are_told_by_the_first_and_a_number() -> None:
    records = TreeView(lambda call: f"{call.name}!")
    records.take(RunSpec(id="a", request=RunRequest(agent="a", task="t"), root="a"))
    calls = tuple(ToolCall(id=str(n), name=f"t{n}") for n in range(3))
    records.take(
        LogEntry(
            run="a",
            at=1,
            event=Replied(attempt=1, reply=ModelReply(message=AssistantMessage(calls=calls))),
        )
    )
    assert records.row("a", 1).now == "t0! (+2 more)"


@pytest.mark.parametrize(
    ("hostile", "tame"),
    [
        ("a\x1b[31mred\x1b[0m\nb", "ared b"),
        ("\x1b]0;title\x07x", "x"),
        ("\x9b2Jx", "x"),
        ("a\u202ereversed\u2066", "areversed"),
        ("z" + "\u0301" * 40 + "!", "z\u0301\u0301\u0301\u0301!"),
        ("tab\tand\rreturn", "tab and return"),
        ("日本語 👩‍👩‍👧 ok", "日本語 👩‍👩‍👧 ok"),
        ("\x00\x07\x1b", ""),
    ],
)
def test_nothing_in_a_text_is_obeyed(hostile: str, tame: str) -> None:
    assert one_line(hostile) == tame
    records = TreeView()
    records.take(
        RunSpec(id="a", request=RunRequest(agent="a", task=hostile, label=hostile), root="a")
    )
    thinking = Thinking(attempt=1, purpose="turn", hold=NOTHING, max_output=1)
    records.take(Run(id="a", state=thinking, model_used=hostile))
    records.add_text("a", 1, hostile, 1)
    row = records.row("a", 1)
    assert row.model == tame
    assert row.task == tame and row.label in (tame, "a")
    assert all(c.isprintable() or c == "\u200d" for c in row.label + row.task + row.now)
