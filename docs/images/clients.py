"""Takes the pictures of MCP clients: `python -m docs.images.clients`. The real programs from npm in
a real terminal, with a scripted model behind them and behind our agents."""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs.images.svg import as_svg
from retinue.testing import call
from tests.cli.private_home import Gate, private_home
from tests.cli.terminal import terminal
from tests.mcp.clients import claude_code, codex
from tests.mcp.clients.in_terminal import tell
from tests.mcp.clients.stage import Stage

HERE = Path(__file__).resolve().parent
COLUMNS, LINES = 100, 30
QUESTION = "Where do we copy the input?"
FINDINGS = {
    "lexer": "The lexer copies nothing: it slices views.",
    "parser": "The parser copies each block once, in `parser.py:12`.",
    "printer": "The printer joins all lines at the end, in `printer.py:30`.",
}
TASKS = [f"Find where the {name} copies its input. Name file and line." for name in FINDINGS]
ANSWER = (
    "Two places: the parser copies each block once (`parser.py:12`), and the printer joins all "
    "lines at the end (`printer.py:30`). The lexer copies nothing."
)


class Script:
    """The client's model delegates three tasks and sums up; agents read a file, and two of them
    answer when the gate is open."""

    def __init__(self, separator: str, gate: Gate) -> None:
        self._separator, self.gate = separator, gate

    async def __call__(self, request: Any) -> Any:
        texts = " ".join(getattr(message, "text", "") for message in request.messages)
        if request.dialect != "openai_chat":
            if all(text in texts for text in FINDINGS.values()):
                return ANSWER
            if re.search("started server-side task", texts):
                return "Three agents are looking. I will tell you what they find."
            n_results = sum(type(m).__name__ == "ToolMessage" for m in request.messages)
            if QUESTION not in texts or n_results:
                return "Nothing to do."
            return call(f"mcp__retinue{self._separator}delegate", tasks=TASKS)
        name = next(name for name in FINDINGS if name in request.messages[0].text)
        if request.turn == 0:
            return call("read", path=f"{name}.py")
        if name != "lexer":
            await self.gate(request)
        return FINDINGS[name]


def scene(name: str) -> None:
    module: Any = {"claude": claude_code, "codex": codex}[name]
    gate = Gate()
    script = Script(module.SEPARATOR, gate)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        private_home(Path(folder), script) as home,
        terminal(Path(folder), COLUMNS, LINES) as screen,
    ):
        for part in FINDINGS:
            (home.project / f"{part}.py").write_text("def copy(data):\n    return data\n" * 20)
        stage: Any = Stage(home, script)  # type: ignore[arg-type]
        result: Any = {"claude": claude_code.ClaudeCode, "codex": codex.Codex}[name]
        client = result(stage)
        screen.start(client.command(), client.env, home.project)
        screen.until(client.ready)
        tell(screen, QUESTION)
        if name == "claude":
            screen.until("1 MCP task", "to manage")
            screen.keys("Down")
            screen.until("enter to view tasks")
            screen.keys("Enter")
            screen.until("1 of 3 done")
        else:
            screen.until("Calling retinue.delegate")
            gate.opened.set()
            screen.until("The lexer copies nothing.", "Called retinue.delegate")
        text = re.sub(r"\ncode=\d+$", "", screen.text(colors=True))
        (HERE / f"mcp-{name}.svg").write_text(as_svg(text, f"mcp-{name}", COLUMNS), "utf-8")
        gate.opened.set()


if __name__ == "__main__":
    for client in sys.argv[1:] or ("claude", "codex"):
        scene(client)
