"""`retinue mcp serve`: sub-agents for an MCP client, over stdin and stdout; and `retinue mcp
install`, which adds it to a client's configuration."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.formats.database_address import without_password


def guest_options(function: Any) -> Any:
    """What the client's agents may do."""
    for decorate in (
        click.option(
            "--guest", default="", metavar="NAME", help="Name whose agents this client sees."
        ),
        click.option(
            "--max-budget-usd", type=float, default=None, help="Spend at most this, in all."
        ),
        click.option("--max-tokens", type=int, default=None, help="Use at most this many, in all."),
        click.option(
            "--max-agents", type=click.IntRange(1), default=16, help="Open agents at a time."
        ),
        click.option(
            "--max-working",
            type=click.IntRange(1),
            default=None,
            help="Agents that work at a time; others wait for their turn.",
        ),
        click.option(
            "--root",
            "roots",
            multiple=True,
            metavar="DIR",
            help="Directory in which agents may work. Repeatable.",
        ),
        click.option("--permission-mode", default="", metavar="MODE", help="How agents ask."),
        click.option("--tools", default="", metavar="NAMES", help="Only these tools, by commas."),
        click.option(
            "--families",
            default="",
            metavar="NAMES",
            help="How agents start others, by commas; `none` for agents that work alone.",
        ),
        click.option(
            "-m", "--model", default="", metavar="MODEL", help="Model of agents without one."
        ),
        click.option(
            "--client-may-approve",
            is_flag=True,
            help="Let the client's model allow what its agents ask for.",
        ),
    ):
        function = decorate(function)
    return function


@click.command("serve")
@guest_options
@click.option("--print-config", is_flag=True, help="Print a configuration for clients and exit.")
@common
@pass_context
def serve(context: CommandContext, /, print_config: bool, **flags: Any) -> int:
    """Give an MCP client sub-agents, over stdin and stdout.

    A client starts this itself. `--print-config` prints what to put into its configuration.
    Agents belong to the project of the current directory and continue when the client ends."""
    import asyncio

    from retinue.mcp.stdio_guest import stdio_server

    guest = _guest(flags)
    if print_config:
        from retinue.mcp.client_configs import server_command, shown_config

        out(shown_config(server_command(_words(context, flags))))
        return exit_codes.OK

    def prepare() -> Any:
        from retinue.host.keys import carried

        return context.prepare(), carried(context.configure())

    async def main() -> None:
        await stdio_server(prepare, guest).serve()

    asyncio.run(main())
    return exit_codes.OK


@click.command("install")
@click.argument("client")
@guest_options
@click.option("--undo", is_flag=True, help="Take the entry out again.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@common
@pass_context
def install(context: CommandContext, /, client: str, undo: bool, yes: bool, **flags: Any) -> int:
    """Add Retinue to the configuration of CLIENT: claude, codex, cursor, vscode, gemini or
    opencode.

    Shows the change and asks first. What was there is kept in a copy beside the file."""
    import sys

    from retinue.cli.terminal.typed_answer import line_after
    from retinue.errors import ConfigError
    from retinue.formats.safe_text import one_line, reveal
    from retinue.mcp import config_install
    from retinue.mcp.client_configs import server_command

    _guest(flags)
    config_install.config_of(client)
    flags["guest"] = flags["guest"] or client
    command = None if undo else server_command(_words(context, flags))
    change = config_install.planned_change(client, command, context.environ, context.paths.root)
    if not change.is_needed:
        context.say(f"Nothing to do: {change.path} is as it should be.")
        return exit_codes.OK
    context.say(f"{one_line(change.path)} will be:\n{reveal(change.after) or '(removed)'}")
    if not yes:
        if not (sys.stdin and sys.stdin.isatty()):
            raise ConfigError("Nobody can be asked here. Nothing was written. Pass --yes.")
        answer = line_after("Write it? [y/N] ")
        if (answer or "").lower() not in ("y", "yes"):
            context.say("Nothing was written.")
            return exit_codes.OK
    config_install.write_change(change)
    has_copy = change.before is not None and change.is_first
    copy_note = f" Before: {change.copy}." if has_copy else ""
    way_back = "" if undo else f" Undo: retinue mcp install {client} --undo"
    context.say(f"Written.{copy_note}{way_back}")
    return exit_codes.OK


def _guest(flags: dict[str, Any]) -> Any:
    import os

    from retinue.errors import ConfigError
    from retinue.mcp.guests import Guest, guest_name

    roots = tuple(os.path.realpath(os.path.expanduser(root)) for root in flags["roots"])
    for text, root in zip(flags["roots"], roots, strict=True):
        if not os.path.isdir(root):
            raise ConfigError(f"--root: {text} is not a directory.")
    for name in ("max_budget_usd", "max_tokens"):
        if flags[name] is not None and flags[name] <= 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be more than 0.")
    name = flags["guest"]
    if name and guest_name(name) != name:
        raise ConfigError(f"--guest: {name!r} may have letters, digits, dots, - and _ only.")
    return Guest(
        name=name,
        usd=flags["max_budget_usd"],
        tokens=flags["max_tokens"],
        most_open=flags["max_agents"],
        at_once=flags["max_working"],
        roots=roots,
        mode=_mode(flags["permission_mode"]),
        tools=_tools(flags["tools"]),
        families=_families(flags["families"]),
        model=flags["model"],
        may_approve=flags["client_may_approve"],
    )


def _mode(name: str) -> str:
    if not name:
        return ""
    from retinue.host.run_setup import permission_mode

    return permission_mode(name)


def _tools(names: str) -> tuple[str, ...] | None:
    if not names:
        return None
    from retinue.host.run_setup import tool_names

    words = [word.strip() for word in names.split(",") if word.strip()]
    return tuple(dict.fromkeys(ours for word in words for ours in tool_names(word)))


def _families(names: str) -> tuple[str, ...] | None:
    if not names:
        return None
    from retinue.host.run_setup import family_names

    return family_names([names])


def _words(context: CommandContext, flags: dict[str, Any]) -> list[str]:
    """The flags that were given, as a client has to give them again."""
    out = ["--guest", flags["guest"]] if flags["guest"] else []
    for flag, name in (
        ("--max-budget-usd", "max_budget_usd"),
        ("--max-tokens", "max_tokens"),
        ("--max-working", "max_working"),
        ("--permission-mode", "permission_mode"),
        ("--tools", "tools"),
        ("--families", "families"),
        ("--model", "model"),
    ):
        if flags[name]:
            out += [flag, str(flags[name])]
    if flags["max_agents"] != 16:
        out += ["--max-agents", str(flags["max_agents"])]
    for root in flags["roots"]:
        out += ["--root", root]
    if flags["client_may_approve"]:
        out.append("--client-may-approve")
    if context.store:
        out += ["--store", without_password(context.store)]
    if context.cwd:
        out += ["--cwd", context.cwd]
    return out
