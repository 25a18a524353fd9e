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
from textual.widgets import DataTable, Input, Static

from retinue.cli.tui.project_runs import ProjectRuns, spark
from retinue.cli.tui.top_app import TopApp, matches, pick
from retinue.cli.tui.top_screens import Decide, RunScreen, Say
from retinue.core.spec import Order, Spec
from retinue.host import project_paths as places
from retinue.testing import call
from retinue.view.rows import TreeView
from tests.cli.house import SECONDS, House, house
from tests.cli.terminal import terminal
from tests.cli.test_live import FANOUT, Staff
from tests.needs import needs


def top(home: House, only: str = "") -> TopApp:
    found = places.find(home.env, cwd=str(home.project))
    return TopApp(ProjectRuns(found, home.env, only), seconds=0.3)


def table(app: TopApp) -> list[list[str]]:
    shown = app.screen_stack[0].query_one(DataTable)
    return [[cell.plain for cell in shown.get_row_at(n)] for n in range(shown.row_count)]


async def until(pilot: Pilot[None], what: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if found := what():
            return found
        await asyncio.sleep(0.05)  # not `pilot.pause`, which waits for an idle processor
    raise AssertionError(f"did not come true; there is {table(pilot.app)}")  # type: ignore[arg-type]


def shown(app: TopApp, kind: type[Screen[Any]], name: str) -> str:
    """What is written in a screen of this kind; "" when there is none, or nothing in it yet."""
    found = app.screen.query(name).results(Static) if isinstance(app.screen, kind) else ()
    return next((str(part.render()) for part in found), "")


def panel(app: TopApp) -> str:
    return shown(app, Decide, "Static")


def said(app: TopApp) -> str:
    return shown(app, RunScreen, "#said")


async def filtered(pilot: Pilot[None], words: str) -> None:
    await pilot.press("f")
    await until(pilot, lambda: isinstance(pilot.app.focused, Input))
    pilot.app.query_one("#filter", Input).value = words


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
        app.board.close()


def test_runs_are_listed_opened_messaged_and_cancelled(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    with house(tmp_path, staff) as home:
        home.ok("run", "--bg", *FANOUT, "-n", "mapping", "Lead them")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            started = ["● running", "list . · thinking", "1/10"]
            await until(pilot, lambda: [row[1:4] for row in table(app)[1:]] == [started, started])
            first, agents, _ = table(app)
            assert "Lead them" in first[0] and first[1:3] == ["◌ waiting", "0 of 2 sub-agents done"]
            assert agents[0].endswith("└ agents") and agents[6].endswith("k") and agents[7] == "n/a"
            head = str(app.query_one("#head", Static).render())
            assert (
                "runs 1" in head
                and "● 3 running" in head
                and "tokens/min" in head
                and "today" in head
            )
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
                lambda: [row[1] for row in table(app)] == ["◌ waiting", "● running", "✓ done"],
            )
            await pilot.press("x")
            await choose(pilot, "y", "to cancel it")
            await until(pilot, lambda: table(app)[1][1] == "- cancelled")
            await until(pilot, lambda: table(app)[0][1] == "✓ done")

        drive(app, script)
        posted = [
            s["event"]
            for s in home.lines("logs", "mapping/agents", "--jsonl")
            if s["event"]["event"] == "Posted"
        ]
        assert [event["mail"]["text"] for event in posted] == ["hello"]


def test_a_look_while_it_is_being_closed_finds_nothing_and_fails_nothing(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        home.ok("run", "-p", "Work.")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: len(table(app)) == 1)
            await app.screen_stack[0].query("#head").remove()
            app._look()
            assert len(table(app)) == 1

        drive(app, script)


def test_the_table_is_filtered_sorted_and_folded(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    staff.release("models")
    with house(tmp_path, staff) as home:
        home.ok("run", "--bg", *FANOUT, "Lead them")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: "models has 5 files" in str(table(app)))
            await filtered(pilot, "state:running")
            await until(pilot, lambda: [row[0].strip("└ ") for row in table(app)] == ["agents"])
            await pilot.press("enter", "t")
            await until(pilot, lambda: table(app) == [])
            await filtered(pilot, "")
            await pilot.press("enter")
            await until(pilot, lambda: len(table(app)) == 1)
            await pilot.press("t", "s")
            assert app.sort == "tokens"
            await until(pilot, lambda: len(table(app)) == 3)
            assert [row[0].split()[0] for row in table(app)][1:] == ["models", "agents"]
            await pilot.press("a")
            await pilot.press("q")

        drive(app, script, (60, 20))
        staff.release()


def test_a_question_is_answered_from_the_table(tmp_path: Path) -> None:
    def ask(heard: Any) -> Any:
        done = [m.text for m in heard.messages if type(m).__name__ == "Result"]
        return f"told: {done[-1]}" if done else call("ask", question="Which [bold]one[/bold]?")

    with house(tmp_path, ask) as home:
        home.ok("run", "--bg", "--family", "none", "ask me")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: table(app) and table(app)[0][1] == "? needs you")
            assert table(app)[0][2] == "asks: Which [bold]one[/bold]?"
            await pilot.press("a")
            await until(pilot, lambda: "↵ send" in panel(app))
            await pilot.press("t", "w", "o", "enter")
            await until(pilot, lambda: table(app)[0][1] == "✓ done")
            assert table(app)[0][2] == "told: two"

        drive(app, script)


