"""Takes the pictures of this folder: `python docs/images/make.py`. Real runs in a real terminal
(tmux), a scripted model behind them, and what the terminal shows as SVG."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from rich.console import Console  # noqa: E402
from rich.terminal_theme import TerminalTheme  # noqa: E402
from rich.text import Text  # noqa: E402

from retinue.testing import call  # noqa: E402
from retinue.testing.fake_llm.fake_request import FakeSettings  # noqa: E402
from tests.cli.house import MODEL, Gate, House, Llm, house  # noqa: E402
from tests.cli.terminal import Terminal, terminal  # noqa: E402

COLUMNS, LINES = 100, 36
COLORS = [
    (240, 113, 120),
    (152, 195, 121),
    (229, 192, 123),
    (97, 175, 239),
    (198, 120, 221),
    (86, 182, 194),
]
PAPER, INK = (22, 24, 29), (214, 218, 224)
THEME = TerminalTheme(
    PAPER, INK, [(40, 44, 52), *COLORS, INK], [(92, 99, 112), *COLORS, (255, 255, 255)]
)
# As rich's own template, without fonts from elsewhere.
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, ui-monospace, monospace;
  white-space: pre; font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#16181d"/>
<g transform="translate({terminal_x}, 14)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""
TOOLS = ["read", "list", "search", "find", "git"]
TASKS = {
    "agents": "5 files, 4 key types",
    "models": "22 files, 9 key types",
    "environments": call("read", path="src/environments/docker.py"),
    "run": call("search", pattern="def main|app ="),
    "config": call("ask", question="Two configurations are read. Which of them is the one in use?"),
    "tests": "",
    "tools": call("list", path="src/tools"),
    "server": call("read", path="src/server/app.py", offset=40, limit=60),
    "cli": call("find", pattern="**/main.*"),
    "git history": call("git", args=["log", "--oneline"]),
}


class Script:
    """The lead gives out the tasks; who has nothing more to say thinks until the picture is
    taken."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.opened = self.gate.opened

    async def __call__(self, heard: Any) -> Any:
        first, turn = (
            heard.messages[0].text,
            sum(type(m).__name__ == "AssistantMessage" for m in heard.messages),
        )
        name = next((n for n in TASKS if f"area {n}." in first), "")
        if not name:
            tasks = [
                {"task_id": n, "prompt": f"Look at area {n}.", "tools": [*TOOLS, "ask"]}
                for n in TASKS
            ]
            return "The map." if turn else call("delegate_tasks", mode="parallel", tasks=tasks)
        if isinstance(TASKS[name], str):
            return TASKS[name]
        return await self.gate(heard) if turn else TASKS[name]


