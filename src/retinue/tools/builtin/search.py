"""`search`: lines that match a regular expression, in the files of a tree."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from retinue.core.redaction import Redactor
from retinue.errors import Refused
from retinue.formats.globs import BadGlob, Globs
from retinue.formats.safe_text import clean
from retinue.sandbox.directory_walk import Patience, walk_directory
from retinue.sandbox.gitignore import Judge, chain
from retinue.sandbox.paths import Root, real_path, strip
from retinue.sandbox.protected_paths import KERNEL
from retinue.tools.base import Answer
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
from retinue.tools.builtin.read_list_find import Positive
from retinue.tools.builtin.ripgrep import (
    MatchLine,
    Query,
    SearchResult,
    by_file,
    by_ripgrep,
    by_scanner,
    confirmed,
    ripgrep,
)
from retinue.tools.builtin.text_file import displayable

MAX_TEXT = 400
MAX_PATTERN = 10_000
AROUND = 4_096
"""So many bytes around a line are cleaned with it."""
MAX_CONTEXT = 50
ENOUGH = {
    "lines": 5_000,
    "files": 50_000,
    "count": 200_000,
}  # of matches, before they are sorted and cut
SNIFF = 1 << 16
SOON_SECONDS = 2.0
IGNORE_FILES = (".gitignore", ".rgignore", ".ignore")
NARROW = "make the pattern, path or glob narrower, or raise limit"


class SearchArgs(ToolArguments, frozen=True, kw_only=True):
    pattern: str
    path: str = "."
    glob: str = ""
    ignore_case: bool = False
    context: Annotated[int, Meta(ge=0, le=MAX_CONTEXT)] = 0
    mode: Literal["lines", "files", "count"] = "lines"
    limit: Positive = 1000


@dataclass(frozen=True, slots=True)
class SearchRoot:
    """What is searched: a directory, or one file (`file_fd`). `base` is its true path beneath the
    root."""

    root: Root
    base: str
    prefix: str
    dir_fd: int | None = None
    file_fd: int | None = None


class SearchTool(FileTool[SearchArgs]):
    """With ripgrep where it can be trusted, otherwise with a scanner of our own; the answers are
    the same."""

    name = "search"
    description = (
        "Search file contents for a regular expression, line by line. `glob` limits it to some "
        "files (*.py, "
        "src/**/*.ts). `mode`: lines answers path:line:text (with `context` lines around as "
        "path-line-text), files "
        "only paths, count the matching lines of each file. Binary files and what .gitignore "
        "leaves out are skipped."
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

    async def perform(self, work: FileCall, args: SearchArgs) -> Answer:
        wrong = _bad(args)
        if wrong:
            return failed(wrong)
        globs = Globs(clean(args.glob)) if args.glob else None
        with ExitStack() as held:
            root, rest = held.enter_context(work.reach.reading(args.path))
            place = _place(root, rest, prefix_of(work.reach, root), held)
            if place.file_fd is not None and b"\0" in os.pread(place.file_fd, SNIFF, 0):
                return Answer(
                    text=printable(f"[{args.path} is a binary file, which is not searched]")
                )
            found = await _search(work, args, place, globs)
            if found.broken:
                return failed(f"The search failed: {displayable(found.broken)}")
            if found.wrong:
                return failed(
                    f"The pattern is not a valid regular expression:\n{displayable(found.wrong)}"
                )
            found.lines = await asyncio.to_thread(
                _permitted, place, work.reach.forbids, found.lines
            )
            return await asyncio.to_thread(_answer, args, place, globs, found, work.redactor)


def _bad(args: SearchArgs) -> str:
    if not args.pattern:
        return (
            "Invalid parameters: `pattern` is empty; find and list show files without "
            "searching them"
        )
    if "\0" in args.pattern or len(args.pattern) > MAX_PATTERN:
        return (
            f"Invalid parameters: `pattern` has a NUL character or more than {MAX_PATTERN} "
            "characters"
        )
    if "\n" in args.pattern or "\r" in args.pattern:
        return (
            "Invalid parameters: `pattern` has a line end, but lines are searched one by one; "
            "look for one of them"
        )
    try:
        if args.glob:
            Globs(clean(args.glob))
    except BadGlob as error:
        return f"Invalid parameters: `glob`: {error}"
    return ""


def _place(root: Root, rest: str, prefix: str, held: ExitStack) -> SearchRoot:
    probe = root.open(rest, os.O_PATH)
    held.callback(os.close, probe)
    if stat.S_ISDIR(os.fstat(probe).st_mode):
        fd = root.open_dir(rest)
        held.callback(os.close, fd)
        return SearchRoot(root, beneath(root, fd), prefix, dir_fd=fd)
    fd, _ = root.open_file(rest)
    held.callback(os.close, fd)
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
        found = await _unless_stuck(
            place, by_ripgrep(program, query, place.dir_fd, place.file_fd, enough)
        )
        inner = f"{place.base}/" if place.base else ""
        for line in found.lines:
            line.path = place.base if place.dir_fd is None else inner + line.path
        # What ripgrep does not take (a look ahead, a back reference) may still be a pattern for
        # Python.
        if not found.broken and not (found.wrong and _is_python(query.pattern)):
            return found
    patience = Patience(stop=work.stop)
    paths = await asyncio.to_thread(_paths, place, globs, patience)
    found = await by_scanner(query, place.root.fd, paths, enough)
    found.why = found.why or patience.why
    return found


async def _unless_stuck(
    place: SearchRoot, search: Coroutine[Any, Any, SearchResult]
) -> SearchResult:
    """Ripgrep opens ignore files itself, and waits for ever at one that is a pipe: when it takes
    long, it is looked whether there is such a one."""
    task = asyncio.ensure_future(search)
    patience = Patience()
    try:
        await asyncio.wait({task}, timeout=SOON_SECONDS)
        if not task.done() and await asyncio.to_thread(_has_odd_rules, place, patience):
            return SearchResult(broken="there is an ignore file that is no regular file")
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


def _answer(
    args: SearchArgs,
    place: SearchRoot,
    globs: Globs | None,
    found: SearchResult,
    redactor: Redactor,
) -> Answer:
    lines = _filtered(place, globs, found.lines)
    lines.sort(key=lambda line: (line.path, line.number))
    lines = confirmed(
        lines, place.root.fd
    )  # before anything is counted: a number tells something too
    n_hits = sum(line.start >= 0 for line in lines)
    match args.mode:
        case "lines":
            first = _cleaned(_first(lines, args.limit), place.root.fd, redactor)
            shown = _lines(first, place.prefix, args.context, redactor)
            text = page(shown, len(shown), NARROW)
            if n_hits > args.limit:
                text += f"\n[the first {args.limit} of {n_hits} matches; {NARROW}]"
        case "files":
            paths = [printable(place.prefix + line.path) for line in lines[: args.limit]]
            text = page(paths + [""] * max(0, n_hits - args.limit), args.limit, NARROW)
        case _:
            counts: dict[str, int] = {}
            for line in lines:
                counts[line.path] = counts.get(line.path, 0) + 1
            rows = [f"{printable(place.prefix + path)}:{n}" for path, n in counts.items()]
            text = page(rows, args.limit, NARROW)
            if len(rows) > 1:
                text += f"\n[{sum(counts.values())} lines in {len(rows)} files]"
    if found.why:
        text += f"\n[incomplete: {found.why}; {NARROW}]"
    return Answer(text=text.removeprefix("\n") or "[nothing matches]")


def _permitted(
    place: SearchRoot, forbids: Callable[[str], str] | None, lines: list[MatchLine]
) -> list[MatchLine]:
    top, hides = place.root.real.rstrip("/"), place.root.hides()

    def is_denied(path: str) -> bool:
        return _is_hidden(place.root, path, hides) or (
            forbids is not None and bool(forbids(f"{top}/{path}"))
        )

    denied = {path for path in {line.path for line in lines} if is_denied(path)}
    return [line for line in lines if line.path not in denied]


def _is_hidden(root: Root, path: str, hides: Callable[[str], bool]) -> bool:
    """ripgrep goes into directories that are not to be listed; what it says of them is not passed
    on."""
    parts = path.split("/")
    if any(hides("/".join(parts[: i + 1])) for i in range(len(parts))):
        return True
    try:
        root.refuse_link(os.stat(path, dir_fd=root.fd, follow_symlinks=False), path)
    except (Refused, OSError):
        return True
    return False


def _filtered(place: SearchRoot, globs: Globs | None, lines: list[MatchLine]) -> list[MatchLine]:
    if place.dir_fd is None:
        return lines
    judge = Judge(place.root.fd, place.base) if place.base else None
    if judge is not None and not judge.has_rules:
        judge = None
    if globs is None and judge is None:
        return lines
    inner = len(place.base) + 1 if place.base else 0
    passed: dict[str, bool] = {}
    for path in {line.path for line in lines}:
        fits = globs is None or globs.match(path, path[inner:])
        passed[path] = fits and not (judge is not None and judge.ignores(path))
    return [line for line in lines if passed[line.path]]


def _first(lines: list[MatchLine], limit: int) -> list[MatchLine]:
    """Up to so many matches, with the lines around them."""
    n = 0
    for i, line in enumerate(lines):
        n += line.start >= 0
        if n > limit:
            return lines[:i]
    return lines


def _cleaned(lines: list[MatchLine], dir_fd: int, redactor: Redactor) -> list[MatchLine]:
    """The lines as they stand in their files without the secrets: one may begin in the line
    before."""
    return [_without(fd, line, redactor) for fd, group in by_file(lines, dir_fd) for line in group]


def _without(fd: int, line: MatchLine, redactor: Redactor) -> MatchLine:
    start = max(0, line.offset - AROUND)
    data = os.pread(fd, line.offset - start + len(line.raw) + AROUND, start)
    cleaned = redactor.clean_bytes(data)
    if cleaned is data:
        return line
    rows = cleaned.split(b"\n")
    return replace(line, raw=rows[min(len(rows) - 1, data.count(b"\n", 0, line.offset - start))])


def _lines(lines: list[MatchLine], prefix: str, context: int, redactor: Redactor) -> list[str]:
    out: list[str] = []
    before: MatchLine | None = None
    for line in lines:
        if (
            context
            and before is not None
            and (before.path != line.path or before.number + 1 != line.number)
        ):
            out.append("--")
        mark = ":" if line.start >= 0 else "-"
        out.append(
            f"{printable(prefix + line.path)}{mark}{line.number}{mark}{_shown(line, redactor)}"
        )
        before = line
    return out


def _shown(line: MatchLine, redactor: Redactor) -> str:
    """The text of a line; of a long one, the part around the match."""
    raw = redactor.clean_bytes(line.raw.removesuffix(b"\n").removesuffix(b"\r"))
    if len(raw) <= MAX_TEXT:
        return displayable(raw.decode("utf-8", "replace"))
    start = max(0, min(line.start - MAX_TEXT // 4, len(raw) - MAX_TEXT))
    part = raw[start : start + MAX_TEXT].decode("utf-8", "replace")
    return displayable(f"{'...' if start else ''}{part}... [part of {len(raw)} bytes]")
