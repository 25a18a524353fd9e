"""`read`, `list` and `find`: looking at files and directories."""

from __future__ import annotations

import base64
import os
from itertools import groupby
from typing import Annotated, Any

from msgspec import Meta

from retinue.core.messages import Image
from retinue.core.redaction import Redactor
from retinue.errors import NotFound, Refused
from retinue.formats.globs import BadGlob, Globs
from retinue.sandbox.directory_walk import MAX_DEPTH, Patience, WalkEntry, walk_directory
from retinue.sandbox.gitignore import chain
from retinue.sandbox.open_beneath import DIRECTORY, open_beneath
from retinue.sandbox.paths import Root, real_path
from retinue.sandbox.protected_paths import KERNEL
from retinue.tools.base import Answer
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.file_tool import (
    MAX_ANSWER,
    MAX_LINE,
    FileCall,
    FileTool,
    beneath,
    failed,
    page,
    prefix_of,
    printable,
)
from retinue.tools.builtin.text_file import (
    Text,
    displayable,
    image_type,
    is_binary,
    sha256,
    split_lines,
)

MAX_IMAGE = 5_000_000

Positive = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class ReadArgs(ToolArguments, frozen=True, kw_only=True):
    path: str
    offset: Positive = 1
    limit: Positive = 2000


class ReadTool(FileTool[ReadArgs]):
    """Lines of a text file, numbered; a picture as a picture."""

    name = "read"
    description = (
        "Read a file. `path` is relative to the root. Text comes as numbered lines, from line "
        "`offset` on, at most "
        "`limit`; the first line of the answer has the number of lines and the sha256, which edit "
        "and write take as "
        "`expected_sha256`. PNG, JPEG, GIF and WebP files are shown as images. For directories "
        "use list."
    )
    Args = ReadArgs
    restart = "pure"
    risk = "read"

    def summary(self, args: dict[str, Any]) -> str:
        path, offset, limit = args.get("path"), args.get("offset"), args.get("limit")
        first = offset if isinstance(offset, int) else 1
        last = first + limit - 1 if isinstance(limit, int) else ""
        span = f":{first}-{last}" if isinstance(offset, int) or isinstance(limit, int) else ""
        return printable(f"read {path}{span}"[:200])

    def work(self, work: FileCall, args: ReadArgs) -> Answer:
        try:
            with work.reach.reading(args.path) as (root, rest):
                data = root.read_file(rest)
        except Refused as error:
            return failed(
                printable(f"{error}; use list")
                if error.limit == "directory"
                else printable(str(error))
            )
        except NotFound as error:
            return failed(printable(f"{error}{_hint(args.path)}"))
        kind = image_type(data)
        if kind:
            return _picture(args.path, kind, data)
        if is_binary(data):
            return failed(
                printable(
                    f"{args.path}: it is a binary file of {len(data)} bytes, which cannot be shown"
                )
            )
        return _numbered(args, data, work.redactor)


def _hint(path: str) -> str:
    if path.startswith("~"):
        return "; ~ is not expanded: give a path relative to the root"
    return "; list shows what there is, find looks for a name"


def _picture(path: str, kind: str, data: bytes) -> Answer:
    if len(data) > MAX_IMAGE:
        return failed(
            printable(
                f"{path}: the picture has {len(data)} bytes; at most {MAX_IMAGE} can be shown"
            )
        )
    image = Image(media_type=kind, data=base64.b64encode(data).decode("ascii"))
    return Answer(
        text=printable(f"[{path}: {kind}, {len(data)} bytes, sha256 {sha256(data)}]"),
        images=(image,),
    )