def picture(screen: Terminal, name: str, columns: int = COLUMNS) -> None:
    """What the terminal shows, as SVG."""
    console = Console(record=True, width=columns, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    text = re.sub(r"\ncode=\d+$", "", screen.text(colors=True))
    console.print(Text.from_ansi(text), soft_wrap=True)
    text = console.export_svg(
        title=name, theme=THEME, code_format=SVG, unique_id=name.replace(" ", "-")
    )
    (HERE / f"{name}.svg").write_text(
        "\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8"
    )


def project(folder: Path) -> None:
    for path in (
        "src/environments/docker.py",
        "src/server/app.py",
        "src/tools/shell.py",
        "src/cli/main.py",
    ):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def main():\n    pass\n" * 60)


CLIENT = """import pool


class Client:
    def send(self, request, timeout=None):
        return self._pool.send(request, timeout)

    def close(self):
        self._pool.close()
"""
POLICY = """        policy = self.policy or Policy(total=timeout)
        for attempt in policy.attempts():
            with attempt:
                return self._pool.send(request, attempt.left)
"""
OLD = "        return self._pool.send(request, timeout)\n"
REQUESTS = {
    "sync-client": call("edit", path="src/client.py", old=OLD, new=POLICY),
    "async-client": call("shell", command="pip install 'httpx[http2]==1.4.*'", timeout_seconds=600),
    "docs": "docs/http.md, 1 page",
}


def requests(heard: Any) -> Any:
    """An edit and a command that wait for a permission."""
    first = heard.messages[0].text
    turn = sum(type(m).__name__ == "AssistantMessage" for m in heard.messages)
    name = next((n for n in REQUESTS if f"area {n}." in first), "")
    if not name:
        given = ["read", "edit", "shell"]
        tasks = [{"task_id": n, "prompt": f"Look at area {n}.", "tools": given} for n in REQUESTS]
        return "Done." if turn else call("delegate_tasks", mode="parallel", tasks=tasks)
    return "Done." if turn else REQUESTS[name]


SMALL, LARGE = (80, 24), (200, 50)
DARK = {"COLORFGBG": "15;0"}
TASK = "Timeouts and retries in every HTTP client"
NAMES = ("sync-client", "async-client", "webhooks")


def commit(folder: Path) -> None:
    """In a repository, sub-agents that write work side by side."""
    who = ["-c", "user.name=You", "-c", "user.email=you@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "Start"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


class Team:
    """A lead that gives out three tasks; each is a list of replies, and the last one waits for the
    gate if there is one."""

    def __init__(self, *scripts: list[Any], gate: Gate | None = None, mode: str = "parallel"):
        self.scripts, self.gate, self._mode = scripts, gate, mode
        self.opened = gate.opened if gate is not None else None

    async def __call__(self, heard: Any) -> Any:
        first = heard.messages[0].text
        name = next((n for n in NAMES if f"Work on {n}." in first), "")
        if name:
            script = self.scripts[NAMES.index(name)]
            if heard.turn < len(script):
                return script[heard.turn]
            return await self.gate(heard) if self.gate is not None else "Done."
        if heard.turn:
            return "A lane limits how many runs work at once."
        tools = ["read", "edit", "write", "search"]
        tasks = [
            {"task_id": n, "prompt": f"Work on {n}.", "tools": tools}
            for n in NAMES[: len(self.scripts)]
        ]
        return call("delegate_tasks", mode=self._mode, tasks=tasks)


LOOKS = [
    [call("read", path="src/client.py")],
    [call("search", pattern="timeout")],
    [call("read", path="src/client.py", offset=2)],
]


def sources(home: House) -> None:
    (home.project / "src").mkdir()
    text = "class Client:\n    def send(self, request, timeout=None):\n        return request\n"
    (home.project / "src" / "client.py").write_text(text * 6)
    (home.project / "src" / "pool.py").write_text("limit = 10\n")


def conflict() -> None:
    edits = [
        [call("edit", path="src/pool.py", old="limit = 10\n", new=f"limit = {n}\n")]
        for n in (20, 40)
    ]
    edits.append([call("write", path="docs/http.md", content="# HTTP\n")])
    for name, (columns, lines) in (("conflict", SMALL), ("conflict-wide", LARGE)):
        with tempfile.TemporaryDirectory() as folder:
            there = Path(folder)
            team = Team(*edits)
            with house(there, team) as home, terminal(there, columns, lines) as screen:
                sources(home)
                commit(home.project)
                flags = ("run", "--family", "delegate", "--permission-mode", "acceptEdits", TASK)
                screen.retinue(*flags, env={**home.env, **DARK}, cwd=home.project)
                screen.code()
                picture(screen, name, columns)


def chat() -> None:
    gate = Gate("2 findings", at=1)
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        team = Team(LOOKS[0], gate=gate, mode="background")
        with house(there, team) as home, terminal(there, *SMALL) as screen:
            sources(home)
            flags = ("chat", "--family", "delegate")
            screen.retinue(*flags, env={**home.env, **DARK}, cwd=home.project)
            screen.until("/help lists")
            screen.type("Look at the client in the background. What is a lane?")
            screen.keys("Enter")
            screen.until("A lane limits", "esc agents", "sync-client")
            screen.type("and what happens when it is fu")
            screen.until("it is fu")
            picture(screen, "chat", 80)
            gate.opened.set()


SCENES = (conflict, chat)


def request_pictures() -> None:
    """The panels of requests, and `top` while they wait."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with house(folder, requests) as home, terminal(folder, 80, 24) as screen:
            (home.project / "src").mkdir()
            (home.project / "src" / "client.py").write_text(CLIENT)
            commit(home.project)
            env = {**home.env, "HOME": str(folder), "COLORFGBG": "15;0"}
            task = "Timeouts and retries in every HTTP client"
            screen.retinue("run", task, env=env, cwd=home.project)
            screen.until("◆ 2 needs you", "✓ 1 done")
            with terminal(folder, 120, 20) as top:
                top.retinue("top", env=env, cwd=home.project)
                top.until("◆ 2 needs you", "run `pip install", "/ filter")
                picture(top, "top", 120)
            screen.keys("Down", "a")
            screen.until("Choose, then press ↵")
            picture(screen, "needs-you-edit", 80)
            screen.keys("Escape")
            screen.until("↑↓ select")
            screen.keys("Down", "a")
            screen.until("Choose, then press ↵", "may write")
            picture(screen, "needs-you-command", 80)


PAGE = """# Cause

- `auth/clock.py:41` calls `datetime.now()` without a time zone.
- The test compares it with an aware time.

```python
def now(self):  # aware
    return datetime.now(tz=UTC) + self.ttl
```

| Fix | Files | Risk |
|---|---:|---|
| Use UTC in the clock | 1 | low: no public name changes |
| Change the test | 2 | hides the fault |

**Next:** run `pytest tests/auth` in both zones."""


def answers() -> None:
    """A single agent: its answer as it comes, and a provider that is in trouble for a while."""
    look = [call("search", pattern="TokenClock"), call("read", path="clock.py")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Llm([look, PAGE], chunks=60) as llm:
            home = House(folder, **llm.env)
            (home.project / "clock.py").write_text("class TokenClock:\n    pass\n")
            with terminal(folder, 80, 24) as screen:
                flags = ("--model", MODEL, "why does the login test fail?")
                screen.retinue("run", *flags, env=home.env, cwd=home.project)
                screen.code()
                picture(screen, "answer", 80)
            home.close()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = FakeSettings(retry_after_seconds=3.0)
        with Llm([PAGE.partition("\n\n```")[0]], settings=settings) as llm:
            home = House(folder, **llm.env)
            with terminal(folder, 80, 24) as screen:
                flags = ("--model", "openai-chat:fault-F1-then-ok", "why does the login test fail?")
                screen.start(
                    ["sh", "-c", 'python3 -m retinue run "$@" 2>&1 | cat', "sh", *flags],
                    {**home.env, "PATH": f"{Path(sys.executable).parent}:{home.env['PATH']}"},
                    home.project,
                )
                screen.code()
                picture(screen, "provider", 80)
            home.close()


def main() -> None:
    """All pictures, or those of the scenes that are named."""
    names = sys.argv[1:]
    for scene in SCENES:
        if not names or scene.__name__ in names:
            scene()
    if names:
        return
    answers()
    script = Script()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with house(folder, script) as home, terminal(folder, COLUMNS, LINES) as screen:
            project(home.project)
            settings = folder / "config" / "retinue" / "config.toml"
            settings.parent.mkdir(mode=0o700)
            settings.write_text("[families.delegate]\nlend_ask = true\n")
            env = {**home.env, "COLORFGBG": "15;0"}
            screen.retinue("run", "map this repository", env=env, cwd=home.project)
            screen.until(lambda text: text.count("thinking") >= 5 and "needs you" in text)
            screen.until(lambda text: re.search(r" [3-9]s ", text.split("map this")[-1]))
            picture(screen, "live")
            screen.keys("Down", "Down", "Down", "Enter")
            screen.until("── environments")
            screen.until("↳")
            picture(screen, "live-open")
            screen.keys("Escape", "a")
            screen.until("Which of them is the one in use?")
            picture(screen, "live-answer")
            screen.keys("Escape")
            with terminal(folder, 40, 24) as narrow:
                narrow.retinue("attach", env=env, cwd=home.project)
                narrow.until("needs you")
                picture(narrow, "live-narrow", 40)
    request_pictures()


if __name__ == "__main__":
    main()
