"""Reads keys from a terminal, one at a time, and always restores the terminal's mode.

Ctrl-C and Ctrl-Z stay signals. What is pasted comes as one piece, so that it is never taken for
commands."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import select
import signal
import sys
from types import FrameType
from typing import Any

from retinue.formats.safe_text import several_lines

NAMES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "pgup",
    "[6~": "pgdn",
    "[3~": "delete",
    "\r": "newline",
    "\n": "newline",
}
PLAIN = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\t": "tab",
    "\x01": "home",
    "\x05": "end",
    "\x15": "clear",
    "\x17": "word",
    "\x04": "eof",
    "\x0c": "redraw",
}
ASK_BACKGROUND, BACKGROUND_REPLY = "\x1b]11;?\x1b\\", "\x1b]11;"
"""The question for the colour of the background, and how its answer begins."""
PASTE, PASTED = "[200~", "\x1b[201~"
STRING_END = re.compile("\x07|\x1b\\\\|\x9c")
"""How a terminal ends what it tells of itself (its colours, its name): answers, and nothing that
was typed."""
ESCAPE_SECONDS = 0.05
ANSWER_SECONDS = 0.05


class KeyDecoder:
    """Bytes from a terminal as keys: a name, a character, or `paste:` and a text."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, data: bytes) -> list[str]:
        text = self._rest + self._text.decode(data)
        self._rest, keys, i = "", list[str](), 0
        while i < len(text):
            if text[i] != "\x1b":
                keys.append(PLAIN.get(text[i], text[i]))
                i += 1
                continue
            body, end = _sequence(text, i + 1)
            if body is None:
                self._rest = text[i:]
                break
            if body == PASTE:
                stop = text.find(PASTED, end)
                if stop < 0:
                    self._rest = text[i:]
                    break
                keys.append("paste:" + text[end:stop])
                end = stop + len(PASTED)
            elif not body:
                keys.append("esc")
            else:
                keys.append(NAMES.get(body, ""))
            i = end
        return [k for k in keys if _is_key(k)]

    @property
    def is_waiting(self) -> bool:
        """Whether an escape has come, and perhaps more belongs to it: on a slow line `up` comes in
        pieces, and its last one must not be taken for the letter A."""
        return bool(self._rest) and not self._rest.startswith("\x1b" + PASTE)

    def flush(self) -> list[str]:
        """Nothing more came: it was the key. The rest of an answer about the background comes
        later."""
        if self._rest.startswith(BACKGROUND_REPLY):
            return []
        alone, self._rest = self._rest == "\x1b", ""
        return ["esc"] if alone else []


def _is_key(key: str) -> bool:
    return len(key) > 1 or (bool(key) and key.isprintable())


def _sequence(text: str, start: int) -> tuple[str | None, int]:
    """What follows an escape, and where it ends; None if more may follow."""
    if start >= len(text):
        return None, start
    if text[start] == "[":
        end = start + 1
        while end < len(text) and not "@" <= text[end] <= "~":
            end += 1
        return (None, start) if end >= len(text) else (text[start : end + 1], end + 1)
    if text[start] == "O":
        return (None, start) if start + 1 >= len(text) else (text[start : start + 2], start + 2)
    if text[start] in "\r\n":
        return text[start], start + 1
    if text[start] in "]P^_X":
        match = STRING_END.search(text, start)
        return (None, start) if match is None else (text[start : match.start()], match.end())
    return "", start


