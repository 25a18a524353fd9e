"""`write`: writes a whole file."""

from __future__ import annotations

from typing import Any

from retinue.formats.safe_text import clean
from retinue.sandbox.atomic_write import sweep
from retinue.sandbox.file_location import FileLocation
from retinue.tools.base import ToolResult
from retinue.tools.builtin.apply_patch import spots, unknown
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
from retinue.tools.builtin.text_file import Text, sha256


class WriteArgs(ToolArguments, frozen=True, kw_only=True):
    path: str
    content: str
    expected_sha256: str = ""


class WriteTool(Changing[WriteArgs]):
    """A whole file, new or in place of one that the model knows."""

    name = "write"
    description = (
        "Write a whole file; missing directories are created. To replace a non-empty "
        "file, pass the sha256 from `read` as `expected_sha256`, so that you never "
        "overwrite content you have not seen. For small changes, use edit."
    )
    Args = WriteArgs

    def subjects(self, args: dict[str, Any]) -> tuple[str, ...]:
        path = args.get("path")
        return (path,) if isinstance(path, str) and path else ()

    def summary(self, args: dict[str, Any]) -> str:
        content = args.get("content")
        n = len(content) if isinstance(content, str) else -1
        size = f" ({n} character{'s' * (n != 1)})" if n >= 0 else ""
        return printable(f"write {args.get('path')}"[:180] + size)

    def work(self, work: FileCall, args: WriteArgs) -> ToolResult:
        wrong = bad_sha(args.expected_sha256)
        if wrong:
            return failed(f"Invalid parameters: {wrong}")
        after = clean(args.content).encode()
        with spots(work, [(args.path, True)]) as (place,):
            before = None if place.stat is None else place.read()
            unshown = work.reach.unshown(place.where())
            refused = _refused(work, args, place, before, after, unshown)
            if refused is not None:
                if refused.error:
                    place.undo()
                return refused
            perform_changes(work, [FileChange(place, before, after)])
        if before is None:
            return was_written(f"Created {args.path}", after)
        if unshown:
            return was_written(f"Wrote {args.path}", after)
        return was_written(
            f"Wrote {args.path}",
            after,
            *(work.redactor.clean(Text.of(d).text) for d in (before, after)),
        )


def _refused(
    work: FileCall,
    args: WriteArgs,
    place: FileLocation,
    before: bytes | None,
    after: bytes,
    unshown: str,
) -> ToolResult | None:
    """The answer when nothing is to be written: it is there already, or it would overwrite what is
    not known. Of a file that may not be shown it does not tell whether someone has guessed its
    content."""
    expected = args.expected_sha256.lower()
    if work.again:
        sweep(place, work.key)
    if before == after and (work.again or not unshown):
        return (
            already_there(args.path, after)
            if work.again
            else was_written(f"{args.path} already has this content", after)
        )
    if before is None:
        return (
            failed(printable(f"{args.path}: file not found. Omit expected_sha256 to create it"))
            if expected
            else None
        )
    if expected:
        if sha256(before).startswith(expected):
            return None
        return (
            failed(printable(unknown([args.path])))
            if work.again
            else has_changed(args.path, before, unshown)
        )
    if not before:
        return None
    if work.again:
        return failed(printable(unknown([args.path])))
    if unshown:
        return failed(
            printable(
                f"{args.path}: it exists, and its content cannot be shown: {unshown}. Not written"
            )
        )
    return failed(
        printable(
            f"{args.path}: it exists and has {len(before)} bytes. Nothing was written. To "
            "replace it, read it and pass its sha256 as expected_sha256 (its sha256 is "
            f"{sha256(before)}), or use edit"
        )
    )
