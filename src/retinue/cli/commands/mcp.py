"""`retinue mcp`: lists MCP servers and what was approved of them; serves Retinue to MCP clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli import exit_codes
from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.cli.mcp_serving import install, serve
from retinue.errors import NotFound
from retinue.formats.safe_text import one_line, several_lines

if TYPE_CHECKING:
    from retinue.host.agent_servers import OwnSources
    from retinue.host.mcp_sources import ServerSources


@click.group("mcp")
def command() -> None:
    """List MCP servers; serve sub-agents to MCP clients."""


command.add_command(serve)
command.add_command(install)


def _config(function: Any) -> Any:
    for decorate in (
        click.option(
            "--strict-mcp-config", is_flag=True, help="Use only the servers from --mcp-config."
        ),
        click.option(
            "--mcp-config",
            multiple=True,
            metavar="FILE|JSON",
            help="Another MCP server file. Repeatable.",
        ),
    ):
        function = decorate(function)
    return function


@command.command("list")
@click.option("--json", "as_json", is_flag=True)
@_config
@common
@pass_context
def list_(
    context: CommandContext, as_json: bool, mcp_config: tuple[str, ...], strict_mcp_config: bool
) -> int:
    """Start the servers and show their state, their tools, and which tools are withheld."""
    servers = _ask(context, mcp_config, strict_mcp_config)
    if as_json:
        from retinue.view.format import json_line

        out(json_line(servers))
        return exit_codes.OK
    for server in servers:
        name, source = (one_line(server[key], 300) for key in ("name", "source"))
        out(
            f"{name or source}  {server['status']}  {len(server['tools'])} tools  "
            f"{source or 'given'}"
        )
        if server["error"]:
            out(f"    {one_line(server['error'], 300)}")
        for name in server["tools"]:
            out(f"    {name}")
        for tool in server["withheld"]:
            out(f"    {tool['tool']}: withheld, {tool['reason']}")
            for label in ("approved", "offered"):
                if tool[label]:
                    out(f"      {label}: " + several_lines(tool[label]).replace("\n", "\n        "))
    if not servers:
        context.say(
            "No MCP server is configured. Add one to the project's .mcp.json, to your "
            "mcp.json, or pass --mcp-config."
        )
    return exit_codes.OK


@command.command("approve")
@click.argument("server")
@click.argument("tool", default="")
@_config
@common
@pass_context
def approve(
    context: CommandContext,
    server: str,
    tool: str,
    mcp_config: tuple[str, ...],
    strict_mcp_config: bool,
) -> int:
    """Approve the tools that a server offers now, or only TOOL. `retinue mcp list` shows them."""
    servers = _ask(context, mcp_config, strict_mcp_config, server, tool)
    entry = next(s for s in servers if s["name"] == server)
    what = one_line(f"{server}{' ' + tool if tool else ''}")
    context.say(f"Approved {what}, which offers {len(entry['tools'])} tools.")
    return exit_codes.OK


@command.command("login")
@click.argument("server")
@click.option("--no-browser", is_flag=True, help="Print the address; read where it ends.")
@_config
@common
@pass_context
def login(
    context: CommandContext,
    server: str,
    no_browser: bool,
    mcp_config: tuple[str, ...],
    strict_mcp_config: bool,
) -> int:
    """Log in to SERVER in a browser. The tokens are kept beside the store.

    With --no-browser, open the printed address anywhere, and paste the one that the browser ends
    at, although nothing answers there."""
    from retinue.cli import mcp_login

    sources, own = configured_servers(context, mcp_config, strict_mcp_config, server)
    n_tools = mcp_login.log_in(context, server, sources, own, is_here=not no_browser)
    context.say(f"Logged in to {one_line(server)}, which offers {n_tools} tools.")
    return exit_codes.OK


@command.command("logout")
@click.argument("server")
@_config
@common
@pass_context
def logout(
    context: CommandContext, server: str, mcp_config: tuple[str, ...], strict_mcp_config: bool
) -> int:
    """Forget the tokens for SERVER. Agents that use it now may keep its connection open."""
    from retinue.cli import mcp_login

    sources, own = configured_servers(context, mcp_config, strict_mcp_config, server)
    is_known = mcp_login.log_out(context, server, sources, own)
    context.say(
        f"Logged out of {one_line(server)}." if is_known else "There was no login to forget."
    )
    return exit_codes.OK


def _ask(
    context: CommandContext, files: tuple[str, ...], strict: bool, approve: str = "", tool: str = ""
) -> list[dict[str, Any]]:
    # Here, because `mcp serve` has to answer before all of this is loaded.
    from retinue.cli.foreground_run import line_to
    from retinue.host import requests
    from retinue.host.plan import Plan

    sources, own = configured_servers(context, files, strict, approve)
    if not sources.sources and not own.servers:
        return sources.left_out
    servers, env = sources.for_plan(context.environ)
    plan = Plan(servers=servers, own_servers=own.servers, root=context.paths.root)
    with line_to(context) as client:
        statuses: list[dict[str, Any]] = client.ask(
            requests.ServersRequest(plan=plan, env={**env, **own.env}, approve=approve, tool=tool)
        )["mcp"]
    return [*statuses, *sources.left_out]


def configured_servers(
    context: CommandContext, files: tuple[str, ...], strict: bool, name: str = ""
) -> tuple[ServerSources, OwnSources]:
    """The servers that may be used here, and those of agent files. NotFound if `name` is none of
    them."""
    from retinue.host import project_config
    from retinue.host.agent_servers import OwnSources, own_sources
    from retinue.host.mcp_sources import find_servers
    from retinue.host.project_agents import library

    value = project_config.load(context.project, strict=False).value
    sources = find_servers(
        context.project,
        (*files, *value.mcp.files),
        strict=strict or value.mcp.strict,
        trusted=context.project.trust.is_trusted,
        more=value.mcp_servers,
        disabled=value.mcp.disabled,
    )
    agents = library(context.project).agents.values()
    own = own_sources(agents, context.environ, value.mcp.disabled)
    if strict or value.mcp.strict:
        own = OwnSources()
    names = {f"{agent}/{name}" for agent, one in own.servers.items() for name in one.servers}
    sources.left_out += own.left_out
    if name and name not in sources.names | names:
        omission = next((s for s in sources.left_out if s["name"] == name), None)
        raise NotFound(
            f"MCP server {name!r} is not used here: {omission['error']}"
            if omission is not None
            else f"Unknown MCP server {name!r}. Run `retinue mcp list` to list them."
        )
    return sources, own
