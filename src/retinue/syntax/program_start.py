"""The line where a program starts, by the rule of its language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.syntax.facts import DefinitionSite

if TYPE_CHECKING:
    from tree_sitter import Node

_GUARD = re.compile(rb"__name__\s*==\s*[\"']__main__[\"']|[\"']__main__[\"']\s*==\s*__name__")


def main_line(
    language: str,
    root: Node,
    data: bytes,
    definitions: Sequence[DefinitionSite],
    captures: dict[str, list[Node]],
) -> int:
    """0 when the file starts nothing."""
    if language == "python":
        return _guard(root) if b"__main__" in data else 0
    if language == "c_sharp" and captures.get("toplevel"):
        return captures["toplevel"][0].start_point[0] + 1
    for one in definitions:
        if one.kind not in ("function", "method") or one.name not in ("main", "Main"):
            continue
        head = data[one.start : one.body]
        is_main = {
            "go": one.kind == "function" and re.search(rb"^\s*package\s+main\b", data, re.M),
            "rust": one.kind == "function",
            "c": True,
            "cpp": one.kind == "function",
            "java": b"static" in head and b"void" in head,
            "c_sharp": one.name == "Main" and b"static" in head,
            "kotlin": one.kind == "function",
        }.get(language, False)
        if is_main and "local" not in one.marks:
            return one.line
    return 0


def _guard(root: Node) -> int:
    for node in root.named_children:
        if node.type == "if_statement":
            condition = node.child_by_field_name("condition")
            if condition is not None and _GUARD.search(condition.text or b""):
                return node.start_point[0] + 1
    return 0
