"""What a tool can read: other runs as they are now, and the known agents and models. It changes
nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.messages import Message
from retinue.core.spec import RunSpec
from retinue.core.state import Run, RunRecord
from retinue.errors import ConfigError, RetinueError
from retinue.tools.base import Tool

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine
    from retinue.runtime.tool_runner import ToolRunner


class ToolReader:
    """The runtime as tools see it (`tools.base.Look`). `know_model` asks the catalog for a model,
    if there is one; `outcome` waits for the end of a run."""

    def __init__(self, engine: Engine, tools: ToolRunner) -> None:
        self._engine, self._tools = engine, tools
        self.know_model: Callable[[str], None] = lambda name: None
        self.outcome: Callable[[str], Awaitable[Any]] = _no_outcome

    def defaults(self, agent: str) -> dict[str, Any]:
        return self._tools.defaults(agent)

    def tools(self, agent: str) -> Mapping[str, Tool]:
        return self._tools.tools(agent)

    def models(self) -> Sequence[str]:
        return sorted(self._engine.trees.shared.models)

    def resolved(self, model: str) -> str:
        model_entry = self._engine.trees.shared.models.get(model)
        return model_entry.resolved or model if model_entry is not None else model

    def find_model(self, model: str) -> str:
        try:
            self.know_model(model)
        except ConfigError as error:
            return str(error)
        return (
            ""
            if model in self._engine.trees.shared.models
            else f"unknown model {model!r}: no catalog has it"
        )

    def reachable_agents(self, agent: str) -> Sequence[str]:
        definition = self._engine.trees.shared.definitions.get(agent)
        return () if definition is None else definition.agents

    def n_calls(self, root: str) -> int:
        trees, n = self._engine.trees, 0
        for run, name in self._engine.performer.calls():
            spec = trees.spec(run)
            if spec is not None and spec.root == root:
                tool = self._tools.tools(spec.request.agent).get(name)
                n += not hasattr(tool, "starts")
        return n

    async def children(self, run: str) -> Sequence[RunRecord]:
        return self._now(await self._engine.store.children(run))

    async def staff(self, spec: RunSpec) -> Sequence[RunRecord]:
        store, rows = self._engine.store, await self._engine.store.children(spec.id)
        while spec.resumes and (row := await store.row(spec.resumes)) is not None:
            spec, rows = row.spec, [*await store.children(spec.resumes), *rows]
        return self._now(rows)

    async def started(self, since: int) -> Sequence[RunRecord]:
        return self._now(await self._engine.store.started(since))

    async def messages(self, spec: RunSpec, run: Run) -> Sequence[Message]:
        return await self._engine.store.messages(spec.conversation, run.start, run.length)

    def _now(self, rows: Sequence[RunRecord]) -> list[RunRecord]:
        """As the log has them; those that are live, as they are."""
        now = self._engine.trees.run
        return [RunRecord(row.spec, now(row.spec.id) or row.run) for row in rows]


async def _no_outcome(run: str) -> Any:
    raise RetinueError(f"Nobody can tell how {run} ended.")
