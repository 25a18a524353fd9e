"""The list of commands. A command's module is imported when it is used; its line of help is written
here, so that `--help` imports none of them."""

from __future__ import annotations

import importlib
import os

import click

from retinue import __version__
from retinue.cli.context import CommandContext

COMMANDS: dict[str, str] = {
    "run": "Start a run and wait for its answer.",
    "chat": "Talk with an agent.",
    "ps": "List runs.",
    "top": "Watch everything that goes on.",
    "show": "Show one run: its tree, its result, what it cost.",
    "logs": "Show what was said in a run.",
    "artifact": "Print the whole of what was cut.",
    "attach": "Watch a run that goes on.",
    "send": "Send a message to a run.",
    "approve": "Answer what a run asks.",
    "budget": "Show what a run may spend; add to it.",
    "cancel": "End a run and everything below it.",
    "resume": "Go on with a run.",
    "fork": "Start a run from the conversation of another.",
    "wait": "Wait for runs to end.",
    "rm": "Delete runs that have ended.",
    "export": "Write a run as Markdown, JSON lines, a trace or a page.",
    "replay": "Show again how a run went.",
    "agents": "List, show and check agent definitions.",
    "tools": "List the built-in tools; explain what a run may call.",
    "mcp": "List MCP servers; approve what they offer.",
    "models": "List providers; fetch weights.",
    "families": "List the families of tools that start sub-agents.",
    "deliveries": "List announcements; send dead ones again, or drop them.",
    "backup": "Copy the store while it is in use.",
    "compact": "Give back the space of runs that were deleted.",
    "config": "Show the configuration and where it comes from.",
    "trust": "Let a project's own files take effect.",
    "doctor": "Check providers, sandbox, store and versions.",
    "serve": "Serve the HTTP API on an address.",
    "stop": "End the host of this project, or of all.",
    "fake-llm": "Serve a scripted model on loopback, for tests.",
    "completion": "Print the completion script of a shell.",
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
            raise click.UsageError(f"there is no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="retinue %(version)s")
@click.option(
    "--store", default="", metavar="PATH", envvar="RETINUE_STORE", help="The store's file."
)
@click.option(
    "-C",
    "--cwd",
    default="",
    metavar="PATH",
    envvar="RETINUE_CWD",
    help="The directory to work in.",
)
@click.pass_context
def cli(context: click.Context, /, store: str, cwd: str) -> None:
    """Agents with a staff: run them, watch them, talk to them.

    The answer of a run is all that is written to stdout. A run belongs to the project that it was
    started in, goes on in the background when its terminal is gone, and can be seen from every
    other terminal."""
    context.obj = CommandContext(environ=os.environ, store=store, cwd=cwd)
