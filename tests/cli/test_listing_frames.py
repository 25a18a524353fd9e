"""Frames of `ps`, `ps --tree`, `show` and `logs` as text, at 80 columns and wider."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from retinue.cli.terminal.wall_clock import clock, moment
from retinue.core.account import Account
from retinue.core.events import LogEntry, MailReceived, Replied, TextReturned
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, ToolMessage, UserMessage
from retinue.core.spec import InstructionFile, RunRequest, RunSpec
from retinue.core.state import Run, RunRecord, Waiting
from retinue.core.values import Mail, ModelInfo, Permissions, Usage
from retinue.host.listing import ListedRun
from retinue.host.provider_waits import LIMITED, ProviderWait
from retinue.tree_record import TreeRecord
from retinue.view.cells import plain
from retinue.view.log_lines import LogLines, index_of_last
from retinue.view.run_page import ShownRun, run_page
from retinue.view.run_row import as_paused
from retinue.view.run_table import loudest_of, run_table
from retinue.view.stored_tree import stored_lines, with_loudest
from tests.cli.test_frames import CHANGE, LEAD, row, seconds

TASK = "Timeouts and retries in every HTTP client"
NOW = int(time.mktime((2026, 11, 18, 14, 12, 0, 0, 0, -1))) * 1000


def listed(short: str, state: str, task: str, ms: int, **more: Any) -> ListedRun:
    fields: dict[str, Any] = {
        "id": short,
        "parent": "",
        "root": short,
        "label": "main",
        "agent": "main",
        "model": "anthropic:claude-sonnet-5-5",
        "depth": 0,
        "turn": 1,
        "created_at": NOW - ms,
        "started_at": NOW - ms,
        "ended_at": None,
        "own_tokens": 0,
        "tokens": 1_000,
        "usd": 0.03,
        "n_agents": 1,
    }
    return ListedRun(short=short, state=state, task=task, **{**fields, **more})


RUNS = (
    listed("7f3a", "waiting", TASK, seconds(10, 30), usd=2.14, n_agents=14),
    listed("b07e", "paused", "Nightly docs check", seconds(130, 0), usd=0.08, usd_estimated=0.02),
    listed("c41d", "completed", "Why does the login test fail?", seconds(0, 41)),
    listed("d00d", "completed", "Map it", 3_000, model="offline/explorer", usd=0.0),
    listed("e11e", "incomplete", "Fuzz", seconds(4, 11), stop="budget", usd=None),
)
ASKING = listed("kid1", "needs_input", "", 1, parent="7f3a", root="7f3a", n_agents=None)
AT_WORK = listed("kid2", "running", "", 1, parent="7f3a", root="7f3a", is_thinking=True)


def table(width: int) -> list[str]:
    marks = {run.id: loudest_of(run, (AT_WORK, ASKING)) for run in RUNS}
    return [line.text for line in run_table(RUNS, marks, width, NOW)]


def test_runs_at_80_columns() -> None:
    assert table(80) == [
        "RUN   STATE          TASK                                    AGE AGENTS    COST",
        "7f3a  ◆ needs you    Timeouts and retries in every HTTP… 10m 30s     14   $2.14",
        "b07e  ‖ paused       Nightly docs check                   2h 10m      1  ≤$0.08",
        "c41d  ✓ done         Why does the login test fail?           41s      1   $0.03",
        "d00d  ✓ done         Map it                                   3s      1 offline",
        "e11e  ◐ stopped at limit Fuzz                             4m 11s      1     n/a",
    ]


def test_wider_terminals_add_tokens_and_the_model() -> None:
    assert table(100)[1] == (
        "7f3a  ◆ needs you    Timeouts and retries in every HTTP client       10m 30s     14"
        "    1.0k   $2.14"
    )
    head, first, *_ = table(130)
    assert head.split() == ["RUN", "STATE", "TASK", "MODEL", "AGE", "AGENTS", "TOKENS", "COST"]
    assert f" {TASK} " in first and " anthropic:claude-sonnet-5… " in first


@pytest.mark.parametrize("width", [80, 99, 100, 119, 120, 200])
def test_no_line_of_the_table_reaches_the_last_column(width: int) -> None:
    wide = listed("7f3a", "waiting", "漢字" * 90, 1, usd=999.0, n_agents=10_000)
    for line in run_table([*RUNS, wide], {}, width, NOW):
        assert cell_len(line.text) < width


def test_a_run_that_waits_shows_who_is_loudest_in_its_tree_and_one_that_has_ended_itself() -> None:
    top, over = RUNS[0], RUNS[2]
    limited = ProviderWait(LIMITED, "anthropic", "429", "", NOW, 1)
    amount = ASKING._replace(state="waiting", provider_wait=limited)
    assert loudest_of(top, ()) == "waiting"
    assert loudest_of(top, (AT_WORK,)) == "thinking"
    assert loudest_of(top, (AT_WORK, amount)) == "rate_limited"
    assert loudest_of(top, (AT_WORK, amount, ASKING)) == "needs_input"
    assert loudest_of(over, (ASKING._replace(root=over.id),)) == "completed"


def test_a_tree_of_ps() -> None:
    top = row(
        "compare", "waiting", "", seconds(12, 4), 0.61, depth=0, short="91c2", agent="lead",
        id="top", n_children=3,
    )  # fmt: skip
    below = [
        row("aiopg", "completed", "", seconds(1, 0), 0.2),
        row("psycopg", "completed", "", seconds(1, 0), 0.1),
        row("asyncpg", "rate_limited", "anthropic 429: 24 s, 2 of 5", seconds(6, 2), 0.25),
    ]
    first, *_, last = [plain(line) for line in stored_lines(with_loudest([top, *below]), 80)]
    assert first == (
        " ◷ 91c2 compare      rate limited 2 of 3 sub-agents done        12m 04s   $0.61"
    )
    assert last == (
        " └ ◷ asyncpg         rate limited anthropic 429: 24 s, 2 of 5    6m 02s   $0.25"
    )
    paused = as_paused(replace(below[2], short="b07e", silent_ms=seconds(9, 0)))
    assert "paused       host gone: resume b07e " in plain(stored_lines([paused], 80)[0])


def record(**fields: Any) -> RunRecord:
    file = InstructionFile(path="AGENTS.md", sha256="0" * 64, bytes=4_800, tokens=1_200)
    request = RunRequest(agent="lead", task=TASK, instruction_files=(file,))
    spec = RunSpec(
        id="top",
        request=request,
        root="top",
        created_at=NOW - seconds(10, 30),
        permissions=Permissions(mode="manual"),
        model="claude-sonnet-5-5",
    )
    usage = Usage(input=38_000, output=400, nanos=310_000_000)
    return RunRecord(spec, Run(id="top", state=Waiting(), usage=usage, **fields))


def page(width: int = 80, **account: Any) -> list[str]:
    books = {"limit": (None, 5_000_000_000, None, None), "held": (0, 460_000_000, 0, 0)} | account
    spent = {"spent": (444_300, 2_140_000_000, 9, 0)}
    final = TreeRecord(rows=(record(),), account=Account(id="top", **{**spent, **books}))
    lead = replace(
        LEAD, agent="lead", label="lead", model="claude-sonnet-5-5", now="for 9 sub-agents: 3 done"
    )
    asking = row("sync-client", "needs_input", CHANGE, seconds(2, 2), 0.33)
    run = ShownRun(final, [lead, asking], "/harbor", moment(NOW - seconds(10, 30), NOW))
    return [plain(line) for line in run_page(run, width, NOW, is_wrapped=True)]


def test_a_page_of_show() -> None:
    assert page() == [
        "Timeouts and retries in every HTTP client                              run 7f3a",
        "◆ needs you · since 14:01, 10m 30s · lead on claude-sonnet-5-5 · mode manual",
        "budget   █████████████▒▒▒░░░░░░░░░░░░░  spent $2.14, reserved $0.46, left $2.40",
        "files    AGENTS.md (~1.2k tokens in every turn)",
        "needs    sync-client: change src/harbor/http/client.py +38 -11",
        " ○ lead              waiting      for 9 sub-agents: 3 done      10m 30s   $2.14",
        " └ ◆ sync-client     needs you    change http/client.py +38 -11  2m 02s   $0.33",
        "         self 38.4k tokens, $0.31 · tree 444.3k tokens, $2.14",
        "next     retinue approve 7f3a · attach 7f3a · logs 7f3a/sync-client -f",
    ]


def test_the_bar_says_what_is_only_a_bound_and_what_is_left_of_other_limits() -> None:
    lines = page(limit=(1_000_000, 5_000_000_000, None, 20), guess=(0, 140_000_000, 0))
    tokens, usd, calls = (line for line in lines if "░" in line)
    assert tokens.startswith("budget   ") and tokens.endswith("spent 444.3k, left 555.7k tokens")
    assert usd.endswith("spent at most $2.14, reserved $0.46, left $2.40")
    assert calls.endswith("spent 0, left 20 tool calls")
    assert next(line for line in lines if "tree " in line).endswith("tokens, at most $2.14")


def test_a_moment_is_as_short_as_it_can_be() -> None:
    day = 86_400_000
    assert moment(NOW - seconds(11, 0), NOW) == "14:01"
    assert moment(NOW - day, NOW) == "Tue 14:12" and moment(NOW - 9 * day, NOW) == "2026-11-09"


EDIT = ToolCall(
    id="e", name="edit", arguments_json='{"path": "src/compat.py", "old": "a", "new": "b\\nc"}'
)
SHELL = ToolCall(id="s", name="shell", arguments_json='{"command": "pytest tests/http -q"}')
SAID = "Understood: timeout= stays and sets the total."
MESSAGES = (
    UserMessage(text="Migrate it."),
    UserMessage(text="Keep the old timeout= argument working.", kind="mail"),
    AssistantMessage(text=SAID, calls=(EDIT, SHELL)),
    ToolMessage(call_id="e", name="edit", text="Changed."),
)


def entry(seq: int, event: Any, at: int) -> LogEntry:
    return LogEntry(run="r", event=event, at=NOW + at)


def log(
    width: int = 80, *, has_tools: bool = False, returned: bool = False, model: str = "m"
) -> list[str]:
    priced = ModelInfo(name="m", price_in=4_000, price_out=4_000, price_cache_read=400)
    teller = LogLines(
        "async-client", width, has_tools=has_tools, models={"m": priced}, began=NOW, clock=clock
    )
    usage = Usage(input=10_400, cache_read=9_000, output=20)
    reply = ModelReply(message=MESSAGES[2], usage=usage)  # type: ignore[arg-type]
    returns = [TextReturned(turn=1, index=0, call_id="e", name="edit", text="Changed.")]
    returns += [
        TextReturned(turn=1, index=1, call_id="s", name="shell", text="no", error=True)
    ] * returned
    events = [
        MailReceived(mail=Mail(seq=1, text=MESSAGES[1].text)),
        Replied(attempt=1, reply=reply),
    ]
    entries = [entry(n, event, n * 1_000) for n, event in enumerate(events)]
    entries += [entry(9, event, 1_008 + n) for n, event in enumerate(returns)]
    teller.add(entries, model)
    messages = list(MESSAGES)
    if returned:
        messages.append(ToolMessage(call_id="s", name="shell", text="no\nway", error=True))
    lines = [line for n, m in enumerate(messages, 1) for line in teller.lines(n, m)]
    doing = row("async-client", "working", "pytest tests/http -q", 0, idle_ms=32_000)
    return [plain(line) for line in [*lines, *teller.unanswered(), teller.now(doing)]]


def test_a_log_has_times_numbers_and_what_a_turn_took() -> None:
    assert log() == [
        " 1  14:12:00  you           Migrate it.",
        " 2  14:12:00  you           Keep the old timeout= argument working.",
        " 3  14:12:01  async-client  turn 1 · 10.4k in, 9.0k from cache · $0.01",
        "              Understood: timeout= stays and sets the total.",
        "    14:12:01  edit          src/compat.py +2 -1                             8ms",
        "    14:12:01  ● working     pytest tests/http -q                            32s",
    ]


def test_a_turn_without_a_model_has_no_tokens_and_no_price() -> None:
    assert " 3  14:12:01  async-client  turn 1 · offline" in log(model="offline/explorer")


def test_the_last_result_of_a_turn_has_the_number_at_which_a_fork_can_begin() -> None:
    edit, shell, failed = log(returned=True)[-4:-1]
    assert edit.startswith("    14:12:01  edit") and shell.startswith(" 5  14:12:01  shell")
    assert failed == "              ✗ failed: no"


def test_arguments_and_output_are_there_when_they_are_asked_for() -> None:
    lines = log(has_tools=True)
    assert '              {"path": "src/compat.py", "old": "a", "new": "b\\nc"}' in lines
    assert "              Changed." in lines
    assert '              {"command": "pytest tests/http -q"}' in lines


def test_the_last_messages_are_counted_without_results_of_tools() -> None:
    messages = list(MESSAGES)
    assert [index_of_last(messages, n) for n in (1, 2, 3, 9)] == [2, 1, 0, 0]


def test_on_a_terminal_a_long_line_of_a_log_continues_behind_the_times() -> None:
    log = LogLines("main", 50, is_wrapped=True)
    long = UserMessage(text="Look at all of the files that are in here, please.\n    x = 1")
    assert [plain(line) for line in log.lines(1, long)] == [
        " 1            you           Look at all of the",
        "              files that are in here, please.",
        "                  x = 1",
    ]
    (one, _) = LogLines("main", 50).lines(1, long)
    assert plain(one).endswith("in here, please."), "in a pipe it stays as it is"
