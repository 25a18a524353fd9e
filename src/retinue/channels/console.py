"""Announcements for whoever sits at the terminal: one block each, in which nothing can steer the terminal.

A text comes from a model, and the model may have read it anywhere: an escape sequence in it could rename the window,
hide lines or answer for the user. So control characters are shown, not sent, and each line of a text is indented, so
that none can pass for the first line of another announcement.
"""

from __future__ import annotations

import asyncio
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO

from retinue.channels.seen import Seen
from retinue.core.values import Delivery
from retinue.errors import RetinueError

KEPT = 10_000

# C0 but tab and newline, DEL, C1 (a terminal may take 9B for ESC [), the other ends of a line, what turns the direction
# of writing around, and halves of surrogate pairs, which no stream can encode.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Console:
    """A text stream: the one given, or what `sys.stderr` is at the time. A key is written once in its life.

    A terminal can be stopped and a pipe can be full, so writing is done in a thread of its own.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._seen = Seen(KEPT)
        self._thread = ThreadPoolExecutor(1, "retinue console")

    async def send(self, delivery: Delivery) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, delivery.key, block(delivery))

    def _write(self, key: str, text: str) -> None:
        if key in self._seen:
            return
        stream = sys.stderr if self._stream is None else self._stream
        if stream is None:  # a program without a console
            raise RetinueError("there is no standard error to write to; give Console a stream")
        try:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            stream.flush()
        except (OSError, ValueError) as error:
            raise RetinueError(f"the console does not take it: {error}") from error
        self._seen.add(key)


def block(delivery: Delivery) -> str:
    """An announcement as it is shown: whom it is for, or else which run it is of; then its text, indented."""
    origin = delivery.origin
    names = [("user", origin.user), ("thread", origin.thread)]
    head = ", ".join(f"{word} {plain(name, lines=False)}" for word, name in names if name)
    lines = plain(delivery.text).split("\n")
    head = head or f"run {plain(delivery.run, lines=False)}"
    return "".join((f"[{head}]\n", *(f"  {line}\n" if line else "\n" for line in lines)))


def plain(text: str, *, lines: bool = True) -> str:
    """The text with its control characters made visible; without `lines`, all of it on one line."""
    text = _CONTROL.sub(_shown, text.replace("\r\n", "\n"))
    return text if lines else text.replace("\n", "\\n").replace("\t", "\\t")


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
