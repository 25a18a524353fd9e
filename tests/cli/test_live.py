"""The live view in a real terminal: `retinue run` and `attach` under tmux, with a scripted
provider."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retinue.cli.terminal.typed_answer import QUIET_SECONDS
from retinue.testing import call
from tests.cli.private_home import is_alive, private_home
from tests.cli.terminal import Terminal, terminal
from tests.needs import needs

pytestmark = needs("tmux")
FANOUT = ("--family", "fanout")


class Staff:
    """A lead that starts sub-agents by name; each works until it is let go."""

    def __init__(self, *names: str, calls: int = 1) -> None:
        self.names, self._n_calls = names, calls
        self._free: set[str] = set()
        self._waiting: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}
        self._lock = threading.Lock()
        self.answers: dict[str, Any] = {}

    async def __call__(self, request: Any) -> Any:
        first, turn = (
            request.messages[0].text,
            sum(type(m).__name__ == "AssistantMessage" for m in request.messages),
        )
        if first.startswith("Lead"):
            if turn:
                return "The report."
            each = -(-len(self.names) // self._n_calls)
            groups = [self.names[i : i + each] for i in range(0, len(self.names), each)]
            return [
                call("spawn_agents", tasks=[{"task": n, "max_turns": 10} for n in group])
                for group in groups
            ]
        if turn == 0:
            return self.answers.get(first) or call("list", path=".")
        await self._let_go(first)
        return call("submit_result", result=f"{first} has 5 files")

    async def _let_go(self, name: str) -> None:
        event = asyncio.Event()
        with self._lock:
            if name in self._free:
                return
            self._waiting[name] = asyncio.get_running_loop(), event
        await event.wait()

    def release(self, *names: str) -> None:
        """Let these go, or all of them: from the thread of the test."""
        with self._lock:
            self._free.update(names or self.names)
            ready = [
                self._waiting.pop(name) for name in names or self.names if name in self._waiting
            ]
        for loop, event in ready:
            loop.call_soon_threadsafe(event.set)


@contextmanager
def running(
    folder: Path, staff: Staff, *flags: str, size: tuple[int, int] = (80, 24), **env: str
) -> Iterator[Any]:
    """A run in a terminal, as soon as its sub-agents are there. They may ask people in words."""
    with private_home(folder, staff) as home, terminal(folder, *size) as screen:
        try:
            settings = home.folder / "config" / "retinue" / "config.toml"
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text("[families.fanout]\nlend_ask = true\n", encoding="utf-8")
            screen.retinue(
                "run",
                *FANOUT,
                *flags,
                "Lead them: map it",
                env={**home.env, **env},
                cwd=home.project,
            )
            screen.until("├ " if len(staff.names) > 1 else "└ ")
            yield home, screen
        finally:
            staff.release()


def glyphs(text: str) -> str:
    """One for each sub-agent that is shown."""
    return "".join(
        line[3] for line in text.split("\n") if line[1:3] in ("├ ", "└ ") and len(line) > 4
    )


def test_a_run_is_shown_as_it_moves_and_stays_when_it_ends(tmp_path: Path) -> None:
    staff = Staff("agents", "models", "a name that is much longer than its column")
    with running(tmp_path, staff) as (_, screen):
        screen.until(
            lambda text: text.count("after list .") == 3 and glyphs(text) == "◉◉◉",
            " ● 3 working",
            "select",
        )
        staff.release("models")
        # Rows stay where they are.
        screen.until("models has 5 files", lambda text: glyphs(text) == "◉✓◉")
        staff.release()
        assert screen.code() == 0
        after = screen.text()
        assert glyphs(after) == "✓✓✓" and "select" not in after
        assert "\nThe report.\n" in after and "done in" in after and "4 agents" in after
        assert all(len(line) <= 80 for line in after.split("\n"))


def test_it_fits_after_every_resize(tmp_path: Path) -> None:
    staff = Staff("agents", "models", "tests")
    with running(tmp_path, staff, size=(100, 30)) as (_, screen):
        screen.until(lambda text: text.count("list .") == 3 and "3 sub-agents of about" in text)
        for columns, lines in ((40, 24), (80, 12), (120, 30), (60, 24)):
            screen.resize(columns, lines)
            screen_text = screen.until(functools.partial(_is_one_frame, columns, lines))
            assert "Lead them" in screen_text and glyphs(screen_text) == "◉◉◉"


def _is_one_frame(columns: int, lines: int, text: str) -> bool:
    parts = text.split("\n")
    return (
        text.count("● 3") == 1
        and text.count("select") == 1
        and all(len(line) < columns for line in parts)
        and sum(line[1:3] in ("├ ", "└ ") for line in parts) == 3
    )


def test_keys_select_open_message_cancel_and_answer(tmp_path: Path) -> None:
    staff = Staff("agents", "config")
    staff.answers["config"] = call("ask", question="Which of the two?")
    with running(tmp_path, staff, size=(100, 40)) as (home, screen):
        screen.until("needs you")
        screen.keys("Down", "Enter")
        screen.until("── agents ", "▸ list .", "[the directory is empty]")
        screen.keys("m")
        screen.until("Message to agents")
        screen.type("skip the tests q x")
        screen.keys("Enter")
        screen.keys("Enter", "Down", "Enter")
        screen.until("◆ config asks: Which of the two?", "config waits", "↵ sends")
        screen.type("the second")
        screen.keys("Enter")
        screen.until(lambda text: "needs you" not in text)
        staff.release("config")
        screen.until("config has 5 files")
        screen.keys("Up")
        screen.keys("x")
        confirm(screen, "y", "stops")
        screen.until("cancelled")
        assert screen.code() == 0
        steps = [step["event"] for step in home.lines("logs", "latest/agents", "--jsonl")]
        assert [s["mail"]["text"] for s in steps if s["event"] == "Posted"] == [
            "skip the tests q x"
        ]


def confirm(screen: Terminal, key: str, does: str) -> None:
    """Mark a choice when it can be marked, and confirm it when the view says what that will do."""
    screen.until("Choose, then press ↵")
    screen.keys(key)
    screen.until(f"↵ {does}")
    screen.keys("Enter")


def test_a_permission_takes_a_choice_and_enter(tmp_path: Path) -> None:
    with private_home(tmp_path, Permitting()) as home, terminal(tmp_path, 100, 30) as screen:
        screen.retinue("run", "--family", "none", "write it", env=home.env, cwd=home.project)
        screen.until("needs you", "a answer 1")
        screen.keys("x")
        screen.until("Stop main?")
        confirm(screen, "n", "keeps it")
        screen.keys("a")
        screen.until(
            "Choose, then press ↵",
            "◆ main wants to create note.txt  +1 -0",
            "1  + hello",
            "y  Allow this change once",
            "A  Allow every write of note.txt in this run",
            "Nothing has been changed.",
        )
        screen.paste("y")
        screen.keys("Enter")
        screen.keys("Escape")
        screen.until(lambda text: "Allow this" not in text and "needs you" in text)
        screen.keys("a")
        confirm(screen, "y", "allows this once")
        assert screen.code() == 0
        assert "✓ done: main: create note.txt  +1 -0" in screen.text(), (
            "the diff again when it is done"
        )
        assert (home.project / "note.txt").read_text() == "hello"


def test_on_a_dumb_terminal_a_question_is_answered_with_a_line(tmp_path: Path) -> None:
    with private_home(tmp_path, Permitting()) as home, terminal(tmp_path, 100, 30) as screen:
        screen.retinue(
            "run",
            "--family",
            "none",
            "write it",
            env={**home.env, "TERM": "dumb"},
            cwd=home.project,
        )
        screen.until("or a reason to deny:")
        screen.type("not today")
        screen.keys("Enter")
        assert screen.code() == 0
        assert not (home.project / "note.txt").exists()
        results = [
            s["event"]
            for s in home.lines("logs", "latest", "--jsonl")
            if s["event"]["event"] == "Decided"
        ]
        assert [(r["allow"], r["reason"]) for r in results] == [(False, "not today")]


def test_a_file_that_changes_meanwhile_shows_its_new_diff_and_clears_the_mark(
    tmp_path: Path,
) -> None:
    def edits(request: Any) -> Any:
        is_done = any(type(m).__name__ == "ToolMessage" for m in request.messages)
        return "Done." if is_done else call("edit", path="a.txt", old="one", new="two")

    with private_home(tmp_path, edits) as home, terminal(tmp_path, 80, 24) as screen:
        (home.project / "a.txt").write_text("one\n")
        screen.retinue("run", "--family", "none", "change it", env=home.env, cwd=home.project)
        screen.until("change a.txt +1 -1")
        screen.keys("a")
        screen.until("Choose, then press ↵", "1  - one", "1  + two")
        screen.keys("y")
        screen.until("▸ y")
        (home.project / "a.txt").write_text("zero\none\n")
        screen.until("This has changed since it was asked", "2  + two", lambda t: "▸" not in t)
        confirm(screen, "n", "denies")
        assert screen.code() == 0
        assert (home.project / "a.txt").read_text() == "zero\none\n"


ASKING = ("run", "--family", "none", "--max-tokens", "1000", "--on-limit", "ask", "Go.")


def test_a_limit_is_raised_from_the_live_view(tmp_path: Path) -> None:
    with private_home(tmp_path, ["Here I am."]) as home, terminal(tmp_path, 100, 30) as screen:
        screen.retinue(*ASKING, env=home.env, cwd=home.project)
        screen.until("needs you")
        screen.keys("a")
        screen.until(
            "Choose, then press ↵",
            "is at its limit",
            "y  Add to the limit, in tokens: ",
            "n  Finish with one last turn",
        )
        screen.keys("y")
        screen.until("↵ adds this")
        time.sleep(QUIET_SECONDS)  # what follows the mark at once is no amount
        screen.type("x")
        screen.until("x", "▸ y  Add to the limit")
        screen.keys("Enter")
        screen.until("is not an amount above zero. Nothing was added")
        screen.keys("a")
        confirm(screen, "y", "adds this")
        assert screen.code() == 0
        assert "Here I am." in home.ok("show")


def test_on_a_dumb_terminal_a_limit_is_raised_with_a_line(tmp_path: Path) -> None:
    with private_home(tmp_path, ["Here I am."]) as home, terminal(tmp_path, 100, 30) as screen:
        screen.retinue(*ASKING, env={**home.env, "TERM": "dumb"}, cwd=home.project)
        screen.until("or `end` to cancel:")
        screen.type("please")
        screen.keys("Enter")
        screen.until(lambda text: text.count("or `end` to cancel:") == 2)
        screen.type("1,000,000")
        screen.keys("Enter")
        assert screen.code() == 0
        events = [
            s["event"]
            for s in home.lines("logs", "latest", "--jsonl")
            if s["event"]["event"] == "LimitChanged"
        ]
        assert [e["add"][0] for e in events] == [1_000_000] and events[0]["question"]


class Permitting:
    def __call__(self, request: Any) -> Any:
        is_done = any(type(m).__name__ == "ToolMessage" for m in request.messages)
        return "Written." if is_done else call("write", path="note.txt", content="hello")


def test_ctrl_c_cancels_the_children_first_and_keeps_what_there_is(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    with running(tmp_path, staff) as (home, screen):
        screen.until(lambda text: text.count("list .") == 2)
        staff.release("agents")
        screen.until("agents has 5 files")
        screen.keys("C-c")
        assert screen.code() == 130
        screen_text = screen.text()
        assert "Stopping 2 agents; partial results are kept" in screen_text
        assert glyphs(screen_text) == "✓⊘" and "\n Lead them: map it   " in screen_text, (
            "the task stays"
        )
        assert {run["label"]: run["state"] for run in home.runs()} == {
            "main": "cancelled",
            "agents": "completed",
            "models": "cancelled",
        }
        screen.type("echo back to a sane terminal")
        screen.until("echo back to a sane terminal")


def test_it_goes_on_when_somebody_leaves_and_is_found_again(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    with running(tmp_path, staff) as (home, screen):
        screen.until(lambda text: text.count("list .") == 2)
        screen.keys("b")
        assert screen.code() == 0
        assert "continues: retinue attach" in screen.text().replace("\n", "")
        with terminal(tmp_path, 80, 24) as other:
            other.retinue("attach", env=home.env, cwd=home.project)
            other.until(lambda text: text.count("list .") == 2)
            staff.release("models")
            other.until("models has 5 files")
            other.keys("C-c")
            assert other.code() == 130, "who only looks only leaves"
        assert home.runs()[0]["state"] == "waiting"
        staff.release()
        assert home.ok("attach", "-q") == "The report."


def test_it_sleeps_and_wakes_with_the_shell(tmp_path: Path) -> None:
    staff = Staff("agents")
    with private_home(tmp_path, staff) as home, terminal(tmp_path, 80, 24) as screen:
        screen.start(["bash", "--norc", "-i"], home.env, home.project)
        screen.until("bash-")
        python = subprocess.list2cmdline([sys.executable, "-m", "retinue", "run", *FANOUT, "Lead"])
        screen.type(python)
        screen.keys("Enter")
        screen.until("list .")
        screen.keys("C-z")
        screen.until("Stopped")
        screen.type("echo sane-$((40+2))")
        screen.keys("Enter")
        screen.until("sane-42")
        screen.type("fg")
        screen.keys("Enter")
        screen.until(lambda text: "select" in text.rpartition("fg")[2])
        screen.keys("Enter")
        screen.until("── main")
        staff.release()
        screen.until("The report.")
        assert [run["state"] for run in home.runs()] == ["completed", "completed"]


def test_two_hundred_sub_agents_stay_smooth(tmp_path: Path) -> None:
    names = [f"area {n}" for n in range(200)]
    staff = Staff(*names, calls=20)
    with running(tmp_path, staff) as (home, screen):
        screen.until("+192 more: 192 working")
        screen.keys("End")
        screen.until(lambda text: "▸└ ◉ area 199" in text)
        screen.keys("Escape")
        staff.release(*names[3:150])
        screen.until(
            "147 done, 45 working",
            lambda text: glyphs(text) == "◉" * 8,
            lambda text: len(text.split("\n")) <= 16,
        )
        screen.keys("?")
        screen.until("select an agent")
        staff.release()
        assert screen.code() == 0
        assert "201 agents" in screen.text()
        pid = home.host_pid()
    home.until(lambda: not is_alive(pid))


def test_without_colour_nothing_is_coloured_and_without_movement_lines_stay(tmp_path: Path) -> None:
    staff = Staff("agents")
    with running(tmp_path, staff, COLORFGBG="15;0") as (home, screen):
        screen.until("list .")
        screen.until("\x1b[94m", colors=True)
        with terminal(tmp_path) as other:
            other.retinue("attach", env={**home.env, "NO_COLOR": "1"}, cwd=home.project)
            other.until("list .", "◉ agents")
            assert "\x1b[94m" not in other.text(colors=True)
        for env in ({"TERM": "dumb"}, {"CI": "true"}):
            with terminal(tmp_path) as other:
                other.retinue("attach", env={**home.env, **env}, cwd=home.project)
                assert "select" not in other.until("◉ agents: ")
        with terminal(tmp_path) as other:
            reader = {**home.env, "RETINUE_AX_SCREEN_READER": "1"}
            staff.release()
            other.retinue("run", *FANOUT, "Lead them", env=reader, cwd=home.project)
            assert "◉" not in other.until("agents is done after")


def test_piped_it_is_one_line_for_each_change_without_a_sequence(tmp_path: Path) -> None:
    staff = Staff("agents", "models")
    staff.release()
    with private_home(tmp_path, staff) as home:
        result = home.real("run", *FANOUT, "Lead them")
        assert (result.returncode, result.stdout) == (0, "The report.\n")
        assert "\x1b" not in result.stderr and "\r" not in result.stderr
        for name in staff.names:
            lines = [line for line in result.stderr.splitlines() if f" {name} " in line]
            assert "done" in lines[-1] and len(lines) == len(set(lines)), (
                "who is quick is told of once"
            )
