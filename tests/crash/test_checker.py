"""The check can fail: each fault that is planted in what a clean run left behind is found, and
named for what it is."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from tests.crash import checker, plan
from tests.crash.evidence import Evidence, Kept
from tests.crash.workload import (
    JOURNAL,
    LOG,
    OUTCOMES,
    RECEIPTS,
    RECORD,
    Book,
    Fuse,
    World,
    read_book,
)

PLAN = plan.make(1)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    asyncio.run(World(PLAN, folder).live(Fuse()))
    return folder


@pytest.fixture
def folder(clean: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy to do harm to."""
    copy = tmp_path / "harmed"
    shutil.copytree(clean, copy)
    yield copy


def test_a_run_that_nobody_disturbed_has_no_faults(folder: Path) -> None:
    assert checker.check(folder, PLAN) == checker.Findings()


def sql(folder: Path, text: str, *args: Any) -> None:
    db = apsw.Connection(str(folder / LOG))
    db.execute(text, args)
    assert db.changes(), "the fault was not planted"
    db.close()


def run_of(folder: Path, name: str) -> Kept:
    (record,) = Evidence(folder).by_name[name]
    return record


CONVERSATION = "(select n from conversations where id = ?)"


def message_with(folder: Path, name: str, text: str) -> tuple[str, int]:
    """The run and the number of the first message of its conversation that holds `text`."""
    record = run_of(folder, name)
    number = min(
        n for n, m in record.messages.items() if m["role"] != "assistant" and text in m["text"]
    )
    return record.id, number


def token(name: str) -> str:
    nodes = {node.name: node for node, _ in PLAN.everybody()}
    return plan.ending(nodes[name], checker._chain(PLAN, nodes[name])).token


def first_line(folder: Path, kind: str, **fields: Any) -> dict[str, Any]:
    return next(
        line
        for line in read_book(folder / JOURNAL)
        if line["is"] == kind and fields.items() <= line.items()
    )


def add(path: Path, **fields: Any) -> None:
    book = Book(path)
    book.write(**fields)
    book.close()


def drop_record(path: Path, which: Callable[[dict[str, Any]], bool]) -> None:
    lines = path.read_bytes()
    records = [lines[n : n + RECORD] for n in range(0, len(lines), RECORD)]
    rest = [r for r in records if not which(msgspec.json.decode(r))]
    assert len(rest) < len(records), "the fault was not planted"
    path.write_bytes(b"".join(rest))


def unsafe_started_twice(folder: Path) -> None:
    add(folder / JOURNAL, **first_line(folder, "start", tool="unsafe"))


def unsafe_never_finished(folder: Path) -> None:
    key = first_line(folder, "start", tool="unsafe")["key"]
    drop_record(folder / JOURNAL, lambda line: line["is"] == "end" and line["key"] == key)


def tool_without_intent(folder: Path) -> None:
    line = first_line(folder, "start", tool="pure")
    add(folder / JOURNAL, **{**line, "key": line["key"] + "9"})


def tool_of_a_lost_reply(folder: Path) -> None:
    line = first_line(folder, "start", tool="pure")
    add(folder / JOURNAL, **{**line, "call": "a9c0"})


def tool_after_the_end(folder: Path) -> None:
    add(folder / JOURNAL, **{**first_line(folder, "start", tool="pure"), "life": 2})


def attempt_made_twice(folder: Path) -> None:
    add(folder / JOURNAL, **first_line(folder, "model"))


def joined_result_deleted(folder: Path) -> None:
    run, n = message_with(folder, "r0", token("r0.0"))
    sql(folder, f"delete from messages where conversation = {CONVERSATION} and n = ?", run, n)


def joined_result_changed(folder: Path) -> None:
    run, n = message_with(folder, "r0", token("r0.0"))
    body = msgspec.json.encode({"role": "tool", "call_id": "a1c1", "text": "something else"})
    sql(
        folder,
        f"update messages set body = ? where conversation = {CONVERSATION} and n = ?",
        body,
        run,
        n,
    )


def news_deleted(folder: Path) -> None:
    run, n = message_with(folder, "r0", token("r0.3"))
    sql(folder, f"delete from messages where conversation = {CONVERSATION} and n = ?", run, n)


def mail_deleted(folder: Path) -> None:
    run, n = message_with(folder, "r0.4", plan.mail("r0.4.0"))
    sql(folder, f"delete from messages where conversation = {CONVERSATION} and n = ?", run, n)


def result_repeated(folder: Path) -> None:
    run, n = message_with(folder, "r0", token("r0.0"))
    copy = (
        f"insert into messages select conversation, n + 1000, body from messages where "
        f"conversation = {CONVERSATION}"
    )
    sql(folder, f"{copy} and n = ?", run, n)


