"""The writes of a batch of steps in one transaction, and the effects allowed after it."""

from __future__ import annotations

from msgspec import Struct

from retinue.core.account import Account
from retinue.core.effects import AbortRun, CallModel, CallTool, Effect, FormatResults, Merge
from retinue.core.events import LogEntry
from retinue.core.messages import Message
from retinue.core.spec import RunSpec
from retinue.core.state import Run
from retinue.core.values import Definition, Delivery, Mail, ModelInfo

BEGUN = (CallModel, CallTool, FormatResults, Merge)
"""Effects that an `AbortRun` calls off."""


class Changes(Struct):
    """What a batch of steps must write in one transaction, and what may be performed after it."""

    entries: list[LogEntry] = []
    specs: list[RunSpec] = []
    runs: dict[str, Run] = {}
    accounts: dict[str, Account] = {}
    messages: list[tuple[str, int, Message]] = []
    posted: dict[tuple[str, int], Mail] = {}
    taken: list[tuple[str, int]] = []
    deliveries: dict[str, Delivery] = {}
    definitions: list[Definition] = []
    models: list[ModelInfo] = []
    forgotten: list[str] = []
    effects: list[Effect] = []

    def add(self, other: Changes) -> None:
        """Those of another tree: nothing of theirs has the same key."""
        self.entries += other.entries
        self.runs |= other.runs
        self.accounts |= other.accounts
        self.messages += other.messages
        self.effects += other.effects
        self.specs += other.specs
        self.taken += other.taken
        self.forgotten += other.forgotten
        self.posted |= other.posted
        self.deliveries |= other.deliveries

    def clear(self) -> None:
        """They belong to the engine now. (A new one would be a dozen objects for each tree and
        commit, and most of what the collector of cycles has to look at.)"""
        self.entries.clear()
        self.runs.clear()
        self.accounts.clear()
        self.messages.clear()
        self.effects.clear()
        self.specs.clear()
        self.taken.clear()
        self.forgotten.clear()
        self.posted.clear()
        self.deliveries.clear()


def without_aborted(effects: list[Effect]) -> list[Effect]:
    """What a later step of the same batch called off is never begun."""
    last = {e.run: n for n, e in enumerate(effects) if isinstance(e, AbortRun)}
    return [e for n, e in enumerate(effects) if not isinstance(e, BEGUN) or n > last.get(e.run, -1)]
