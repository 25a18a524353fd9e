"""Permission rules for a file that a tool has actually opened. The gate before a call has seen only
what the model wrote; here it is known where that leads. What denies a file to one reader denies it
to all, and to everything that shows content."""

from __future__ import annotations

import os
from collections.abc import Callable

from retinue.core.call_rules import (
    READERS,
    READING,
    barred_path,
    denied_tool,
    patterns_below,
)
from retinue.core.capabilities import allows
from retinue.sandbox.path_checks import strip
from retinue.tools.base import Context

WRITING = ("edit", "write")


def barred(
    context: Context, names: tuple[str, ...], tool: str = "", path_text: str = ""
) -> Callable[[str], str] | None:
    """The rule that keeps these tools from a file, by its true path, or "". None when there is no
    such rule at all. `tool` and the path `written` ("": a patch) are the call about which the gate
    has asked, if it had to: that is not refused again."""
    bounds, top = context.rules_above, context.root.rstrip("/")
    if not any(rule.startswith(("deny", "ask")) for _, rules in bounds for rule in rules):
        return None
    cwd = (context.spec.request.cwd or top).rstrip("/")

    def rule_on(path: str) -> str:
        # Rules are meant in the directory that a run was sent to, also when it works in a copy of
        # it.
        mine = strip(path, top)
        return barred_path(
            bounds, names, path if mine is None else f"{cwd}/{mine}", tool, path_text, cwd
        )

    return rule_on


def hidden(context: Context) -> Callable[[str], str]:
    """Why the content of a file may not be shown to this run, or "": asked by everything that shows
    content and is not itself a tool for reading, which the gate has let through."""
    ruled = barred(context, READING)
    without = "" if _can_read(context) else "this run has no tool that reads files"

    def why(path: str) -> str:
        if without:
            return without
        rule = "" if ruled is None else ruled(path)
        return f"rule {rule!r}" if rule else ""

    return why


def hidden_patterns(context: Context, top: str) -> list[str]:
    """What may not be shown below a directory, as patterns in it: for programs that find their
    files themselves."""
    cwd = context.spec.request.cwd or context.root
    return patterns_below(
        context.rules_above,
        READING,
        os.path.normpath(f"{cwd}/{os.path.relpath(top, context.root)}"),
    )


def _can_read(context: Context) -> bool:
    if context.reader is None:
        return True
    mine = context.reader.tools(context.spec.request.agent)
    return any(
        n in mine and allows(context.permissions, n) and not denied_tool(context.rules_above, n)
        for n in READERS
    )
