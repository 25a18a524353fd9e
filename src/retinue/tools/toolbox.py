"""All tools of a runtime by name: selects those shown to a run, and carries out calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.answer_layout import Laid
from retinue.core.arguments import BadArguments, parse, read
from retinue.core.effects import ChildOutcome
from retinue.core.merges import BranchMerge, WriterCopy
from retinue.core.messages import ToolCall
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.sandbox.branch_diff import BranchDiff
from retinue.tools.base import Context, Returned, Tool, ToolResult, at_once
from retinue.tools.builtin.builtin_tools import BuiltinTools
from retinue.tools.call_preview import CallPreview


class KnownTool(Struct, frozen=True):
    """A tool, and what of it is optional (`tools.base.Tool`), looked up once. `writes`: it may
    change files, and asks for its turn first."""

    tool: Tool
    refuses: Callable[[Context], str] | None
    run_now: Callable[[Callable[[], Context], dict[str, Any]], Returned] | None
    invalid: str
    is_quick: bool
    needs_approval: Callable[[ToolCall], bool] | None
    writes: bool


def _known(tool: Tool) -> KnownTool:
    return KnownTool(
        tool=tool,
        refuses=getattr(tool, "refuses", None),
        run_now=getattr(tool, "run_now", None),
        invalid=getattr(tool, "invalid_prefix", "Invalid parameters"),
        is_quick=bool(getattr(tool, "never_waits", False)),
        needs_approval=getattr(tool, "needs_approval", None)
        if getattr(tool, "approve", 0)
        else None,
        writes=getattr(tool, "guarded", False) and getattr(tool, "risk", "") == "write",
    )


class Toolbox:
    """Agents may bring tools of the same name: each sees its own. (`submit_result` differs from
    agent to agent.)"""

    def __init__(self, builtin_tools: BuiltinTools | None = None) -> None:
        self._builtin = builtin_tools
        self._tools: dict[str, dict[str, Tool]] = {}
        self._known: dict[str, dict[str, KnownTool]] = {}
        self._defaults: dict[str, dict[str, Any]] = {}

    @property
    def threads(self) -> Executor | None:
        """Where plain functions work; None is the loop's own pool."""
        return None if self._builtin is None else self._builtin.threads

    @property
    def agents(self) -> Collection[str]:
        """Those whose tools are known."""
        return self._tools.keys()

    def add(
        self, agent: str, tools: Iterable[Tool], defaults: dict[str, Any] | None = None
    ) -> None:
        """Register an agent's tools, and the default fields of requests for it."""
        mine: dict[str, Tool] = {}
        for tool in tools:
            if tool.schema.name in mine:
                raise ConfigError(
                    f"Agent {agent!r} has two tools named {tool.schema.name!r}. Rename or "
                    "remove one."
                )
            mine[tool.schema.name] = tool
        self._tools[agent] = mine
        self._known[agent] = {name: _known(tool) for name, tool in mine.items()}
        self._defaults[agent] = defaults or {}

    def defaults(self, agent: str) -> dict[str, Any]:
        return self._defaults.get(agent, {})

    def schemas(self, agent: str) -> tuple[ToolSchema, ...]:
        return tuple(t.schema for t in self._tools.get(agent, {}).values())

    def restart_class(self, agent: str, name: str) -> Restart:
        """A tool that is gone cannot be asked what it did: unsafe."""
        tool = self._tools.get(agent, {}).get(name)
        return "unsafe" if tool is None else tool.restart

    async def run(self, agent: str, context: Context, call: ToolCall) -> Returned:
        """Carry one call out. Whatever the model wrote, the answer is something it can act on."""
        ready = self._ready(agent, call, lambda: context)
        return (
            ready if isinstance(ready, ToolResult) else await ready[0].tool.run(context, ready[1])
        )

    def run_now(self, agent: str, context: Callable[[], Context], call: ToolCall) -> Returned:
        """The same for a tool that `is_quick`. The context is made only if it is needed."""
        ready = self._ready(agent, call, context)
        if isinstance(ready, ToolResult):
            return ready
        entry, args = ready
        if entry.run_now is None:
            return at_once(entry.tool.run(context(), args))
        return entry.run_now(context, args)

    def _ready(
        self, agent: str, call: ToolCall, context: Callable[[], Context]
    ) -> tuple[KnownTool, dict[str, Any]] | ToolResult:
        """The tool and its arguments, or why the call is not taken."""
        mine = self._known.get(agent, {})
        tool = mine.get(call.name)
        if tool is None:
            return ToolResult(text=_unknown(call.name, list(mine)), error=True)
        if tool.refuses is not None and (why := tool.refuses(context())):
            return ToolResult(text=why, error=True)
        try:
            args = parse(call.arguments_json)
        except BadArguments as error:
            return ToolResult(text=f"{tool.invalid}: {error}", error=True)
        if (
            tool.writes
            and self._builtin is not None
            and (why := self._builtin.writers.take(context()))
        ):
            return ToolResult(text=f"Not run: {why}", error=True)
        return tool, args

    def to_approve(self, agent: str, calls: Sequence[ToolCall]) -> int:
        """The calls of a reply before which their tools want a person asked: a bit for each."""
        mine, bits = self._known.get(agent, {}), 0
        for index, call in enumerate(calls):
            asks = entry.needs_approval if (entry := mine.get(call.name)) is not None else None
            if asks is not None and asks(call):
                bits |= 1 << index
        return bits

    def preview(self, agent: str, call: ToolCall) -> tuple[RunRequest, ...]:
        """About which children a call would start, as far as its tool can tell from the
        arguments."""
        look, args = (
            getattr(self._tools.get(agent, {}).get(call.name), "preview", None),
            read(call.arguments_json),
        )
        return look(agent, args) if look is not None and args is not None else ()

    async def look_ahead(self, agent: str, context: Context, call: ToolCall) -> CallPreview | None:
        """What a call would do, by the tool that would do it; None where the tool cannot tell."""
        entry, args = self._known.get(agent, {}).get(call.name), read(call.arguments_json)
        look = getattr(entry.tool, "look_ahead", None) if entry is not None else None
        if entry is None or look is None or args is None:
            return None
        preview: CallPreview = await look(context, args)
        if (
            entry.writes
            and self._builtin is not None
            and (why := self._builtin.writers.refusal(context))
        ):
            preview = replace(preview, problem=why)
        return replace(
            preview, directory=context.root, isolated=bool(context.spec.request.isolation)
        )

    async def place(self, spec: RunSpec, home: str) -> str:
        """Where a run works: the directory that it was sent to, or a copy of it."""
        source = spec.request.cwd or home
        if self._builtin is None or spec.request.isolation != "worktree":
            return source
        label = spec.request.label or spec.request.agent
        return await self._builtin.worktrees.open(spec.id, source, label, spec.request.copy_of)

    async def snapshot(self, place: str) -> str:
        """The commit with the files of a directory as they are; "" where there can be none."""
        return "" if self._builtin is None else await self._builtin.snapshot(place)

    async def merge(self, key: str, copies: Sequence[WriterCopy]) -> tuple[BranchMerge, ...]:
        """What became of what writers have changed in their copies."""
        return () if self._builtin is None else await self._builtin.merge(key, copies)

    async def work(self, spec: RunSpec) -> BranchDiff | None:
        """What an isolated run has done until now."""
        if self._builtin is None or not self._builtin.worktrees.has(spec.id):
            return None
        return await self._builtin.worktrees.changes(spec.id, spec.request.task)

    def over(self, run: str, is_used: Callable[[str], bool]) -> Awaitable[None] | None:
        """A run has ended: what its tools still hold is released, immediately or by the returned
        awaitable. `is_used` says whether a run still works in a directory."""
        return None if self._builtin is None else self._builtin.over(run, is_used)

    def is_quick(self, agent: str, name: str) -> bool:
        """Whether a tool returns without ever waiting. (An unknown tool is answered
        immediately.)"""
        tool = self._known.get(agent, {}).get(name)
        return tool is None or tool.is_quick

    def tools(self, agent: str) -> Mapping[str, Tool]:
        return self._tools.get(agent, {})

    def format_results(self, agent: str, name: str, outcomes: Sequence[ChildOutcome]) -> str | Laid:
        return self._tools[agent][name].format_results(outcomes)

    def summarize(
        self, agent: str, name: str, group: str, outcomes: Sequence[ChildOutcome]
    ) -> str | Laid | None:
        """The summary of a group in its family's words; None when it has none, or is gone."""
        summarize = getattr(self._tools.get(agent, {}).get(name), "summarize", None)
        return None if summarize is None else summarize(group, outcomes)


def _unknown(name: str, names: list[str]) -> str:
    hint = did_you_mean(name, names)
    return f"Unknown tool {name!r}.{hint} Available tools: {', '.join(names) or 'none'}"
