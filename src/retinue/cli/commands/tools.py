"""`retinue tools`: the built-in tools."""

from __future__ import annotations

import click
import msgspec

from retinue.cli.context import CommandContext, common, out, pass_door
from retinue.errors import NotFound, Refused
from retinue.formats.safe_text import one_line
from retinue.view import format as words
from retinue.view.format import json_line


@click.command("tools")
@click.argument("names", nargs=-1, metavar="[NAME | explain NAME]")
@click.option(
    "--run", default="latest", metavar="RUN", help="With explain: the run that would make the call."
)
@click.option(
    "--args", default="{}", metavar="JSON", help="With explain: the arguments of the call, as JSON."
)
@click.option("--json", "as_json", is_flag=True)
@common
@pass_door
def command(
    door: CommandContext, names: tuple[str, ...], run: str, args: str, as_json: bool
) -> None:
    """List the built-in tools, or show one with its arguments and its effects.

    `explain NAME` says whether an open run may call a tool, and which rule decides."""
    if names[:1] == ("explain",):
        if len(names) != 2:
            raise click.UsageError("Name one tool: retinue tools explain NAME --run RUN.")
        out(_explained(door, names[1], run, args))
        return
    if len(names) > 1:
        raise click.UsageError("Name one tool only.")
    _list(names[0] if names else "", as_json)


def _explained(door: CommandContext, tool: str, run: str, args: str) -> str:
    from retinue.cli.foreground_run import line_to
    from retinue.host import requests
    from retinue.host.listing import RunListing
    from retinue.host.run_setup import tool_names

    try:
        msgspec.json.decode(args, type=dict)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise click.UsageError(f"--args must be a JSON object: {error}.") from None
    with RunListing(door.places) as shelf:
        line = shelf.resolve(run)
    if line.state in words.ENDS:
        raise Refused(
            "ended",
            f"Run {line.short} has ended ({words.state_text(line.state)}), so it cannot "
            "call tools.",
        )
    (name, *_) = tool_names(tool)
    with line_to(door) as client:
        return str(client.ask(requests.ExplainRequest(run=line.id, tool=name, args=args))["text"])


def _list(name: str, as_json: bool) -> None:
    from retinue.host.tool_list import builtin_tools

    found = [tool for tool in builtin_tools() if name in ("", tool.schema.name)]
    if not found:
        raise NotFound(f"Unknown tool {name!r}. Run `retinue tools` to list them.")
    for tool in found:
        risk = getattr(tool, "risk", "execute")
        if as_json:
            out(
                json_line(
                    {**msgspec.to_builtins(tool.schema), "risk": risk, "restart": tool.restart}
                )
            )
        elif name:
            out(f"{tool.schema.name}  ({risk}, {tool.restart})\n\n{tool.schema.description}\n")
            out(msgspec.json.format(msgspec.json.encode(tool.schema.parameters), indent=2).decode())
        else:
            out(f"{tool.schema.name:<13}  {risk:<8}  {one_line(tool.schema.description, 90)}")
