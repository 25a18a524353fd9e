"""The port to a model: one whole conversation in, one whole reply out, with deltas on the way for
those who watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from retinue.core.effects import Purpose
from retinue.core.messages import Message, ModelReply
from retinue.core.model_settings import NO_SETTINGS, ModelSettings
from retinue.core.values import ModelInfo, ProviderTrouble, ToolSchema, Usage

NOTHING = Usage()


class Outage(NamedTuple):
    """A provider is left alone for so many `seconds`, after a failure of this kind."""

    kind: str
    trouble: ProviderTrouble | None
    seconds: float


class Progress:
    """How far a call has come, for the code that cancels it: whether it ever left, and what is
    known of its cost.

    The model says so on the way: `wait` when it is asked, `leave` in the moment of sending,
    `follow` when an answer has begun, `settle` when an attempt is over and its cost known. One that
    says nothing is taken to have sent, unless it is known (`is_told`) that it will. `mark` is
    called before something leaves: its note is read after a crash."""

    __slots__ = (
        "_count",
        "_is_lost",
        "_is_marked",
        "_is_out",
        "_is_told",
        "_mark",
        "_spent",
        "outage",
    )

    def __init__(
        self, mark: Callable[[bool], None] | None = None, *, is_told: bool = False
    ) -> None:
        self._is_told = is_told
        self._is_out = self._is_lost = self._is_marked = False
        self._spent = NOTHING
        self._count: Callable[[], Usage] | None = None
        self._mark = mark
        self.outage: Callable[[], Outage | None] | None = None
        """Says what lets the call wait before it leaves, while it does."""
        if not is_told:
            self._report_mark()

    def _report_mark(self) -> None:
        if self._mark is not None and (is_sent := self.sent) != self._is_marked:
            self._is_marked = is_sent
            self._mark(is_sent)

    @property
    def sent(self) -> bool:
        """False only when nothing has left that could cost anything."""
        return (
            not self._is_told
            or self._is_out
            or self._is_lost
            or bool(self._spent.tokens or self._spent.nanos)
        )

    @property
    def usage(self) -> Usage | None:
        """What was spent until now: nothing when nothing was sent, None when no one knows."""
        if not self._is_told or self._is_lost:
            return None
        if not self._is_out:
            return self._spent
        return None if self._count is None else self._spent.plus(self._count())

    @property
    def before(self) -> Usage:
        """What attempts that are over have cost."""
        return self._spent

    def wait(self) -> None:
        """Nothing (more) is sent yet. What an attempt before this one is known to have cost
        stays."""
        if self._is_told and not self._is_out:
            return
        self._end_attempt()
        self._report_mark()

    def leave(self) -> None:
        """The first byte is about to be written."""
        if self._is_out or not self._is_told:
            self._end_attempt()
        self._is_out = True
        if self._mark is not None and not self._is_marked:
            self._is_marked = True
            self._mark(True)

    def _end_attempt(self) -> None:
        self._is_told = True
        if self._is_out:
            self._is_lost = self._is_lost or self._count is None
            self._settle(self._count() if self._count is not None else Usage())

    def follow(self, count: Callable[[], Usage]) -> None:
        """An answer has begun; `count` says what it has cost up to the moment in which it is
        asked."""
        self._count = count

    def settle(self, usage: Usage) -> None:
        """The attempt is over and has cost this much."""
        self._settle(usage)
        # A prompt that was counted has left, which is marked already.
        if not (usage.input and self._is_marked):
            self._report_mark()

    def _settle(self, usage: Usage) -> None:
        self._spent = self._spent.plus(usage) if self._spent is not NOTHING else usage
        self._is_out, self._count = False, None


class ModelRequest(Struct, frozen=True):
    """Everything a model needs for one reply. `messages` is valid for every provider: each call has
    its result.

    `tools` may be called now; `declared` stays the same through all turns of a run and through its
    forks, so that the prefix of their prompts does: what is declared and not given is refused when
    it is called. `settings` are those of the run. `progress` is the model's to write and everyone's
    to read: after a cancel it says whether the call ever left."""

    run: str
    root: str
    path: str
    agent: str
    model: str
    turn: int
    attempt: int
    purpose: Purpose
    instructions: str
    messages: Sequence[Message]
    tools: tuple[ToolSchema, ...]
    max_output: int
    key: str
    declared: tuple[ToolSchema, ...] = ()
    progress: Progress = field(default_factory=Progress)
    settings: ModelSettings = NO_SETTINGS


class ModelCatalog(Protocol):
    """Models by name. `offered` are those that runs may request although no agent names them;
    `resolve` gives the model of a name that it `knows`."""

    @property
    def offered(self) -> Sequence[str]: ...

    def knows(self, name: str) -> bool: ...

    def resolve(self, name: str) -> str: ...

    def find(self, name: str) -> Model: ...

    async def close(self) -> None: ...


class Model(Protocol):
    """Contract: `complete` returns one reply or raises a `ModelError`; a cancelled call spends
    nothing more. `emit` takes text as it comes and may be ignored. A model with
    `exact = True` guarantees the types in its replies; other replies are checked. One that writes
    `request.progress` is not charged for what it never sent; with `says_progress = True` it does so
    before anything leaves."""

    info: ModelInfo

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply: ...