def test_a_limit_is_raised_from_the_table(tmp_path: Path) -> None:
    with house(tmp_path, ["Here I am."]) as home:
        home.ok(
            "run", "--bg", "--family", "none", "--max-tokens", "1000", "--on-limit", "ask", "Go."
        )
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: table(app) and table(app)[0][1] == "? needs you")
            assert table(app)[0][2].startswith("asks: 0 of 1,000 tokens spent")
            await pilot.press("a")
            await choose(pilot, "t", "to enter the amount")
            await until(
                pilot, lambda: isinstance(app.screen, Say) and isinstance(app.focused, Input)
            )
            await pilot.press(*"1000000", "enter")
            await until(pilot, lambda: table(app)[0][1] == "✓ done")

        drive(app, script)


def test_runs_of_a_host_that_is_gone_are_paused_and_those_of_the_file_are_there(
    tmp_path: Path,
) -> None:
    staff = Staff("agents")
    with house(tmp_path, staff) as home:
        home.ok("run", "--bg", *FANOUT, "Lead them")
        home.until(lambda: len(home.runs()) == 2)
        home.ok("host", "stop")
        app = top(home)

        async def script(pilot: Pilot[None]) -> None:
            assert await until(
                pilot, lambda: [row[1] for row in table(app)] == ["‖ paused", "‖ paused"]
            )
            await pilot.press("down", "enter")
            assert await until(pilot, lambda: "agents" in said(app))

        drive(app, script)
        staff.release()


@pytest.mark.parametrize(
    ("wanted", "is_there"),
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
def test_filters_are_words_and_pairs(wanted: str, is_there: bool) -> None:
    view = TreeView()
    view.take(Spec(id="a", root="a", order=Order(agent="lead", task="map this repository")))
    row = view.row("a", 0)
    assert matches(row, wanted) is is_there
    assert pick([row], wanted, "cost", False) == ([row] if is_there else [])


def test_bars_are_as_high_as_their_numbers() -> None:
    assert spark([]) == "" and spark([0, 0]) == "▁▁" and spark([0, 4, 8]) == "▁▅█"
    assert len(spark(list(range(60)))) == 12


def test_without_the_extra_there_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "textual").mkdir()
    (tmp_path / "textual" / "__init__.py").write_text(
        "raise ModuleNotFoundError('no', name='textual')"
    )
    home = House(tmp_path)
    done = home.real("top", env={"PYTHONPATH": f"{tmp_path}:{home.env['PYTHONPATH']}"})
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "retinue[tui]" in done.stderr and "retinue ps --watch" in done.stderr


@needs("tmux")
def test_it_runs_in_a_real_terminal_and_leaves_it_clean(tmp_path: Path) -> None:
    staff = Staff("agents")
    with house(tmp_path, staff) as home, terminal(tmp_path, 110, 24) as screen:
        id = home.ok("run", "--bg", *FANOUT, "Lead them")
        screen.retinue("top", id, env=home.env, cwd=home.project)
        screen.until("starts 1 agent")
        screen.keys("Escape")
        screen.until("SILENT")
        screen.keys("q")
        assert screen.code() == 0
        staff.release()
