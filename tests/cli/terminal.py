"""A real terminal for tests: tmux on a socket of its own, driven by keys and read as text."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.waiting import PATIENT, SECONDS

_numbers = itertools.count(1)


class Terminal:
    """One pane. `text` is what a person would see in it."""

    def __init__(self, folder: Path, columns: int = 80, lines: int = 24) -> None:
        # The socket's path must be short: a Unix socket has no room for that of a test's folder.
        self._name = f"retinue-{os.getpid()}-{next(_numbers)}"
        self._folder, self._columns, self._lines = folder, columns, lines

    def _tmux(self, *arguments: str, check: bool = True) -> str:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *arguments]
        process = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if check and process.returncode:
            raise AssertionError(f"{command}: {process.stderr}")
        return process.stdout

    def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Run a command; when it has ended, the pane stays and says how."""
        script = self._folder / f"{self._name}.sh"
        code = self._folder / f"{self._name}.code"
        words = " ".join(f"'{w}'" for w in command)
        script.write_text(f'cd "{cwd}"\n{words}\necho "code=$?" | tee "{code}"\nexec sleep 600\n')
        variables = [
            f"{k}={v}"
            for k, v in {"TERM": "screen-256color", "LANG": "C.UTF-8", **PATIENT, **env}.items()
        ]
        shell = shutil.which("bash") or "sh"
        run = ["env", "-i", *variables, shell, str(script)]
        self._tmux("new-session", "-d", "-x", str(self._columns), "-y", str(self._lines), *run)
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("resize-window", "-x", str(self._columns), "-y", str(self._lines))

    def retinue(self, *arguments: str, env: Mapping[str, str], cwd: Path) -> None:
        self.start([sys.executable, "-m", "retinue", *arguments], env, cwd)

    def keys(self, *names: str) -> None:
        """Keys by tmux's names: `Up`, `Enter`, `C-c`, or letters."""
        self._tmux("send-keys", *names)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def text(self, *, colors: bool = False, history: bool = False) -> str:
        flags = (["-e"] if colors else []) + (["-S", "-"] if history else [])
        return self._tmux("capture-pane", "-p", *flags).rstrip("\n")

    def window(self) -> str:
        """The title of the window."""
        return self._tmux("display-message", "-p", "#{pane_title}").rstrip("\n")

    def lines(self) -> list[str]:
        return self.text().split("\n")

    def until(self, *what: str | Callable[[str], object], colors: bool = False) -> str:
        """Look again until all of this is there at once: texts, or what must be true of everything
        that is there. A frame may be seen before all of it is drawn, so whatever is asserted of it
        belongs in here."""
        end = time.monotonic() + SECONDS
        while True:
            text = self.text(colors=colors)
            if all(it in text if isinstance(it, str) else it(text) for it in what):
                return text
            if time.monotonic() > end:
                raise AssertionError(f"{what!r} was not seen:\n{self.text(history=True)}")
            time.sleep(0.06)

    def code(self) -> int:
        """How the command ended."""
        screen_text = self.until(re.compile(r"code=\d").search)
        return int(screen_text.rpartition("code=")[2].split()[0])

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._tmux("kill-server", check=False)
        for folder in (os.environ.get("TMUX_TMPDIR", "/tmp"),):
            with contextlib.suppress(OSError):
                os.unlink(f"{folder}/tmux-{os.getuid()}/{self._name}")


@contextlib.contextmanager
def terminal(folder: Path, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    terminal = Terminal(folder, columns, lines)
    try:
        yield terminal
    finally:
        terminal.close()
