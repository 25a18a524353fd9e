"""The conversation as a store of answers: a job asks for what it needs, and what has no answer yet
becomes a tool call. Each call is made once, so every policy ends; with the same transcript, it
always gives the same answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from retinue.core.arguments import is_deep
from retinue.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from retinue.core.values import ToolSchema

# Each pattern also reads the older form of its note: stored conversations have it.
CUT = re.compile(
    r"\[(?:truncated|cut): \d+ of (\d+) characters (?:hidden|are not shown)"
    r"(?:; (?:full text|the whole is) in artifact (\w+))?\]\s*\Z"
)
CUT_SHORT = re.compile(
    r"\n\.\.\. \(truncated\)"
    r"(?:\n\((?:full text|the whole), (\d+) bytes, (?:is )?in artifact (\w+)\))?\s*\Z"
)
PAGE_NOTE = re.compile(r"\n\[bytes (\d+) to (\d+); ([^\]\n]*)\]\s*\Z")
NOTE = re.compile(
    r"\d+ of \d+ (?:shown|matches)|incomplete|truncated|hidden|not shown|\bcut\b|\bmore\b",
    re.IGNORECASE,
)
MIDDLE = re.compile(
    r"^\[(?:truncated|cut): \d+ of \d+ bytes (?:hidden|are not shown)", re.MULTILINE
)
MAX_PAGES = 8
STOP_WORDS = re.compile(
    r"^\s*(?:please\s+)?(?:stop|finish|enough|wrap (?:it )?up|that is enough)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a call has returned. `cut`: there was more than is shown."""

    text: str
    error: bool = False
    cut: bool = False

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def canonical(args: dict[str, Any]) -> str:
    return json.dumps(args, sort_keys=True, separators=(",", ":"))


def read_result(result: ToolMessage) -> CallAnswer:
    return CallAnswer(result.text, error=result.error, cut=is_cut(result.text))


