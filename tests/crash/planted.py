"""Bugs that the harness must find: each breaks one guarantee in the process that is killed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from retinue.core.roster import Changes, Roster
from retinue.runtime import recover
from retinue.runtime.engine import Engine
from retinue.store.base import Snapshot
from retinue.store.sqlite import SqliteStore
from retinue.tools.toolbox import Toolbox


def repeats_unsafe_calls() -> None:
    """After a restart every call is run again."""
    Toolbox.restart_class = lambda self, agent, name: "pure"  # type: ignore[method-assign]


def acts_before_it_records() -> None:
    """Effects are performed while their intent is still being written."""
    commit, after = Engine._commit, Engine._after

    async def act_first(self: Engine, changes: Changes) -> int:
        after(self, changes, self._seq + len(changes.entries))
        return await commit(self, changes)

    Engine._commit = act_first  # type: ignore[method-assign]
    Engine._after = lambda self, changes, seq: None  # type: ignore[method-assign]


def forgets_mail() -> None:
    _forget(lambda snapshot: snapshot.mail.clear())


def forgets_who_is_back() -> None:
    """Joined children that ended before the crash are not counted."""
    _forget(lambda snapshot: snapshot.back.clear())


def forgets_deliveries() -> None:
    _forget(lambda snapshot: snapshot.deliveries.clear())


def _forget(what: Callable[[Snapshot], None]) -> None:
    rebuild = recover.rebuild

    def rebuild_less(roster: Roster, snapshot: Snapshot) -> list[str]:
        what(snapshot)
        return rebuild(roster, snapshot)

    recover.rebuild = rebuild_less


def delivers_mail_again() -> None:
    """What was read stays in the mailbox."""
    take = Roster.take_mail

    def take_and_keep(self: Roster, id: str) -> Any:
        mail = take(self, id)
        self.changes.taken.clear()
        return mail

    Roster.take_mail = take_and_keep  # type: ignore[method-assign]


def tells_parents_later() -> None:
    """A child's end and its parent's mail are two transactions."""
    commit = SqliteStore.commit

    async def commit_in_two(self: SqliteStore, changes: Changes) -> int:
        posted = changes.posted
        seq = await commit(self, replace(changes, posted={}))
        return await commit(self, Changes(posted=posted)) if posted else seq

    SqliteStore.commit = commit_in_two  # type: ignore[method-assign]


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        repeats_unsafe_calls,
        acts_before_it_records,
        forgets_mail,
        forgets_who_is_back,
        forgets_deliveries,
        delivers_mail_again,
        tells_parents_later,
    )
}
