"""`tasks`: one durable list for a tree of runs, whoever writes and whatever crashes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue.core.task_list import Act, Noted
from retinue.errors import StoreFull
from retinue.store.memory import MemoryStore
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.tools.base import ToolResult
from retinue.tools.builtin.task_list_tool import MOST, PAGE, TasksTool
from tests.contracts.world import World, run_async
from tests.tools.builtin.web_support import caller

both = pytest.mark.parametrize("kind", ["memory", "sqlite"])


class TaskListRuns:
    """A store with two roots in it, and the tool on top."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.store: Any = (
            MemoryStore() if kind == "memory" else SqliteStore(folder / "log.db", synchronous="OFF")
        )
        self.n = 0

    async def __aenter__(self) -> TaskListRuns:
        await self.store.open()
        world = World()
        self.root, self.other = world.start(), world.start()
        await self.store.commit(world.take())
        self.tasks = TasksTool(self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()

    async def restart(self) -> None:
        self.store = self.store.survivor()
        await self.store.open()
        self.tasks = TasksTool(self.store)

    async def do(self, action: str, *, root: str = "", key: str = "", **args: Any) -> ToolResult:
        self.n += 1
        who = caller("child", root=root or self.root, key=key or f"key {self.n}")
        answer = await self.tasks.run(who, {"action": action, **args})
        assert isinstance(answer, ToolResult)
        return answer


@both
@run_async
async def test_tasks_are_added_updated_listed_and_removed(kind: str, tmp_path: Path) -> None:
    async with TaskListRuns(kind, tmp_path) as runs:
        assert (await runs.do("list")).text == "The list is empty."
        added = await runs.do("add", titles=["Read the code", "Write | the docs"], owner="lead")
        assert added.text == (
            "2 tasks: 2 pending.\nid | status | owner | title\n"
            "1 | pending | lead | Read the code\n2 | pending | lead | Write / the docs"
        )
        result = await runs.do(
            "update", id=1, status="done", note="in\n  two files", owner="reader"
        )
        assert result.text.splitlines()[-1] == "1 | done | reader | Read the code (in two files)"
        assert (await runs.do("update", id=1, note="")).text.splitlines()[
            -1
        ] == "1 | done | reader | Read the code"
        assert (await runs.do("update", id=2, titles=["Docs"])).text.endswith(
            "2 | pending | lead | Docs"
        )
        assert (await runs.do("remove", id=2)).text == "Removed task 2. 1 tasks: 1 done."
        assert (await runs.do("add", titles=["Later"])).text.splitlines()[
            -1
        ] == "3 | pending | - | Later"
        await runs.restart()
        assert (await runs.do("list")).text == (
            "2 tasks: 1 pending, 1 done.\nid | status | owner | title\n"
            "1 | done | reader | Read the code\n3 | pending | - | Later"
        )
        assert (await runs.do("list", root=runs.other)).text == "The list is empty."


@both
@run_async
async def test_a_call_that_is_repeated_after_a_crash_counts_once(kind: str, tmp_path: Path) -> None:
    async with TaskListRuns(kind, tmp_path) as runs:
        first = await runs.do("add", key="a", titles=["x", "y"])
        await runs.restart()
        assert (await runs.do("add", key="a", titles=["x", "y"])).text == first.text
        await runs.do("remove", key="b", id=1)
        again = await runs.do("remove", key="b", id=1)
        assert not again.error and again.text == "Removed task 1. 1 tasks: 1 pending."
        await runs.do("update", key="c", id=2, status="done")
        await runs.do("update", key="d", id=2, status="dropped")
        assert "dropped" in (await runs.do("update", key="c", id=2, status="done")).text, (
            "an old act is not redone"
        )
        assert not (await runs.do("add", key="a", titles=["x", "y"])).error
        assert (await runs.do("list")).text.startswith("1 tasks: 1 dropped.")


@both
@run_async
async def test_runs_of_a_tree_share_one_list_at_the_same_time(kind: str, tmp_path: Path) -> None:
    async with TaskListRuns(kind, tmp_path) as runs:
        second = TasksTool(runs.store)
        acts = [
            tool.run(
                caller(f"run {n}", root=runs.root, key=f"k{n}"),
                {"action": "add", "titles": [f"t{n}"]},
            )
            for n in range(60)
            for tool in (runs.tasks, second)
        ]
        await asyncio.gather(*acts)
        text = (await runs.do("list")).text
        assert text.startswith("60 tasks: 60 pending.")
        assert sorted(line.split(" | ")[3] for line in text.splitlines()[2:]) == sorted(
            f"t{n}" for n in range(60)
        )
        ended = await asyncio.gather(*(runs.do("remove", id=5) for _ in range(5)))
        assert sum(not answer.error for answer in ended) >= 1
        assert (await runs.do("list")).text.startswith("59 tasks")


@run_async
async def test_ten_thousand_tasks_are_kept_and_shown_in_pages(tmp_path: Path) -> None:
    async with TaskListRuns("memory", tmp_path) as runs:
        for n in range(MOST // 200):
            answer = await runs.do("add", titles=[f"Aufgabe {n}-{i} 🔑" for i in range(200)])
            assert not answer.error and len(answer.text) < 20_000
        full = await runs.do("add", titles=["one too many"])
        assert full.error and "nothing was added" in full.text
        page = (await runs.do("list", offset=MOST - PAGE - 1)).text.splitlines()
        assert (
            len(page) == PAGE + 3
            and page[-1] == f"[1 more; continue with action list, offset {MOST - 1}]"
        )
        assert (await runs.do("list", offset=MOST)).text == f"{MOST} tasks: {MOST} pending."
        await runs.do("remove", id=1)
        assert not (await runs.do("add", titles=["room again"])).error


@run_async
async def test_titles_are_one_line_of_what_can_be_seen(tmp_path: Path) -> None:
    async with TaskListRuns("memory", tmp_path) as runs:
        title = "a\u202eb\u200b\n\n\x1b[31mc\t| d \U000e0041👩\u200d💻 é"
        answer = await runs.do("add", titles=[title, "x" * 5_000, "\u200b"], owner="o\u2066wner")
        assert answer.text.splitlines()[2:] == [
            "1 | pending | owner | ab c / d 👩\u200d💻 é",
            f"2 | pending | owner | {'x' * 299}…",
        ]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "action"),
        ({"action": "burn"}, "action"),
        ({"action": "add"}, "titles"),
        ({"action": "add", "titles": "one"}, "titles"),
        ({"action": "add", "titles": [" ", "\u200b"]}, "titles"),
        ({"action": "add", "titles": ["x"] * 201}, "titles"),
        ({"action": "update", "status": "done"}, "id"),
        ({"action": "update", "id": 1}, "status"),
        ({"action": "update", "id": 1, "titles": ["a", "b"]}, "one new title"),
        ({"action": "update", "id": 1, "status": "finished"}, "status"),
        ({"action": "update", "id": -1, "status": "done"}, "id"),
        ({"action": "update", "id": 7, "status": "done"}, "Task 7 not found"),
        ({"action": "remove", "id": 7}, "Task 7 not found"),
        ({"action": "remove"}, "id"),
        ({"action": "list", "page": 2}, "page"),
    ],
)
def test_malformed_arguments_become_an_answer_and_change_nothing(
    args: dict[str, Any], says: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with TaskListRuns("memory", tmp_path) as runs:
            answer = await runs.tasks.run(caller(root=runs.root), args)
            assert isinstance(answer, ToolResult) and answer.error and says in answer.text
            assert await runs.store.task_list(runs.root) == []

    asyncio.run(story())


class Broken:
    async def task_list(self, root: str, after: int = 0) -> list[Noted]:
        return []

    async def note(self, root: str, key: str, at: int, act: Act) -> None:
        raise StoreFull("no space left")


def test_a_store_that_cannot_write_becomes_an_answer() -> None:
    answer = asyncio.run(TasksTool(Broken()).run(caller(), {"action": "add", "titles": ["x"]}))
    assert isinstance(answer, ToolResult) and answer.error and "no space left" in answer.text


def test_a_list_whose_tree_is_gone_is_said_to_be_gone() -> None:
    async def story() -> None:
        store = MemoryStore()
        await store.open()
        answer = await TasksTool(store).run(
            caller(root="nobody"), {"action": "add", "titles": ["x"]}
        )
        assert isinstance(answer, ToolResult) and answer.error and "deleted" in answer.text

    asyncio.run(story())


def test_the_tool_says_what_it_is() -> None:
    tasks = TasksTool(Broken())
    assert (tasks.restart, tasks.risk, tasks.subject) == ("keyed", "read", "")
    assert tasks.schema.parameters["additionalProperties"] is False
    assert tasks.summary({"action": "add", "titles": ["a\nb", "c"]}) == "tasks add a b and 1 more"
    assert tasks.summary({"action": "update", "id": 3, "status": "done"}) == "tasks update 3 done"
    assert tasks.summary({}) == "tasks "