def _numbered(args: ReadArgs, data: bytes, redactor: Redactor) -> Answer:
    source = Text.of(data)
    text = displayable(source.text)
    lines = split_lines(redactor.clean(text))
    if lines and args.offset > len(lines):
        return failed(
            printable(
                f"{args.path}: it has only {len(lines)} lines, so there is none at {args.offset}"
            )
        )
    out: list[str] = []
    size = n_cut = 0
    for number, raw in enumerate(
        lines[args.offset - 1 : args.offset - 1 + args.limit], args.offset
    ):
        line = raw.removesuffix("\r")
        if len(line) > MAX_LINE:
            line = f"{line[:MAX_LINE]}[truncated: {len(line) - MAX_LINE} more characters]"
            n_cut += 1
        size += len(line) + 8
        if size > MAX_ANSWER:
            break
        out.append(f"{number}\t{line}")
    last = args.offset + len(out) - 1
    whole = len(out) == len(lines)
    facts = [
        f"{len(lines)} lines" if whole else f"lines {args.offset}-{last} of {len(lines)}",
        f"{len(data)} bytes",
    ]
    if source.encoding != "utf-8" or source.bom:
        facts.append(f"{source.encoding} with a byte order mark")
    if text != source.text:
        facts.append("some bytes are not text and are shown as \ufffd")
    if source.is_crlf:
        facts.append("lines end with CR LF")
    if lines and not text.endswith("\n"):
        facts.append("no line feed at the end")
    if n_cut:
        facts.append(f"{n_cut} long lines are cut")
    header = printable(f"[{args.path}: {', '.join(facts)}, sha256 {sha256(data)}]")
    rest = [] if last >= len(lines) else [f"[go on with offset {last + 1}]"]
    return Answer(text="\n".join([header, *out, *rest]))


class ListFilesArgs(ToolArguments, frozen=True, kw_only=True):
    path: str = "."
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 1
    limit: Positive = 2000


class ListFilesTool(FileTool[ListFilesArgs]):
    """The entries of a directory, down to a depth."""

    name = "list"
    description = (
        "List a directory, one entry a line, sorted, paths relative to the root: directories end "
        "with /, files are "
        "followed by a tab and their bytes. `depth` says how many levels. What .gitignore leaves "
        "out is not shown."
    )
    Args = ListFilesArgs
    restart = "pure"
    risk = "read"

    def work(self, work: FileCall, args: ListFilesArgs) -> Answer:
        patience = Patience(stop=work.stop)
        entries, prefix, _ = gather(
            work, args.path, patience, depth=args.depth, measured=args.limit
        )
        lines = [_line(prefix, e) for e in entries]
        text = page(lines, args.limit, "raise limit, lower depth, or list a directory below")
        notes = []
        if not lines:
            notes.append(
                "the directory is empty" if not patience.n_ignored else "there is nothing else"
            )
        if patience.n_ignored:
            notes.append(f"{patience.n_ignored} entries are left out by .gitignore")
        if patience.why:
            notes.append(f"incomplete: {patience.why}; list a directory below")
        return Answer(
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
        "Find files and directories by a glob, for example *.py, test_*, src/**/*.{ts,tsx}. "
        "Without a slash it is "
        "matched against names at any depth, otherwise against paths below `path`. Answers paths "
        "relative to the root, "
        "sorted; directories end with /. What .gitignore leaves out is not found."
    )
    Args = FindArgs
    restart = "pure"
    risk = "read"

    def summary(self, args: dict[str, Any]) -> str:
        where = args.get("path", ".")
        return printable(
            f"find {args.get('pattern')}{'' if where == '.' else f' in {where}'}"[:200]
        )

    def work(self, work: FileCall, args: FindArgs) -> Answer:
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
            "raise limit, or make the pattern narrower",
        )
        if patience.why:
            text += f"\n[incomplete: {patience.why}; give a path below as `path`]"
        return Answer(text=text or f"[nothing matches among {len(entries)} entries]")


def gather(
    work: FileCall, path: str, patience: Patience, *, depth: int = MAX_DEPTH, measured: int = 0
) -> tuple[list[WalkEntry], str, str]:
    """All entries below a directory, sorted, with paths beneath their root, the first so many with
    their sizes; what to show in front of them; and the directory's own path there."""
    with work.reach.reading(path) as (root, rest):
        probe = root.open(rest, os.O_PATH)
        try:
            if not os.path.isdir(f"/proc/self/fd/{probe}"):
                raise Refused("file", f"{path}: it is a file; use read")
        finally:
            os.close(probe)
        fd = root.open_dir(rest)
        try:
            base = beneath(root, fd)
            rules = chain(root.fd, base)
            skip = KERNEL if real_path(fd) == "/" else ()
            found = walk_directory(
                fd, base, rules, patience, depth=depth, skip=skip, hides=root.hides()
            )
            entries = sorted(found, key=lambda e: e.path)
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
        found = os.stat(os.path.basename(entry.path), dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return entry
    return WalkEntry(entry.path, "file", found.st_size)


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
