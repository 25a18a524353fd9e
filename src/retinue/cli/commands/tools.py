"""`retinue tools`: the built-in tools."""

from __future__ import annotations

import click
import msgspec

from retinue.cli import words
from retinue.cli.door import Door, out, pass_door
from retinue.cli.running import dump
from retinue.errors import NotFound


@click.command("tools")
@click.argument("name", default="")
@click.option("--json", "as_json", is_flag=True)
@pass_door
def command(door: Door, name: str, as_json: bool) -> None:
    """List the built-in tools, or show one: what it does to the world, and its arguments."""
    import asyncio

    from retinue.store.memory import MemoryStore
    from retinue.tools.builtin.kit import NAMES, Kit

    kit = Kit(MemoryStore())
    found = [kit.tool(n) for n in NAMES if name in ("", n)]
    asyncio.run(kit.close())
    if not found:
        raise NotFound(f"there is no built-in tool {name!r}. `retinue tools` lists them.")
    for tool in found:
        risk = getattr(tool, "risk", "execute")
        if as_json:
            out(dump({**msgspec.to_builtins(tool.schema), "risk": risk, "restart": tool.restart}))
        elif name:
            out(f"{tool.schema.name}  ({risk}, {tool.restart})\n\n{tool.schema.description}\n")
            out(msgspec.json.format(msgspec.json.encode(tool.schema.parameters), indent=2).decode())
        else:
            out(f"{tool.schema.name:<13}  {risk:<8}  {words.line(tool.schema.description, 90)}")
