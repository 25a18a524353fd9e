"""Ends runs, and groups of background work: lists the groups of a conversation and ends one as a
whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from retinue.budgets import Budgets
from retinue.core.events import CancelAsked
from retinue.core.messages import UserMessage
from retinue.core.spec import RunSpec
from retinue.core.state import Ended, RunRecord
from retinue.core.unread_results import unread_results
from retinue.core.values import Mail, Value, Who
from retinue.errors import NotFound
from retinue.outcomes import ChildInfo, child_info, state_word
from retinue.tools.checked_verbs import checks_arguments


class Group(Value):
    """Children that were started together in the background, by `run`. `kind` is the family whose
    group it is, `size` how many they are; those that were not kept are missing among the
    `members`."""

    id: str
    kind: str
    run: str
    size: int
    members: tuple[ChildInfo, ...]
    is_open: bool


@checks_arguments
class Groups(Budgets):
    """The part of `Retinue` that ends runs and groups of them."""

    async def groups(self, run: str) -> Sequence[Group]:
        """The groups of background work that a run has started, and those of the runs before it in
        its conversation, oldest first."""
        members: dict[tuple[str, str], list[RunRecord]] = {}
        for spec in await self._line_of(run):
            for row in await self._store.children(spec.id):
                if group := row.spec.request.shown_group:
                    members.setdefault((spec.id, group), []).append(row)
        return [_group(*key, rows) for key, rows in members.items()]

    async def cancel_group(
        self, run: str, group: str, reason: str = "", *, by: Who = "user"
    ) -> Group:
        """End what is still at work in a group that a run has started, or one before it in its
        conversation; returns how its members have ended."""
        groups = await self.groups(run)
        one = next((g for g in reversed(groups) if g.id == group), None)
        if one is None:
            there = ", ".join(g.id for g in groups) or "none"
            raise NotFound(f"Run {run} has no group {group!r}. Its groups: {there}")
        await self._end([m.id for m in one.members if not await self._has_ended(m.id)], reason, by)
        return next(g for g in await self.groups(one.run) if g.id == group)

    async def _end(self, runs: Sequence[str], reason: str, by: Who) -> None:
        await asyncio.gather(
            *(self._engine.record(id, CancelAsked(reason=reason, who=by)) for id in runs)
        )
        for id in runs:
            await self._ended_state(id)

    async def _line_of(self, run: str) -> list[RunSpec]:
        """The earlier runs of a run's conversation, oldest first, and itself."""
        line = [(await self._row(run)).spec]
        while line[0].resumes and (row := await self._store.row(line[0].resumes)) is not None:
            line.insert(0, row.spec)
        return line

    async def _unread_results(self, row: RunRecord) -> tuple[Mail, ...]:
        """The unread ends of children that a run, or an earlier run of its conversation, left
        behind."""
        line, out = await self._line_of(row.spec.id), list[Mail]()
        families_open = [
            (spec, rows_below)
            for spec in line
            if (rows_below := await self._store.children(spec.id))
        ]
        if families_open:
            messages = await self._store.messages(row.spec.conversation, 0, row.run.length)
            senders = {
                m.sender for m in messages if isinstance(m, UserMessage) and m.kind == "news"
            }
            for spec, rows in families_open:
                out += unread_results(
                    spec, ((r.spec, r.run) for r in rows), senders, self._engine.trees.shared
                )
        return tuple(out)

    async def _has_ended(self, id: str) -> bool:
        """Whether the end of a run is on record. (In memory it may have ended a moment before.)"""
        self._check_loop()
        if id in self._engine.on_record:
            return False
        row = await self._store.row(id)
        if row is None and self._engine.trees.run(id) is None:
            raise NotFound(f"Run {id!r} not found.", "run", id)
        return row is not None and isinstance(row.run.state, Ended)

    async def _ended_state(self, id: str) -> str:
        if not await self._has_ended(id):
            await self._engine.ended(id)
        return state_word((await self._row(id)).run)


def _group(run: str, id: str, rows: Sequence[RunRecord]) -> Group:
    request = rows[0].spec.request
    return Group(
        id=id,
        kind=request.group_kind,
        run=run,
        size=request.group_size,
        members=tuple(child_info(row) for row in rows),
        is_open=any(not isinstance(row.run.state, Ended) for row in rows),
    )
