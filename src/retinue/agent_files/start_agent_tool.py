"""The tool `agent`: starts an agent defined in a file, by name, and waits for its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from retinue.agent_files.agent_spec import AgentSpec, hint_at
from retinue.core.spec import Actions
from retinue.core.values import Restart
from retinue.formats.safe_text import one_line
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments
from retinue.tools.families.base import Writers, writers_note

MAX_LINE = 300
MAX_LISTED = 100


class StaffArgs(ToolArguments, frozen=True, kw_only=True):
    name: str
    task: str


class StartAgentTool(Builtin[StaffArgs]):
    """One child a call; several calls in one turn work in parallel. An agent that its file sends to
    the background is not waited for: its end comes as a message."""

    name: ClassVar[str] = "agent"
    description: ClassVar[str] = (
        "Give a task to another agent and get its result. The agent sees only the task "
        "text, so include everything it needs. To run tasks in parallel, call this "
        "several times in one turn. {writers} Available agents:"
    )
    Args: ClassVar[type[ToolArguments]] = StaffArgs
    restart: Restart = "pure"
    risk: Risk = "read"
    guarded = False
    subject: str = "name"

    def __init__(self, staff: Mapping[str, AgentSpec], writers: Writers = "worktrees") -> None:
        super().__init__()
        self.staff, self.writers = dict(sorted(staff.items())), writers
        lines = [f"- {name}: {_one_line(spec.description)}" for name, spec in self.staff.items()]
        if len(lines) > MAX_LISTED:
            lines[MAX_LISTED:] = [
                f"- and {len(lines) - MAX_LISTED} more: {', '.join([*self.staff][MAX_LISTED:])}"
            ]
        self.schema = replace(
            self.schema,
            description="\n".join((self.description.format(writers=writers_note(writers)), *lines)),
        )
        self.schema.parameters["properties"]["name"]["enum"] = list(self.staff)

    def summary(self, args: dict[str, Any]) -> str:
        return f"agent {args.get('name', '')}: {_one_line(str(args.get('task', '')))[:80]}"

    async def call(self, context: Context, args: StaffArgs) -> Returned:
        spec = self.staff.get(args.name)
        if spec is None:
            hint = hint_at(args.name, self.staff)
            problem = f"Unknown agent {args.name[:80]!r}. {hint}".strip()
            return ToolResult(
                text=f"{problem} Available agents: {', '.join(self.staff)}.", error=True
            )
        if not args.task.strip():
            return ToolResult(
                text="Invalid parameters: task is empty. Give the complete task.", error=True
            )
        if not spec.background:
            return context.spawn_actions(args.name, args.task, writers=self.writers)
        answer = (
            f"{args.name} is running in the background as {context.child_id()}. You will "
            "be notified when it ends."
        )
        actions: Actions = context.spawn_actions(args.name, args.task, answer=answer, join="none")
        return actions


def _one_line(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}..."
