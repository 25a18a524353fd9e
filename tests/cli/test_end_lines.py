"""The last lines about a run: what it came to, what it cost, and what to do next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.account import Account
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Ended, Run, RunRecord
from retinue.core.values import BranchWork, Ending, Usage, Who
from retinue.testing import call
from retinue.tree_record import TreeRecord
from retinue.view.format import with_exit
from retinue.view.states import failure
from retinue.view.summary import denial_lines, end_line, end_lines
from tests.cli.private_home import MODEL, Llm, PrivateHome

DONE = Ending(state="completed", stop="done", text="Yes.", at=24_000)
WORK = BranchWork(branch="b", base="0", commit="1", files=3, added=9, removed=2, diff="d")


def row(id: str, end: Ending, model: str = "anthropic:m", nanos: int = 30_000_000) -> RunRecord:
    request = RunRequest(agent=id, task="t")
    spec = RunSpec(
        id=id, request=request, root="top", parent="" if id == "top" else "top", model=model
    )
    usage = Usage(input=8_000, output=100, nanos=nanos)
    return RunRecord(spec, Run(id=id, state=Ended(ending=end), usage=usage, started_at=1))


def told(*rows: RunRecord, code: int = 0, **fields: object) -> list[str]:
    return end_lines(TreeRecord(rows=rows, **fields), code)  # type: ignore[arg-type]


def test_one_agent_is_one_line() -> None:
    assert told(row("top", DONE)) == ["✓ done in 24 s · $0.03 · 8.1k tokens · retinue show top"]


def test_no_model_costs_nothing_and_says_so() -> None:
    lines = told(row("top", DONE, "offline/explorer", 0), row("a", DONE, "offline/explorer", 0))
    assert lines == ["✓ done in 24 s · 2 agents · offline, no model · retinue show top"]


def test_a_price_that_is_not_known_is_never_nothing() -> None:
    first, cost = told(row("top", DONE, nanos=0), priced=False)
    assert first == "✓ done in 24 s · retinue show top"
    assert cost == "  cost    n/a: no price known for anthropic:m · 8.1k tokens"


def test_a_bound_is_told_beside_the_fact() -> None:
    account = Account(id="top", spent=(10_000, 330_000_000, 1, 0), guess=(900, 120_000_000, 0))
    first, cost = told(row("top", DONE), account=account)
    assert first == "✓ done in 24 s · retinue show top"
    assert cost.startswith("  cost    $0.21, at most $0.33 (") and cost.endswith("k tokens")


def test_who_failed_and_what_branches_have_are_lines_of_their_own() -> None:
    bad = Ending(state="failed", stop="error", error="timed out", at=9_000)
    first, *more = told(row("top", DONE), row("plugins", bad), row("x", replace(DONE, work=WORK)))
    assert first == "✓ done in 24 s · 3 agents: 2 done, 1 failed · retinue show top"
    assert more == [
        "  cost    $0.09 · 24.3k tokens",
        "  failed  plugins: timed out. Retry: retinue resume top --from-failed",
        "  files   3 changed, +9 -2 in 1 branch. See: retinue diff top",
    ]


def test_the_costs_of_a_tree_have_the_limit_and_what_came_from_the_cache() -> None:
    spec, run = row("top", DONE)
    top = RunRecord(spec, replace(run, usage=replace(run.usage, cache_read=6_000)))
    account = Account(
        id="top", spent=(16_200, 60_000_000, 2, 0), limit=(None, 5_000_000_000, None, None)
    )
    first, *more = told(top, row("a", DONE), account=account)
    assert first == "✓ done in 24 s · 2 agents · retinue show top"
    assert more == ["  cost    $0.06 of $5.00 · 16.2k tokens, 6.0k from cache"]


def test_a_cancelled_tree_counts_who_was_stopped_and_what_is_kept() -> None:
    bad = Ending(state="cancelled", stop="cancelled", by="user", error="Ctrl-C", at=24_000)
    rows = [row("top", bad), row("a", replace(DONE, work=WORK)), row("b", bad)]
    first, second, *_ = told(*rows)
    assert first.startswith("⊘ cancelled by you · all 2 stopped · ")
    assert second == "  Kept: 1 result, 1 branch. Continue: retinue resume top"


def test_where_one_line_is_all_it_has_the_cost() -> None:
    assert end_line(TreeRecord(rows=(row("top", DONE), row("a", DONE)))) == (
        "✓ done in 24 s · 2 agents · $0.06 · 16.2k tokens · retinue show top"
    )


@pytest.mark.parametrize(
    "end, code, begins, tail",
    [
        (Ending(state="failed", stop="x", error="no route"), 1, "✗ failed after ", ""),
        (Ending(state="cancelled", stop="cancelled", by="user"), 130, "⊘ cancelled by you", ""),
        (
            Ending(state="cancelled", stop="cancelled", by="system", reason="SIGTERM"),
            143,
            "⊘ cancelled by the system: SIGTERM",
            "",
        ),
        (Ending(state="timed_out", stop="deadline"), 5, "◐ stopped at limit: time after ", ""),
    ],
)
def test_every_other_end_has_its_code_and_the_next_command(
    end: Ending, code: int, begins: str, tail: str
) -> None:
    first, second, *_ = told(row("top", replace(end, at=24_000)), code=code)
    assert first.startswith(begins) and first.endswith(f" exit {code}") and len(first) == 79
    assert second.endswith("Continue: retinue resume top")


@pytest.mark.parametrize(
    "by, reason, along, words",
    [
        ("user", "", "", "by you"),
        ("", "", "", "by you"),
        ("parent", "", "", "by its parent"),
        ("limit", "", "", "by a limit"),
        ("system", "", "", "by the system"),
        ("system", "SIGTERM", "", "SIGTERM"),
        ("user", "the parent ended: cancelled", "top", "with its parent"),
        ("user", "its output is no longer read", "", "its output is no longer read"),
    ],
)
def test_the_row_of_a_cancelled_agent_says_who_cancelled_it(
    by: Who, reason: str, along: str, words: str
) -> None:
    """By its fields: a sentence that says something else changes nothing."""
    end = Ending(
        state="cancelled",
        stop="cancelled",
        by=by,
        reason=reason,
        error="cancelled by SIGTERM",
        along=along,
    )
    assert failure(end, 0) == words


def test_a_long_line_keeps_its_code() -> None:
    assert with_exit("x" * 90, 6) == "x" * 90 + " · exit 6" and with_exit("x", 0) == "x"


def test_denials_are_named_with_the_rule_that_would_allow_them() -> None:
    denial = {"tool_name": "edit", "tool_input": {"path": "src/a.py"}, "agent_id": "r"}
    assert denial_lines([denial], {"r": "coder"}) == [
        "1 call was denied: edit src/a.py (coder)",
        'To allow it: --allowed-tools "edit(src/a.py)"',
    ]
    assert denial_lines([], {}) == []


def test_a_denial_is_told_when_it_happens_and_at_the_end_and_strict_exits_with_4(
    tmp_path: Path,
) -> None:
    with Llm([call("write", path="new.txt", content="x"), "Could not."]) as llm:
        home = PrivateHome(tmp_path)
        try:
            result = home.run("run", "--strict", "--model", MODEL, "Go.", env=llm.env)
            assert result.returncode == 4 and result.stdout == "Could not.\n"
            lines = result.stderr.splitlines()
            assert any(
                re.match(r"\d\d:\d\d ! main: denied: write new.txt .*\(headless, mode 'manual'", x)
                for x in lines
            ), lines
            assert "(Denied" not in result.stderr
            assert '  To allow it: --allowed-tools "write(new.txt)"' in lines
            assert any("✓ done in" in x and x.endswith("exit 4") for x in lines)
        finally:
            home.close()
