"""`retinue families`: lists the tool families that start sub-agents."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.context import out
from retinue.formats.safe_text import one_line
from retinue.view.format import json_line


@click.command("families")
@click.argument("name", default="")
@click.option("--json", "as_json", is_flag=True)
def command(name: str, as_json: bool) -> None:
    """List the tool families that start sub-agents, with their profiles; or show one with its
    settings."""
    import msgspec

    from retinue.tools.families.profiles import FAMILIES, PROFILES, make_family

    if name:
        chosen_family = make_family(name)
        settings = msgspec.to_builtins(chosen_family.settings)
        if as_json:
            out(
                json_line(
                    {
                        "family": chosen_family.name,
                        "tools": chosen_family.tool_names,
                        "settings": settings,
                    }
                )
            )
            return
        out(f"{name}: {', '.join(chosen_family.tool_names)}\n")
        for tool in chosen_family.tools():
            out(f"  {tool.schema.name}: {one_line(tool.schema.description, 100)}")
        out("\nSettings:")
        for key, value in settings.items():
            out(f"  {key} = {value}")
        return
    rows: list[dict[str, Any]] = [
        {
            "family": kind,
            "profiles": [p for p, (of, _) in PROFILES.items() if of == kind],
            "tools": make_family(kind).tool_names,
        }
        for kind in FAMILIES
    ]
    if as_json:
        out(json_line(rows))
        return
    for row in rows:
        out(f"{row['family']:<9}  {', '.join(row['profiles']):<20}  {', '.join(row['tools'])}")
