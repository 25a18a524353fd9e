"""What a call wants to do, in the fewest true words: `change src/a.py +38 -11`, `run `make``. Of a
patch and an edit the lines are counted from the call itself; nothing is read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from retinue.core import arguments
from retinue.core.messages import ToolCall
from retinue.formats.safe_text import one_line

MOST = 160
MOST_LINES = 2_000
"""Longer texts are counted whole, not compared."""


def wants(call: ToolCall) -> str:
    """One line for the person who decides; "" for an unknown tool, whose question must do."""
    args = arguments.read(call.arguments_json)
    return "" if args is None else one_line(_call_text(call.name, args), MOST)


def question_wants(q: Mapping[str, Any]) -> str:
    """The same for a question as a host tells it."""
    if q["kind"] != "permission":
        return one_line(f"asks: {q['text']}", MOST)
    call = ToolCall(
        id="", name=q["call"].get("name", ""), arguments_json=q["call"].get("args", "{}")
    )
    text = q["text"].rstrip("?")
    return wants(call) or one_line(text[:1].lower() + text[1:], MOST)


def _call_text(name: str, args: dict[str, Any]) -> str:
    path, command = args.get("path"), args.get("command")
    if name == "shell" and isinstance(command, str):
        return f"run `{' '.join(command.split())}`"
    if name == "edit" and isinstance(args.get("patch"), str) and args["patch"]:
        return f"apply a patch {signs(*patch_count(args['patch']))}"
    if name == "edit" and isinstance(path, str):
        old, new = args.get("old"), args.get("new")
        if not (isinstance(old, str) and isinstance(new, str)):
            return f"change {path}"
        return f"change {path} {signs(*line_count(old, new))}"
    if name == "write" and isinstance(path, str):
        content = args.get("content")
        n = len(content.splitlines()) if isinstance(content, str) else 0
        return f"write {path}, {n} line{'' if n == 1 else 's'}"
    if name == "fetch" and isinstance(args.get("url"), str):
        return f"fetch {args['url']}"
    return ""


def signs(added: int, removed: int) -> str:
    return f"+{added} -{removed}"


def line_count(old: str, new: str) -> tuple[int, int]:
    """Lines that come and go when one text takes the place of another."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MOST_LINES:
        return len(after), len(before)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return len(after) - same, len(before) - same


def patch_count(patch: str) -> tuple[int, int]:
    """Lines that a patch adds and takes away, as it says itself."""
    lines = [line for line in patch.splitlines() if not line.startswith(("+++", "---", "***"))]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)
