"""What the file tools share: the roots of the caller, work in a thread, and every failure as an answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any, TypeVar

from retinue.core.permits import denied_path
from retinue.errors import NotFound, Refused
from retinue.sandbox.paths import Reach, Root, real_path, strip
from retinue.tools.base import Answer, Caller, Returned
from retinue.tools.builtin.base import Arguments, Builtin

MAX_ANSWER = 60_000  # below the cap of a result, so that the note at the end is never what is cut off
MAX_LINE = 2_000
MAX_ERROR = 20_000

A = TypeVar("A", bound=Arguments)


@dataclass(frozen=True, slots=True)
class Work:
    """One call of a file tool: where it may go, by which name it is known, and whether it was called off."""

    reach: Reach
    key: str
    again: bool
    stop: Event


class FileTool(Builtin[A]):
    """A tool whose `work` is done in a thread. What it refuses, and what the file system refuses, is its answer."""

    subject = "path"

    async def run(self, caller: Caller, args: dict[str, Any]) -> Returned:
        try:
            answer = await super().run(caller, args)
        except UnicodeEncodeError:
            return failed("Invalid parameters: half a surrogate pair is not text")
        if isinstance(answer, Answer) and answer.error and len(answer.text) > MAX_ERROR:
            return failed(f"{answer.text[:MAX_ERROR]}... [cut]")
        return answer

    async def call(self, caller: Caller, args: A) -> Returned:
        if not caller.root:
            return failed("This run has no directory to work in, so there are no files.")
        reach = Reach.of(caller.root, caller.held.read, caller.held.write, self._forbids(caller))
        work = Work(reach=reach, key=caller.key, again=caller.again, stop=Event())
        try:
            return await self.perform(work, args)
        except (Refused, NotFound) as error:
            return failed(printable(str(error)))
        except OSError as error:
            return failed(f"The file system refused it: {error.strerror or error}. Nothing was changed.")
        finally:
            work.stop.set()

    def _forbids(self, caller: Caller) -> Callable[[str], str] | None:
        """What rules deny to one reader they deny to all, and what to one writer, to all: a way round is none."""
        bounds, top = caller.bounds, os.path.realpath(caller.root)
        if not any(rule.startswith("deny") for _, rules in bounds for rule in rules):
            return None
        names = ("read", "search") if self.risk == "read" else ("edit", "write")
        sent = caller.spec.order.cwd or top

        def forbids(real: str) -> str:
            # Rules are meant in the directory that a run was sent to, also when it works in a copy of it.
            mine = strip(real, top)
            path = real if mine is None else f"{sent}/{mine}"
            return next((rule for name in names if (rule := denied_path(bounds, name, path))), "")

        return forbids

    def summary(self, args: dict[str, Any]) -> str:
        return printable(super().summary(args)[:200])

    async def perform(self, work: Work, args: A) -> Answer:
        return await asyncio.to_thread(self.work, work, args)

    def work(self, work: Work, args: A) -> Answer:
        raise NotImplementedError


def failed(text: str) -> Answer:
    return Answer(text=text, error=True)


def beneath(root: Root, fd: int) -> str:
    """The true path of an open directory, relative to its root; "" for the root."""
    rest = strip(real_path(fd), root.real)
    if rest is None:
        raise Refused("path", "the directory was moved out of the root while it was read")
    return rest


def prefix_of(reach: Reach, root: Root) -> str:
    """What to put before a path beneath `root` so that the run can use it: nothing when it is the run's own root."""
    shown = reach.shown(root.path, "")
    return "" if shown == "." else shown.rstrip("/") + "/"


def printable(text: str) -> str:
    """One line that can be stored and shown: bytes that are not text, and characters that are not seen, are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    if "\udc80" <= c <= "\udcff":
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode("ascii")


def page(lines: list[str], limit: int, note: str, room: int = MAX_ANSWER) -> str:
    """At most `limit` lines that fit; when some are left out, `note` says how to see them."""
    shown = 0
    size = 0
    for line in lines[:limit]:
        size += len(line) + 1
        if size > room:
            break
        shown += 1
    text = "\n".join(lines[:shown])
    left = len(lines) - shown
    return text if not left else f"{text}\n[{shown} of {len(lines)} shown; {note}]"