class Keys:
    """The keyboard of a terminal, while it is ours. Where there is none, it is quiet."""

    def __init__(self, fd: int | None = None, out: int | None = None) -> None:
        self._fd, self._owned = (fd, False) if fd is not None else _terminal()
        if out is None:
            out = sys.stderr.fileno() if sys.stderr is not None else -1
        self._out = out
        self._saved: list[Any] | None = None
        self._before: dict[int, Any] = {}
        self._decoder = KeyDecoder()
        self._early: list[str] = []
        """Keys that came while the terminal was asked something."""
        self.is_stopped = False
        self.is_back = False

    def __enter__(self) -> Keys:
        for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH):
            with contextlib.suppress(ValueError):  # not in the main thread
                self._before[number] = signal.signal(number, self._signalled)
        self.take_over()
        return self

    def __exit__(self, *exc: object) -> None:
        self.give_back()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._owned and self._fd is not None:
            os.close(self._fd)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """Only noted: the waiting loop is woken, and handles it between two frames."""
        self.is_stopped = self.is_stopped or number == signal.SIGTSTP
        self.is_back = self.is_back or number == signal.SIGCONT

    @property
    def is_there(self) -> bool:
        return self._saved is not None

    def fileno(self) -> int:
        assert self._fd is not None
        return self._fd

    def is_foreground(self) -> bool:
        """Whether the terminal listens to us: not when a shell has put us into the background."""
        try:
            return os.tcgetpgrp(self._fd if self._fd is not None else self._out) == os.getpgrp()
        except OSError:
            return True

    def take_over(self) -> None:
        """Have keys one by one and unseen."""
        if self._fd is None or self._saved is not None or not self.is_foreground():
            return
        import termios

        try:
            saved = termios.tcgetattr(self._fd)
            mine = termios.tcgetattr(self._fd)
            mine[3] &= ~(termios.ICANON | termios.ECHO)
            mine[6][termios.VMIN], mine[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self._fd, termios.TCSADRAIN, mine)
        except termios.error:
            return
        self._saved = saved
        self._write("\x1b[?2004h")

    def give_back(self) -> None:
        """The terminal as it was."""
        if self._saved is None or self._fd is None:
            return
        import termios

        self._write("\x1b[?2004l")
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)
        self._saved = None

    def stop(self) -> None:
        """Sleep as Ctrl-Z asks for; returns when the shell wakes us."""
        self.is_stopped = False
        self.give_back()
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        self.is_back = True

    def read(self) -> list[str]:
        """What was pressed by now. `hangup` when the terminal is gone."""
        if self._fd is None or self._saved is None:
            return []
        keys, self._early = self._early, []
        while True:
            if not select.select(
                [self._fd], [], [], ESCAPE_SECONDS if self._decoder.is_waiting else 0
            )[0]:
                return keys + self._decoder.flush() if self._decoder.is_waiting else keys
            try:
                data = os.read(self._fd, 4096)
            except OSError:
                data = b""
            if not data:
                return [*keys, "hangup"]
            keys += self._decoder.take(data)

    def background(self) -> str:
        """What the terminal says of its background; "" if it does not answer immediately. What was
        typed meanwhile stays, and an answer that comes later is not a key."""
        if self._fd is None or self._saved is None or not self.is_foreground():
            return ""
        self._write(ASK_BACKGROUND)
        data = b""
        while BACKGROUND_REPLY.encode() not in data or not STRING_END.search(
            data.decode("latin-1"), 1
        ):
            if not select.select([self._fd], [], [], ANSWER_SECONDS)[0]:
                break
            piece = os.read(self._fd, 4096)
            if not piece:
                break
            data += piece
        self._early += self._decoder.take(data)
        return data.decode("latin-1")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            if os.isatty(self._out):
                os.write(self._out, text.encode())


def _terminal() -> tuple[int | None, bool]:
    """Where keys come from: stdin, or the terminal itself when something else is piped in."""
    try:
        if sys.stdin is not None and sys.stdin.isatty():
            return sys.stdin.fileno(), False
        return os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY), True
    except (OSError, ValueError):
        return None, False


class Editor:
    """One line that is being written."""

    def __init__(self, text: str = "") -> None:
        self.text, self.at, self.is_touched = text, len(text), False

    def press(self, key: str) -> None:
        """Take a key; those that do not edit are ignored."""
        text, at = self.text, self.at
        self.is_touched = True
        if key.startswith("paste:"):
            self._insert(" ".join(key.removeprefix("paste:").split("\n")))
        elif len(key) == 1:
            self._insert(key)
        elif key == "newline":
            self._insert(" ")
        elif key == "backspace" and at:
            self.text, self.at = text[: at - 1] + text[at:], at - 1
        elif key == "delete":
            self.text = text[:at] + text[at + 1 :]
        elif key == "clear":
            self.text, self.at = text[at:], 0
        elif key == "word":
            head = text[:at].rstrip()
            keep = head[: head.rfind(" ") + 1]
            self.text, self.at = keep + text[at:], len(keep)
        elif key in ("left", "right"):
            self.at = max(0, min(len(text), at + (1 if key == "right" else -1)))
        elif key in ("home", "end"):
            self.at = 0 if key == "home" else len(text)

    def _insert(self, piece: str) -> None:
        clean = several_lines(piece).replace("\n", " ").replace("\t", " ")
        self.text = self.text[: self.at] + clean + self.text[self.at :]
        self.at += len(clean)
