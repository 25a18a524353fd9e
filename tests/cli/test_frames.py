"""Frames as text: the column grid at 120, 80, 60, 40 and fewer columns, and what gives way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from rich.cells import cell_len

from retinue.view.cells import fit_path, fit_words, plain
from retinue.view.grid import TreeRow, guides, tree_line
from retinue.view.run_row import RunRow
from retinue.view.tree_header import counts_line, header

OVER = ("completed", "failed", "cancelled", "at_limit")


def seconds(minutes: int, rest: int) -> int:
    return (60 * minutes + rest) * 1_000


def row(label: str, mark: str, now: str, ms: int, usd: float | None = 0.0, **more: Any) -> RunRow:
    fields: dict[str, Any] = {
        "id": label,
        "short": "7f3a",
        "root": "top",
        "parent": "top",
        "depth": 1,
        "agent": "worker",
        "model": "m",
        "state": mark,
        "tree_tokens": 1_000 if usd != 0.0 else 0,
        "needs_you": mark == "needs_input",
        "is_over": mark in OVER,
    }
    return RunRow(
        label=label, mark=mark, now=now, elapsed_ms=ms, tree_usd=usd, **{**fields, **more}
    )


LEAD = row(
    "lead",
    "waiting",
    "",
    seconds(10, 30),
    2.14,
    depth=0,
    task="Timeouts and retries in every HTTP client",
    tree_tokens=444_300,
)
CHANGE = "change src/harbor/http/client.py +38 -11"
ROWS = (
    (row("map-callers", "completed", "47 call sites in 22 files", seconds(0, 53), 0.20), 2),
    (row("retry-policy", "completed", "4 tries, full jitter", seconds(0, 32), 0.22), 0),
    (row("sync-client", "needs_input", CHANGE, seconds(2, 2), 0.33), 1),
    (row("async-client", "working", "pytest tests/http -q", seconds(2, 2), 0.47), 1),
    (
        row("webhooks", "rate_limited", "anthropic 429: 24 s, 2 of 5", seconds(2, 1), 0.19),
        0,
    ),
    (row("plugins", "failed", "timed out after 90 s", seconds(1, 30), 0.24), 0),
    (
        row(
            "migrate-legacy-clients",
            "working",
            "git bisect run make",
            seconds(1, 58),
            0.15,
            silent_ms=seconds(1, 12),
            tree_usd_estimated=0.15,
        ),
        0,
    ),
    (row("docs", "completed", "docs/http.md, 1 page", seconds(0, 37), 0.03), 0),
    (row("security-review", "queued", "lane review: next in line", seconds(1, 58)), 0),
)
MARKS = Counter(
    {"needs_input": 1, "failed": 1, "working": 2, "thinking": 1, "rate_limited": 1}
) + Counter({"queued": 2, "completed": 5})


def tree(width: int, *targets: str, selected: str = "async-client") -> list[str]:
    before = guides([r for r, _ in ROWS], 0)
    lines = [
        tree_line(TreeRow(r, bars, n, r.label == selected), width)
        for (r, n), bars in zip(ROWS, before, strict=True)
        if not targets or r.label in targets
    ]
    return [plain(line) for line in lines]


def test_a_tree_at_80_columns() -> None:
    lines = [plain(header(LEAD, 80)), plain(counts_line(MARKS, 80)), *tree(80)]
    assert lines == [
        " Timeouts and retries in every HTTP client                      10m 30s   $2.14",
        " ◆ 1 needs you  ✗ 1 failed  ● 3 working  ◷ 1 rate limited  ◌ 2 queued  ✓ 5 done",
        " ├ ✓ map-callers +2  done         47 call sites in 22 files         53s   $0.20",
        " ├ ✓ retry-policy    done         4 tries, full jitter              32s   $0.22",
        " ├ ◆ sync-client +1  needs you    change http/client.py +38 -11  2m 02s   $0.33",
        "▸├ ● async-client +1 working      pytest tests/http -q           2m 02s   $0.47",
        " ├ ◷ webhooks        rate limited anthropic 429: 24 s, 2 of 5    2m 01s   $0.19",
        " ├ ✗ plugins         failed       timed out after 90 s           1m 30s   $0.24",
        " ├ ● migrate-legacy… working      silent 1m 12s: git bisect ru…  1m 58s  ≤$0.15",
        " ├ ✓ docs            done         docs/http.md, 1 page              37s   $0.03",
        " └ ◌ security-review queued       lane review: next in line      1m 58s       \N{EN DASH}",
    ]
    assert all(cell_len(line) < 80 for line in lines)


def test_a_tree_at_120_columns_has_roles_turns_context_and_tokens() -> None:
    more = {"agent": "coder", "turn": 9, "max_turns": 20, "context": 28, "window": 100}
    lead = plain(header(LEAD, 120, "  ·  limit $5.00, reserved $0.46"))
    assert lead == (
        " Timeouts and retries in every HTTP client  ·  run 7f3a  ·  limit $5.00, reserved $0.46"
        "         10m 30s  444.3k   $2.14"
    )
    assert plain(counts_line(MARKS, 120)) == (
        " ◆ 1 needs you  ✗ 1 failed  ● 2 working  ◉ 1 thinking  ◷ 1 rate limited  ◌ 2 queued"
        "  ✓ 5 done"
    )
    asking = row(
        "sync-client", "needs_input", CHANGE, seconds(2, 2), 0.33, tree_tokens=64_800, **more
    )
    below = row(
        "sync-tests", "queued", "lane tests: 2 of 2 busy", seconds(1, 0), depth=2, agent="tester"
    )
    last = row("docs", "completed", "", 0)
    before = guides([asking, below, last], 0)
    lines = [
        plain(tree_line(TreeRow(r, bars), 120))
        for r, bars in zip((asking, below), before, strict=False)
    ]
    assert lines == [
        " ├ ◆ sync-client coder     needs you    change src/harbor/http/client.py +38 -11      "
        "9/20  28%  2m 02s   64.8k   $0.33",
        " │ └ ◌ sync-tests tester   queued       lane tests: 2 of 2 busy                       "
        "           1m 00s               \N{EN DASH}",
    ]


def test_a_tree_at_60_and_at_40_columns() -> None:
    assert [
        plain(header(LEAD, 60)),
        plain(counts_line(MARKS, 60)),
        *tree(60, "sync-client", "webhooks"),
    ] == [
        " Timeouts and retries in every HTTP client            $2.14",
        " ◆ 1 needs you  ✗ 1 failed  ● 3 working  ✓ 5 done  +3",
        " ├ ◆ sync-client +1  needs you    change client.py    $0.33",
        " ├ ◷ webhooks        rate limited 429: 24 s, 2 of 5   $0.19",
    ]
    assert [plain(header(LEAD, 40)), plain(counts_line(MARKS, 40)), *tree(40, "webhooks")] == [
        " Timeouts and retries in every…   $2.14",
        " ◆ 1 needs you  ✗ 1 failed  ● 3  ✓ 5",
        " ├ ◷ webhooks        rate limited   2m",
    ]


def test_a_state_that_is_longer_than_its_column_pushes_its_words_right() -> None:
    stopped = row("fuzz", "at_limit", "$1.00 of $1.00, kept", seconds(4, 11), 1.0)
    paused = row("nightly", "paused", "host gone: resume b07e", seconds(130, 0), 0.08)
    lines = [
        plain(tree_line(TreeRow(r, bars), 80))
        for r, bars in zip((stopped, paused), ("├ ", "└ "), strict=True)
    ]
    assert lines == [
        " ├ ◐ fuzz            stopped at limit $1.00 of $1.00, kept       4m 11s   $1.00",
        " └ ‖ nightly         paused       host gone: resume b07e         2h 10m   $0.08",
    ]


def test_a_tree_that_stops_counts_who_still_has_to_stop_first() -> None:
    marks = {"cancelling": 2, "cancelled": 5, "completed": 5, "failed": 1}
    assert plain(counts_line(marks, 80, "partial results are kept")) == (
        " ▣ 2 stopping  ⊘ 5 cancelled  ✓ 5 done  ✗ 1 failed     partial results are kept"
    )


@pytest.mark.parametrize("width", [20, 24, 39, 40, 59, 60, 79, 80, 99, 100, 119, 120, 200])
def test_no_line_is_wider_than_its_terminal_and_the_last_column_stays_empty(width: int) -> None:
    hostile = row(
        "漢字" * 30,
        "needs_input",
        "change " + "ordner/" * 40 + "datei.py +100000 -100000",
        seconds(2_000, 2),
        999.0,
        depth=9,
        agent="x" * 90,
        task="\N{FAMILY}" * 90,
        turn=99,
        max_turns=100,
    )
    many = {name: 10_000 for name in ("needs_input", "failed", "working", "queued", "completed")}
    for line in (
        tree_line(TreeRow(hostile, guides([hostile], 0)[0], 1_000, True), width),
        header(hostile, width),
        counts_line(many, width, "partial results are kept"),
    ):
        assert cell_len(plain(line)) < width


def test_the_name_of_a_folder_gives_way_at_its_front() -> None:
    area = row("src/retinue/agent_files/", "working", "reads", 1_000)
    line = plain(tree_line(TreeRow(area, guides([area], 0)[0]), 80))
    assert "…/agent_files/" in line and "src/" not in line


def test_a_path_gives_way_at_its_front_and_keeps_its_signs() -> None:
    assert fit_path("src/harbor/http/client.py", 16) == "…/http/client.py"
    assert fit_path("client.py", 16) == "client.py"
    assert fit_path("src/retinue/agent_files/", 16) == "…/agent_files/"
    assert fit_path("src/a_very_long_name_of_a_folder/", 16) == "a_very_long_nam…"
    assert fit_words(CHANGE, 29) == "change http/client.py +38 -11"
    assert fit_words(CHANGE, 25) == "change client.py +38 -11 "
    assert fit_words(CHANGE, 17) == "change client.py "
    assert fit_words("pytest tests/http -q", 10) == "pytest te…"
