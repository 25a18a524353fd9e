"""Tool calls as updates for an editor: kind, title, files, and the changes they make."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from acp import schema
from acp.helpers import text_block, tool_content, tool_diff_content

from retinue.core.messages import ToolCall
from retinue.formats.fair_cut import clip
from retinue.view.call_summary import describe
from retinue.view.call_wants import wants

KINDS: dict[str, schema.ToolKind] = {
    "read": "read",
    "list": "search",
    "find": "search",
    "search": "search",
    "symbols": "search",
    "edit": "edit",
    "write": "edit",
    "shell": "execute",
    "shell_output": "execute",
    "shell_stop": "execute",
    "git": "execute",
    "fetch": "fetch",
    "think": "think",
}
MOST_TEXT = 20_000
"""Characters of a result that an editor is sent."""
MOST_INPUT = 50_000
"""Characters of arguments that are sent as they are."""
Content = schema.ContentToolCallContent | schema.FileEditToolCallContent


def title(call: ToolCall) -> str:
    return wants(call) or describe(call)


def kind(call: ToolCall) -> schema.ToolKind:
    return KINDS.get(call.name, "other")


def raw_input(call: ToolCall) -> Any:
    return call.arguments if len(call.arguments_json) <= MOST_INPUT else None


def locations(call: ToolCall, cwd: str) -> list[schema.ToolCallLocation]:
    """The file that a call is about, for editors that follow an agent."""
    args = call.arguments
    path, line = args.get("path"), args.get("start", args.get("offset"))
    if call.name not in KINDS or not isinstance(path, str) or not path:
        return []
    is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
    return [schema.ToolCallLocation(path=absolute(path, cwd), line=line if is_line else None)]


def changes(call: ToolCall, cwd: str) -> list[Content]:
    """What a call writes, as a diff where its arguments say so."""
    args = call.arguments
    path, patch = args.get("path"), args.get("patch")
    if call.name == "edit" and isinstance(patch, str) and patch:
        return [text_content(f"```diff\n{patch}\n```")]
    if not isinstance(path, str):
        return []
    old, new = args.get("old"), args.get("new")
    if call.name == "edit" and isinstance(old, str) and isinstance(new, str):
        return [tool_diff_content(absolute(path, cwd), new, old)]
    content = args.get("content")
    if call.name == "write" and isinstance(content, str):
        return [tool_diff_content(absolute(path, cwd), content)]
    return []


def text_content(text: str) -> Content:
    return tool_content(text_block(clip(text, MOST_TEXT)))


def result_content(before: Sequence[Content], text: str) -> list[Content]:
    """A call with its result: a diff stays, and what the tool said comes behind it."""
    return [*before, text_content(text)] if text.strip() else list(before)


def absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, path))
