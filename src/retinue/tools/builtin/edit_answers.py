"""Checks and answers shared by the tools that change files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from retinue.formats.fair_cut import clip
from retinue.tools.base import Context, ToolResult
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.change_diff import change_diff
from retinue.tools.builtin.file_changes import FileChange
from retinue.tools.builtin.file_tool import FileTool, failed, printable
from retinue.tools.builtin.text_file import Text, is_binary, sha256, short_diff
from retinue.tools.call_preview import CallPreview, FilePreview
from retinue.tools.file_rules import WRITING

SHA = re.compile(r"[0-9a-f]{12,64}")
A = TypeVar("A", bound=ToolArguments)


class Changing(FileTool[A]):
    """A tool that writes."""

    restart = "reconcile"
    risk = "write"
    acts: tuple[str, ...] = WRITING

    async def look_ahead(self, context: Context, args: dict[str, Any]) -> CallPreview:
        """What the call would change, found by making it up to the point where it writes."""
        try:
            value = msgspec.convert(args, self.Args)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            return CallPreview(problem=clip(str(error), 500))
        planned: list[FileChange] = []
        answer = await self.carry_out(context, value, planned)  # type: ignore[arg-type]
        if isinstance(answer, ToolResult) and answer.error:
            return CallPreview(problem=clip(context.redactor.clean(answer.text), 500))
        return CallPreview(files=file_previews(planned, context.redactor.clean))


def file_previews(
    steps: Sequence[FileChange], clean: Callable[[str], str]
) -> tuple[FilePreview, ...]:
    """Each file that would change, with its diff; of a file that moves one, and not two."""
    out, steps_left = list[FilePreview](), list(steps)
    while steps_left:
        step = steps_left.pop(0)
        source = next((s for s in steps_left if step.like is not None and s.after is None), None)
        if source is not None:
            steps_left.remove(source)
        out.append(_file_preview(step, source, clean))
    return tuple(out)


def _file_preview(
    step: FileChange, source: FileChange | None, clean: Callable[[str], str]
) -> FilePreview:
    before = step.before if source is None else source.before
    kind: Literal["create", "change", "delete", "move"] = "change"
    if source is not None:
        kind = "move"
    elif step.after is None:
        kind = "delete"
    elif before is None:
        kind = "create"
    path = printable((source or step).spot.path)
    to = printable(step.spot.path) if source is not None else ""
    data = [d for d in (before, step.after) if d is not None]
    note = step.unshown or (source.unshown if source is not None else "")
    if not note and any(is_binary(d) for d in data):
        note = f"binary, {len(step.after or b'')} bytes"
    if note:
        return FilePreview(path=path, to=to, kind=kind, note=note)
    old, new = (clean(Text.of(d).text) if d is not None else "" for d in (before, step.after))
    diff = change_diff(old, new)
    return FilePreview(
        path=path,
        to=to,
        kind=kind,
        added=diff.added,
        removed=diff.removed,
        diff=diff.text,
        n_hidden=diff.n_hidden,
    )


def bad_sha(text: str) -> str:
    if text and not SHA.fullmatch(text.lower()):
        return (
            "`expected_sha256` must be the hexadecimal digits shown by read (at least 12 of them)"
        )
    return ""


def already_there(path: str, data: bytes) -> ToolResult:
    remark = (
        f"The change to {path} was already made when a restart interrupted the call. "
        "Nothing was done now"
    )
    return ToolResult(text=printable(f"{remark}. sha256 {sha256(data)}"))


def has_changed(path: str, data: bytes, unshown: str) -> ToolResult:
    now = "" if unshown else f" (its sha256 is now {sha256(data)})"
    return failed(
        printable(
            f"{path}: it has changed since you read it{now}. Nothing was written. Read it again"
        )
    )


def was_written(what: str, data: bytes, old: str = "", new: str = "") -> ToolResult:
    n = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    diff = short_diff(old, new)
    head = printable(f"{what}: {n} lines, {len(data)} bytes, sha256 {sha256(data)}")
    return ToolResult(text=f"{head}\n{diff}" if diff else head)
