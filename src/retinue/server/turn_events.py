"""Events of one turn of a client: text, whole messages, and how the turn ended. The run has ended
then, or it waits for something that the client has to bring."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from retinue.core.events import Replied
from retinue.core.messages import AssistantMessage
from retinue.host.host import Host
from retinue.host.identity import Identity
from retinue.host.requests import OutcomeRequest, QuestionsRequest, WatchRequest
from retinue.host.server_events import ServerEvent
from retinue.host.tree_items import StepNews, TextArrived
from retinue.open_questions import OpenQuestion
from retinue.outcomes import Outcome, state_word

STILL = ("asking", "waiting", "short")
"""States in which the run itself has nothing under way."""


@dataclass(frozen=True)
class TurnText:
    """More of the message that is being written."""

    text: str


@dataclass(frozen=True)
class MessageDone:
    """A whole message of the agent: number `n` of its conversation, recorded at `at`."""

    n: int
    message: AssistantMessage
    at: int


@dataclass(frozen=True)
class TurnParked:
    """The run waits for the client: for results of its tools, or for answers in words."""

    questions: tuple[OpenQuestion, ...]
    at: int


@dataclass(frozen=True)
class TurnEnded:
    """The run has ended."""

    outcome: Outcome


TurnEvent = TurnText | MessageDone | TurnParked | TurnEnded


class TurnFollower:
    """Follows one run from message `start` of its conversation on. Text comes in pieces only if
    asked for; it is never sent twice, whatever is tried again. It stops when the run waits for its
    client, or says so once and continues."""

    def __init__(
        self, host: Host, who: Identity, run: str, start: int, *, in_pieces: bool = False
    ) -> None:
        self._host, self._who = host, who
        self._run, self._start = run, start
        self._in_pieces = in_pieces
        self._attempt, self._done, self._sent = 0, 0, ""
        self._states: dict[str, str] = {}
        self.stops_when_parked = True
        self.known: tuple[OpenQuestion, ...] = ()
        """The questions that the client knows."""

    async def events(self) -> AsyncIterator[TurnEvent]:
        watch = WatchRequest(run=self._run, deltas=self._in_pieces)
        async with aclosing(self._host.watch(watch, self._who)) as stream:  # type: ignore[type-var]
            async for event in stream:
                for item in self._items(event):
                    yield item
                if event.name == "step" and (
                    questions := await self._client_questions(event.value)
                ):
                    yield TurnParked(questions, event.value.entry.at)
                    if self.stops_when_parked:
                        return
        reply = await self._host.outcome(OutcomeRequest(run=self._run), self._who)
        assert reply.outcome is not None
        yield TurnEnded(reply.outcome)

    def _items(self, event: ServerEvent) -> list[TurnEvent]:
        value = event.value
        if isinstance(value, TextArrived):
            return self._text_events(value) if value.run == self._run else []
        if not isinstance(value, StepNews):
            return []
        items: list[TurnEvent] = []
        for added in value.messages:
            message = added.message
            if added.run != self._run or not isinstance(message, AssistantMessage):
                continue
            if added.n >= self._start:
                items += self._whole(MessageDone(added.n, message, value.entry.at))
            if isinstance(value.entry.event, Replied):
                self._done = value.entry.event.attempt
        return items

    def _text_events(self, delta: TextArrived) -> list[TurnEvent]:
        """The pieces of the first try. Of a later one the whole message is waited for, for what was
        sent cannot be taken back; and what is known whole already is not sent in pieces again."""
        if delta.attempt <= self._done or (self._sent and delta.attempt != self._attempt):
            return []
        self._attempt = delta.attempt
        self._sent += delta.text
        return [TurnText(delta.text)]

    def _whole(self, whole: MessageDone) -> list[TurnEvent]:
        text = rest = whole.message.text
        if self._sent:
            is_same = text.startswith(self._sent)
            rest = text[len(self._sent) :] if is_same else f"\n\n{text}"
        self._sent = ""
        pieces: list[TurnEvent] = [TurnText(rest)] if rest else []
        return [*pieces, whole]

    async def _client_questions(self, news: StepNews) -> tuple[OpenQuestion, ...]:
        """What the client has to answer, when nothing moves without it. Permissions and limits are
        decided by those who may."""
        if news.row is None:
            return ()
        self._states[news.row.spec.id] = state_word(news.row.run)
        is_still = self._states.get(self._run) in STILL
        if not is_still or "asking" not in self._states.values():
            return ()
        questions = await text_questions(self._host, self._who, self._run)
        is_told = {q.id for q in questions} == {q.id for q in self.known}
        self.known = questions
        return () if is_told else questions


async def text_questions(host: Host, who: Identity, run: str) -> tuple[OpenQuestion, ...]:
    """The open questions of a run and those below it that want words, or the result of a call."""
    reply = await host.questions(QuestionsRequest(run=run), who)
    return tuple(q for q in reply.questions if q.kind == "question")


async def waits_for_decision(host: Host, who: Identity, run: str) -> bool:
    """Whether a run, or one below it, waits for a permission or at a limit that asks."""
    if state_word((await host.row(run)).run) not in STILL:
        return False
    reply = await host.questions(QuestionsRequest(run=run), who)
    return any(q.kind != "question" for q in reply.questions)


async def parked_on(host: Host, who: Identity, run: str) -> tuple[OpenQuestion, ...]:
    """What a run waits for that its client has to bring; nothing while it is at work."""
    if state_word((await host.row(run)).run) not in STILL:
        return ()
    return await text_questions(host, who, run)
