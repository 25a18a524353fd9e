"""`list` and `find`: look at directories."""

from __future__ import annotations

import os
from itertools import groupby
from typing import Annotated, Any

from msgspec import Meta

from retinue.errors import Refused
from retinue.formats.globs import BadGlob, Globs
from retinue.sandbox.directory_walk import MAX_DEPTH, Patience, WalkEntry, walk_directory
from retinue.sandbox.gitignore import chain
from retinue.sandbox.open_beneath import DIRECTORY, open_beneath
from retinue.sandbox.paths import Root, real_path
from retinue.sandbox.protected_paths import KERNEL
from retinue.tools.base import ToolResult
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.file_tool import (
    FileCall,
    FileTool,
    beneath,
    failed,
    page,
    prefix_of,
    printable,
)

Positive = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class ListFilesArgs(ToolArguments, frozen=True, kw_only=True):
    path: str = "."
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 1
    limit: Positive = 2000


class ListFilesTool(FileTool[ListFilesArgs]):
    """The entries of a directory, down to a depth."""

    name = "list"
    description = (
        "List a directory, one entry per line, sorted, with paths relative to the root. "
        "Directories end with /; files are followed by a tab and their size in bytes. "
        "`depth` is the number of levels. Files ignored by .gitignore are not shown. To "
        "find files by name, use find."
    )
    Args = ListFilesArgs
    restart = "pure"
    risk = "read"

    def work(self, work: FileCall, args: ListFilesArgs) -> ToolResult:
        patience = Patience(stop=work.stop)
        entries, prefix, _ = gather(
            work, args.path, patience, depth=args.depth, measured=args.limit
        )
        lines = [_line(prefix, e) for e in entries]
        text = page(lines, args.limit, "raise limit, lower depth, or list a subdirectory")
        notes = []
        if not lines:
            notes.append("the directory is empty" if not patience.n_ignored else "no other entries")
        if patience.n_ignored:
            notes.append(f"{patience.n_ignored} entries are ignored by .gitignore")
        if patience.why:
            notes.append(f"incomplete: {patience.why}; list a subdirectory")
        return ToolResult(
            text="\n".join(
                [*([text] if text else []), *([f"[{'; '.join(notes)}]"] if notes else [])]
            )
        )


class FindArgs(ToolArguments, frozen=True, kw_only=True):
    pattern: str
    path: str = "."
    limit: Positive = 1000


class FindTool(FileTool[FindArgs]):
    """Paths that match a glob."""

    name = "find"
    description = (
        "Find files and directories by a glob, for example *.py, test_*, "
        "src/**/*.{ts,tsx}. A glob without a slash matches names at any depth; otherwise "
        "it matches paths below `path`. Returns sorted paths relative to the root; "
        "directories end with /. Files ignored by .gitignore are not found. To search in "
        "files, use search."
    )
    Args = FindArgs
    restart = "pure"
    risk = "read"

    def summary(self, args: dict[str, Any]) -> str:
        where = args.get("path", ".")
        return printable(
            f"find {args.get('pattern')}{'' if where == '.' else f' in {where}'}"[:200]
        )

    def work(self, work: FileCall, args: FindArgs) -> ToolResult:
        try:
            globs = Globs(args.pattern)
        except BadGlob as error:
            return failed(f"Invalid pattern: {error}")
        patience = Patience(stop=work.stop)
        entries, prefix, base = gather(work, args.path, patience)
        inner = len(base) + 1 if base else 0
        hits = [
            e.path + "/" * (e.kind == "dir")
            for e in entries
            if globs.match(*{e.path, e.path[inner:]})
        ]
        text = page(
            [printable(prefix + p) for p in hits],
            args.limit,
            "raise limit, or narrow the pattern",
        )
        if patience.why:
            text += f"\n[incomplete: {patience.why}; give a subdirectory as `path`]"
        return ToolResult(text=text or f"[no match among {len(entries)} entries]")


def gather(
    work: FileCall, path: str, patience: Patience, *, depth: int = MAX_DEPTH, measured: int = 0
) -> tuple[list[WalkEntry], str, str]:
    """All entries below a directory, sorted, with paths beneath their root, the first so many with
    their sizes; what to show in front of them; and the directory's own path there."""
    with work.reach.reading(path) as (root, rest):
        probe = root.open(rest, os.O_PATH)
        try:
            if not os.path.isdir(f"/proc/self/fd/{probe}"):
                raise Refused("file", f"{path}: this is a file. Use read")
        finally:
            os.close(probe)
        fd = root.open_dir(rest)
        try:
            base = beneath(root, fd)
            rules = chain(root.fd, base)
            skip = KERNEL if real_path(fd) == "/" else ()
            walk = walk_directory(
                fd, base, rules, patience, depth=depth, skip=skip, hides=root.hides()
            )
            entries = sorted(walk, key=lambda e: e.path)
            entries[:measured] = _measured(root, entries[:measured])
            return entries, prefix_of(work.reach, root), base
        finally:
            os.close(fd)


def _measured(root: Root, entries: list[WalkEntry]) -> list[WalkEntry]:
    out: list[WalkEntry] = []
    for above, group in groupby(entries, key=lambda e: os.path.dirname(e.path)):
        try:
            fd = open_beneath(root.fd, above or ".", DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # gone since
            out += group
            continue
        try:
            out += [_sized(e, fd) for e in group]
        finally:
            os.close(fd)
    return out


def _sized(entry: WalkEntry, dir_fd: int) -> WalkEntry:
    if entry.kind != "file":
        return entry
    try:
        info = os.stat(os.path.basename(entry.path), dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return entry
    return WalkEntry(entry.path, "file", info.st_size)


def _line(prefix: str, entry: WalkEntry) -> str:
    path = printable(prefix + entry.path)
    match entry.kind:
        case "dir":
            return f"{path}/"
        case "file":
            return f"{path}\t{entry.size}"
        case "link":
            return f"{path}\tlink"
        case _:
            return f"{path}\tnot a regular file"
