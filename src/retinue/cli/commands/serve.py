"""`retinue serve`: serves the HTTP API on an address."""

from __future__ import annotations

import os
from typing import Any

import click

from retinue.cli import exit_codes
from retinue.cli.context import (
    CommandContext,
    common,
    dispatch_option,
    note,
    option,
    pass_context,
)
from retinue.config.user_folders import note_file
from retinue.errors import ConfigError, StoreLocked
from retinue.mcp.guests import Guest


@click.command("serve")
@option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on.")
@option("--port", default=8711, type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
@option(
    "--token-file",
    default="",
    metavar="FILE",
    help="Tokens, one per line: TOKEN [SCOPES [USER]]. Needed beyond this machine.",
)
@option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Another host name under which clients reach this server. Repeatable.",
)
@option("--mcp-max-budget-usd", type=float, default=None, help="What each user may spend over MCP.")
@option("--mcp-max-tokens", type=int, default=None, help="Tokens that each user may use over MCP.")
@option(
    "--mcp-max-agents",
    type=click.IntRange(1),
    default=16,
    help="Agents of each user over MCP that are open at a time.",
)
@option(
    "--mcp-max-working",
    type=click.IntRange(1),
    default=None,
    help="Agents of each user over MCP that work at a time; others wait for their turn.",
)
@click.option(
    "--shared",
    "is_shared",
    is_flag=True,
    help="Be one of several nodes on the database that --store names.",
)
@dispatch_option
@common
@pass_context
def command(
    context: CommandContext,
    /,
    host: str,
    port: int,
    token_file: str,
    allow_host: tuple[str, ...],
    is_shared: bool,
    **limits: Any,
) -> int:
    """Serve the HTTP API of this project, and MCP at /mcp, until Ctrl-C.

    Every request needs a token. Without --token-file only this machine is served, and the token
    is in a file that only you can read.
    """
    from retinue.host.keys import carried
    from retinue.host.worker_process import need_database
    from retinue.mcp.mounted_host import mcp_endpoint
    from retinue.server.serve import ServeAddress, check, serve
    from retinue.server.token_file import read_tokens

    address, guest = ServeAddress(host, port, allow_host), _guest(limits)
    tokens = read_tokens(token_file) if token_file else []
    check(address, tokens)
    env = carried(context.configure())
    try:
        paths = context.prepare()
        if token_file:
            note_file(context.environ, os.path.realpath(token_file))
        need_database(paths, is_shared=is_shared)

        def mcp(host: Any) -> list[Any]:
            return [mcp_endpoint(host, guest).route]

        serve(paths, env, address, tokens, note, mcp, is_shared=is_shared)
    except StoreLocked as error:
        raise StoreLocked(
            f"{error} If it is this project's host, run `retinue host stop`."
        ) from None
    return exit_codes.OK


def _guest(limits: dict[str, Any]) -> Guest:
    """What each client over MCP may spend."""
    usd, tokens = (limits[f"mcp_max_{name}"] for name in ("budget_usd", "tokens"))
    for flag, value in (("--mcp-max-budget-usd", usd), ("--mcp-max-tokens", tokens)):
        if value is not None and value <= 0:
            raise ConfigError(f"{flag} must be more than 0.")
    most_open, at_once = limits["mcp_max_agents"], limits["mcp_max_working"]
    return Guest(usd=usd, tokens=tokens, most_open=most_open, at_once=at_once)
