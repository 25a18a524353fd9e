"""Checks a path before it is opened, and what was opened."""

from __future__ import annotations

import os
import stat

from retinue.errors import Refused

MAX_FILE = 10 << 20
MAX_NAME = 255
MAX_PATH = 4095
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
}


def drain(fd: int, path: str, limit: int = MAX_FILE) -> bytes:
    """All bytes of an open file, which is closed; one that grows beyond `limit` meanwhile is
    refused."""
    pieces: list[bytes] = []
    size = 0
    try:
        # A read makes room for all it asks for, so it asks for what the file is said to have.
        while piece := os.read(fd, max(4096, min(limit, os.fstat(fd).st_size) - size + 1)):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise Refused("size", f"{path}: larger than {limit} bytes")
    except OSError as error:
        raise Refused("path", f"{path}: {error.strerror}") from None
    finally:
        os.close(fd)
    return b"".join(pieces)


def outside(path: str) -> Refused:
    return Refused(
        "path",
        f"{path}: outside the directories this run may use. Give a path inside the root, "
        "without `..` or links that leave it",
    )


def regular(info: os.stat_result, path: str, limit: int) -> None:
    kind = stat.S_IFMT(info.st_mode)
    if kind == stat.S_IFDIR:
        raise Refused("directory", f"{path}: this is a directory")
    if kind != stat.S_IFREG:
        raise Refused(
            "path", f"{path}: this is {KINDS.get(kind, 'a special file')}, not a regular file"
        )
    if info.st_size > limit:
        raise Refused(
            "size",
            f"{path}: it has {info.st_size} bytes; the limit is {limit}. Search it, or use a shell",
        )


def checked_text(path: str) -> str:
    """The path, if a file system could have it."""
    if not path:
        raise Refused(
            "path", "the path is empty. Give one relative to the root, or . for the root itself"
        )
    if "\0" in path:
        raise Refused("path", "the path contains a NUL character, which file names cannot have")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise Refused(
            "path", "the path contains half of a surrogate pair, which is not text"
        ) from None
    if size > MAX_PATH:
        raise Refused("path", f"the path has {size} bytes; the limit is {MAX_PATH}")
    for part in path.split("/"):
        if len(part.encode()) > MAX_NAME:
            raise Refused(
                "path", f"a name in the path is longer than {MAX_NAME} bytes: {part[:40]}..."
            )
    return path


def strip(path: str, top: str) -> str | None:
    """The rest of `path` behind `top`, by whole components, or None. Doubled slashes and single
    dots do not count."""
    mine = [p for p in path.split("/") if p not in ("", ".")]
    theirs = [p for p in top.split("/") if p not in ("", ".")]
    if mine[: len(theirs)] != theirs:
        return None
    tail = "/" if path.endswith("/") and len(mine) > len(theirs) else ""
    return "/".join(mine[len(theirs) :]) + tail
