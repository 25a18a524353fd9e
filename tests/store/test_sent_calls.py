"""Which model calls have left: what a file beside the store knows of them, and when it is not
believed."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from retinue.errors import StoreError
from retinue.store import sent_call_notes
from retinue.store.sent_call_notes import PLACE
from retinue.store.sent_calls import STEP, TAIL, SentCalls

RUNS = {"a": 1, "b": 1}


def opened(folder: Path, epoch: int, runs: dict[str, int]) -> SentCalls:
    """The next process: the one before it is simply gone."""
    store = folder / "log.db"
    store.touch()
    calls = SentCalls(str(store))
    calls.open()
    calls.keep(epoch, runs)
    return calls


def noted(folder: Path) -> None:
    """A process in which attempt 2 of `a` has left, and none of `b`."""
    first = opened(folder, 1, {})
    first.marker("a", 2)(True)
    first.marker("b", 1)(True)
    first.marker("b", 1)(True)
    mark = first.marker("b", 2)
    mark(True)
    mark(False)


def file_of(folder: Path) -> Path:
    return folder / f"log.db{TAIL}"


def test_what_was_noted_is_known_to_the_next_process(tmp_path: Path) -> None:
    noted(tmp_path)
    calls = opened(tmp_path, 2, RUNS)
    assert [calls.is_unsent("a", 1, n) for n in (1, 2, 3)] == [False, False, True]
    assert [calls.is_unsent("b", 1, n) for n in (1, 2)] == [False, True]
    assert calls.is_unsent("c", 1, 1)
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_run_that_nobody_has_taken_up_is_still_known_two_processes_later(tmp_path: Path) -> None:
    noted(tmp_path)
    second = opened(tmp_path, 2, RUNS)
    second.marker("d", 1)(True)
    third = opened(tmp_path, 5, {**RUNS, "d": 2})
    assert not third.is_unsent("a", 1, 2)
    assert third.is_unsent("b", 1, 2)
    assert not third.is_unsent("d", 2, 1)


def test_a_process_that_notes_nothing_in_between_makes_everything_uncertain(tmp_path: Path) -> None:
    noted(tmp_path)
    calls = opened(tmp_path, 3, {**RUNS, "c": 2})
    assert not calls.is_unsent("c", 2, 1)
    assert not calls.is_unsent("b", 1, 2)
    assert calls.is_unsent("new", 3, 1)
    later = opened(tmp_path, 4, {**RUNS, "c": 2})
    assert not later.is_unsent("c", 2, 1)


def _cut(file: Path) -> None:
    os.truncate(file, PLACE * 2)


def _flipped(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def _emptied(file: Path) -> None:
    file.write_bytes(b"")


def _another_start(file: Path) -> None:
    """After a power cut, notes that were still in memory are missing."""
    sent_call_notes.BOOT_ID = str(file.parent / "boot")
    (file.parent / "boot").write_text("11111111-2222-3333-4444-555555555555\n")


DAMAGES = {
    "missing": Path.unlink,
    "emptied": _emptied,
    "cut": _cut,
    "head": lambda file: _flipped(file, 9),
    "note": lambda file: _flipped(file, PLACE + 3),
    "another start of the machine": _another_start,
    "another store": lambda file: os.replace(_copy(file), file.with_suffix("")),
}


def _copy(file: Path) -> Path:
    other = file.parent / "copy"
    other.write_bytes(file.with_suffix("").read_bytes())
    return other


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_may_not_know_everything_is_not_believed(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_call_notes, "BOOT_ID", sent_call_notes.BOOT_ID)
    noted(tmp_path)
    DAMAGES[damage](file_of(tmp_path))
    calls = opened(tmp_path, 2, RUNS)
    assert not calls.is_unsent("b", 1, 2)
    assert calls.is_unsent("new", 2, 1)
    calls.marker("new", 1)(True)
    assert not opened(tmp_path, 3, {"new": 2}).is_unsent("new", 2, 1)


def test_a_machine_that_does_not_say_when_it_was_started_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_call_notes, "BOOT_ID", str(tmp_path / "nothing"))
    noted(tmp_path)
    assert not opened(tmp_path, 2, RUNS).is_unsent("b", 1, 2)


@pytest.mark.parametrize("kind", ["foreign", "second name", "link"])
def test_a_file_of_somebody_else_is_left_alone(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"not ours" if kind == "foreign" else b"")
    match kind:
        case "foreign":
            other.rename(file_of(tmp_path))
        case "second name":
            os.link(other, file_of(tmp_path))
        case _:
            file_of(tmp_path).symlink_to(other)
    with caplog.at_level(logging.WARNING):
        calls = opened(tmp_path, 1, {})
    calls.marker("a", 1)(True)
    assert not calls.is_unsent("a", 1, 1)
    assert file_of(tmp_path).read_bytes() == (b"not ours" if kind == "foreign" else b"")
    assert "every call counts as sent" in caplog.text


def test_places_are_used_again_and_given_back(tmp_path: Path) -> None:
    calls = opened(tmp_path, 1, {})
    for n in range(1_000):
        calls.marker(f"run {n}", 1)(True)
        if n % 100:
            calls.drop(f"run {n}")
    assert file_of(tmp_path).stat().st_size == PLACE * (1 + STEP)
    for n in range(200):
        calls.marker(f"more {n}", 1)(True)
    for n in range(200):
        calls.drop(f"more {n}")
    calls.trim()
    assert file_of(tmp_path).stat().st_size <= PLACE * 12
    calls.marker("last", 7)(True)
    rest = {f"run {n}": 1 for n in range(0, 1_000, 100)}
    again = opened(tmp_path, 2, {**rest, "last": 1})
    assert not any(again.is_unsent(run, 1, 1) for run in rest)
    assert not again.is_unsent("last", 1, 7)


def test_a_note_of_an_older_attempt_takes_nothing_back(tmp_path: Path) -> None:
    calls = opened(tmp_path, 1, {})
    old, new = calls.marker("a", 1), calls.marker("a", 2)
    old(True)
    new(True)
    old(False)
    assert not opened(tmp_path, 2, {"a": 1}).is_unsent("a", 1, 2)


@pytest.mark.parametrize("is_emptied", [True, False])
def test_what_cannot_be_noted_is_not_taken_for_unsent(
    is_emptied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = opened(tmp_path, 1, {})
    calls.marker("a", 1)(True)

    def fail(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        if not is_emptied:
            patched.setattr(os, "ftruncate", fail)
            with pytest.raises(StoreError, match="neither written nor emptied"):
                calls.marker("b", 1)(True)
            return
        calls.marker("b", 1)(True)
    assert not calls.is_unsent("b", 1, 1)
    assert not opened(tmp_path, 2, RUNS).is_unsent("b", 1, 1)


@pytest.mark.parametrize("kind", ["endless", "pipe"])
def test_a_file_without_an_end_is_not_read(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "pipe":
        os.mkfifo(file_of(tmp_path))
    else:
        with file_of(tmp_path).open("wb") as file:
            file.truncate(1 << 42)
    with caplog.at_level(logging.WARNING):
        calls = opened(tmp_path, 1, {})
    assert calls._fd < 0 and "every call counts as sent" in caplog.text
