"""Chooses the program that matches for `search`: ripgrep, or Retinue's own. Both run as processes
without a shell that can be killed, both write the same lines of JSON, and what they say is compared
with the file before it is shown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import msgspec

from retinue.formats.globs import alternatives
from retinue.sandbox import trusted_programs as programs
from retinue.sandbox.child_process import end, ended, start
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.path_checks import MAX_FILE, READ
from retinue.tools.builtin.search_match import MatchLine, Piece, Query, RipgrepMessage, SearchResult

SECONDS = 30.0
MAX_OUTPUT = 32 << 20
MAX_COMPLAINT = 4_096
MAX_MEMORY = 1 << 30
CHUNK = 1 << 18
FEW = 4
SIMPLE = re.compile(r"[A-Za-z0-9_.*?-]+")
# No settings but these: neither a configuration file, nor ignore files of the user or of
# directories above the root.
RIPGREP = (
    "--no-config",
    "--json",
    "--no-messages",
    "--hidden",
    "--crlf",
    "--encoding=none",
    "--glob=!.git",
)
IGNORE = ("global", "exclude", "dot", "parent")


def ripgrep(roots: Sequence[str]) -> str:
    """The path of ripgrep, or "". One that a run could have written, this one or another, is
    none."""
    return programs.find("rg", away=roots)[0]


async def by_ripgrep(
    program: str, query: Query, dir_fd: int | None, file_fd: int | None, enough: int
) -> SearchResult:
    """Search below a directory, or one open file."""
    argv = [program, *RIPGREP, *(f"--no-ignore-{i}" for i in IGNORE), "--no-require-git"]
    argv += [f"--max-filesize={MAX_FILE}", f"--context={query.context}"]
    argv += ["--ignore-case"] if query.ignore_case else []
    argv += ["--max-count=1"] if query.first else []
    argv += [f"--glob=!/{name}" for name in query.skip]
    argv += _types(query.glob) if file_fd is None else []
    argv += [f"--regexp={query.pattern}", "--", "./" if file_fd is None else "-"]
    where = None if dir_fd is None else f"/proc/self/fd/{dir_fd}"
    stdin = asyncio.subprocess.DEVNULL if file_fd is None else file_fd
    return await _run(argv, enough, stdin=stdin, cwd=where)


def _types(glob: str) -> list[str]:
    """A filter on names for ripgrep. It is a type because a `--glob` would let ignored files in."""
    negated, text = glob.startswith("!"), glob.removeprefix("!")
    if not text:
        return []
    names = alternatives(text)
    if not all(SIMPLE.fullmatch(n) for n in names):
        return []
    return [
        *(f"--type-add=retinue:{n}" for n in names),
        "--type-not=retinue" if negated else "--type=retinue",
    ]


async def by_scanner(query: Query, root_fd: int, paths: Sequence[str], enough: int) -> SearchResult:
    """Search the files with these paths below a directory."""
    search_job = {
        "pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "context": query.context,
        "first": query.first,
        "fd": root_fd,
    }
    fed = json.dumps(search_job).encode() + b"\n" + b"\0".join(os.fsencode(p) for p in paths)
    program = str(Path(__file__).with_name("fallback_search.py"))
    argv = [programs.python(), "-I", "-S", "-X", "utf8", program]
    return await _run(argv, enough, stdin=asyncio.subprocess.PIPE, fed=fed, pass_fds=(root_fd,))


async def _run(
    argv: list[str],
    enough: int,
    stdin: int,
    fed: bytes = b"",
    cwd: str | None = None,
    pass_fds: tuple[int, ...] = (),
) -> SearchResult:
    result = SearchResult()
    try:
        process = await start(
            *argv,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env={"LC_ALL": "C.UTF-8"},
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        result.broken = f"it could not be started: {error.strerror}"
        return result
    try:
        # An ignore file without an end would otherwise be read until the machine has no memory
        # left.
        with contextlib.suppress(OSError, AttributeError):
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
        async with asyncio.timeout(SECONDS):
            if process.stdin is not None:
                process.stdin.write(fed)
                with contextlib.suppress(ConnectionError):
                    await process.stdin.drain()
                process.stdin.close()
            assert process.stdout is not None and process.stderr is not None
            await _collect(process.stdout, result, enough)
            if not result.why:
                complaint = (
                    (await process.stderr.read(MAX_COMPLAINT)).decode("utf-8", "replace").strip()
                )
                await ended(process, SECONDS)
                code = process.returncode
                if code == 2:  # without a word it is about files that could not be opened
                    result.wrong = complaint
                elif code not in (0, 1):
                    result.broken = f"it ended with code {code}: {complaint[-500:]}"
    except TimeoutError:
        result.why = f"it took longer than {SECONDS:g} s"
    finally:
        await end(process)
    return result


async def _collect(stream: asyncio.StreamReader, result: SearchResult, enough: int) -> None:
    decode = msgspec.json.Decoder(RipgrepMessage).decode
    rest = b""
    size = n_hits = 0
    last: Piece | None = None
    path = ""
    while chunk := await stream.read(CHUNK):
        size += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            if not line.startswith((b'{"type":"match"', b'{"type":"context"')):
                continue
            message = decode(line)
            body = message.data
            start = 0 if message.type == "match" else -1
            if body.submatches:
                start = body.submatches[0].start
            if body.path != last:
                last = body.path
                path = "" if last is None else os.fsdecode(last.raw()).removeprefix("./")
            result.lines.append(
                MatchLine(
                    path, body.line_number or 0, body.absolute_offset, body.lines.raw(), start
                )
            )
            n_hits += start >= 0
        if n_hits > enough:
            result.why = f"more than {enough} matches"
            return
        if size > MAX_OUTPUT:
            result.why = "the matching lines are too long"
            return


def confirmed(lines: list[MatchLine], dir_fd: int) -> list[MatchLine]:
    """Only lines that are in the file of that name, opened beneath the directory: a program that
    replaces a file by a link during the search learns nothing about the link's target."""
    matches: list[MatchLine] = []
    for fd, group in by_file(lines, dir_fd):
        with contextlib.suppress(OSError):
            matches += _there(fd, group)
    return matches


def by_file(lines: list[MatchLine], dir_fd: int) -> Iterator[tuple[int, list[MatchLine]]]:
    """The lines of each file, with the file open. What cannot be opened, or is a link, is
    omitted."""
    for path, group in groupby(lines, key=attrgetter("path")):
        try:
            fd = open_beneath(dir_fd, path, READ | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            yield fd, list(group)
        finally:
            os.close(fd)


def _there(fd: int, lines: list[MatchLine]) -> list[MatchLine]:
    if len(lines) < FEW:
        return [
            n
            for n in lines
            if (text := n.raw.removesuffix(b"\n")) == os.pread(fd, len(text), n.offset)
        ]
    data = os.pread(fd, min(MAX_FILE, max(n.offset + len(n.raw) for n in lines)), 0)
    return [n for n in lines if data.startswith(n.raw.removesuffix(b"\n"), n.offset)]
