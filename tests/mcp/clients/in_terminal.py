"""The same clients in a real terminal: what a person sees of agents at work, how they are stopped,
and that the answer comes after the host was killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from tests.cli.terminal import Terminal, terminal
from tests.mcp.clients.claude_code import ClaudeCode
from tests.mcp.clients.codex import Codex
from tests.mcp.clients.stage import ANSWER, DELEGATE, STOP, Stage

SIZE = (110, 32)
SAYS = f"The agent says: {ANSWER}"


@contextlib.contextmanager
def shown(stage: Stage, client: ClaudeCode | Codex) -> Iterator[Terminal]:
    with terminal(stage.home.folder, *SIZE) as screen:
        screen.start(client.command(), client.env, stage.home.project)
        screen.until(client.ready)
        yield screen


def tell(screen: Terminal, text: str) -> None:
    """Type a line. Enter comes when the line is there: keys that come at once are a paste."""
    screen.type(text)
    screen.until(text)
    screen.keys("Enter")


def claude_shows_a_task(stage: Stage, client: ClaudeCode) -> None:
    with shown(stage, client) as screen:
        tell(screen, DELEGATE)
        stage.reached()
        screen.until("1 MCP task", "to manage")
        screen.keys("Down")
        screen.until("enter to view tasks")
        screen.keys("Enter")
        screen.until("retinue/delegate", "Look at the parser and say what it copies: turn")
        stage.kill_host()
        screen.keys("Escape")
        stage.gate.opened.set()
        screen.until(SAYS)
    assert stage.state() == "completed"


def claude_stops_a_task(stage: Stage, client: ClaudeCode) -> None:
    with shown(stage, client) as screen:
        tell(screen, DELEGATE)
        stage.reached()
        screen.until("1 MCP task", "to manage")
        tell(screen, STOP)
        screen.until("The agents are stopped.")
        stage.until_state("cancelled")


def codex_shows_a_call(stage: Stage, client: Codex) -> None:
    with shown(stage, client) as screen:
        tell(screen, DELEGATE)
        stage.reached()
        screen.until("Calling retinue.delegate")
        stage.kill_host()
        stage.gate.opened.set()
        screen.until(SAYS)
    assert stage.state() == "completed"


def codex_stops_a_call(stage: Stage, client: Codex) -> None:
    with shown(stage, client) as screen:
        tell(screen, DELEGATE)
        stage.reached()
        screen.until("Calling retinue.delegate")
        screen.keys("Escape")
        screen.until("interrupted")
        stage.until_state("cancelled")


CLAUDE: dict[str, Callable[[Stage, ClaudeCode], None]] = {
    "terminal_shows_a_task": claude_shows_a_task,
    "terminal_stops_a_task": claude_stops_a_task,
}
CODEX: dict[str, Callable[[Stage, Codex], None]] = {
    "terminal_shows_a_call": codex_shows_a_call,
    "terminal_stops_a_call": codex_stops_a_call,
}
