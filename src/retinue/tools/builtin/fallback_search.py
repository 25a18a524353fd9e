"""Matches for `search` without ripgrep: a separate program that needs only Python, so that an
endless pattern can be killed (in a thread it would block everything else).

It reads one line of JSON, then paths separated by NUL, relative to the directory that it inherits
as a descriptor. It writes what `rg --json` writes, as far as `search` reads it."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from typing import IO, Any

MAX_FILE = 10 << 20
SNIFF = 1 << 16
OPEN = os.O_NOFOLLOW | os.O_CLOEXEC


def opened(root_fd: int, path: str) -> int:
    """The file, through directories that are no links."""
    *above, name = path.split("/")
    fd = os.dup(root_fd)
    try:
        for part in above:
            below = os.open(part, OPEN | os.O_PATH | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        return os.open(name, OPEN | os.O_RDONLY | os.O_NONBLOCK, dir_fd=fd)
    finally:
        os.close(fd)


def content(root_fd: int, path: str) -> bytes:
    """What is searched of a file: nothing of a binary one, else all before the first NUL."""
    try:
        with os.fdopen(opened(root_fd, path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size) if size <= MAX_FILE else b""
    except (OSError, ValueError):
        return b""
    nul = data.find(b"\0")
    if nul < 0:
        return data
    return b"" if nul < SNIFF else data[: data.rfind(b"\n", 0, nul) + 1]


class Matcher:
    """A pattern for bytes that are ASCII, where all dialects agree and bytes are quick, and one for
    any text."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        flags = re.IGNORECASE if ignore_case else re.NOFLAG
        self.text = re.compile(pattern, flags)
        self.ascii = (
            re.compile(pattern.encode(), flags)
            if pattern.isascii() and "\\u" not in pattern
            else None
        )

    def could(self, data: bytes) -> bool:
        """False when no line can match: one look at the whole for the common case that there is
        nothing."""
        if self.ascii is None or not data.isascii() or self.ascii.flags & re.MULTILINE:
            return True
        return _sees_lines(self.ascii.pattern) or self.ascii.search(data) is not None

    def find(self, line: bytes) -> int:
        """Where the first match in a line starts, in bytes; -1 if there is none."""
        if self.ascii is not None and line.isascii():
            hit = self.ascii.search(line)
            return -1 if hit is None else hit.start()
        text = line.decode("utf-8", "surrogateescape")
        match = self.text.search(text)
        return (
            -1 if match is None else len(text[: match.start()].encode("utf-8", "surrogateescape"))
        )


def _sees_lines(pattern: bytes) -> bool:
    """Whether a pattern may see where a line begins or ends, so that a look at the whole proves
    nothing."""
    return any(c in pattern for c in (b"^", b"$", b"\\", b"(?", b"[^"))


def text_value(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(value).decode("ascii")}


def scan(out: IO[str], query: dict[str, Any], root_fd: int, path: str, matcher: Matcher) -> None:
    data = content(root_fd, path)
    if not data or not matcher.could(data):
        return
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    hits: dict[int, int] = {}
    for number, line in enumerate(lines):
        start = matcher.find(line.removesuffix(b"\r"))
        if start >= 0:
            hits[number] = start
            if query["first"]:
                break
    if not hits:
        return
    n = query["context"]
    around = {i for hit in hits for i in range(max(0, hit - n), min(len(lines), hit + n + 1))}
    offset = 0
    name = text_value(os.fsencode(path))
    for number, line in enumerate(lines):
        if number in around:
            submatches = [{"start": hits[number], "end": hits[number]}] if number in hits else []
            body = {
                "path": name,
                "lines": text_value(line + b"\n"),
                "line_number": number + 1,
                "absolute_offset": offset,
                "submatches": submatches,
            }
            message = {"type": "match" if submatches else "context", "data": body}
            out.write(json.dumps(message, separators=(",", ":")) + "\n")
        offset += len(line) + 1


def main() -> None:
    query = json.loads(sys.stdin.buffer.readline())
    paths = [os.fsdecode(p) for p in sys.stdin.buffer.read().split(b"\0") if p]
    try:
        matcher = Matcher(query["pattern"], query["ignore_case"])
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        sys.stderr.write(f"error: {error}")
        sys.exit(2)
    for path in paths:
        scan(sys.stdout, query, query["fd"], path, matcher)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
