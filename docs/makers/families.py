"""The tables of tools on the pages of the families."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.makers.markdown import one_line, replaced
from retinue.tools.base import Tool
from retinue.tools.families.profiles import family

PAGES = Path(__file__).resolve().parents[1] / "guides" / "families"
SHOWN_AS = {"sessions": "openclaw"}
"""The profile that has all tools of a family, where its own defaults do not."""


def page(name: str) -> str:
    """The page as it should be."""
    return replaced(PAGES / f"{name}.md", "tools", list(_tables(name))[:-1])


def _tables(name: str) -> Iterator[str]:
    output = family(SHOWN_AS.get(name, name))
    tools: dict[str, Tool] = {t.schema.name: t for t in (*output.tools(), *output.helper_tools())}
    for tool in tools.values():
        yield f"**`{tool.schema.name}`** {one_line(tool.schema.description)}\n"
        rows = list(_rows(tool.schema.parameters))
        if rows:
            yield "| parameter | type | required | meaning |\n|---|---|---|---|"
            yield from rows
        else:
            yield "It takes no parameters."
        yield ""


def _rows(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    required = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        needed, about = "yes" if name in required else "", one_line(one.get("description", ""))
        yield f"| `{above}{name}` | {_type(one)} | {needed} | {about} |"
        items = one.get("items", {})
        if items.get("type") == "object":
            yield from _rows(items, f"{above}{name}[].")
        elif one.get("type") == "object":
            yield from _rows(one, f"{above}{name}.")


def _type(one: dict[str, Any]) -> str:
    if "enum" in one:
        return " or ".join(f"`{value}`" for value in one["enum"])
    if "anyOf" in one:
        return " or ".join(dict.fromkeys(_type(each) for each in one["anyOf"]))
    kind = one.get("type", "anything")
    kinds = kind if isinstance(kind, list) else [kind]
    each = f"{one.get('items', {}).get('type', 'thing')}s"
    return " or ".join(f"list of {each}" if k == "array" else k for k in kinds) + _bounds(one)


def _bounds(one: dict[str, Any]) -> str:
    least, most = one.get("minimum", one.get("minItems")), one.get("maximum", one.get("maxItems"))
    if least is not None and most is not None:
        return f", {least:g} to {most:g}"
    if least is not None:
        return f", at least {least:g}"
    return f", at most {most:g}" if most is not None else ""
