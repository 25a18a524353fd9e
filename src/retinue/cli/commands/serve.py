"""`retinue serve`: the HTTP API on an address."""

from __future__ import annotations

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, note, option, pass_context
from retinue.errors import StoreLocked


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
@common
@pass_context
def command(
    context: CommandContext, host: str, port: int, token_file: str, allow_host: tuple[str, ...]
) -> int:
    """Serve the HTTP API of this project, and MCP at /mcp, until Ctrl-C.

    Every request needs a token. Without --token-file only this machine is served, and the token
    is in a file that only you can read.
    """
    from retinue.host.keys import carried
    from retinue.mcp.mounted_host import mcp_endpoint
    from retinue.server.serve import ServeAddress, check, serve
    from retinue.server.token_file import read_tokens

    address = ServeAddress(host, port, allow_host)
    tokens = read_tokens(token_file) if token_file else []
    check(address, tokens)
    env = carried(context.configure())
    try:
        paths = context.prepare()
        serve(paths, env, address, tokens, note, lambda host: [mcp_endpoint(host).route])
    except StoreLocked as error:
        raise StoreLocked(
            f"{error} If it is this project's host, run `retinue host stop`."
        ) from None
    return exit_codes.OK
