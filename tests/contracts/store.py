"""What every store must do. A subclass says how to make one; changes come from the real core."""

from __future__ import annotations

from tests.contracts.store_keeping import Keeping
from tests.contracts.store_reading import Reading
from tests.contracts.store_sent_calls import Sent
from tests.contracts.store_space import Spaces
from tests.contracts.store_task_list import TaskLists
from tests.contracts.store_trees import Trees
from tests.contracts.store_writing import Writing
from tests.contracts.world import World, all_of, run_async, texts


class StoreContract(Writing, Reading, Keeping, TaskLists, Trees, Spaces, Sent):
    """The whole of it."""


__all__ = ["StoreContract", "World", "all_of", "run_async", "texts"]
