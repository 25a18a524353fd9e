"""The toolbox as the runtime sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from retinue.core.answer_layout import Laid
from retinue.core.effects import ChildOutcome
from retinue.core.merges import BranchMerge, WriterCopy
from retinue.core.messages import ToolCall
from retinue.core.spec import RunSpec
from retinue.core.values import Restart, ToolSchema
from retinue.sandbox.branch_diff import BranchDiff
from retinue.tools.base import CallPreview, Context, Returned, Tool


class ToolRunner(Protocol):
    @property
    def agents(self) -> Collection[str]: ...

    @property
    def threads(self) -> Executor | None: ...

    def to_approve(self, agent: str, calls: Sequence[ToolCall]) -> int: ...

    def schemas(self, agent: str) -> tuple[ToolSchema, ...]: ...

    def restart_class(self, agent: str, name: str) -> Restart: ...

    def run(
        self, agent: str, context: Context, call: ToolCall
    ) -> Coroutine[Any, Any, Returned]: ...

    def run_now(self, agent: str, context: Callable[[], Context], call: ToolCall) -> Returned: ...

    def look_ahead(
        self, agent: str, context: Context, call: ToolCall
    ) -> Coroutine[Any, Any, CallPreview | None]: ...

    def format_results(
        self, agent: str, name: str, outcomes: Sequence[ChildOutcome]
    ) -> str | Laid: ...

    def is_quick(self, agent: str, name: str) -> bool: ...

    def summarize(
        self, agent: str, name: str, group: str, outcomes: Sequence[ChildOutcome]
    ) -> str | Laid | None: ...

    def defaults(self, agent: str) -> dict[str, Any]: ...

    def tools(self, agent: str) -> Mapping[str, Tool]: ...

    def place(self, spec: RunSpec, home: str) -> Coroutine[Any, Any, str]: ...

    def work(self, spec: RunSpec) -> Coroutine[Any, Any, BranchDiff | None]: ...

    def snapshot(self, place: str) -> Coroutine[Any, Any, str]: ...

    def merge(
        self, key: str, copies: Sequence[WriterCopy]
    ) -> Coroutine[Any, Any, tuple[BranchMerge, ...]]: ...

    def over(self, run: str, is_used: Callable[[str], bool]) -> Awaitable[None] | None: ...