def is_cut(text: str) -> bool:
    """Whether a note says that something is omitted: at the end in brackets, or where the middle of
    an output was."""
    tail = text[-800:]
    if CUT.search(tail) or CUT_SHORT.search(tail) or MIDDLE.search(text):
        return True
    notes = [
        line
        for line in tail.rstrip().split("\n")[-3:]
        if line.startswith("[") and line.endswith("]")
    ]
    return any(NOTE.search(note) for note in notes)


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a conversation is about now: the last task in it, what came after it, and whether it was
    asked to stop."""

    task: str
    after: Sequence[Message]
    stop: bool = False
    unread: tuple[str, ...] = ()
    summary: str = ""


def assignment(messages: Sequence[Message]) -> Assignment:
    """A new task, or a person's message after a whole answer, begins anew; other messages are
    noted."""
    start, task, summary = 0, "", ""
    idle = True
    stop = False
    unread: list[str] = []
    for n, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            idle = not message.calls
        elif isinstance(message, UserMessage):
            fresh = message.kind == "task" or (
                message.kind == "mail" and not message.sender and idle and n > 0
            )
            if fresh:
                start = n + 1
                task = message.text
                idle = False
                stop = False
                unread = []
            elif message.kind == "summary":
                start, summary = n + 1, message.text
            elif message.kind == "mail" and not message.sender:
                stop = stop or bool(STOP_WORDS.search(message.text))
                unread.append(message.text)
    return Assignment(task, messages[start:], stop, tuple(unread), summary)


class KnownAnswers:
    """`closing`: nothing more may be called; what is not known stays unknown. `limit` is the most
    calls in all. `declared` are the tools as they were in earlier turns. `resting`: there is
    nothing to do but wait for news. `starved`: something was wanted that could no longer be
    requested."""

    def __init__(
        self,
        work: Assignment,
        tools: Sequence[ToolSchema],
        declared: Sequence[ToolSchema] = (),
        *,
        closing: bool = False,
        limit: int = 200,
    ) -> None:
        self.work = work
        self.tools = {t.name: t for t in tools}
        self.declared = self.tools or {t.name: t for t in declared}
        self.closing = closing or work.stop
        self.resting = ""
        self.starved = False
        self.pending: list[tuple[str, dict[str, Any]]] = []
        self.gaps: list[str] = []
        self.news: dict[str, str] = {}
        self.texts: list[str] = []
        self._answers: dict[tuple[str, str], list[CallAnswer]] = {}
        self._asked: set[tuple[str, str, int]] = set()
        self.n_calls = 0
        self._limit = limit
        self._read(work.after)

    def _read(self, messages: Sequence[Message]) -> None:
        calls: dict[str, tuple[str, str]] = {}
        for message in messages:
            if isinstance(message, AssistantMessage):
                if message.text and not message.calls:
                    self.texts.append(message.text)
                for call in message.calls:
                    calls[call.id] = (call.name, _normal(call.arguments_json))
                self.n_calls += len(message.calls)
            elif isinstance(message, ToolMessage):
                key = calls.pop(message.call_id, None)
                if key is not None:
                    self._answers.setdefault(key, []).append(read_result(message))
            elif message.kind == "news" and message.sender:
                self.news[message.sender] = message.text

    def can(self, name: str) -> bool:
        return name in self.tools

    def used(self, name: str) -> bool:
        return any(called == name for called, _ in self._answers)

    def answers(self, name: str, args: dict[str, Any]) -> list[CallAnswer]:
        return self._answers.get((name, canonical(args)), [])

    def ask(self, name: str, nth: int = 0, /, **args: Any) -> CallAnswer | None:
        """The answer of a call; None when it is only now asked for, or cannot be."""
        answers = self.answers(name, args)
        if len(answers) > nth:
            return answers[nth]
        key = (name, canonical(args), nth)
        if self.closing or self.n_calls + len(self.pending) >= self._limit:
            self.starved = True
            return None
        if not self.can(name):
            return None
        if key not in self._asked:
            self._asked.add(key)
            self.pending.append((name, args))
        return None

    def first(self, *ladder: tuple[str, dict[str, Any]]) -> CallAnswer | None:
        """The first answer that is not an error: each rung is asked for only when those before it
        have failed."""
        failed = None
        for name, args in ladder:
            answer = self.ask(name, **args)
            if answer is not None and not answer.error:
                return answer
            if answer is None and (name, args) in self.pending:
                return None
            failed = answer or failed
        return failed

    def whole(self, answer: CallAnswer | None) -> CallAnswer | None:
        """A cut answer put together again from its artifact, where there is one and it can be
        read."""
        if answer is None or answer.error or not answer.cut:
            return answer
        mark = CUT.search(answer.text[-500:]) or CUT_SHORT.search(answer.text[-500:])
        if mark is None or mark[2] is None or not self.can("artifact"):
            return answer
        return self.pages(mark[2], int(mark[1])) or answer

    def pages(self, artifact: str, size: int) -> CallAnswer | None:
        """The text of an artifact, its pages asked for together: a page is as long as the first one
        was."""
        head = self.ask("artifact", id=artifact, offset=0)
        if head is None or head.error:
            return None
        bodies, note = [PAGE_NOTE.sub("", head.text)], PAGE_NOTE.search(head.text)
        if note is None or "end" in note[3]:
            return CallAnswer(bodies[0], cut=note is None or is_cut(bodies[0]))
        step = int(note[2])
        offsets = range(step, max(size + size // 8, step + 1), max(step, 1))
        answers = [
            self.ask("artifact", id=artifact, offset=at) for at in list(offsets)[: MAX_PAGES - 1]
        ]
        if any(a is None for a in answers):
            return None
        ended = False
        for page in answers:
            if page is None or page.error:
                break
            match = PAGE_NOTE.search(page.text)
            bodies.append(PAGE_NOTE.sub("", page.text))
            ended = match is None or "end" in match[3]
            if ended:
                break
        text = "".join(bodies)
        return CallAnswer(text, cut=not ended or is_cut(text))

    def gap(self, what: str) -> None:
        """Something that the report must admit not to know."""
        if what not in self.gaps:
            self.gaps.append(what)


def _normal(args: str) -> str:
    try:
        value = None if is_deep(args) else json.loads(args)
    except ValueError:
        return args
    return canonical(value) if isinstance(value, dict) else args
