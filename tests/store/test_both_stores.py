"""The two stores answer alike, whatever happened: random histories of the real core are written
into both."""

import random
from pathlib import Path
from typing import Any

import pytest

from retinue.core.events import CancelAsked, Forgotten, MailReceived
from retinue.core.spec import ForkPoint, History
from retinue.core.state import Ended, Thinking, Working
from retinue.core.task_list import Added, Removed
from retinue.core.values import Mail, Origin
from retinue.errors import StoreError
from retinue.store.memory import MemoryStore
from retinue.store.sqlite.sqlite_store import SqliteStore
from tests.contracts.store import World, all_of, run_async


class RandomActs:
    """One random act at a time. `ended` are runs that a new one may follow: their conversation and
    its length."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.roots: list[str] = []
        self.ended: dict[str, tuple[str, int]] = {}
        self.conversations: dict[str, str] = {}

    def act(self) -> None:
        self._act()
        changes = self.world.changes
        self.conversations.update((spec.id, spec.conversation) for spec in changes.specs)
        for id, run in changes.runs.items():
            if isinstance(run.state, Ended):
                self.ended[id] = (self.conversations[id], run.length)

    def _act(self) -> None:
        rng, world = self.rng, self.world
        live = [spec.id for spec, run in world.trees.live() if not isinstance(run.state, Ended)]
        if not live or rng.random() < 0.15:
            self.start()
            return
        id = rng.choice(live)
        run = world.run(id)
        kind = rng.random()
        if kind < 0.05:
            world.apply(id, CancelAsked())
        elif kind < 0.15:
            world.apply(
                id, MailReceived(mail=Mail(seq=0, text=f"mail {rng.random()}", steer=kind < 0.08))
            )
        elif isinstance(run.state, Thinking):
            if rng.random() < 0.5:
                world.say(id, f"said {rng.random()}")
            else:
                world.call(id, *rng.choices(["read", "spawn"], k=rng.randint(1, 3)))
        elif isinstance(run.state, Working):
            index = (run.state.calls.tools & -run.state.calls.tools).bit_length() - 1
            if rng.random() < 0.5:
                world.result(id, index, f"result {rng.random()}")
            else:
                history = History(kind=rng.choice(["none", "fork", "last"]), n=1)
                tasks = [f"task {n}" for n in range(rng.randint(1, 3))]
                join = rng.choice(["call", "turn", "none"])
                world.spawn(
                    id,
                    *tasks,
                    index=index,
                    join=join,
                    history=history,
                    children_on_end=rng.choice(["keep", "cancel"]),
                )

    def start(self) -> None:
        rng, request = self.rng, {}
        if self.ended and rng.random() < 0.5:
            old = rng.choice(sorted(self.ended))
            conversation, length = self.ended[old]
            busy = {
                t.specs[id].conversation
                for t in self.world.trees.by_root.values()
                for id in t.specs
            }
            if rng.random() < 0.5 and conversation not in busy:
                length = max(n for c, n in self.ended.values() if c == conversation)
                request = {
                    "conversation": conversation,
                    "resumes": old,
                    "base": ForkPoint(conversation=conversation, length=length),
                }
            else:
                request = {
                    "base": ForkPoint(conversation=conversation, length=rng.randint(1, length))
                }
        if rng.random() < 0.3:
            request |= {"announce": True, "origin": Origin(channel="chat")}
        self.roots.append(self.world.start(f"root {rng.random()}", **request))

    def forget(self) -> str:
        """The id of a root whose whole tree has ended, or "". What hung on it is not used again."""
        roots = [id for id in self.roots if self.world.trees.spec(id) is None and id in self.ended]
        if not roots:
            return ""
        return self.rng.choice(roots)


def sorted_parts(answers: dict[str, Any]) -> dict[str, Any]:
    """The order of these is not promised."""
    load = answers["load"]
    for name in ("open", "back", "above"):
        getattr(load, name).sort(key=lambda row: row.spec.id)
    load.accounts.sort(key=lambda account: account.id)
    load.mail.sort(key=lambda mail: (mail[0], mail[1].seq))
    load.deliveries.sort(key=lambda delivery: delivery.key)
    answers["deliveries"].sort(key=lambda delivery: delivery.key)
    return answers


@pytest.mark.parametrize("seed", range(8))
@run_async
async def test_random_histories_are_answered_alike(tmp_path: Path, seed: int) -> None:
    memory: Any = MemoryStore()
    sqlite: Any = SqliteStore(tmp_path / "log.db", inline=True, synchronous="OFF")
    await memory.open()
    await sqlite.open()
    history = RandomActs(seed)
    world = history.world
    for n in range(150):
        for _ in range(history.rng.randint(1, 3)):
            history.act()
        changes = world.take()
        assert await memory.commit(changes) == await sqlite.commit(changes)
        root = history.forget() if history.rng.random() < 0.1 else ""
        if root:
            world.apply("", Forgotten(root=root))
            changes = world.take()
            outcomes = []
            for store in (memory, sqlite):
                try:
                    outcomes.append(await store.commit(changes))
                except StoreError as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1]
            for id in list(history.ended):
                if await memory.row(id) is None:
                    del history.ended[id]
        for id in history.rng.choices([*world.trees.index.runs, "nobody"], k=2):
            act = Added(titles=(f"task {n}",)) if history.rng.random() < 0.7 else Removed(ids=(1,))
            key = f"key {history.rng.randrange(n + 1)}"
            for store in (memory, sqlite):
                await store.note(id, key, n, act)
        if n % 30 == 29:
            assert sorted_parts(await all_of(sqlite)) == sorted_parts(await all_of(memory))
            for id in world.trees.index.runs:
                assert await sqlite.children(id) == await memory.children(id)
            memory, sqlite = memory.survivor(), sqlite.survivor()
            assert await memory.open() == await sqlite.open()
            assert await sqlite.verify() == []
    await sqlite.close()
