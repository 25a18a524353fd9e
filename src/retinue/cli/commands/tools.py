"""`retinue tools`: lists the built-in tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from retinue.cli.context import CommandContext, common, out, pass_context
from retinue.errors import NotFound, Refused
from retinue.formats.safe_text import one_line
from retinue.view import format as view_format
from retinue.view.format import json_line

if TYPE_CHECKING:
    from retinue.tools.base import Tool


@click.group("tools", invoke_without_command=True)
@click.pass_context
def command(click_context: click.Context) -> None:
    """List built-in tools; explain what a run may call."""
    if click_context.invoked_subcommand is None:
        _list("", as_json=False)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_(as_json: bool) -> None:
    """List the built-in tools with their risks."""
    _list("", as_json)


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def show(name: str, as_json: bool) -> None:
    """Show one built-in tool: its description and its arguments."""
    _list(name, as_json)


@command.command("explain")
@click.argument("name")
@click.option("--run", default="latest", metavar="RUN", help="The run that would make the call.")
@click.option("--args", default="{}", metavar="JSON", help="The arguments of the call, as JSON.")
@common
@pass_context
def explain(context: CommandContext, name: str, run: str, args: str) -> None:
    """Say whether an open run may call a tool, and which rule decides."""
    out(_explained(context, name, run, args))


def _explained(context: CommandContext, tool: str, run: str, args: str) -> str:
    from retinue.cli.foreground_run import line_to
    from retinue.host import requests
    from retinue.host.listing import RunListing
    from retinue.host.run_setup import tool_names

    try:
        msgspec.json.decode(args, type=dict)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise click.UsageError(f"--args must be a JSON object: {error}.") from None
    with RunListing(context.paths) as listing:
        line = listing.resolve(run)
    if line.state in view_format.ENDS:
        raise Refused(
            "ended",
            f"Run {line.short} has ended ({view_format.state_text(line.state)}), so it cannot "
            "call tools.",
        )
    (name, *_) = tool_names(tool)
    with line_to(context) as client:
        return str(client.ask(requests.ExplainRequest(run=line.id, tool=name, args=args))["text"])


def _list(name: str, as_json: bool) -> None:
    from retinue.host.tool_list import builtin_tools

    tools = [tool for tool in builtin_tools() if name in ("", tool.schema.name)]
    if not tools:
        raise NotFound(f"Unknown tool {name!r}. Run `retinue tools list` to list them.")
    if as_json:
        rows = [
            {**msgspec.to_builtins(tool.schema), "risk": _risk(tool), "restart": tool.restart}
            for tool in tools
        ]
        out(json_line(rows))
        return
    for tool in tools:
        if name:
            out(f"{name}  ({_risk(tool)}, {tool.restart})\n\n{tool.schema.description}\n")
            out(msgspec.json.format(msgspec.json.encode(tool.schema.parameters), indent=2).decode())
        else:
            text = one_line(tool.schema.description, 90)
            out(f"{tool.schema.name:<13}  {_risk(tool):<8}  {text}")


def _risk(tool: Tool) -> str:
    return getattr(tool, "risk", "execute")
