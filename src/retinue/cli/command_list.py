"""The list of commands. A command's module is imported when it is used; its line of help is written
here, so that `--help` imports none of them."""

from __future__ import annotations

import importlib
import os

import click

from retinue import __version__
from retinue.cli.context import CommandContext

COMMANDS: dict[str, str] = {
    "run": "Start a run and print its answer.",
    "chat": "Chat with an agent.",
    "ps": "List runs.",
    "top": "Watch all runs on a full screen.",
    "show": "Show one run: its sub-agents, result and cost.",
    "logs": "Show the messages of a run.",
    "artifact": "Print the full text of something truncated.",
    "attach": "Watch a run in progress.",
    "send": "Send a message to a run.",
    "approve": "Answer a run's questions; allow or deny its tool calls.",
    "budget": "Show what a run may spend, and raise its limits.",
    "cancel": "Stop a run and its sub-agents.",
    "resume": "Continue a run.",
    "fork": "Start a new run from another run's conversation.",
    "wait": "Wait until runs end.",
    "rm": "Delete runs that have ended.",
    "export": "Export a run as Markdown, JSON Lines, a trace or a web page.",
    "replay": "Replay a run from its record, without calling a model.",
    "agents": "List, show and check agent definitions.",
    "tools": "List built-in tools; explain what a run may call.",
    "mcp": "List MCP servers; approve their tools.",
    "models": "List model providers; download a small local model.",
    "families": "List the tool families that start sub-agents.",
    "deliveries": "List announcements; retry or drop failed ones.",
    "backup": "Copy the store, even while it is in use.",
    "compact": "Free the disk space of deleted runs.",
    "config": "Show and change settings.",
    "trust": "Review and trust a project's configuration, agents and MCP servers.",
    "doctor": "Check models, sandbox, store and versions.",
    "serve": "Serve the HTTP API on an address.",
    "stop": "Stop the background host of this project, or of all projects.",
    "fake-llm": "Serve a scripted model locally, for tests.",
    "completion": "Print a shell completion script.",
}
ALIASES = {"ls": "ps", "rerun": "replay", "answer": "approve", "remove": "rm", "kill": "cancel"}


def _module(name: str) -> str:
    return f"retinue.cli.commands.{name.replace('-', '_')}"


class LazyGroup(click.Group):
    """Commands by name, each from the module of that name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(_module(name)).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            from retinue.formats.suggestion import did_you_mean

            hint = did_you_mean(name, [*COMMANDS, *ALIASES])
            raise click.UsageError(f"Unknown command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="retinue %(version)s")
@click.option(
    "--store",
    default="",
    metavar="PATH",
    envvar="RETINUE_STORE",
    help="Database file to use instead of the project's.",
)
@click.option(
    "-C",
    "--cwd",
    default="",
    metavar="PATH",
    envvar="RETINUE_CWD",
    help="Directory to work in.",
)
@click.pass_context
def cli(context: click.Context, /, store: str, cwd: str) -> None:
    """Agents with a staff: run them, watch them, talk to them.

    The answer of a run is all that is written to stdout. A run belongs to the project that it was
    started in, goes on in the background when its terminal is gone, and can be seen from every
    other terminal."""
    context.obj = CommandContext(environ=os.environ, store=store, cwd=cwd)
