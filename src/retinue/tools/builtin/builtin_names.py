"""The names of the built-in tools, for modules that do not need the tools."""

from __future__ import annotations

NAMES = (
    "read",
    "list",
    "search",
    "find",
    "symbols",
    "edit",
    "write",
    "shell",
    "shell_output",
    "shell_stop",
    "git",
    "fetch",
    "think",
    "tasks",
    "artifact",
    "ask",
)
