"""Takes the pictures of this folder: `python docs/images/make.py`. Real runs in a real terminal
(tmux), a scripted model behind them, and what the terminal shows as SVG."""

import re
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
from tests.cli.house import Gate, house  # noqa: E402
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
            sum(type(m).__name__ == "Assistant" for m in heard.messages),
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
    console.print(Text.from_ansi(screen.text(colors=True)), soft_wrap=True)
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


def main() -> None:
    script = Script()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with house(folder, script) as home, terminal(folder, COLUMNS, LINES) as screen:
            project(home.project)
            settings = folder / "config" / "retinue" / "config.toml"
            settings.parent.mkdir(mode=0o700)
            settings.write_text("[families.delegate]\nlend_ask = true\n")
            screen.retinue("run", "map this repository", env=home.env, cwd=home.project)
            screen.until(
                lambda text: text.count("running") >= 5 and "needs you" in text and "queued" in text
            )
            screen.until(lambda text: text.count("turn 1/10") >= 5)
            screen.until(lambda text: re.search(r" ([3-9]\.\d|[1-9]\d)s  self", text))
            picture(screen, "live")
            screen.keys("Down", "Down", "Down", "Down", "Enter")
            screen.until("── environments")
            screen.until("↳")
            picture(screen, "live-open")
            screen.keys("Escape", "a")
            screen.until("Which of them is the one in use?")
            picture(screen, "live-answer")
            screen.keys("Escape")
            with terminal(folder, 40, 24) as narrow:
                narrow.retinue("attach", env=home.env, cwd=home.project)
                narrow.until("needs you")
                picture(narrow, "live-narrow", 40)
            with terminal(folder, 120, 24) as top:
                top.retinue("top", env=home.env, cwd=home.project)
                top.until("needs you")
                top.until("git history")
                top.until("Quit")
                picture(top, "top", 120)


if __name__ == "__main__":
    main()
