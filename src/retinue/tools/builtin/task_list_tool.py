"""`tasks`: the to-do list that all runs of a tree share. It is durable, and a call that is repeated
counts once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol

from msgspec import Meta

from retinue.core.task_list import (
    STATUSES,
    Act,
    Added,
    Noted,
    Removed,
    Status,
    TaskItem,
    TaskList,
    Updated,
)
from retinue.core.values import Restart
from retinue.errors import StoreError
from retinue.formats.safe_text import one_line
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments

MOST = 10_000
MOST_AT_ONCE = 200
PAGE = 100
TITLE, NOTE, OWNER = 300, 1_000, 60
MOST_BOARDS = 64


class TaskListStore(Protocol):
    """Where the acts on to-do lists are kept; a store is one."""

    async def task_list(self, root: str, after: int = 0) -> list[Noted]:
        """The acts on the list of a tree behind number `after`, oldest first."""

    async def note(self, root: str, key: str, at: int, act: Act) -> None:
        """Keep one act; durable when it returns, and only once for a key."""


class TasksArgs(ToolArguments, frozen=True):
    action: Literal["list", "add", "update", "remove"]
    titles: Annotated[
        tuple[Annotated[str, Meta(max_length=20 * TITLE)], ...],
        Meta(max_length=MOST_AT_ONCE, description="add: titles of the new tasks"),
    ] = ()
    id: Annotated[
        int, Meta(ge=0, le=1 << 31, description="update, remove: the number of the task")
    ] = 0
    status: Annotated[Status | None, Meta(description="update: the new status")] = None
    note: Annotated[
        Annotated[str, Meta(max_length=20 * NOTE)] | None,
        Meta(description="update: note for the other agents"),
    ] = None
    owner: Annotated[
        Annotated[str, Meta(max_length=20 * OWNER)] | None,
        Meta(description="add, update: the agent that does it"),
    ] = None
    offset: Annotated[int, Meta(ge=0, le=1 << 31, description="list: number of tasks to skip")] = 0


class TasksTool(Builtin[TasksArgs]):
    """What was read once is kept folded, so that a call costs what is new on its list."""

    name: ClassVar[str] = "tasks"
    description: ClassVar[str] = (
        "Read and change the to-do list that you share with all agents working on the "
        "same request. Use it for longer work: add tasks before you start, set a task to "
        "doing when you start it and to done when it is finished, and remove what is not "
        "needed. Not needed for a single step."
    )
    Args: ClassVar[type[ToolArguments]] = TasksArgs
    restart: Restart = "keyed"
    risk: Risk = "read"

    def __init__(self, store: TaskListStore) -> None:
        super().__init__()
        self._store = store
        self._known: OrderedDict[str, TaskList] = OrderedDict()

    async def call(self, context: Context, args: TasksArgs) -> Returned:
        act = _act(args)
        if isinstance(act, str):
            return ToolResult(text=act, error=True)
        try:
            return await self._take(context, args, act)
        except StoreError as error:
            return ToolResult(text=f"The task list is not available now: {error}", error=True)

    async def _take(self, context: Context, args: TasksArgs, act: Act | None) -> ToolResult:
        root = context.spec.root
        task_list = await self._task_list(root)
        if act is None:
            return ToolResult(text=_table(task_list, list(task_list.tasks.values()), args.offset))
        if context.key not in task_list.keys:
            refusal = _refusal(task_list, act)
            if refusal:
                return ToolResult(text=refusal, error=True)
            await self._store.note(root, context.key, context.called_at, act)
            task_list = await self._task_list(root)
        if context.key not in task_list.keys:
            return ToolResult(
                text="The task list was deleted with its run. Nothing was saved.",
                error=True,
            )
        ids = task_list.keys[context.key]
        if not ids:
            return ToolResult(
                text=f"Task {args.id} was removed by another agent. {_counts(task_list)}",
                error=True,
            )
        if isinstance(act, Removed):
            return ToolResult(text=f"Removed task {args.id}. {_counts(task_list)}")
        return ToolResult(
            text=_table(task_list, [task_list.tasks[id] for id in ids if id in task_list.tasks], 0)
        )

    async def _task_list(self, root: str) -> TaskList:
        task_list = self._known.pop(root, None) or TaskList()
        self._known[root] = task_list
        if len(self._known) > MOST_BOARDS:
            self._known.popitem(last=False)
        task_list.fold(await self._store.task_list(root, task_list.last))
        return task_list

    def summary(self, args: dict[str, Any]) -> str:
        action, titles = args.get("action", ""), args.get("titles")
        if action == "add" and isinstance(titles, list) and titles:
            more = f" and {len(titles) - 1} more" if len(titles) > 1 else ""
            return f"tasks add {_line(str(titles[0]), 60)}{more}"
        about = [str(args[name]) for name in ("id", "status") if args.get(name) is not None]
        return " ".join(["tasks", str(action), *about])[:100]


def _act(args: TasksArgs) -> Act | str | None:
    """What is to be done, None to list, or what is wrong with the arguments."""
    if args.action == "list":
        return None
    if args.action == "add":
        titles = tuple(filter(None, (_line(title, TITLE) for title in args.titles)))
        if not titles:
            return 'Invalid parameters: "add" needs titles: one or more non-empty texts.'
        return Added(titles=titles, owner=_line(args.owner or "", OWNER))
    if not args.id:
        return (
            f'Invalid parameters: "{args.action}" needs id, the number of the task. Use list '
            "to see the numbers."
        )
    if args.action == "remove":
        return Removed(ids=(args.id,))
    title = _line(args.titles[0], TITLE) if len(args.titles) == 1 else None
    if len(args.titles) > 1 or (args.status, args.note, args.owner, title or None) == (
        None,
        None,
        None,
        None,
    ):
        return (
            f'Invalid parameters: "update" needs status ({", ".join(STATUSES)}), note, owner, '
            "or one new title."
        )
    return Updated(
        id=args.id,
        title=title or None,
        status=args.status,
        note=None if args.note is None else _line(args.note, NOTE),
        owner=None if args.owner is None else _line(args.owner, OWNER),
    )


def _refusal(task_list: TaskList, act: Act) -> str:
    if isinstance(act, Added) and len(task_list.tasks) + len(act.titles) > MOST:
        return (
            f"The list has {len(task_list.tasks)} tasks and the limit is {MOST}, so nothing "
            "was added. Remove finished tasks, or combine several steps in one task."
        )
    missing = task_list.missing(act)
    return (
        f"Task {missing[0]} not found, so nothing was changed. {_counts(task_list)}"
        if missing
        else ""
    )


def _table(task_list: TaskList, tasks: Sequence[TaskItem], offset: int) -> str:
    page = tasks[offset : offset + PAGE]
    lines = [_counts(task_list)]
    if page:
        lines.append("id | status | owner | title")
        lines += [_row(task) for task in page]
    n_hidden = len(tasks) - offset - len(page)
    if n_hidden > 0:
        lines.append(f"[{n_hidden} more; continue with action list, offset {offset + len(page)}]")
    return "\n".join(lines)


def _row(task: TaskItem) -> str:
    note = f" ({task.note})" if task.note else ""
    return f"{task.id} | {task.status} | {task.owner or '-'} | {task.title}{note}"


def _counts(task_list: TaskList) -> str:
    if not task_list.tasks:
        return "The list is empty."
    counts = dict.fromkeys(STATUSES, 0)
    for task in task_list.tasks.values():
        counts[task.status] += 1
    return (
        f"{len(task_list.tasks)} tasks: "
        + ", ".join(f"{n} {status}" for status, n in counts.items() if n)
        + "."
    )


def _line(text: str, cap: int) -> str:
    """One line of what can be seen; the bar divides the columns of the table."""
    text = one_line(text).replace("|", "/")
    return text if len(text) <= cap else text[: cap - 1] + "…"
