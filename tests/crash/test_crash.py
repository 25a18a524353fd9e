"""A program that is killed at any moment loses nothing, repeats nothing, and says so when it cannot
know.

Forking is left to `python -m tests.crash.main`, a process without threads; here its last line is
read."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.crash import checker, plan, planted
from tests.crash.evidence import Evidence
from tests.crash.workload import GO, LOCKED, LOG, POINTS

ROOT = Path(__file__).resolve().parent.parent.parent


def killed(folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """What the harness counted, and what it said to people."""
    command = [sys.executable, "-W", "error", "-m", "tests.crash.main", "--workers", "1", *options]
    # Every other test keeps the default: half of the databases in memory, half on the disk.
    command += ["--folder", str(folder)] if "--plant" in options else []
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.stdout, process.stderr
    counted: dict[str, Any] = msgspec.json.decode(process.stdout.splitlines()[-1])
    assert process.returncode == (0 if counted["ok"] else 1), process.stderr
    return counted, process.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 100_001])
def test_nothing_is_lost_or_repeated_in_100_kills(seed: int, tmp_path: Path) -> None:
    counted, output = killed(tmp_path, "--kills", "100", "--seed", str(seed))
    assert counted["ok"], output
    assert counted["kills"] >= 100
    assert {kind: counted[kind] for kind in checker.KINDS} == dict.fromkeys(checker.KINDS, 0)
    assert counted["outcome_unknown"] > 0, (
        "no unsafe call was interrupted: the kills came at the wrong moments"
    )
    assert counted["reruns"] > 0, "no call was repeated: the kills came at the wrong moments"


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_repeated_at_any_named_point(tmp_path: Path) -> None:
    counted, output = killed(tmp_path, "--each", "3", "--seed", "7")
    assert counted["ok"], output
    assert all(counted["points"][point] >= 3 for point in POINTS)


FOUND_AT = {"acts_before_it_records": "tool-start"}
"""Where a process has to die so that a bug is found soon."""
FOUND_AS = {
    "repeats_unsafe_calls": "unsafe_reruns",
    "acts_before_it_records": "broken",
    "forgets_mail": "lost",
    "forgets_who_is_back": "lost",
    "forgets_deliveries": "announcements_lost",
    "delivers_mail_again": "twice",
    "tells_parents_later": "lost",
    "names_deliveries_by_attempt": "announcements_twice",
    "pays_for_what_never_left": "broken",
    "pays_for_nothing_that_was_lost": "broken",
}


def test_every_planted_bug_is_hunted() -> None:
    assert set(FOUND_AS) == set(planted.BUGS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", FOUND_AS)
def test_a_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    kind = FOUND_AS[bug]
    counted, output = killed(
        tmp_path,
        "--kills",
        "2000",
        "--seed",
        "1",
        "--until",
        kind,
        "--patience",
        "2",
        "--plant",
        bug,
        "--point",
        FOUND_AT.get(bug, ""),
    )
    assert not counted["ok"]
    assert counted[kind] > 0, output
    assert f"--plant {bug}" in output, "no command was printed that replays it"


def life(folder: Path, *options: str) -> subprocess.Popen[str]:
    """One life in a fresh interpreter."""
    command = [sys.executable, "-W", "error", "-m", "tests.crash.workload", str(folder), *options]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.timeout(120)
def test_a_run_that_keeps_killing_the_process_is_quarantined_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    codes = []
    while len(codes) < 10 and 0 not in codes:
        code, texts = ended(life(tmp_path, "--plan", "poison"))
        assert code in (0, -signal.SIGKILL), texts
        codes.append(code)
    # Two deaths make suspects, its siblings leave them by what they do, and it is tried alone three
    # times.
    assert codes in ([-signal.SIGKILL] * n + [0] for n in (5, 6, 7))

    findings = checker.check(tmp_path, plan.poison())
    assert findings.faults == []
    evidence = Evidence(tmp_path)
    (poisoned,), (parent,) = evidence.by_name["r0.0"], evidence.by_name["r0"]
    assert (poisoned.state, poisoned.ending["stop"]) == ("interrupted", "quarantined")
    assert "the process crashed 3 times in a row" in poisoned.ending["error"]
    assert any("r0.0 interrupted (quarantined)" in text for text in parent.heard()), (
        "its parent was not told"
    )
    assert {evidence.by_name[name][0].state for name in ("r0", "r0.1", "r0.2", "r0.3")} == {
        "completed"
    }


@pytest.mark.timeout(120)
def test_a_second_process_is_refused_by_name_while_the_first_goes_on(tmp_path: Path) -> None:
    first = life(tmp_path, "--plan", "hold")
    lock = tmp_path / f"{LOG}.lock"
    while not (lock.exists() and lock.read_text()):
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)

    code, text = ended(life(tmp_path, "--plan", "hold"))
    assert code == LOCKED, text
    assert f"in use by process {first.pid}." in text
    assert first.poll() is None, "the first process did not survive the second"

    (tmp_path / GO).touch()
    code, text = ended(first)
    assert (code, text) == (0, "")
    assert checker.check(tmp_path, plan.hold()).faults == []
    assert Evidence(tmp_path).outcomes["life"] == 1, "the second process took over"
