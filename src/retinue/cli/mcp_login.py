"""Logs in to an MCP server from the terminal. The host reads the tokens when it needs them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from msgspec.structs import replace

from retinue.cli.browser_window import opened_in_browser
from retinue.cli.context import CommandContext
from retinue.cli.terminal.typed_answer import line_after
from retinue.errors import ConfigError, NotFound, Refused
from retinue.host.agent_servers import OwnSources
from retinue.host.mcp_pool import logins_beside, server_configs
from retinue.host.mcp_sources import ServerSources
from retinue.host.project_paths import approvals_of
from retinue.tools.mcp_client import McpError, McpServers, ServerConfig
from retinue.tools.mcp_client.oauth.browser_visit import MINUTES, on_loopback, pasted
from retinue.tools.mcp_client.oauth.login_file import LoginFile


def log_in(
    context: CommandContext, name: str, sources: ServerSources, own: OwnSources, *, is_here: bool
) -> int:
    """How many tools the server offers then. Refused says why there is no login."""
    config = replace(_config(context, name, sources, own), start_seconds=MINUTES * 60.0)

    def show(url: str) -> None:
        context.say(f"Log in to {name} in a browser: {url}")
        if is_here:  # beside the page that waits: some browsers are there until they are closed
            threading.Thread(target=open_browser, args=(url,), daemon=True).start()

    def open_browser(url: str) -> None:
        if not opened_in_browser(url, is_silent=False):
            context.say("No browser was found here. Open the address yourself, or --no-browser.")

    async def read() -> str:
        line = await asyncio.to_thread(line_after, "Address that the browser ended at: ")
        return line or ""

    async def main() -> int:
        visit = on_loopback(show) if is_here else pasted(show, read)
        servers = McpServers(
            [config], environ=context.environ, logins=_logins(context), visit=visit
        )
        try:
            return await servers.log_in(config.name)
        except McpError as error:
            raise Refused("mcp", f"No login to MCP server {name!r}: {error}") from None
        finally:
            await servers.close()

    return asyncio.run(main())


def log_out(context: CommandContext, name: str, sources: ServerSources, own: OwnSources) -> bool:
    """Whether there was a login."""
    return _logins(context).forget(_config(context, name, sources, own).url)


def _logins(context: CommandContext) -> LoginFile:
    return LoginFile(logins_beside(Path(approvals_of(context.prepare().store))))


def _config(
    context: CommandContext, name: str, sources: ServerSources, own: OwnSources
) -> ServerConfig:
    agent, _, server = name.rpartition("/")
    is_own = bool(agent) and agent in own.servers
    env = {**context.environ, **(own.env if is_own else {})}
    listed = (own.servers[agent],) if is_own else sources.sources
    configs, complaints = server_configs(listed, env)
    config = next((one for one in configs if one.name == (server if is_own else name)), None)
    if config is None:
        problem = next((str(one) for one in complaints if one.server == name), "")
        raise ConfigError(problem) if problem else NotFound(f"Unknown MCP server {name!r}.")
    if not config.may_log_in:
        raise Refused("mcp", f"MCP server {name!r} has a command or a token, so there is no login.")
    return config
