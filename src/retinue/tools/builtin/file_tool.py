"""Shared by the file tools: the roots of the run, work in a thread, and every failure as a tool
result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from retinue.core.call_rules import READING
from retinue.core.redaction import Redactor
from retinue.errors import NotFound, Refused
from retinue.formats.safe_text import reveal
from retinue.sandbox.path_checks import strip
from retinue.sandbox.paths import AllowedRoots, Root, real_path
from retinue.tools.base import NOTHING_SECRET, Context, Returned, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments
from retinue.tools.file_rules import barred, hidden

if TYPE_CHECKING:
    from retinue.tools.builtin.file_changes import FileChange

MAX_ANSWER = (
    60_000  # below the cap of a result, so that the note at the end is never what is cut off
)
MAX_LINE = 2_000
MAX_ERROR = 20_000

A = TypeVar("A", bound=ToolArguments)


@dataclass(frozen=True, slots=True)
class FileCall:
    """One call of a file tool: where it may go, by which name it is known, whether it was called
    off, and who takes secrets out of what is shown of a file, before any of it is cut off. With
    `planned` changes are noted there and not made."""

    reach: AllowedRoots
    key: str
    again: bool
    stop: Event
    redactor: Redactor = NOTHING_SECRET
    planned: list[FileChange] | None = None


class FileTool(Builtin[A]):
    """A tool whose `work` is done in a thread. What it refuses, and what the file system refuses,
    is its answer."""

    subject = "path"
    acts: tuple[str, ...] = READING
    """The tools whose rules about a file hold for this one too: a way round is none."""

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        try:
            answer = await super().run(context, args)
        except UnicodeEncodeError:
            return failed("Invalid parameters: half of a surrogate pair is not text")
        if isinstance(answer, ToolResult) and answer.error and len(answer.text) > MAX_ERROR:
            return failed(f"{context.redactor.clean(answer.text)[:MAX_ERROR]}... [truncated]")
        return answer

    async def call(self, context: Context, args: A) -> Returned:
        return await self.carry_out(context, args)

    async def carry_out(
        self, context: Context, args: A, planned: list[FileChange] | None = None
    ) -> Returned:
        """The call itself, or with `planned` everything of it but the changes."""
        if not context.root:
            return failed("This run has no directory to work in, so there are no files.")
        with context.opening() as (mine, holding):
            forbids = barred(mine, self.acts, self.name, getattr(args, "path", ""))
            limits = (mine.permissions.read, mine.permissions.write)
            reach = AllowedRoots.of(
                mine.root, *limits, forbids, hidden(mine), holding, context.private
            )
            work = FileCall(
                reach=reach,
                key=context.key,
                again=context.again,
                stop=Event(),
                redactor=context.redactor,
                planned=planned,
            )
            try:
                return await self.perform(work, args)
            except (Refused, NotFound) as error:
                return failed(printable(str(error)))
            except OSError as error:
                return failed(f"File system error: {error.strerror or error}. Nothing was changed.")
            finally:
                work.stop.set()

    def summary(self, args: dict[str, Any]) -> str:
        return printable(super().summary(args)[:200])

    async def perform(self, work: FileCall, args: A) -> ToolResult:
        return await asyncio.to_thread(self.work, work, args)

    def work(self, work: FileCall, args: A) -> ToolResult:
        raise NotImplementedError


def failed(text: str) -> ToolResult:
    return ToolResult(text=text, error=True)


def beneath(root: Root, fd: int) -> str:
    """The true path of an open directory, relative to its root; "" for the root."""
    rest = strip(real_path(fd), root.real)
    if rest is None:
        raise Refused("path", "the directory was moved out of the root while it was read")
    return rest


def prefix_of(reach: AllowedRoots, root: Root) -> str:
    """What to put before a path beneath `root` so that the run can use it: nothing when it is the
    run's own root."""
    path_text = reach.shown(root.path, "")
    return "" if path_text == "." else path_text.rstrip("/") + "/"


def printable(text: str) -> str:
    """One line that can be stored and shown: bytes that are not text, and characters that are not
    seen, are escaped."""
    return reveal(text, keep="")


def page(lines: list[str], limit: int, note: str, room: int = MAX_ANSWER) -> str:
    """At most `limit` lines that fit; when some are omitted, `note` says how to see them."""
    n_shown = 0
    size = 0
    for line in lines[:limit]:
        size += len(line) + 1
        if size > room:
            break
        n_shown += 1
    text = "\n".join(lines[:n_shown])
    n_hidden = len(lines) - n_shown
    return text if not n_hidden else f"{text}\n[{n_shown} of {len(lines)} shown; {note}]"
