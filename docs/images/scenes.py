"""The scenes: each opens a terminal, does what a person would do, and takes pictures on the way.
They are taken at 80x24, and again at 200x50 with `-wide` behind the name."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docs.images import casts
from docs.images.frame_check import frame_problems
from docs.images.svg import as_svg
from retinue.testing import call
from retinue.testing.fake_llm.fake_request import FakeSettings
from tests.cli.private_home import Gate, PrivateHome, private_home
from tests.cli.terminal import Terminal, terminal

FOLDER = Path(__file__).parent
SMALL, LARGE = (80, 24), (200, 50)
RUN = ("run", "--family", "delegate")
QUESTION = "why does the login test fail?"


@dataclass
class Stage:
    """One size of terminal; `taken` are pictures by name, `problems` what is wrong with them."""

    columns: int
    lines: int
    suffix: str = ""
    taken: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def set(self, script: Any, **options: Any) -> Iterator[tuple[PrivateHome, Terminal]]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with private_home(folder, script, **options) as home, self.terminal(folder) as screen:
                home.env |= {"HOME": str(folder), "COLORFGBG": "15;0"}
                home.env["PATH"] = f"{Path(sys.executable).parent}:{home.env['PATH']}"
                try:
                    yield home, screen
                finally:
                    gate = script if isinstance(script, Gate) else getattr(script, "gate", None)
                    if gate is not None:
                        gate.opened.set()

    def terminal(
        self, folder: Path, columns: int = 0, lines: int = 0
    ) -> contextlib.AbstractContextManager[Terminal]:
        return terminal(folder, columns or self.columns, lines or self.lines)

    def take(self, screen: Terminal, name: str, columns: int = 0, quoted: str = "") -> None:
        """A picture, and whether it keeps the rules."""
        columns = columns or self.columns
        text = screen.text()
        name = f"{name}{self.suffix}"
        self.problems += [f"{name}: {it}" for it in frame_problems(text, columns, quoted)]
        self.taken[name] = as_svg(screen.text(colors=True), name, columns)
        (FOLDER / f"{name}.svg").write_text(self.taken[name], encoding="utf-8")


def commands(screen: Terminal, home: PrivateHome, *lines: str) -> None:
    """Several commands one after the other, each shown before it is run."""
    script = home.folder / "commands.sh"
    texts = [f"echo '$ retinue {line}'\n{sys.executable} -m retinue {line}\n" for line in lines]
    script.write_text("".join(texts))
    screen.start(["bash", str(script)], home.env, home.project)


def edit_approval(stage: Stage) -> None:
    """An edit, then a command, that need the user; and the diff again when the edit is done."""
    with stage.set(casts.requests) as (home, screen):
        casts.sources(home)
        screen.retinue("run", casts.TASK, env=home.env, cwd=home.project)
        screen.until("◆ 2 needs you", "✓ 1 done")
        if not stage.suffix:
            with stage.terminal(home.folder, 120, 20) as top:
                top.retinue("top", env=home.env, cwd=home.project)
                top.until("◆ 2 needs you", "run `pip install", "/ filter")
                stage.take(top, "top", 120)
        screen.keys("Down", "a")
        screen.until("Choose, then press ↵")
        stage.take(screen, "needs-you-edit")
        screen.keys("Escape")
        screen.until("↑↓ select")
        screen.keys("Down", "a")
        screen.until("Choose, then press ↵", "may write")
        stage.take(screen, "needs-you-command")
        screen.keys("Escape", "Up", "a")
        screen.until("Choose, then press ↵", "policy = self.policy")
        screen.keys("y")
        screen.until("↵ allows this once")
        screen.keys("Enter")
        screen.until("✓ 2 done", "◆ 1 needs you", "policy = self.policy")
        stage.take(screen, "edit-done")


def answer(stage: Stage) -> None:
    """A single agent: its text while it is being written, and the whole of it."""
    look = [call("search", pattern="TokenClock"), call("read", path="clock.py")]
    settings = FakeSettings(pace_seconds=0.25)
    with stage.set([look, casts.PAGE], chunks=60, settings=settings) as (home, screen):
        (home.project / "clock.py").write_text("class TokenClock:\n    pass\n")
        screen.retinue("run", QUESTION, env=home.env, cwd=home.project)
        screen.until("Cause", "Use UTC in the clock |")
        stage.take(screen, "answer-streaming", quoted="|")
        screen.code()
        stage.take(screen, "answer")


def outage(stage: Stage) -> None:
    """A provider that answers nobody for a while, and then does again."""
    is_out = [False]
    gate = Gate("Done.", at=99)
    team = casts.Team(*casts.LOOKS, gate=gate)

    def fault(request: Any, n: int) -> str | None:
        is_out[0] = is_out[0] or (team.n_waiting == 0 and "Work on webhooks." in str(request))
        return "F1" if is_out[0] and "Work on" in str(request) else None

    settings = FakeSettings(retry_after_seconds=8.0)
    with stage.set(team, faults=fault, settings=settings) as (home, screen):
        casts.sources(home)
        screen.retinue(*RUN, casts.TASK, env=home.env, cwd=home.project)
        screen.until("3 rate limited", "next try in")
        stage.take(screen, "outage")
        team.n_waiting, is_out[0] = 1, False
        gate.opened.set()
        screen.code()
        stage.take(screen, "outage-over")


def provider(stage: Stage) -> None:
    """The same in a pipe: a line when it begins and when it is over."""
    settings = FakeSettings(retry_after_seconds=3.0)
    reply = casts.PAGE.partition("\n\n```")[0]
    if stage.suffix:
        return
    with stage.set([reply], faults=["F1"], settings=settings) as (home, screen):
        flags = (QUESTION,)
        command = 'python3 -m retinue run "$@" 2>&1 | cat'
        screen.start(["sh", "-c", command, "sh", *flags], home.env, home.project)
        screen.code()
        stage.take(screen, "provider")


def ctrl_c(stage: Stage) -> None:
    """Ctrl-C: the title stays the task, and the end is a fact."""
    team = casts.Team(["Read it."], *casts.LOOKS[1:], gate=Gate(at=1))
    with stage.set(team) as (home, screen):
        casts.sources(home)
        screen.retinue(*RUN, casts.TASK, env=home.env, cwd=home.project)
        screen.until("✓ 1 done", "● 2 working" if stage.columns < 120 else "◉ 2 thinking")
        screen.until(re.compile(r" [2-9]s ").search)
        screen.keys("C-c")
        screen.code()
        stage.take(screen, "ctrl-c")


def detach(stage: Stage) -> None:
    """q leaves; the run continues, and is found again."""
    gate = Gate("Done.", at=1)
    with stage.set(casts.Team(*casts.LOOKS, gate=gate)) as (home, screen):
        casts.sources(home)
        task = f'"{casts.TASK}"'
        commands(screen, home, f"run --family delegate {task}", "ps", "ps --tree")
        screen.until(lambda text: text.count("after ") == 3)
        screen.keys("q")
        screen.code()
        stage.take(screen, "detach")


def host_killed(stage: Stage) -> None:
    """The host is killed: nothing is lost, and the next command continues."""
    gate = Gate("Done.", at=1)
    with stage.set(casts.Team(*casts.LOOKS, gate=gate)) as (home, screen):
        casts.sources(home)
        task = f'"{casts.TASK}"'
        commands(screen, home, f"run --family delegate {task}", "ps", "resume")
        screen.until(lambda text: text.count("after ") == 3)
        os.kill(home.host_pid(), signal.SIGKILL)
        screen.until("paused", "$ retinue resume")
        gate.opened.set()
        screen.code()
        stage.take(screen, "host-killed")


def conflict(stage: Stage) -> None:
    """Three writers at once, of whom two change the same line; then what is left of it."""
    with stage.set(casts.Team(*casts.WRITES)) as (home, screen):
        casts.sources(home)
        flags = (*RUN, "--permission-mode", "acceptEdits", casts.TASK)
        screen.retinue(*flags, env=home.env, cwd=home.project)
        screen.code()
        stage.take(screen, "conflict")


def merge(stage: Stage) -> None:
    """What writers that were stopped have left: listed, and merged as far as it fits."""
    gate = Gate("Done.", at=1)
    team = casts.Team(*casts.WRITES, gate=gate)
    with stage.set(team) as (home, screen):
        casts.sources(home)
        home.ok(*RUN, "--permission-mode", "acceptEdits", "--background", casts.TASK)
        home.until(lambda: team.n_waiting == 3)
        home.run("cancel", "latest")
        home.run("wait", "latest")
        home.until(lambda: home.ok("diff", "--json").count('"files":1') == 3)
        commands(screen, home, "diff latest", "merge latest")
        screen.until("[y/N]")
        screen.type("y\n")
        screen.code()
        stage.take(screen, "merge")


def chat(stage: Stage) -> None:
    """A conversation, and a sub-agent in the background."""
    gate = Gate("2 findings", at=1)
    with stage.set(casts.Team(casts.LOOKS[0], gate=gate, mode="background")) as (home, screen):
        casts.sources(home)
        screen.retinue("chat", "--family", "delegate", env=home.env, cwd=home.project)
        screen.until("/help lists")
        screen.type("Look at the client in the background. What is a lane?")
        screen.keys("Enter")
        screen.until("A lane limits", "esc agents", "sync-client")
        screen.type("and what happens when it is fu")
        screen.until("it is fu")
        stage.take(screen, "chat")


def live(stage: Stage) -> None:
    """Ten sub-agents: the tree, one of them open, a question, and the same in 40 columns."""
    if stage.suffix:
        return
    with stage.set(casts.Mapping()) as (home, _), stage.terminal(home.folder, 100, 36) as screen:
        casts.areas(home.project)
        settings = home.folder / "config" / "retinue" / "config.toml"
        settings.parent.mkdir(mode=0o700)
        settings.write_text("[families.delegate]\nlend_ask = true\n")
        screen.retinue("run", "map this repository", env=home.env, cwd=home.project)
        screen.until(lambda text: text.count("thinking") >= 5 and "needs you" in text)
        screen.until(lambda text: re.search(r" [3-9]s ", text.split("map this")[-1]))
        stage.take(screen, "live", 100)
        screen.keys("Down", "Down", "Down", "Enter")
        screen.until("── environments")
        screen.until("↳")
        stage.take(screen, "live-open", 100)
        screen.keys("Escape", "a")
        screen.until("Which of them is the one in use?", "↵ sends")
        stage.take(screen, "live-answer", 100)
        screen.keys("Escape")
        with stage.terminal(home.folder, 40, 24) as narrow:
            narrow.retinue("attach", env=home.env, cwd=home.project)
            narrow.until("needs you")
            stage.take(narrow, "live-narrow", 40)


def in_ascii(stage: Stage) -> None:
    """The tree without any mark that is not ASCII."""
    if stage.suffix:
        return
    with stage.set(casts.requests) as (home, screen):
        casts.sources(home)
        screen.retinue("run", "--ascii", casts.TASK, env=home.env, cwd=home.project)
        screen.until("? 2 needs you", "+ 1 done")
        stage.take(screen, "ascii")


SCENES: tuple[Callable[[Stage], None], ...] = (
    live,
    edit_approval,
    answer,
    provider,
    outage,
    ctrl_c,
    detach,
    host_killed,
    conflict,
    merge,
    chat,
    in_ascii,
)
