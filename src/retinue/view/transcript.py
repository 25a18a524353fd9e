"""What was said in runs, as lines for a small window: the last of it, cut, and what is being
written now."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator

from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage
from retinue.formats.safe_text import one_line

_SUM = re.compile(r", sha256 [0-9a-f]{64}")
"""Of a file that was read: the agent needs it, a person does not."""
KEEP = 200
"""Lines that are kept of one run."""
LONG = 2_000
RESULT = 100
MOST = 8
"""Lines of one text."""


class Transcripts:
    """Each line is a kind (for its colour) and a text."""

    def __init__(self, describe: Callable[[ToolCall], str]) -> None:
        self._describe = describe
        self._said: dict[str, deque[tuple[str, str]]] = {}
        self._writing: dict[str, tuple[int, str]] = {}

    def add(self, run: str, message: Message) -> None:
        lines = self._said.setdefault(run, deque(maxlen=KEEP))
        if isinstance(message, AssistantMessage):
            self._writing.pop(run, None)
        lines.extend(message_lines(message, self._describe))

    def preview(self, run: str, attempt: int, text: str) -> None:
        before, text_before = self._writing.get(run, (attempt, ""))
        self._writing[run] = (attempt, ((text_before if before == attempt else "") + text)[-LONG:])

    def over(self, run: str) -> None:
        self._writing.pop(run, None)

    def of(self, run: str) -> list[tuple[str, str]]:
        """Everything that is kept of a run, oldest first."""
        lines = list(self._said.get(run, ()))
        _, writing = self._writing.get(run, (0, ""))
        if writing.strip():
            parts = [line for part in writing.splitlines() if (line := one_line(part))][-MOST:]
            lines += [
                ("writing", part + (" ▌" if n == len(parts) else ""))
                for n, part in enumerate(parts, 1)
            ]
        return lines


def message_lines(
    message: Message, describe: Callable[[ToolCall], str]
) -> Iterator[tuple[str, str]]:
    """A message in a few lines."""
    if isinstance(message, AssistantMessage):
        yield from _lines("said", message.text)
        for call in message.calls:
            yield "call", f"▸ {describe(call)}"
    elif isinstance(message, ToolMessage):
        kind = "bad" if message.error else "result"
        if message.denied:
            kind = "denied"
        sign = {"denied": "⊘", "bad": "✗"}.get(kind, "↳")
        yield kind, f"  {sign} {_result(message.text)}"
    else:
        yield from _lines("task" if message.kind == "task" else "mail", message.text)


def _result(text: str) -> str:
    """How long a result is, and its first and last line: that is where a command says how it
    ended."""
    plain = _SUM.sub("", text)
    parts = [flat for part in plain.splitlines() if (flat := one_line(part, RESULT))]
    if len(parts) < 3:
        return one_line(text, 2 * RESULT)
    return f"{len(text.splitlines())} lines: {parts[0]} … {parts[-1]}"


def _lines(kind: str, text: str) -> Iterator[tuple[str, str]]:
    parts = [flat for part in text.splitlines() if (flat := one_line(part, 1_000))]
    for part in parts[:MOST]:
        yield kind, part
    if len(parts) > MOST:
        yield kind, f"… {len(parts) - MOST} more lines"
