"""`edit`: changes a part of a file. It is `reconcile`, as `write` is: after a restart it looks at
the file first, and tells from its content whether the change was made."""

from __future__ import annotations

from typing import Any, Literal

from retinue.core.call_rules import READING
from retinue.errors import NotFound
from retinue.formats.safe_text import clean
from retinue.sandbox.atomic_write import sweep
from retinue.tools.base import ToolResult
from retinue.tools.builtin.apply_patch import apply_patch, spots, unknown
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.edit_answers import (
    Changing,
    already_there,
    bad_sha,
    has_changed,
    was_written,
)
from retinue.tools.builtin.file_changes import FileChange, perform_changes
from retinue.tools.builtin.file_tool import FileCall, failed, printable
from retinue.tools.builtin.hunks import BadPatch
from retinue.tools.builtin.near_match import nearest
from retinue.tools.builtin.patch import parse
from retinue.tools.builtin.text_file import Text, displayable, is_binary, sha256
from retinue.tools.file_rules import WRITING

SHOWN_LINES = 20


class EditArgs(ToolArguments, frozen=True, kw_only=True):
    path: str = ""
    old: str = ""
    new: str = ""
    all: bool = False
    expected_sha256: str = ""
    patch: str = ""


class EditTool(Changing[EditArgs]):
    """Exact replacement in one file, or a patch over several."""

    name = "edit"
    description = (
        "Change a file: replace `old` with `new`. `old` must occur exactly once (with "
        "`all`: at least once). Copy `old` exactly, without line numbers. Or give only "
        "`patch`, a unified diff or a *** Begin Patch envelope, which can add, change, "
        "move and delete several files, all or nothing. With `expected_sha256` the call "
        "fails if the file has changed since you read it. To replace a whole file, use "
        "write."
    )
    Args = EditArgs
    acts = (*WRITING, *READING)  # whether a text was found tells what is in the file

    def subjects(self, args: dict[str, Any]) -> tuple[str, ...]:
        """Every path that a call would change, as it was written."""
        patch, path = args.get("patch"), args.get("path")
        if isinstance(patch, str) and patch:
            try:
                changes = parse(clean(patch))
            except BadPatch:
                return ()
            return tuple(p for c in changes for p in (c.path, c.to) if p)
        return (path,) if isinstance(path, str) and path else ()

    def summary(self, args: dict[str, Any]) -> str:
        return printable(f"edit {', '.join(self.subjects(args)) or '?'}"[:200])

    def work(self, work: FileCall, args: EditArgs) -> ToolResult:
        wrong = _confused(args)
        if wrong:
            return failed(f"Invalid parameters: {wrong}")
        if not args.patch:
            return _replace(work, args)
        try:
            return ToolResult(text=displayable(apply_patch(work, parse(clean(args.patch)))))
        except BadPatch as error:
            return failed(
                displayable(f"The patch was not applied, and no file was changed: {error}")
            )


def _confused(args: EditArgs) -> str:
    if args.patch:
        others = [n for n in ("path", "old", "new", "all", "expected_sha256") if getattr(args, n)]
        return f"give `patch` on its own, without {', '.join(others)}" if others else ""
    if not args.path:
        return "`path` is missing. Give path, old and new, or a patch"
    if not args.old:
        return "`old` is empty. Give the text to replace, or use write for a whole file"
    if args.old == args.new:
        return "`old` and `new` are the same, so there is nothing to change"
    return bad_sha(args.expected_sha256)


def _replace(work: FileCall, args: EditArgs) -> ToolResult:
    work.reach.find(args.path, "read")
    with spots(work, [(args.path, False)]) as (place,):
        if place.stat is None:
            raise NotFound(f"{args.path}: file not found. Use write to create it")
        before, unshown = place.read(), work.reach.unshown(place.where())
        if is_binary(before):
            return failed(printable(f"{args.path}: this is a binary file. Nothing was changed"))
        source = Text.of(before)
        if not source.is_exact:
            return failed(
                printable(f"{args.path}: it is not valid {source.encoding}. Nothing was changed")
            )
        old, new = _with_line_ends(source, clean(args.old), clean(args.new))
        is_expected = not args.expected_sha256 or sha256(before).startswith(
            args.expected_sha256.lower()
        )
        if work.again:
            sweep(place, work.key)
            state = (
                standing(source.text, old, new)
                if not args.expected_sha256 or not is_expected
                else "before"
            )
            if state == "after":
                return already_there(args.path, before)
            if state == "unknown" or not is_expected:
                return failed(printable(unknown([args.path])))
        if not is_expected:
            return has_changed(args.path, before, unshown)
        n = source.text.count(old)
        if n == 0:
            near = nearest(work.redactor.clean(source.text), old)
            hint = f"The lines are not shown: {unshown}" if unshown else near
            return failed(
                displayable(
                    f"{printable(args.path)}: `old` was not found. Nothing was changed. {hint}"
                )
            )
        if n > 1 and not args.all:
            return failed(printable(f"{args.path}: {_where(source.text, old, n)}"))
        text = source.text.replace(old, new)
        after = source.encode(text)
        perform_changes(work, [FileChange(place, before, after)])
        times = "" if n == 1 else f" {n} times"
        heading = f"Edited {args.path}{times}"
        if unshown:
            return was_written(heading, after)
        return was_written(heading, after, *map(work.redactor.clean, (source.text, text)))


def standing(text: str, old: str, new: str) -> Literal["before", "after", "unknown"]:
    """Whether `old` has been replaced in the text, as far as it shows."""
    if new and old in new:
        if new not in text:
            return "before" if old in text else "unknown"
        return "unknown" if old in text.replace(new, "\0") else "after"
    if old in text:
        return "before"
    return "after" if new in text else "unknown"


def _with_line_ends(source: Text, old: str, new: str) -> tuple[str, str]:
    """Models write LF. In a file whose lines all end with CR LF, theirs do too."""
    if not source.is_crlf:
        return old, new
    return tuple(t.replace("\r\n", "\n").replace("\n", "\r\n") for t in (old, new))  # type: ignore[return-value]


def _where(text: str, old: str, n: int) -> str:
    lines: list[str] = []
    at = line = 0
    for _ in range(min(n, SHOWN_LINES)):
        position = text.index(old, at)
        line += text.count("\n", at, position) if lines else text.count("\n", 0, position) + 1
        lines.append(str(line))
        line += text.count("\n", position, position + len(old))
        at = position + len(old)
    more = "" if n <= SHOWN_LINES else " and others"
    return (
        f"`old` occurs {n} times, at lines {', '.join(lines)}{more}. Nothing was changed. "
        "Add surrounding lines to make it unique, or pass all=true"
    )
