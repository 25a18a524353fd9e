"""Formats the arguments of a call as readable lines."""

from __future__ import annotations

import re

import msgspec

from retinue.core import arguments, call_rules
from retinue.core.messages import ToolCall
from retinue.core.values import ToolRisk
from retinue.formats.safe_text import reveal


def call_lines(call: ToolCall, guard: ToolRisk) -> str:
    """A call as it will be made: its name and every argument, one a line. After the name comes the
    host of an address that looks like another one: letters of other scripts, a name before an @."""
    args = arguments.read(call.arguments_json)
    if args is None:
        return f"{reveal(call.name, keep='')} {_value(call.arguments_json)}"
    url = args.get(guard.subject) if guard.subject == "url" else None
    host = call_rules.host_of(url) if isinstance(url, str) else ""
    looks = rf"https?://\[?{re.escape(host)}\]?(?:[:/?#]|$)"
    is_plain = not host or re.match(looks, str(url), re.IGNORECASE | re.ASCII)
    name = reveal(call.name, keep="") + ("" if is_plain else f" (host: {reveal(host, keep='')})")
    return "\n".join([name, *(f"  {reveal(k, keep='')}: {_value(v)}" for k, v in args.items())])


def _value(value: object) -> str:
    """Further lines are indented deeper than any argument's name, so that none passes for another
    argument."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return reveal(text).replace("\n", "\n      ")
