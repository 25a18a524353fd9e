"""What the tools that change files check and answer alike."""

from __future__ import annotations

import re
from typing import TypeVar

from retinue.tools.base import Answer
from retinue.tools.builtin.builtin_tool import ToolArguments
from retinue.tools.builtin.file_tool import FileTool, failed, printable
from retinue.tools.builtin.text_file import sha256, short_diff
from retinue.tools.file_rules import WRITING

SHA = re.compile(r"[0-9a-f]{12,64}")
A = TypeVar("A", bound=ToolArguments)


class Changing(FileTool[A]):
    """A tool that writes."""

    restart = "reconcile"
    risk = "write"
    acts: tuple[str, ...] = WRITING


def bad_sha(text: str) -> str:
    if text and not SHA.fullmatch(text.lower()):
        return (
            "`expected_sha256` must be the hexadecimal digits shown by read (at least 12 of them)"
        )
    return ""


def already_there(path: str, data: bytes) -> Answer:
    told = (
        f"The change to {path} was already made when a restart interrupted the call. "
        "Nothing was done now"
    )
    return Answer(text=printable(f"{told}. sha256 {sha256(data)}"))


def has_changed(path: str, data: bytes, unshown: str) -> Answer:
    now = "" if unshown else f" (its sha256 is now {sha256(data)})"
    return failed(
        printable(
            f"{path}: it has changed since you read it{now}. Nothing was written. Read it again"
        )
    )


def was_written(what: str, data: bytes, old: str = "", new: str = "") -> Answer:
    n = data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    diff = short_diff(old, new)
    head = printable(f"{what}: {n} lines, {len(data)} bytes, sha256 {sha256(data)}")
    return Answer(text=f"{head}\n{diff}" if diff else head)
