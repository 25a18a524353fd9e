"""`agent_resume`: continues a child that has ended."""

from __future__ import annotations

from typing import Any

from retinue.core.spec import DRAWN, Actions, ForkPoint, History
from retinue.core.state import ending_of
from retinue.core.values import Budget, ToolSchema, Value
from retinue.tools.base import Context, Returned
from retinue.tools.families.agent.agent_settings import AgentSettings
from retinue.tools.families.agent.agent_spawn_tool import amount
from retinue.tools.families.agent.agent_starter import Starter
from retinue.tools.families.agent.agent_tool import SEND, SpawnBudget, comms_note, short
from retinue.tools.families.agent.child_status import ID_SCHEMA, ChildTool
from retinue.tools.families.base import CallComplaint, as_json, object_schema


class GoOn(Value, forbid_unknown_fields=True):
    agent_id: str
    prompt: str
    budget: SpawnBudget | None = None


class ResumeTool(Starter):
    starts = ""

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        self.watcher = ChildTool(settings.finished_kept)
        amounts = object_schema(
            {f: {"type": "integer", "minimum": 0} for f in SpawnBudget.__struct_fields__}
        )
        self.schema = ToolSchema(
            name="agent_resume",
            description="Continue a sub-agent that has ended: a new one gets its whole "
            "conversation and your prompt. Returns immediately with the "
            "new agent_id; you are notified when it ends.",
            parameters=object_schema(
                {
                    "agent_id": ID_SCHEMA,
                    "prompt": {"type": "string", "description": "What it should do now."},
                    "budget": {
                        **amounts,
                        "description": "Maximum to use; default: as much as before.",
                    },
                },
                ("agent_id", "prompt"),
            ),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        request = self.read(args, GoOn, "budget")
        await self.check_limits(context, "resume sub-agent", "spawning")
        if not request.prompt.strip():
            raise CallComplaint("Prompt cannot be empty")
        (record,) = await self.watcher.find(context, request.agent_id)
        spec, run = record
        if ending_of(run) is None:
            raise CallComplaint(
                f"Sub-agent {spec.id} is still running. Use {SEND} to send it a message"
            )
        id, budget, before = context.child_id(), request.budget or SpawnBudget(), spec.request
        name = f"sub-agent-{short(id)}"
        base = ForkPoint(conversation=spec.conversation, length=run.length, start=run.start)
        child_request = self.child_request(
            context,
            before.agent,
            request.prompt,
            label=name,
            history=History(kind="run", run=spec.id, base=base, tokens=run.context + run.new_bytes),
            permissions=before.permissions,
            instructions=before.instructions,
            budget=Budget(
                tokens=before.budget.tokens
                if budget.max_tokens is None
                else self.cap(budget.max_tokens),
                calls=before.budget.calls
                if budget.max_tool_calls is None
                else amount(budget.max_tool_calls),
            ),
            budget_share=before.budget_share
            if budget.max_tokens is None and before.budget_share == DRAWN
            else "",
            max_turns=before.max_turns if budget.max_turns is None else amount(budget.max_turns),
            model=spec.model,
        )
        reply = {
            "agent_id": id,
            "name": name,
            "resumed_from": spec.id,
            "state": "running",
            "messages_inherited": run.length - run.start,
            "message": "Sub-agent continues. You will be notified when it ends.",
        }
        if self.settings.enable_comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("resume sub-agent", "Failed to resume sub-agent")
        return Actions(spawns=(child_request,), answer=as_json(reply), refusals=refusals)
