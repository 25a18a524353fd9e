"""What a host needs of the runtime beyond its public face: a whole tree as it moves. Everything that reaches below
`Retinue` is in this file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection

from retinue.agent import Agent
from retinue.api import Retinue
from retinue.core.events import Requested, Woke
from retinue.core.state import Ended, account_refusal, calls_of
from retinue.errors import NotFound
from retinue.host.message_cursor import Place, inherited
from retinue.host.requests import Begun, Final, Item, Said, Stepped, Stood
from retinue.models.catalog import CHAIN
from retinue.models.tool_limit import fitting, left_out
from retinue.outcomes import state_word
from retinue.runtime.bus import Delta, Step
from retinue.store.base import Row


def open_runs(retinue: Retinue) -> list[str]:
    return [spec.id for spec, _ in retinue._engine.trees.live()]


async def take_up(retinue: Retinue, agent: Agent) -> None:
    """Make an agent known; runs that waited for it go on."""
    await retinue._known(agent)


def learner(retinue: Retinue) -> Callable[[str], None]:
    """Makes models known that no agent has."""
    return retinue._crew.know_model


async def try_again(retinue: Retinue, providers: Collection[str], resolve: Callable[[str], str]) -> None:
    """Runs whose account was refused try with the keys that were brought for these providers."""
    engine = retinue._engine
    for id in engine.waiting_for_provider():
        spec, run = engine.trees.spec(id), engine.trees.run(id)
        if spec is None or run is None:
            continue
        links = resolve(spec.model).split(CHAIN)
        if account_refusal(run) and any(link.partition(":")[0] in providers for link in links):
            await retinue._engine.record(id, Woke(early=True))


async def crowded_out(retinue: Retinue, id: str) -> str:
    """What is said of the tools that a run holds and its model cannot be told of; "" when it is told of all."""
    spec = (await row_of(retinue, id)).spec
    offered = retinue._engine.performer._tools_for(spec)
    most = getattr(retinue._crew.models.get(spec.model), "most_tools", 0)
    return left_out(offered, fitting(offered, most), most)


async def row_of(retinue: Retinue, id: str) -> Row:
    return await retinue._row(id)


async def final(retinue: Retinue, run: str) -> Final:
    """A tree as it is on record, parents before their children."""
    store = retinue._store
    top = await store.row(run)
    if top is None:
        raise NotFound(f"no run {run!r}")
    rows, todo = [], [top]
    while todo:
        row = todo.pop(0)
        rows.append(row)
        todo.extend(await store.children(row.spec.id))
    known = retinue._engine.trees.shared.models
    priced = all((info := known.get(row.spec.model)) is None or info.priced for row in rows)
    return Final(rows=tuple(rows), account=await store.account(run), priced=priced, seq=retinue._engine._seq)


class Follower:
    """Tells of a run and everything below it: who begins, each step, what was said, how each stands."""

    def __init__(self, retinue: Retinue, top: str, *, is_late: bool) -> None:
        self._retinue, self._top, self._is_late = retinue, top, is_late
        self._kin: dict[str, bool] = {}
        self._places: dict[str, Place] = {}
        self._stood: dict[str, object] = {}

    async def about(self, step: Step) -> AsyncIterator[Item]:
        event = step.entry.event
        run = event.id if isinstance(event, Requested) else step.entry.run
        if not run or not await self._is_kin(run):
            return
        row = await self._row(run)
        if row is None:
            return
        place = self._places.get(run)
        if place is None:
            place = self._places[run] = Place(row.run.length if self._is_late else inherited(row))
            yield Begun(spec=row.spec)
        yield Stepped(seq=step.seq, entry=step.entry)
        if place.known < row.run.length:
            place.add(await self._retinue._store.messages(row.spec.conversation, place.known, row.run.length))
        for heard in place.hear(run, step.entry):
            yield heard
        stands = _stands(row)
        if self._stood.get(run) != stands:
            self._stood[run] = stands
            yield Stood(row=row)

    async def _is_kin(self, id: str) -> bool:
        if id == self._top:
            return True
        known = self._kin.get(id)
        if known is None:
            row = await self._row(id)
            known = self._kin[id] = bool(row and row.spec.parent and await self._is_kin(row.spec.parent))
        return known

    async def _row(self, id: str) -> Row | None:
        try:
            return await self._retinue._row(id)
        except NotFound:
            return None

    def cares(self, id: str) -> bool:
        return id == self._top or self._kin.get(id, False)


async def follow(retinue: Retinue, top: str, after: int = 0, *, deltas: bool = False) -> AsyncIterator[Item]:
    """Everything about a tree: from the log behind number `after`, then as it comes, until its top has ended."""
    engine, store = retinue._engine, retinue._store
    told = Follower(retinue, top, is_late=after > 0)
    with engine.bus.watch() as watcher:
        await engine.caught_up()
        row = await retinue._row(top)
        ended = None if isinstance(row.run.state, Ended) and await store.row(top) else engine.ended(top)
        if not after and (first := await store.entries(0, top, limit=1)):
            after = first[0][0] - 1
        try:
            while True:
                while page := await store.entries(after):
                    for after, entry in page:
                        async for item in told.about(Step(after, entry)):
                            yield item
                if ended is None or (ended.done() and watcher.queue.empty()):
                    return
                while not watcher.lost and (news := await watcher.next(ended)) is not None:
                    if isinstance(news, Delta):
                        if deltas and told.cares(news.run):
                            yield Said(run=news.run, attempt=news.attempt, text=news.text)
                    elif news.seq > after:
                        after = news.seq
                        async for item in told.about(news):
                            yield item
                watcher.catch_up()
        finally:
            if ended is not None and not ended.done():
                ended.cancel()


def _stands(row: Row) -> tuple[object, ...]:
    """What a viewer has to know anew: the state, when the model is tried again, how much is asked."""
    state = row.run.state
    calls = calls_of(row.run)
    n = len(calls.questions) if calls is not None else 0
    return state_word(row.run), getattr(state, "retry_at", None), n, getattr(state, "asks", "")
