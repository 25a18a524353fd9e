"""`search`: finds lines that match a regular expression in the files of a tree."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

from retinue.formats.globs import BadGlob, Globs
from retinue.formats.safe_text import clean
from retinue.sandbox.directory_walk import Patience, walk_directory
from retinue.sandbox.gitignore import chain
from retinue.sandbox.path_checks import strip
from retinue.sandbox.paths import Root, real_path
from retinue.sandbox.protected_paths import KERNEL
from retinue.tools.base import ToolResult
from retinue.tools.builtin.file_tool import (
    FileCall,
    FileTool,
    beneath,
    failed,
    prefix_of,
    printable,
)
from retinue.tools.builtin.ripgrep import by_ripgrep, by_scanner, ripgrep
from retinue.tools.builtin.search_answer import SearchArgs, SearchRoot, permitted, search_answer
from retinue.tools.builtin.search_match import Query, SearchResult
from retinue.tools.builtin.text_file import displayable

MAX_PATTERN = 10_000
ENOUGH = {
    "lines": 5_000,
    "files": 50_000,
    "count": 200_000,
}  # of matches, before they are sorted and cut
SNIFF = 1 << 16
SOON_SECONDS = 2.0
IGNORE_FILES = (".gitignore", ".rgignore", ".ignore")


class SearchTool(FileTool[SearchArgs]):
    """With ripgrep where it can be trusted, otherwise with a scanner of our own; the answers are
    the same."""

    name = "search"
    description = (
        "Search file contents for a regular expression, line by line. `glob` limits the "
        "search to some files (*.py, src/**/*.ts). `mode`: lines returns path:line:text "
        "(with `context` lines around as path-line-text), files returns only paths, "
        "count returns the matching lines of each file. Binary files and files ignored "
        "by .gitignore are skipped. To find files by name, use find."
    )
    Args = SearchArgs
    restart = "pure"
    risk = "read"

    def summary(self, args: dict[str, Any]) -> str:
        where, glob = args.get("path", "."), args.get("glob", "")
        inside = f" in {where}" if where != "." else ""
        return printable(
            f'search "{args.get("pattern")}"{inside}{f" ({glob})" if glob else ""}'[:200]
        )

    async def perform(self, work: FileCall, args: SearchArgs) -> ToolResult:
        wrong = _bad(args)
        if wrong:
            return failed(wrong)
        globs = Globs(clean(args.glob)) if args.glob else None
        with ExitStack() as stack:
            root, rest = stack.enter_context(work.reach.reading(args.path))
            place = _place(root, rest, prefix_of(work.reach, root), stack)
            if place.file_fd is not None and b"\0" in os.pread(place.file_fd, SNIFF, 0):
                return ToolResult(
                    text=printable(f"[{args.path} is a binary file, which is not searched]")
                )
            result = await _search(work, args, place, globs)
            if result.broken:
                return failed(f"The search failed: {displayable(result.broken)}")
            if result.wrong:
                return failed(
                    f"The pattern is not a valid regular expression:\n{displayable(result.wrong)}"
                )
            result.lines = await asyncio.to_thread(
                permitted, place, work.reach.forbids, result.lines
            )
            return await asyncio.to_thread(search_answer, args, place, globs, result, work.redactor)


def _bad(args: SearchArgs) -> str:
    if not args.pattern:
        return (
            "Invalid parameters: `pattern` is empty. Use find or list to see files "
            "without searching them"
        )
    if "\0" in args.pattern or len(args.pattern) > MAX_PATTERN:
        return (
            f"Invalid parameters: `pattern` has a NUL character or more than {MAX_PATTERN} "
            "characters"
        )
    if "\n" in args.pattern or "\r" in args.pattern:
        return (
            "Invalid parameters: `pattern` contains a line break, but lines are searched "
            "one by one. Search for one of them"
        )
    try:
        if args.glob:
            Globs(clean(args.glob))
    except BadGlob as error:
        return f"Invalid parameters: `glob`: {error}"
    return ""


def _place(root: Root, rest: str, prefix: str, stack: ExitStack) -> SearchRoot:
    probe = root.open(rest, os.O_PATH)
    stack.callback(os.close, probe)
    if stat.S_ISDIR(os.fstat(probe).st_mode):
        fd = root.open_dir(rest)
        stack.callback(os.close, fd)
        return SearchRoot(root, beneath(root, fd), prefix, dir_fd=fd)
    fd, _ = root.open_file(rest)
    stack.callback(os.close, fd)
    return SearchRoot(root, strip(real_path(fd), root.real) or rest, prefix, file_fd=fd)


async def _search(
    work: FileCall, args: SearchArgs, place: SearchRoot, globs: Globs | None
) -> SearchResult:
    query = Query(
        pattern=clean(args.pattern),
        ignore_case=args.ignore_case,
        context=args.context if args.mode == "lines" else 0,
        first=args.mode == "files",
        glob=args.glob,
        skip=_skipped(place),
    )
    enough = max(ENOUGH[args.mode], 4 * args.limit)
    program = ripgrep((work.reach.root, *work.reach.read, *work.reach.write))
    if program:
        result = await _unless_stuck(
            place, by_ripgrep(program, query, place.dir_fd, place.file_fd, enough)
        )
        inner = f"{place.base}/" if place.base else ""
        for line in result.lines:
            line.path = place.base if place.dir_fd is None else inner + line.path
        # What ripgrep does not take (a look ahead, a back reference) may still be a pattern for
        # Python.
        if not result.broken and not (result.wrong and _is_python(query.pattern)):
            return result
    patience = Patience(stop=work.stop)
    paths = await asyncio.to_thread(_paths, place, globs, patience)
    result = await by_scanner(query, place.root.fd, paths, enough)
    result.why = result.why or patience.why
    return result


async def _unless_stuck(
    place: SearchRoot, search: Coroutine[Any, Any, SearchResult]
) -> SearchResult:
    """Ripgrep opens ignore files itself, and waits without end at one that is a pipe: if it takes
    long, the tool checks for such a file."""
    task = asyncio.ensure_future(search)
    patience = Patience()
    try:
        await asyncio.wait({task}, timeout=SOON_SECONDS)
        if not task.done() and await asyncio.to_thread(_has_odd_rules, place, patience):
            return SearchResult(broken="an ignore file is not a regular file")
        return await task
    finally:
        patience.stop.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _has_odd_rules(place: SearchRoot, patience: Patience) -> bool:
    if place.dir_fd is None:
        return False
    entries = walk_directory(
        place.dir_fd, place.base, chain(place.root.fd, place.base), patience, skip=_skipped(place)
    )
    return any(
        e.kind in ("link", "other") and e.path.rpartition("/")[2] in IGNORE_FILES for e in entries
    )


def _skipped(place: SearchRoot) -> tuple[str, ...]:
    return KERNEL if place.dir_fd is not None and real_path(place.dir_fd) == "/" else ()


def _is_python(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _paths(place: SearchRoot, globs: Globs | None, patience: Patience) -> list[str]:
    if place.dir_fd is None:
        return [place.base]
    rules = chain(place.root.fd, place.base)
    inner = len(place.base) + 1 if place.base else 0
    entries = walk_directory(
        place.dir_fd, place.base, rules, patience, skip=_skipped(place), hides=place.root.hides()
    )
    return sorted(
        e.path
        for e in entries
        if e.kind == "file" and (globs is None or globs.match(e.path, e.path[inner:]))
    )
