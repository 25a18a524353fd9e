"""Each example is run as a program of its own, without a key and without a network, and says what
it should say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import SECONDS

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"

SAYS: dict[str, list[str]] = {
    "01_hello.py": ["Hello, world.", "completed: 1 turn, 6 tokens"],
    "02_fan_out.py": [
        r"  completed   [\w/]+\.py",
        r"[\w/]+\.py +\d+ lines +\d+ functions  \w+",
        r"lead +completed +[\d,]+ +\d\.\d\d",
        r"├─ .*\.py +completed +[\d,]+ +\d\.\d\d",
        r"└─ .*\.py +completed +[\d,]+ +\d\.\d\d",
    ],
    "03_fork_two_approaches.py": [
        "found:   The query reads 2 million rows",
        r"a cache  .*\(I continued from 2 messages\.\)",
        r"an index .*\(I continued from 2 messages\.\)",
        "the base still has 2 messages",
    ],
    "04_background_announcement.py": [
        r"\[lead\] I continue meanwhile\.",
        r"\[to ada\] Built main: 312 files, no errors\.",
        r"\[lead\] I got the result: Built main: 312 files, no errors\.",
    ],
    "05_budget_soft_landing.py": [
        r"incomplete \(budget\): I read \d+ pages before my budget was spent",
        r"[\d,]+ of 6,000 tokens in \d+ turns",
    ],
    "06_crash_and_resume.py": [
        "first start",
        "  part 1 is worked on",
        "  part 2 is worked on",
        "  the power fails",
        "second start",
        "  part 3 is worked on",
        "  part 1 is done, part 2 is done, part 3 is done",
    ],
    "07_structured_result.py": [
        "the model reads: The result does not match its schema: total_cents: expected an integer",
        r"Invoice\(number='2024-17', total_cents=1250\) after 2 turns",
    ],
    "08_own_tool.py": [
        "tool       12",
        r"tool       There are no pears\.",
        "tool       Invalid parameters: n: expected an integer",
        r"tool       Order 40 pears\? Yes\.",
        "assistant  Done",
    ],
    "09_families.py": [
        r"\[user ada\]",
        r"  Started task group bg-[0-9a-f]{6} with 2 tasks",
        r"  'ant' completed \([12]/2\)",
        r"  'elephant' completed \([12]/2\)",
        r"  ### elephant \(completed\)",
        r"  elephant has 8 letters\.",
    ],
    "10_over_http.py": [r"Paris and Lima\.", r"claude-sonnet-5-5: [\d,]+ tokens, \$0\.\d+"],
}


def run(name: str, *args: str, **env: str) -> list[str]:
    return run_file(EXAMPLES / name, *args, **env)


def run_file(file: Path, *args: str, cwd: Path | None = None, **env: str) -> list[str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.run(
        [sys.executable, "-W", "error", file, *args],
        capture_output=True,
        cwd=cwd,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "DEMO": "", **env},
        timeout=SECONDS,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.splitlines()


def test_each_example_is_known_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("[0-9]*.py")) == sorted(SAYS)


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_says_what_it_should_in_this_order(name: str) -> None:
    lines = run(name)
    rest = iter(lines)
    for target in SAYS[name]:
        assert any(re.match(target, line) for line in rest), (
            f"{target!r} is missing or misplaced in {lines}"
        )


def test_the_demo_is_plain_when_it_is_piped() -> None:
    assert "\033" not in "".join(run("02_fan_out.py"))


def test_the_demo_reads_the_folder_that_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        '"""Says one."""\n\n\ndef one() -> int:\n    return 1\n', encoding="utf-8"
    )
    (tmp_path / "two.txt").write_text("not Python\n", encoding="utf-8")
    row = f"{'one.py':<30}    5 lines   1 functions  Says one."
    assert row in run("02_fan_out.py", str(tmp_path))
    assert row in run("02_fan_out.py", DEMO=str(tmp_path))


def test_the_demo_takes_at_most_twelve_files(tmp_path: Path) -> None:
    for n in range(15):
        (tmp_path / f"f{n}.py").write_text("x = 1\n" * n, encoding="utf-8")
    lines = run("02_fan_out.py", str(tmp_path))
    assert sum(line.startswith("  completed") for line in lines) == 12


def test_the_demo_says_when_there_is_nothing_to_read(tmp_path: Path) -> None:
    assert f"There are no Python files in {tmp_path}." in run("02_fan_out.py", str(tmp_path))


def test_the_budget_of_the_example_is_not_exceeded() -> None:
    spent = next(line for line in run("05_budget_soft_landing.py") if "of 6,000 tokens" in line)
    assert int(spent.split()[0].replace(",", "")) <= 6_000
