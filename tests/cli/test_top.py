"""`retinue top`: driven by Textual's pilot, with a real host behind it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, Static

from retinue.cli.terminal.typed_answer import QUIET_SECONDS
from retinue.cli.tui.project_runs import ProjectRuns, spark
from retinue.cli.tui.request_screen import RequestScreen
from retinue.cli.tui.top_app import TopApp
from retinue.cli.tui.top_screens import RunScreen
from retinue.core.spec import RunRequest, RunSpec
from retinue.host import project_paths
from retinue.testing import call
from retinue.view.row_filter import matches
from retinue.view.rows import TreeView
from tests.cli.private_home import SECONDS, PrivateHome, private_home
from tests.cli.terminal import terminal
from tests.cli.test_live import FANOUT, Staff
from tests.needs import needs

ENDED = "ended in the last hour"


def top(home: PrivateHome, only: str = "") -> TopApp:
    paths = project_paths.find(home.env, cwd=str(home.project))
    return TopApp(ProjectRuns(paths, home.env, (only,) if only else ()), seconds=0.3)


def frame(app: TopApp) -> list[str]:
    results = app.screen_stack[0].query("#frame").results(Static)
    return [line for part in results for line in str(part.render()).split("\n")]


def table(app: TopApp) -> list[list[str]]:
    """The rows by their columns: name, state and view_format."""
    rows = [line for line in frame(app)[4:-1] if line.strip() and line.strip() != ENDED]
    return [[line[:26].strip(" ▸"), line[27:40].strip(), line[40:82].strip()] for line in rows]


async def until(pilot: Pilot[None], what: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if result := what():
            return result
        await asyncio.sleep(0.05)  # not `pilot.pause`, which waits for an idle processor
    raise AssertionError(f"did not come true; there is {table(pilot.app)}")  # type: ignore[arg-type]


def shown(app: TopApp, kind: type[Screen[Any]], name: str) -> str:
    """What is written in a screen of this kind; "" when there is none, or nothing in it yet."""
    results = app.screen.query(name).results(Static) if isinstance(app.screen, kind) else ()
    return next((str(part.render()) for part in results), "")


def panel(app: TopApp) -> str:
    return shown(app, RequestScreen, "#panel")


def said(app: TopApp) -> str:
    return shown(app, RunScreen, "#said")


async def filtered(pilot: Pilot[None], words: str) -> None:
    await pilot.press("/", "ctrl+u", *("space" if c == " " else c for c in words))


async def choose(pilot: Pilot[None], key: str, does: str) -> None:
    """Mark a choice when it can be marked, and confirm it when the panel says what that will do."""
    app: Any = pilot.app
    await until(pilot, lambda: "Choose, then press ↵" in panel(app))
    await pilot.press(key)
    await until(pilot, lambda: f"↵ {does}" in panel(app))
    await pilot.press("enter")


def drive(
    app: TopApp, script: Callable[[Pilot[None]], Any], size: tuple[int, int] = (140, 30)
) -> None:
    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await script(pilot)

    try:
        asyncio.run(main())
    finally:
        app.runs.close()


def test_runs_are_listed_opened_messaged_and_cancelled(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    with private_home(tmp_path, staff) as home:
        home.ok("run", "--bg", *FANOUT, "-n", "mapping", "Lead them")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            started = ["thinking", "after list ."]
            await until(pilot, lambda: [row[1:] for row in table(app)[1:]] == [started, started])
            first, agents, _ = table(app)
            assert first[0].startswith("○") and " mapping" in first[0]
            assert first[1:] == ["waiting", "for 2 sub-agents"]
            assert agents[0].startswith("├ ◉ agents")
            head = frame(app)
            assert "● 2 working" in head[0] and "○ 1 waiting" in head[0]
            assert "tokens/min" in head[1] and "1 run open" in head[1]
            assert head[2] == " Nothing needs you." and head[3].split()[:2] == ["AGENT", "STATE"]
            await pilot.press("down", "enter")
            await until(
                pilot,
                lambda: all(text in said(app) for text in ("▸ list .", "[the directory is empty]")),
            )
            await pilot.press("m")
            await until(pilot, lambda: isinstance(app.focused, Input))
            app.screen.query_one(Input).value = "hello"
            await pilot.press("enter")
            await pilot.press("escape")
            staff.release("models")
            await until(pilot, lambda: "models has 5 files" in str(table(app)))
            await until(
                pilot,
                lambda: [row[1] for row in table(app)] == ["waiting", "thinking", "done"],
            )
            await pilot.press("x")
            await choose(pilot, "y", "stops")
            await until(pilot, lambda: table(app)[1][1] == "cancelled")
            await until(pilot, lambda: table(app)[0][1] == "done")

        drive(app, script)
        posted = [
            s["event"]
            for s in home.lines("logs", "mapping/agents", "--jsonl")
            if s["event"]["event"] == "Posted"
        ]
        assert [event["mail"]["text"] for event in posted] == ["hello"]


def test_a_look_while_it_is_being_closed_finds_nothing_and_fails_nothing(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "-p", "Work.")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: len(table(app)) == 1)
            await app.screen_stack[0].query("#frame").remove()
            app._refresh()
            assert frame(app) == []

        drive(app, script)


def test_the_table_is_filtered_sorted_and_folded(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    staff.release("models")
    with private_home(tmp_path, staff) as home:
        home.ok("run", "--bg", *FANOUT, "Lead them")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: "models has 5 files" in str(table(app)))
            await filtered(pilot, "state:running")
            await until(pilot, lambda: [row[0][:10] for row in table(app)] == ["└ ◉ agents"])
            assert "1 of 3 rows" in frame(app)[-1]
            await pilot.press("enter")
            await filtered(pilot, "state:faild")
            await until(pilot, lambda: "Did you mean failed?" in frame(app)[-1])
            await pilot.press("escape")
            await until(pilot, lambda: len(table(app)) == 3)
            await pilot.press("home", "z")
            await until(pilot, lambda: len(table(app)) == 1 and "+2" in table(app)[0][0])
            assert table(app)[0][1] == "thinking", "it tells what is loudest below it"
            await pilot.press("z", "s")
            assert app.list.sort == "cost"
            await until(pilot, lambda: len(table(app)) == 3)
            await pilot.press("a")
            await until(pilot, lambda: frame(app)[-1] == " Nothing needs you.")
            await pilot.press("q")

        drive(app, script, (120, 20))
        staff.release()


def test_a_question_is_answered_from_the_table(tmp_path: Path) -> None:
    def ask(request: Any) -> Any:
        texts = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        return f"told: {texts[-1]}" if texts else call("ask", question="Which [bold]one[/bold]?")

    with private_home(tmp_path, ask) as home:
        home.ok("run", "--bg", "--family", "none", "ask me")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: table(app) and table(app)[0][1] == "needs you")
            assert table(app)[0][2] == "asks: Which [bold]one[/bold]?"
            await pilot.press("a")
            await until(pilot, lambda: "↵ sends" in panel(app))
            await pilot.press("t", "w", "o", "enter")
            await until(pilot, lambda: table(app)[0][1] == "done")
            assert table(app)[0][2] == "told: two"

        drive(app, script)


def test_a_run_that_came_to_no_end_is_retried_with_a_message(tmp_path: Path) -> None:
    def look(request: Any) -> Any:
        is_told = "Look at b instead." in str(request.messages)
        return "b has 3 files" if is_told else call("list", path=".")

    with private_home(tmp_path, look) as home:
        home.run("run", "-q", "--family", "none", "--max-turns", "1", "Look at a")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: len(table(app)) == 1)
            await pilot.press("M")
            assert frame(app)[-1] == " This run has ended and cannot receive messages."
            await pilot.press("R")
            await until(pilot, lambda: isinstance(app.focused, Input))
            app.screen.query_one(Input).value = "Look at b instead."
            await pilot.press("enter")
            await choose(pilot, "y", "retries it")
            await until(pilot, lambda: " as run " in frame(app)[-1])
            assert frame(app)[-1].startswith(" Retrying ")
            await until(pilot, lambda: "b has 3 files" in str(table(app)))
            await pilot.press("home", "r")
            await until(pilot, lambda: "not failed" in frame(app)[-1] or panel(app))

        drive(app, script)


@needs("tmux")
def test_the_log_opens_in_the_pager_and_the_window_is_named(tmp_path: Path) -> None:
    asks = [call("ask", question="Which one?"), "Done."]
    with private_home(tmp_path, asks) as home, terminal(tmp_path, 100, 24) as screen:
        home.ok("run", "--bg", "--family", "none", "Ask me")
        pager = tmp_path / "pager"
        pager.write_text("#!/bin/sh\ncat\necho end of the log\nread line </dev/tty\n")
        pager.chmod(0o700)
        env = {**home.env, "PAGER": str(pager)}
        screen.retinue("top", env=env, cwd=home.project)
        screen.until("1 needs you: ", "/ filter")
        assert screen.window() == "(1) project · Retinue"
        screen.keys("l")
        screen.until("end of the log", "Ask me", "Which one?")
        screen.keys("Enter")
        screen.until("1 needs you: ", "/ filter")
        screen.keys("q")
        assert screen.code() == 0


def test_a_limit_is_raised_from_the_table(tmp_path: Path) -> None:
    with private_home(tmp_path, ["Here I am."]) as home:
        home.ok(
            "run", "--bg", "--family", "none", "--max-tokens", "1000", "--on-limit", "ask", "Go."
        )
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: table(app) and table(app)[0][1] == "needs you")
            assert table(app)[0][2].startswith("asks: 0 of 1,000 tokens spent")
            await pilot.press("a")
            await until(pilot, lambda: "Choose, then press ↵" in panel(app))
            await pilot.press("y")
            await until(pilot, lambda: "↵ adds this" in panel(app))
            await asyncio.sleep(QUIET_SECONDS)  # what follows the mark at once is no amount
            await pilot.press("ctrl+u")
            await pilot.press(*"1000000", "enter")
            await until(pilot, lambda: table(app)[0][1] == "done")

        drive(app, script)


def test_runs_of_a_host_that_is_gone_are_paused_and_those_of_the_file_are_there(
    tmp_path: Path,
) -> None:
    staff = Staff("agents")
    with private_home(tmp_path, staff) as home:
        home.ok("run", "--bg", *FANOUT, "Lead them")
        home.until(lambda: len(home.runs()) == 2)
        home.ok("host", "stop")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            assert await until(
                pilot, lambda: [row[1] for row in table(app)] == ["paused", "paused"]
            )
            await pilot.press("down", "enter")
            assert await until(pilot, lambda: "agents" in said(app))

        drive(app, script)
        staff.release()


@pytest.mark.parametrize(
    ("target", "is_there"),
    [
        ("", True),
        ("map", True),
        ("MAP repo", True),
        ("nothing", False),
        ("state:queued", True),
        ("state:open", True),
        ("state:failed", False),
        ("agent:lead", True),
        ("agent:x", False),
        ("colour:red", False),
    ],
)
def test_filters_are_words_and_pairs(target: str, is_there: bool) -> None:
    view = TreeView()
    view.take(
        RunSpec(id="a", root="a", request=RunRequest(agent="lead", task="map this repository"))
    )
    row = view.row("a", 0)
    assert matches(row, target) is is_there


def test_bars_are_as_high_as_their_numbers() -> None:
    assert spark([]) == "" and spark([0, 0]) == "▁▁" and spark([0, 4, 8]) == "▁▅█"
    assert len(spark(list(range(60)))) == 12


def test_without_the_extra_there_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "textual").mkdir()
    (tmp_path / "textual" / "__init__.py").write_text(
        "raise ModuleNotFoundError('no', name='textual')"
    )
    home = PrivateHome(tmp_path)
    result = home.real("top", env={"PYTHONPATH": f"{tmp_path}:{home.env['PYTHONPATH']}"})
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert "retinue[tui]" in result.stderr and "retinue ps --watch" in result.stderr


@needs("tmux")
def test_it_runs_in_a_real_terminal_and_leaves_it_clean(tmp_path: Path) -> None:
    staff = Staff("agents")
    with private_home(tmp_path, staff) as home, terminal(tmp_path, 110, 24) as screen:
        id = home.ok("run", "--bg", *FANOUT, "Lead them")
        screen.retinue("top", id, env=home.env, cwd=home.project)
        screen.until("starts 1 agent")
        screen.keys("Escape")
        screen.until("AGENT", "STATE")
        screen.keys("q")
        assert screen.code() == 0
        staff.release()
