"""A conversation that a client sends in full with every request. What is new in it is the task; the
rest is a run that we have, or else becomes a part of the task."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from retinue.server.openai.api_errors import ApiProblem
from retinue.server.openai.chat_requests import SentMessage, text_of

META = "openai.chat"
"""Under this name a run remembers the conversation that it was asked to continue."""
INSTRUCTING = ("system", "developer")
ROLES = (*INSTRUCTING, "user", "assistant", "tool")


@dataclass(frozen=True)
class Dialogue:
    """`lines` are what user and assistant have said, without calls and their results. `results` are
    those of the calls at the end, by their ids, and `remark` is what the user has said after
    them."""

    instructions: str
    lines: tuple[tuple[str, str], ...]
    results: dict[str, str]
    remark: str = ""

    @property
    def task(self) -> str:
        """What the user says now."""
        return "\n\n".join(text for _, text in self.lines[self._n_before :])

    @property
    def _n_before(self) -> int:
        n = len(self.lines)
        while n and self.lines[n - 1][0] == "user":
            n -= 1
        return n

    @property
    def answer(self) -> str:
        """What the assistant had answered before; "" at the beginning."""
        n = self._n_before
        return self.lines[n - 1][1] if n else ""

    @property
    def digest(self) -> str:
        """A name for this conversation."""
        return _digest(self.lines)

    @property
    def digest_before(self) -> str:
        """The name of the conversation to which the last answer was given."""
        return _digest(self.lines[: max(0, self._n_before - 1)])

    @property
    def whole_task(self) -> str:
        """The task of a run that does not know what was said before."""
        n = self._n_before
        if not n:
            return self.task
        speeches = [f"{role.capitalize()}: {text}" for role, text in self.lines[:n]]
        history = "\n\n".join(speeches)
        return f"The conversation until now:\n\n{history}\n\nThe user now says:\n\n{self.task}"


def read_dialogue(messages: Sequence[SentMessage]) -> Dialogue:
    """Raises `ApiProblem`."""
    instructions, lines = list[str](), list[tuple[str, str]]()
    results, remarks = dict[str, str](), list[str]()
    for n, message in enumerate(messages):
        if message.role not in ROLES:
            raise ApiProblem(400, f"Unknown role {message.role[:40]!r}.", param=f"messages.{n}")
        text = text_of(message.content, f"messages.{n}")
        if message.role in INSTRUCTING:
            instructions.append(text)
        elif message.role == "tool":
            results[message.tool_call_id or ""], remarks = text, []
        elif message.role == "user":
            lines.append(("user", text.strip()))
            remarks.append(text)
        else:
            lines += [] if message.tool_calls else [("assistant", text.strip())]
            results = {}
    remark = "\n\n".join(remarks) if results else ""
    return Dialogue("\n\n".join(instructions), tuple(lines), results, remark)


def _digest(lines: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256(msgspec.json.encode(lines)).hexdigest()[:32]
