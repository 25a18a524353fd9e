"""The list of commands. A command's module is imported when it is used; its line of help is written
here, so that `--help` imports none of them."""

from __future__ import annotations

import importlib
import os

import click

from retinue import __version__
from retinue.cli.command_help import write_examples
from retinue.cli.context import CommandContext, choose_charset

GROUPS: dict[str, dict[str, str]] = {
    "Start and continue": {
        "run": "Start a run and print its answer.",
        "chat": "Chat with an agent.",
        "fork": "Start a new run from another run's conversation.",
        "resume": "Continue a run.",
    },
    "Watch": {
        "ps": "List runs.",
        "top": "Watch all runs on a full screen.",
        "dashboard": "Watch and steer all runs in a browser.",
        "show": "Show one run: its sub-agents, result and cost.",
        "logs": "Show the messages of a run.",
        "attach": "Watch a run in progress.",
        "wait": "Wait until runs end.",
        "replay": "Replay a run from its record, without calling a model.",
    },
    "Control": {
        "send": "Send a message to a run.",
        "approve": "Answer a run's questions; allow or deny its tool calls.",
        "cancel": "Stop a run and its sub-agents.",
        "budget": "Show what a run may spend, and raise its limits.",
    },
    "Keep and share": {
        "export": "Export a run as Markdown, JSON Lines, a trace or a web page.",
        "diff": "Show what a run's copies of the files changed.",
        "merge": "Merge a run's branches, after a list and a question.",
        "artifact": "Print a long result that was shortened on the screen.",
        "rm": "Delete runs that have ended.",
        "backup": "Copy the store, even while it is in use.",
        "compact": "Free the disk space of deleted runs.",
        "migrate": "Move the store into a database, or back into a file.",
        "deliveries": "List announcements; retry or drop failed ones.",
    },
    "Define": {
        "agents": "List, show and check agent definitions.",
        "tools": "List built-in tools; explain what a run may call.",
        "families": "List the tool families that start sub-agents.",
        "models": "List model providers; download a small local model.",
        "mcp": "List MCP servers; serve sub-agents to MCP clients.",
    },
    "Set up": {
        "config": "Show and change settings.",
        "trust": "Review and trust a project's configuration, agents and MCP servers.",
        "doctor": "Check models, sandbox, store and versions.",
        "host": "Stop, check or read the log of the background host.",
        "serve": "Serve the HTTP API on an address.",
        "acp": "Work in an editor, over the Agent Client Protocol.",
        "completion": "Print a shell completion script.",
        "fake-llm": "Serve a scripted model locally, for tests.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
EXAMPLES = """\
retinue run "map this repository"               # works without an API key
retinue run -m PROVIDER:MODEL "why is startup slow?"
retinue run --background "write tests for the parser"   # prints a run id
retinue attach RUN                              # watch it
retinue approve RUN y                           # allow what it asks for"""
NOTES = """\
RUN is a run's id or part of it, its name, `latest`, or RUN/AGENT for a
sub-agent. Every command has its own help: retinue COMMAND --help"""
INSTEAD = {
    "stop": " To stop a run: retinue cancel RUN. To stop the background host: retinue host stop."
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
        command: click.Command = importlib.import_module(_module(name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            from retinue.formats.suggestion import did_you_mean

            hint = INSTEAD.get(name) or did_you_mean(name, [*COMMANDS, *ALIASES])
            raise click.UsageError(f"Unknown command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, EXAMPLES)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands first: they are what is looked for."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{NOTES}\n")


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
    """Run AI agents that can start sub-agents, and watch, message or stop them.

    Runs belong to the current project and continue in the background when you close the terminal.
    Without an API key, runs use the offline explorer."""
    choose_charset(os.environ)
    context.obj = CommandContext(environ=os.environ, store=store, cwd=cwd)