def news_repeated(folder: Path) -> None:
    run, n = message_with(folder, "r0", token("r0.3"))
    copy = (
        f"insert into messages select conversation, n + 1000, body from messages where "
        f"conversation = {CONVERSATION}"
    )
    sql(folder, f"{copy} and n = ?", run, n)


def run_left_open(folder: Path) -> None:
    sql(
        folder,
        "update runs set open = 1, state = 'waiting' where id = ?",
        run_of(folder, "r0.3").id,
    )


def run_deleted(folder: Path) -> None:
    sql(
        folder,
        "delete from specs where run = (select n from runs where id = ?)",
        run_of(folder, "r0.0").id,
    )


def _copy_run(folder: Path, name: str, parent: str) -> None:
    columns = (
        "conversation, root, {}, slot_turn, slot_index, open, turn, state, created_at, "
        "ended_at, body"
    )
    old, new = columns.format("parent"), columns.format("?")
    id = run_of(folder, name).id
    sql(
        folder,
        f"insert into runs (id, {old}) select 'again', {new} from runs where id = ?",
        parent,
        id,
    )
    of = "(select n from runs where id = {})"
    spec = (
        f"insert into specs select {of.format(repr('again'))}, body from specs where run = "
        f"{of.format('?')}"
    )
    sql(folder, spec, id)


def run_started_twice(folder: Path) -> None:
    _copy_run(folder, "r0.0", run_of(folder, "r0").id)


def root_started_twice(folder: Path) -> None:
    _copy_run(folder, "q0", "")


def another_result(folder: Path) -> None:
    record = run_of(folder, "q0")
    body = {
        **record.body,
        "state": {**record.body["state"], "ending": {**record.ending, "text": "something else"}},
    }
    sql(folder, "update runs set body = ? where id = ?", msgspec.json.encode(body), record.id)


def fork_without_its_prefix(folder: Path) -> None:
    sql(folder, "update conversations set base_length = base_length - 1 where base_id is not null")


def hold_left_over(folder: Path) -> None:
    account = {"id": run_of(folder, "r0").id, "held": [1, 0, 0, 0]}
    sql(
        folder,
        "update runs set account = ? where id = ?",
        msgspec.json.encode(account),
        account["id"],
    )


def delivery_not_recorded(folder: Path) -> None:
    sql(folder, "update outbox set state = 'sent' where run = ?", run_of(folder, "q0").id)


def delivery_deleted(folder: Path) -> None:
    sql(folder, "delete from outbox where run = ?", run_of(folder, "q0").id)


def delivery_never_made(folder: Path) -> None:
    drop_record(folder / RECEIPTS, lambda line: line["is"] == "new" and token("q0") in line["text"])


def delivery_under_two_keys(folder: Path) -> None:
    line = next(line for line in read_book(folder / RECEIPTS) if line["is"] == "new")
    add(folder / RECEIPTS, **{**line, "key": "another"})


def event_deleted(folder: Path) -> None:
    sql(folder, "delete from events where seq = 20")


def event_changed(folder: Path) -> None:
    sql(folder, "update events set at = at + 1 where seq = 20")


def artifact_deleted(folder: Path) -> None:
    shutil.rmtree(folder / f"{LOG}.artifacts")


def verify_complained(folder: Path) -> None:
    outcomes = msgspec.json.decode((folder / OUTCOMES).read_bytes())
    (folder / OUTCOMES).write_bytes(
        msgspec.json.encode({**outcomes, "wrong": ["Event 3 is missing."]})
    )


FAULTS = {
    "unsafe_reruns": [unsafe_started_twice],
    "lost": [
        joined_result_deleted,
        joined_result_changed,
        news_deleted,
        mail_deleted,
        run_deleted,
        another_result,
        artifact_deleted,
    ],
    "twice": [result_repeated, news_repeated, run_started_twice],
    "announcements_lost": [delivery_not_recorded, delivery_deleted, delivery_never_made],
    "announcements_twice": [delivery_under_two_keys],
    "broken": [
        unsafe_never_finished,
        tool_without_intent,
        tool_of_a_lost_reply,
        tool_after_the_end,
        attempt_made_twice,
        run_left_open,
        root_started_twice,
        fork_without_its_prefix,
        hold_left_over,
        event_deleted,
        event_changed,
        verify_complained,
    ],
}


def test_every_kind_of_fault_is_planted() -> None:
    assert set(FAULTS) == set(checker.KINDS)


@pytest.mark.parametrize(
    ("kind", "plant"),
    [
        pytest.param(kind, plant, id=plant.__name__)
        for kind, plants in FAULTS.items()
        for plant in plants
    ],
)
def test_a_planted_fault_is_found(kind: str, plant: Callable[[Path], None], folder: Path) -> None:
    plant(folder)
    faults = checker.check(folder, PLAN).faults
    assert kind in {fault.kind for fault in faults}, faults
