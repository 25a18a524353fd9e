"""Where the messages of a chat come from: a prompt with history and completion, a plain one, or
lines of a pipe."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from retinue.cli.context import note
from retinue.view.ascii_marks import as_shown

MARK, MORE = "you \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} ", "    · "


ESC_SECONDS = 0.2
"""So long after Esc, Enter still makes Alt-Enter of it."""


class MessagePrompt(Protocol):
    """Gives one message after the other; None at the end. Raises `KeyboardInterrupt`."""

    def ask(self) -> str | None: ...

    def say(self, text: str) -> None: ...


class PipedPrompt:
    """Each line is a message."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream if stream is not None else sys.stdin

    def ask(self) -> str | None:
        line = self._stream.readline()
        return line.rstrip("\r\n") if line else None

    def say(self, text: str) -> None:
        note(text)


class PlainPrompt:
    """A terminal without anything installed: a line, which continues when it ends with a
    backslash."""

    def ask(self) -> str | None:
        lines: list[str] = []
        while True:
            sys.stderr.write(as_shown(MORE if lines else MARK))
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                return "\n".join(lines) if lines else None
            text = line.rstrip("\r\n")
            if not text.endswith("\\"):
                return "\n".join([*lines, text])
            lines.append(text[:-1])

    def say(self, text: str) -> None:
        note(text)


class HistoryPrompt:
    """With history, completion and several lines: Enter sends, Alt-Enter begins a new line. What is
    said meanwhile is put above the prompt."""

    def __init__(
        self,
        history: str,
        complete: Callable[[str], Iterator[tuple[str, str]]],
        status: Callable[[], str],
        color: bool,
        look: Callable[[], list[str]],
        clean: Callable[[str], str] = str,
        rows: Callable[[], str] = str,
    ) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.formatted_text import ANSI
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.output import ColorDepth, create_output
        from prompt_toolkit.styles import Style

        store: Any = InMemoryHistory()
        if history:
            os.close(os.open(history, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            store = _history(FileHistory, history, clean)
        self._look, self._rows = look, rows
        self._draft, self._is_left = "", False
        self._n_pressed = 0
        """How often Ctrl-C was pressed while the terminal was not the prompt's, and was not handled
        yet."""
        self._session: PromptSession[str] = PromptSession(
            as_shown(MARK),
            history=store,
            completer=_completer(complete),
            complete_while_typing=False,
            key_bindings=_keys(self._leave_for_rows),
            style=Style.from_dict({"bottom-toolbar": "noreverse"}),
            multiline=True,
            prompt_continuation=as_shown(MORE),
            bottom_toolbar=lambda: ANSI(as_shown(status())),
            refresh_interval=0,
            output=create_output(stdout=sys.stderr),
            color_depth=None if color else ColorDepth.DEPTH_1_BIT,
            enable_suspend=True,
        )
        self._session.app.timeoutlen = ESC_SECONDS

    def ask(self) -> str | None:
        try:
            while (line := self._ask_once()) is None:
                if text := self._rows():  # what was typed stays
                    self.say(text)
        except EOFError:
            return None
        if self._n_pressed:
            self._n_pressed = 0
            raise KeyboardInterrupt
        return line

    def _ask_once(self) -> str | None:
        """A message; None if the user wants to see the rows, and has a draft."""
        from prompt_toolkit.patch_stdout import patch_stdout

        draft, self._draft = self._draft, ""
        app, self._is_left = self._session.app, False
        app.erase_when_done = False
        with self._counted(), patch_stdout():
            line = self._session.prompt(default=draft, pre_run=self._watch, handle_sigint=False)
        if not self._is_left:
            return line
        self._draft = line
        return None

    def _leave_for_rows(self) -> None:
        app = self._session.app
        self._is_left, app.erase_when_done = True, True
        app.exit(result=self._session.default_buffer.text)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Before a prompt has the terminal, and after it has given it back, Ctrl-C is a signal and
        no key. The library drops one that comes while it opens or closes a prompt, so they are
        counted here."""
        app = self._session.app

        def press(*_: Any) -> None:
            self._n_pressed += 1
            if app.loop is not None:
                app.loop.call_soon_threadsafe(self._interrupt)

        before = signal.signal(signal.SIGINT, press)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self) -> None:
        app = self._session.app
        if self._n_pressed and app.is_running and not app.is_done:
            self._n_pressed -= 1
            app.exit(exception=KeyboardInterrupt)

    def _watch(self) -> None:
        """While the user writes, runs that end in the background are shown above the prompt."""
        import asyncio

        from prompt_toolkit.application import get_app, run_in_terminal

        async def interrupt_soon() -> None:
            self._interrupt()
            while True:
                await asyncio.sleep(1.0)
                for text in self._look():
                    await run_in_terminal(lambda text=text: self.say(text))  # type: ignore[misc]

        get_app().create_background_task(interrupt_soon())

    def say(self, text: str) -> None:
        note(text)


def _history(kind: Any, path: str, clean: Callable[[str], str]) -> Any:
    """What is typed stays as it is for this prompt; the file has it without the secrets."""

    class Cleaned(kind):  # type: ignore[misc]
        def store_string(self, string: str) -> None:
            super().store_string(clean(string))

    return Cleaned(path)


def _keys(leave: Callable[[], None]) -> Any:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: Any) -> None:
        buffer = event.current_buffer
        text = buffer.document.text_before_cursor
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif text.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape")
    def rows(event: Any) -> None:
        leave()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def line(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _completer(complete: Callable[[str], Iterator[tuple[str, str]]]) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class Words(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Any]:
            text = document.text_before_cursor
            for word, about in complete(text):
                yield Completion(
                    word, start_position=-len(text.rpartition(" ")[2]), display_meta=about
                )

    return Words()
