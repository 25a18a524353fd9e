"""`retinue chat`: talk with an agent."""

from __future__ import annotations

import sys
from typing import Any

import click

from retinue.cli import run_arguments as asking
from retinue.cli.context import Door, common, option, pass_door
from retinue.cli.terminal.prompt import Piped, Plain, Prompt, Rich
from retinue.cli.terminal.terminal_style import is_reader, manners
from retinue.cli.tui.chat_loop import Chat, history_of
from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.errors import ConfigError
from retinue.formats.safe_text import one_line
from retinue.host.planner import Planned, make_plan
from retinue.host.requests import Terms
from retinue.host.run_defaults import configured, families_of

UNSAID: dict[str, Any] = {
    "max_tokens": None,
    "on_limit": "",
    "max_turns": None,
    "timeout": None,
    "permission_prompts": "auto",
    "add_dir": (),
    "mcp_config": (),
    "strict_mcp_config": False,
}
"""What can be configured for a chat and has no flag."""


@click.command("chat")
@option("-m", "--model", default="", envvar=None, help="PROVIDER:MODEL, or offline/explorer.")
@option("--agent", default="", metavar="NAME", help="The agent to talk with; see `retinue agents list`.")
@option("--family", multiple=True, metavar="NAME", help="How it starts sub-agents; `none` for not at all.")
@option("--permission-mode", default="", metavar="MODE", help="manual, acceptEdits, plan, dontAsk, auto...")
@option("--max-budget-usd", type=float, metavar="USD", help="What each message may cost.")
@option("-n", "--name", default="", help="A name for the conversation.")
@option("-c", "--continue", "go_on", is_flag=True, envvar=None, help="Go on with the latest run.")
@option("-r", "--resume", default="", metavar="RUN", envvar=None, help="Go on with a run.")
@option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")
@common
@pass_door
def command(door: Door, /, **told: Any) -> int:
    """Talk with an agent. Each message goes on where the last one ended.

    /help lists what else can be said. In a pipe, each line is a message, and the answers are on stdout.
    """
    told |= UNSAID
    value = configured(door, told, click.get_current_context())
    door.is_quiet, door.color = told["quiet"], told["color"]
    is_tty = sys.stdin.isatty() and sys.stderr.isatty()
    run = _earlier(door, told["resume"] or "latest") if told["go_on"] or told["resume"] else ""
    if run and (told["model"] or told["agent"]):
        raise ConfigError("a run goes on with its own agent and model; start a new chat to use another")
    families = asking.families(told["family"])

    def plan() -> Planned:
        return make_plan(
            door,
            agent=told["agent"],
            families=families,
            model=told["model"] or "",
            mcp=told["mcp_config"],
            strict_mcp=told["strict_mcp_config"],
            config_model=told["config_model"],
            value=value,
        )

    terms = _terms(door, told, is_tty)
    if not run:
        plan()  # what is wrong with it is told before the first message, not after
    can_answer = is_tty and told["permission_prompts"] != "none"
    chat = Chat(door, plan, terms, run, can_answer=can_answer, families=families_of(value, families))
    try:
        return chat.talk(_prompt(door, chat, is_tty))
    finally:
        chat.close()


def _terms(door: Door, told: dict[str, Any], is_tty: bool) -> Terms:
    cwd, prompts = door.places.cwd, told["permission_prompts"]
    return asking.terms(
        label=told["name"],
        cwd=cwd,
        budget=asking.budget(told["max_budget_usd"], told["max_tokens"]),
        on_limit=told["on_limit"],
        timeout_seconds=told["timeout"],
        max_turns=told["max_turns"],
        mode=asking.mode(told["permission_mode"]),
        rules=told["rules"],
        read=tuple(sorted({cwd, *told["add_dir"]})) if told["add_dir"] else (),
        questions="ask" if prompts == "wait" or (is_tty and prompts != "none") else "deny",
    )


def _earlier(door: Door, address: str) -> str:
    from retinue.host.listing import Shelf

    with Shelf(door.places) as shelf:
        line = shelf.resolve(address)
    door.say(f"goes on from {line.short}: {one_line(line.task, 60)}")
    return line.id


def _prompt(door: Door, chat: Chat, is_tty: bool) -> Prompt:
    if not is_tty:
        return Piped()
    if door.environ.get("TERM", "dumb") == "dumb" or is_reader(door.environ):
        return Plain()
    color = manners(door.environ, sys.stderr, door.color).color
    try:
        hide = Redactor(secrets_of(door.environ)).clean
        made = Rich(history_of(door), chat.complete, lambda: chat.status, color, chat.ended, hide)
    except ImportError as error:
        if error.name != "prompt_toolkit":
            raise
        door.say("a prompt with history and completion is in the extra `tui`: install retinue[tui]")
        return Plain()
    door.say("/help lists commands; Alt-Enter begins a new line; Ctrl-D leaves")
    return made
