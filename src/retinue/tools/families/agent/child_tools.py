"""The tools for existing children: status, list, cancel, send, wait, resume."""

from __future__ import annotations

from typing import Any

from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.spec import Actions, SendMessage
from retinue.core.state import RunRecord, ending_of
from retinue.core.values import ToolSchema, Value
from retinue.tools.base import Context, Returned, ToolResult
from retinue.tools.families.agent.agent_settings import AgentSettings
from retinue.tools.families.agent.agent_tool import SEND
from retinue.tools.families.agent.child_status import (
    ID_SCHEMA,
    ChildTool,
    One,
    started,
    status_of,
    uuid_of,
)
from retinue.tools.families.base import CallComplaint, as_json, object_schema
from retinue.tools.families.family_states import agent_state


class Nothing(Value, forbid_unknown_fields=True):
    pass


class AgentSendArgs(Value, forbid_unknown_fields=True):
    agent_id: str
    message: str
    steer: bool = False


class StatusTool(ChildTool):
    schema = ToolSchema(
        name="agent_status",
        description="Show the state of one sub-agent, and its output or error if it has ended. You "
        "are notified of every end, so do not poll.",
        parameters=object_schema({"agent_id": ID_SCHEMA}, ("agent_id",)),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        (record,) = await self.find(context, self.read(args, One).agent_id)
        return Sheet(status_of(record, context.called_at, more_keys=self.more_keys))


class CancelTool(ChildTool):
    schema = ToolSchema(
        name="agent_cancel",
        description="Stop a running sub-agent and all sub-agents below it. Use it only "
        "for work you no longer need.",
        parameters=object_schema({"agent_id": ID_SCHEMA}, ("agent_id",)),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        ((spec, run),) = await self.find(context, self.read(args, One).agent_id)
        state = agent_state(run)
        if state != "running":
            message = f"Only running agents can be cancelled; this one is {state}"
            return ToolResult(text=_cancelled(spec.id, state, message, success=False))
        reply = _cancelled(spec.id, state, "Sub-agent cancelled successfully", success=True)
        late = _cancelled(
            spec.id,
            state,
            "It ended before it could be cancelled. Use agent_status for its result",
            success=False,
        )
        return Actions(cancels=(spec.id,), answer=reply, refusals={"cancel": late})


def _cancelled(id: str, state: str, message: str, *, success: bool) -> str:
    return as_json(
        {"success": success, "previous_state": state, "message": message, "agent_id": id}
    )


class AgentListTool(ChildTool):
    schema = ToolSchema(
        name="agent_list",
        description="List all your sub-agents with their states, and how many are "
        "running, completed and failed.",
        parameters=object_schema({}),
    )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        self.read(args, Nothing)
        agents, count = [], dict.fromkeys(("running", "completed", "failed", "cancelled"), 0)
        for spec, run in sorted(await self.visible(context), key=lambda record: record[0].id):
            state, ending = agent_state(run), ending_of(run)
            count[state] += 1
            running_ms = max(
                0,
                (context.called_at if ending is None else ending.at)
                - started(RunRecord(spec, run)),
            )
            name = spec.request.label or spec.request.agent
            agents.append(
                {
                    "id": spec.id,
                    "name": Long(name),
                    "state": state,
                    "depth": spec.request.level or spec.depth,
                    "running_ms": running_ms,
                }
            )
        counts = {
            "running_count": count["running"],
            "completed_count": count["completed"],
            "failed_count": count["failed"] + count["cancelled"],
            "total_count": len(agents),
        }
        return Sheet({"agents": agents, **counts}, "agents", lambda row: row["state"], newest=True)


class AgentSendTool(ChildTool):
    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings.finished_kept)
        self.comms = settings.enable_comms
        whom = (
            "a running sub-agent, or to the agent that started you"
            if self.comms
            else "a running sub-agent"
        )
        self.schema = ToolSchema(
            name=SEND,
            description=f"Send a message to {whom}. It is read at the next turn; with `steer` it "
            "interrupts the current turn.",
            parameters=object_schema(
                {
                    "agent_id": {"type": "string", "description": "The agent to send to."},
                    "message": {"type": "string"},
                    "steer": {
                        "type": "boolean",
                        "description": "Interrupt the current turn (default: false).",
                    },
                },
                ("agent_id", "message"),
            ),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        request = self.read(args, AgentSendArgs)
        if not request.message.strip():
            raise CallComplaint("Message cannot be empty")
        to = uuid_of(request.agent_id)
        if to == context.spec.parent:
            if not self.comms:
                raise CallComplaint(
                    "Sending to the agent that started you requires comms to be enabled "
                    "for sub-agents"
                )
        else:
            ((_, run),) = await self.find(context, to)
            if ending_of(run) is not None:
                raise CallComplaint(
                    f"Sub-agent {to} has ended ({agent_state(run)}). Use agent_resume to "
                    "continue it"
                )
        refusal = (
            f"Cannot send to {to} now: it has ended, or it has too many unread messages from you"
        )
        reply = as_json({"success": True, "agent_id": to, "message": "Delivered to its mailbox"})
        return Actions(
            sends=(SendMessage(to=to, text=request.message, steer=request.steer),),
            answer=reply,
            refusals={"comms": refusal},
        )
