"""Bugs that the harness must find: each breaks one guarantee in the process that is killed, and
nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from retinue.core.changes import Changes
from retinue.core.effects import CallTool
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import Delivery
from retinue.runtime import recover
from retinue.runtime.performer import Performer
from retinue.store.base import Snapshot
from retinue.store.sent_calls import SentCalls
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.tools.toolbox import Toolbox
from tests.crash.workload import Hook


def repeats_unsafe_calls() -> None:
    """After a restart every call is run again."""
    Toolbox.restart_class = lambda self, agent, name: "pure"  # type: ignore[method-assign]


def acts_before_it_records() -> None:
    """Tools are run while the reply that calls them is still being written."""
    init, take, performers = Performer.__init__, Trees.take_changes, list[Performer]()

    def init_and_remember(self: Performer, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        performers.append(self)

    def take_and_act(self: Trees) -> Changes:
        changes = take(self)
        for performer in performers:
            tools = [effect for effect in changes.effects if isinstance(effect, CallTool)]
            changes.effects = [effect for effect in changes.effects if effect not in tools]
            for effect in tools:
                performer.perform(effect)
        return changes

    Performer.__init__ = init_and_remember  # type: ignore[method-assign]
    Trees.take_changes = take_and_act  # type: ignore[method-assign]


def forgets_mail() -> None:
    _forget(lambda snapshot: snapshot.mail.clear())


def forgets_who_is_back() -> None:
    """Joined children that ended before the crash are not counted."""
    _forget(lambda snapshot: snapshot.back.clear())


def forgets_deliveries() -> None:
    _forget(lambda snapshot: snapshot.deliveries.clear())


def _forget(what: Callable[[Snapshot], None]) -> None:
    rebuild = recover.rebuild

    def rebuild_less(trees: Trees, snapshot: Snapshot) -> list[str]:
        what(snapshot)
        return rebuild(trees, snapshot)

    recover.rebuild = rebuild_less


def delivers_mail_again() -> None:
    """What was read stays in the mailbox."""
    take = Tree.take_mail

    def take_and_keep(self: Tree, id: str) -> Any:
        mail = take(self, id)
        self.changes.taken.clear()
        return mail

    Tree.take_mail = take_and_keep  # type: ignore[method-assign]


def tells_parents_later() -> None:
    """A child's end and its parent's mail are two transactions."""
    commit = SqliteStore.commit

    async def commit_in_two(self: SqliteStore, changes: Changes) -> int:
        posted = changes.posted
        seq = await commit(self, msgspec.structs.replace(changes, posted={}))
        if not posted:
            return seq
        await asyncio.sleep(0.01)
        return await commit(self, Changes(posted=posted))

    SqliteStore.commit = commit_in_two  # type: ignore[method-assign]


def names_deliveries_by_attempt() -> None:
    """A second try has another key than the first, so that nobody can tell that it is one."""
    send = Hook.send

    async def send_under_its_own_key(self: Hook, delivery: Delivery) -> None:
        await send(
            self, msgspec.structs.replace(delivery, key=f"{delivery.key}/{delivery.attempts}")
        )

    Hook.send = send_under_its_own_key  # type: ignore[method-assign]


def pays_for_what_never_left() -> None:
    """After a restart every model call that was under way counts as sent."""
    SentCalls.is_unsent = lambda self, run, epoch, attempt: False  # type: ignore[method-assign]


def pays_for_nothing_that_was_lost() -> None:
    """Nothing is noted before a model call leaves."""
    SentCalls.marker = lambda self, run, attempt: lambda is_sent: None  # type: ignore[method-assign]


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
        names_deliveries_by_attempt,
        pays_for_what_never_left,
        pays_for_nothing_that_was_lost,
    )
}
