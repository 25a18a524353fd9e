"""The to-do list of a tree of runs. What is kept is what was done to it, each act under its key;
the list is the fold, so that an act repeated after a crash counts once and runs that write at the
same time need no lock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from msgspec.structs import replace

from retinue.core.values import Value

Status = Literal["pending", "doing", "done", "dropped"]
STATUSES: tuple[Status, ...] = get_args(Status)


class TaskItem(Value):
    """One line of the list."""

    id: int
    title: str
    status: Status = "pending"
    owner: str = ""
    note: str = ""


class Added(Value, tag="added"):
    """New tasks, in this order after the existing ones."""

    titles: tuple[str, ...]
    owner: str = ""


class Updated(Value, tag="updated"):
    """Fields of one task; None leaves a field as it is."""

    id: int
    title: str | None = None
    status: Status | None = None
    owner: str | None = None
    note: str | None = None


class Removed(Value, tag="removed"):
    """Tasks that are no longer wanted. Their numbers are not given again."""

    ids: tuple[int, ...]


Act = Added | Updated | Removed


class Noted(Value):
    """An act as a store keeps it: `n` grows within a tree, `key` is that of the call."""

    n: int
    key: str
    act: Act


class TaskList:
    """The list of one tree, as of the act `last`."""

    def __init__(self) -> None:
        self.tasks: dict[int, TaskItem] = {}
        self.keys: dict[str, tuple[int, ...]] = {}
        self.last = 0
        self._n_added = 0

    def fold(self, noted: Iterable[Noted]) -> None:
        """Take more acts in. One that is known already is passed over."""
        for one in noted:
            if one.n > self.last:
                self.last = one.n
                self.keys[one.key] = self._apply(one.act)

    def missing(self, act: Act) -> list[int]:
        """The numbers in an act that name no task."""
        if isinstance(act, Added):
            return []
        ids = (act.id,) if isinstance(act, Updated) else act.ids
        return [id for id in ids if id not in self.tasks]

    def _apply(self, act: Act) -> tuple[int, ...]:
        """The tasks that it has touched. What it names may be gone: then another run was faster."""
        match act:
            case Added():
                first = self._n_added + 1
                self._n_added += len(act.titles)
                for id, title in enumerate(act.titles, first):
                    self.tasks[id] = TaskItem(id=id, title=title, owner=act.owner)
                return tuple(range(first, self._n_added + 1))
            case Updated():
                task = self.tasks.get(act.id)
                if task is None:
                    return ()
                fields = {name: getattr(act, name) for name in ("title", "status", "owner", "note")}
                self.tasks[act.id] = replace(
                    task, **{name: v for name, v in fields.items() if v is not None}
                )
                return (act.id,)
            case Removed():
                return tuple(id for id in act.ids if self.tasks.pop(id, None) is not None)
