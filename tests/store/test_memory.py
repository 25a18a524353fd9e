"""The store in memory keeps the contract of every store."""

from pathlib import Path

from retinue.store.memory import MemoryStore
from tests.contracts.store import StoreContract, World, run_async


class TestMemory(StoreContract):
    def make(self, folder: Path) -> MemoryStore:
        return MemoryStore()


@run_async
async def test_a_survivor_shares_what_was_written_before_and_after_it_was_made() -> None:
    store, world = MemoryStore(), World()
    await store.open()
    heir = store.survivor()
    await store.commit(world.take())
    assert await heir.open() == 2
    assert len(await heir.entries()) == 2
