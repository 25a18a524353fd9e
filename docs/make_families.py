"""Writes the tables of tools into the pages of the families: `python docs/make_families.py`. A test
compares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retinue.tools.base import Tool
from retinue.tools.families.profiles import FAMILIES, family

PAGES = Path(__file__).parent / "guides" / "families"
SHOWN_AS = {"sessions": "openclaw"}
"""The profile that has all tools of a family, where its own defaults do not."""
TABLES = re.compile(r"(<!-- tools -->\n).*?(<!-- end of tools -->)", re.DOTALL)


def page(name: str) -> str:
    """The page as it should be."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    made = "\n".join(_tables(name))
    return TABLES.sub(lambda m: f"{m[1]}\n{made}\n{m[2]}", text)


def _tables(name: str) -> Iterator[str]:
    shown = family(SHOWN_AS.get(name, name))
    tools: dict[str, Tool] = {t.schema.name: t for t in (*shown.tools(), *shown.helper_tools())}
    for tool in tools.values():
        yield f"**`{tool.schema.name}`** {_line(tool.schema.description)}\n"
        rows = list(_rows(tool.schema.parameters))
        if rows:
            yield "| parameter | type | needed | meaning |\n|---|---|---|---|"
            yield from rows
        else:
            yield "It takes no parameters."
        yield ""


def _rows(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    required = schema.get("required", ())
    for name, one in schema.get("properties", {}).items():
        needed = "yes" if name in required else ""
        yield f"| `{above}{name}` | {_type(one)} | {needed} | {_line(one.get('description', ''))} |"
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


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for each in FAMILIES:
        (PAGES / f"{each}.md").write_text(page(each), encoding="utf-8")
