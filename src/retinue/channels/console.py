"""Announcements at the user's terminal: one block each, with control characters removed.

A text comes from a model, and the model may have read it anywhere: an escape sequence in it could
rename the window, hide lines or answer for the user. So only what can be seen is written, and each
line of a text is indented, so that none can pass for the first line of another announcement."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

from retinue.channels.recent_keys import RecentKeys
from retinue.core.values import Delivery
from retinue.errors import RetinueError
from retinue.formats.safe_text import one_line, several_lines

KEPT = 10_000


class Console:
    """A text stream: the one given, or what `sys.stderr` is at the time. A key is written once in
    its life.

    A terminal can be stopped and a pipe can be full, so writing is done in a thread of its own.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._seen = RecentKeys(KEPT)
        self._thread = ThreadPoolExecutor(1, "retinue console")

    async def send(self, delivery: Delivery) -> None:
        await asyncio.get_running_loop().run_in_executor(
            self._thread, self._write, delivery.key, block(delivery)
        )

    def _write(self, key: str, text: str) -> None:
        if key in self._seen:
            return
        stream = sys.stderr if self._stream is None else self._stream
        if stream is None:  # a program without a console
            raise RetinueError("No standard error to write to. Pass a stream to Console.")
        try:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError) as error:
            raise RetinueError(f"Could not write to the console: {error}") from error
        self._seen.add(key)


def block(delivery: Delivery) -> str:
    """An announcement as it is shown: whom it is for, or else which run it is of; what the runtime
    says of it; then its text, indented, so that no line of it can be taken for one of the
    runtime's."""
    origin = delivery.origin
    names = [("user", origin.user), ("thread", origin.thread)]
    head = ", ".join(f"{word} {one_line(name)}" for word, name in names if name)
    lines = several_lines(delivery.text).split("\n")
    head = head or f"run {one_line(delivery.run)}"
    note = f"{several_lines(delivery.note)}\n" if delivery.note else ""
    return "".join((f"[{head}]\n", note, *(f"  {line}\n" if line else "\n" for line in lines)))
