"""The result of a search as the answer for the model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from msgspec import Meta

from retinue.core.redaction import Redactor
from retinue.errors import Refused
from retinue.formats.globs import Globs
from retinue.sandbox.gitignore import Judge
from retinue.sandbox.paths import Root
from retinue.tools.base import ToolResult
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.file_tool import page, printable
from retinue.tools.builtin.list_find_tools import Positive
from retinue.tools.builtin.ripgrep import by_file, confirmed
from retinue.tools.builtin.search_match import MatchLine, SearchResult
from retinue.tools.builtin.text_file import displayable

MAX_TEXT = 400
AROUND = 4_096
"""So many bytes around a line are cleaned with it."""
MAX_CONTEXT = 50
NARROW = "narrow the pattern, path or glob, or raise limit"


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


def search_answer(
    args: SearchArgs,
    place: SearchRoot,
    globs: Globs | None,
    result: SearchResult,
    redactor: Redactor,
) -> ToolResult:
    lines = _filtered(place, globs, result.lines)
    lines.sort(key=lambda line: (line.path, line.number))
    lines = confirmed(
        lines, place.root.fd
    )  # before anything is counted: a number tells something too
    n_hits = sum(line.start >= 0 for line in lines)
    match args.mode:
        case "lines":
            first = _cleaned(_first(lines, args.limit), place.root.fd, redactor)
            match_lines = _lines(first, place.prefix, args.context, redactor)
            text = page(match_lines, len(match_lines), NARROW)
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
    if result.why:
        text += f"\n[incomplete: {result.why}; {NARROW}]"
    return ToolResult(text=text.removeprefix("\n") or "[no match]")


def permitted(
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
    """The lines as they are in their files without the secrets: one may begin in the line
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
