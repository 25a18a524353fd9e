"""`retinue chat`: a conversation with an agent."""

from __future__ import annotations

import sys
from typing import Any

import click

from retinue.cli import run_arguments
from retinue.cli.context import CommandContext, common, option, pass_context, theme_option
from retinue.cli.terminal.prompt import HistoryPrompt, MessagePrompt, PipedPrompt, PlainPrompt
from retinue.cli.terminal.terminal_style import detect_style, is_reader
from retinue.cli.tui.chat_loop import ChatLoop, history_of
from retinue.errors import ConfigError
from retinue.formats.safe_text import one_line
from retinue.host.planner import PlannedRun, make_plan
from retinue.host.run_defaults import families_of

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
@option(
    "-m",
    "--model",
    default="",
    envvar=None,
    help="Model to use: PROVIDER:MODEL, or offline/explorer.",
)
@option(
    "--agent", default="", metavar="NAME", help="Agent to chat with; see `retinue agents list`."
)
@option(
    "--family",
    multiple=True,
    metavar="NAME",
    help="Tool family for starting sub-agents; `none` for no sub-agents. Repeatable.",
)
@option(
    "--permission-mode",
    default="",
    metavar="MODE",
    help="What runs without asking: manual (default), acceptEdits, auto, dontAsk, plan, "
    "bypassPermissions.",
)
@option("--max-budget-usd", type=float, metavar="USD", help="Maximum cost of each message.")
@option("--name", compat=("-n",), default="", help="Name for the conversation.")
@option("-c", "--continue", "go_on", is_flag=True, envvar=None, help="Continue the latest run.")
@option("-r", "--resume", default="", metavar="RUN", envvar=None, help="Continue this run.")
@theme_option
@option("--color", type=click.Choice(["auto", "always", "never"]), default="auto")
@option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@common
@pass_context
def command(context: CommandContext, /, **flags: Any) -> int:
    """Chat with an agent. Each message continues the same conversation.

    /help lists the chat commands. In a pipe, each line is a message and the answers go to
    stdout."""
    flags |= UNSAID
    is_again = flags["go_on"] or bool(flags["resume"])
    setup, value = run_arguments.configured(context, flags, keep={"agent"} if is_again else ())
    context.is_quiet, context.color = flags["quiet"], flags["color"]
    is_tty = sys.stdin.isatty() and sys.stderr.isatty()
    run = _earlier(context, flags["resume"] or "latest") if is_again else ""
    if run and (setup.model or setup.agent):
        raise ConfigError(
            "A continued run keeps its agent and model. Start a new chat to change them."
        )

    def plan() -> PlannedRun:
        return make_plan(context.project, setup, value)

    can_answer = is_tty and setup.permission_prompts != "none"
    terms = setup.terms(
        context.paths.cwd, "ask" if can_answer or setup.permission_prompts == "wait" else "deny"
    )
    if not run:
        plan()  # problems are reported before the first message, not after it
    chat = ChatLoop(
        context,
        plan,
        terms,
        run,
        can_answer=can_answer,
        families=families_of(value, setup.families),
    )
    try:
        return chat.talk(_prompt(context, chat, is_tty))
    finally:
        chat.close()


def _earlier(context: CommandContext, address: str) -> str:
    from retinue.host.listing import RunListing

    with RunListing(context.paths) as listing:
        line = listing.resolve(address)
    context.say(f"Continuing {line.short}: {one_line(line.task, 60)}")
    return line.id


def _prompt(context: CommandContext, chat: ChatLoop, is_tty: bool) -> MessagePrompt:
    if not is_tty:
        return PipedPrompt()
    if context.environ.get("TERM", "dumb") == "dumb" or is_reader(context.environ):
        return PlainPrompt()
    color = detect_style(context.environ, sys.stderr, context.color).color
    try:
        hide = context.project.redactor.clean
        prompt = HistoryPrompt(
            history_of(context),
            chat.complete,
            lambda: chat.status,
            color,
            chat.ended,
            hide,
            chat.rows.open,
        )
    except ImportError as error:
        if error.name != "prompt_toolkit":
            raise
        context.say("For a prompt with history and completion, install retinue[tui].")
        return PlainPrompt()
    context.say("/help lists commands.")
    return prompt
