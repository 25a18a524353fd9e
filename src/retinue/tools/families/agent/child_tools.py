"""The tools that look after children that are already there: status, list, cancel; and beyond:
send, wait, resume."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Literal

from retinue.core.answer_layout import Laid, Long, Sheet, result_of
from retinue.core.provenance import tell
from retinue.core.spec import DRAWN, Base, Context, Orders, Send, Wait
from retinue.core.state import ending_of
from retinue.core.values import Budget, ToolSchema, Value
from retinue.tools.base import Answer, Caller, Kin, Returned
from retinue.tools.families.agent.agent_settings import AgentSettings
from retinue.tools.families.agent.agent_tool import SEND, AgentTool, SpawnBudget, comms_note, short
from retinue.tools.families.agent.spawn_fork_tools import Starter, amount
from retinue.tools.families.base import CallComplaint, as_json, object_schema
from retinue.tools.families.family_states import agent_state

MAX_IDS = 32
MAX_WAIT = 600.0


class One(Value, forbid_unknown_fields=True):
    agent_id: str


class Nothing(Value, forbid_unknown_fields=True):
    pass


class AgentSendArgs(Value, forbid_unknown_fields=True):
    agent_id: str
    message: str
    steer: bool = False


class Several(Value, forbid_unknown_fields=True):
    agent_ids: tuple[str, ...]
    mode: Literal["all", "any"] = "all"
    timeout_seconds: float = 60.0


class GoOn(Value, forbid_unknown_fields=True):
    agent_id: str
    prompt: str
    budget: SpawnBudget | None = None


_ID = {"type": "string", "description": "The agent_id that agent_spawn or agent_fork returned."}


class _Watcher(AgentTool):
    """Reads the caller's own children, whichever family started them. Of those that have ended only
    the newest are shown; the log keeps all."""

    def __init__(self, kept: int = 256, *, more_keys: bool = True) -> None:
        self.kept, self.more_keys = kept, more_keys

    async def visible(self, caller: Caller) -> list[Kin]:
        children = list(await caller.children())
        if caller.woken:  # Who was waited for is found also if it would not be shown any more.
            return children
        ended = sorted(
            (e.at, spec.id) for spec, run in children if (e := ending_of(run)) is not None
        )
        gone = {id for _, id in ended[: max(0, len(ended) - self.kept)]}
        return [kin for kin in children if kin[0].id not in gone]

    async def find(self, caller: Caller, *ids: str) -> list[Kin]:
        """Children by their ids, each once."""
        wanted = dict.fromkeys(uuid_of(id) for id in ids)
        known = {kin[0].id: kin for kin in await self.visible(caller)}
        for id in wanted:
            if id not in known:
                raise CallComplaint(f"Sub-agent not found: {id}")
        return [known[id] for id in wanted]


def uuid_of(id: str) -> str:
    try:
        return str(uuid.UUID(id))
    except ValueError as error:
        raise CallComplaint(f"Invalid agent_id format: {error}") from None


def started(kin: Kin) -> int:
    spec, run = kin
    return spec.created_at if run.started_at is None else run.started_at


def status_of(kin: Kin, now: int, *, more_keys: bool = True) -> dict[str, Any]:
    """Keys that do not apply are absent. `more_keys`: with those that the document does not
    have."""
    spec, run = kin
    ending, state = ending_of(run), agent_state(run)
    out: dict[str, Any] = {"agent_id": spec.id, "state": state}
    if state == "completed" and ending is not None:
        out["output"] = result_of(ending)
    if state == "failed" and ending is not None:
        out["error"] = Long(ending.error or ending.stop)
    if more_keys and ending is not None and ending.stop.endswith("_budget"):
        out["note"] = Long(ending.error)
    if ending is not None and (missing := tell(ending.helpers)):
        out["missing"] = missing
    out["is_final"] = ending is not None
    out["duration_ms"] = max(0, (now if ending is None else ending.at) - started(kin))
    if ending is not None:
        out["tokens_used"] = run.usage.tokens
        if more_keys and run.usage.estimated:
            out["tokens_estimated"] = run.usage.estimated
    return out


class StatusTool(_Watcher):
    schema = ToolSchema(
        name="agent_status",
        description="How one sub-agent is doing, and its output or error once it has ended. You "
        "are told of every "
        "end, so there is no need to ask repeatedly.",
        parameters=object_schema({"agent_id": _ID}, ("agent_id",)),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        (kin,) = await self.find(caller, self.read(args, One).agent_id)
        return Sheet(status_of(kin, caller.at, more_keys=self.more_keys))


class CancelTool(_Watcher):
    schema = ToolSchema(
        name="agent_cancel",
        description="Stop a running sub-agent and everything it has started. Nothing is spent on "
        "it afterwards.",
        parameters=object_schema({"agent_id": _ID}, ("agent_id",)),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        ((spec, run),) = await self.find(caller, self.read(args, One).agent_id)
        state = agent_state(run)
        if state != "running":
            message = f"Only running agents can be cancelled; this one is {state}"
            return Answer(text=_cancelled(spec.id, state, message, success=False))
        done = _cancelled(spec.id, state, "Sub-agent cancelled successfully", success=True)
        late = _cancelled(
            spec.id, state, "It ended before it could be cancelled; see agent_status", success=False
        )
        return Orders(cancels=(spec.id,), answer=done, refusals={"cancel": late})


def _cancelled(id: str, state: str, message: str, *, success: bool) -> str:
    return as_json(
        {"success": success, "previous_state": state, "message": message, "agent_id": id}
    )


class AgentListTool(_Watcher):
    schema = ToolSchema(
        name="agent_list",
        description="All your sub-agents with their states, and how many are running, completed "
        "and failed.",
        parameters=object_schema({}),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        self.read(args, Nothing)
        agents, count = [], dict.fromkeys(("running", "completed", "failed", "cancelled"), 0)
        for spec, run in sorted(await self.visible(caller), key=lambda kin: kin[0].id):
            state, ending = agent_state(run), ending_of(run)
            count[state] += 1
            running_ms = max(0, (caller.at if ending is None else ending.at) - started((spec, run)))
            name = spec.order.label or spec.order.agent
            agents.append(
                {
                    "id": spec.id,
                    "name": Long(name),
                    "state": state,
                    "depth": spec.order.level or spec.depth,
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


class AgentSendTool(_Watcher):
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
            description=f"Write to {whom}. It is read at the next turn; with `steer` the current "
            "turn is broken off "
            "for it.",
            parameters=object_schema(
                {
                    "agent_id": {"type": "string", "description": "Whom to write to."},
                    "message": {"type": "string"},
                    "steer": {
                        "type": "boolean",
                        "description": "Break off what it is doing (false).",
                    },
                },
                ("agent_id", "message"),
            ),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, AgentSendArgs)
        if not asked.message.strip():
            raise CallComplaint("Message cannot be empty")
        to = uuid_of(asked.agent_id)
        if to == caller.spec.parent:
            if not self.comms:
                raise CallComplaint(
                    "Writing to the agent that started you requires comms to be enabled for "
                    "sub-agents"
                )
        else:
            ((_, run),) = await self.find(caller, to)
            if ending_of(run) is not None:
                raise CallComplaint(
                    f"Sub-agent {to} has ended ({agent_state(run)}); use agent_resume to let it "
                    "go on"
                )
        gone = (
            f"{to} cannot be written to now: it has ended, or has too many unread messages from you"
        )
        reply = as_json({"success": True, "agent_id": to, "message": "Delivered to its mailbox"})
        return Orders(
            sends=(Send(to=to, text=asked.message, steer=asked.steer),),
            answer=reply,
            refusals={"comms": gone},
        )


class WaitTool(_Watcher):
    schema = ToolSchema(
        name="agent_wait",
        description="Wait until all of the named sub-agents have ended, or any of them, or the "
        "time is over; returns "
        "how each is doing. Waiting takes nothing away: you are told of every end as well.",
        parameters=object_schema(
            {
                "agent_ids": {
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": MAX_IDS,
                },
                "mode": {"type": "string", "enum": ["all", "any"]},
                "timeout_seconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": MAX_WAIT,
                    "description": "60 if left out.",
                },
            },
            ("agent_ids",),
        ),
    )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        asked = self.read(args, Several, "agent_ids")
        if not 1 <= len(asked.agent_ids) <= MAX_IDS:
            raise CallComplaint(
                f"{self.invalid}: 1 to {MAX_IDS} agent_ids can be waited for, not "
                f"{len(asked.agent_ids)}"
            )
        if not 0 <= asked.timeout_seconds <= MAX_WAIT:
            raise CallComplaint(
                f"{self.invalid}: timeout_seconds must be between 0 and {MAX_WAIT:.0f}"
            )
        kin = await self.find(caller, *asked.agent_ids)
        live = [spec.id for spec, run in kin if ending_of(run) is None]
        over = not live or (asked.mode == "any" and len(live) < len(kin))
        if over or caller.woken or not asked.timeout_seconds:
            return self._report(kin, caller.at, over=over)
        timeout_ms = round(asked.timeout_seconds * 1000)
        wait = Wait(
            runs=tuple(live), timeout_ms=timeout_ms, first=asked.mode == "any", then=as_json(args)
        )
        return Orders(wait=wait)

    def _report(self, kin: Sequence[Kin], now: int, *, over: bool) -> Laid:
        status = "complete" if over else "timeout"
        agents = [status_of(k, now, more_keys=self.more_keys) for k in kin]
        return Sheet({"status": status, "agents": agents}, "agents", lambda row: row["state"])


class ResumeTool(Starter):
    starts = ""

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        self.watcher = _Watcher(settings.finished_kept)
        amounts = object_schema(
            {f: {"type": "integer", "minimum": 0} for f in SpawnBudget.__struct_fields__}
        )
        self.schema = ToolSchema(
            name="agent_resume",
            description="Let a sub-agent that has ended go on: a new one with its whole "
            "conversation and your prompt. "
            "Returns at once with the new agent_id; you are told when it ends.",
            parameters=object_schema(
                {
                    "agent_id": _ID,
                    "prompt": {"type": "string", "description": "What it is to do now."},
                    "budget": {
                        **amounts,
                        "description": "What it may use at most; as much as before if left out.",
                    },
                },
                ("agent_id", "prompt"),
            ),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        asked = self.read(args, GoOn, "budget")
        await self.check_limits(caller, "resume sub-agent", "spawning")
        if not asked.prompt.strip():
            raise CallComplaint("Prompt cannot be empty")
        (kin,) = await self.watcher.find(caller, asked.agent_id)
        spec, run = kin
        if ending_of(run) is None:
            raise CallComplaint(f"Sub-agent {spec.id} is still running; use {SEND} to write to it")
        id, budget, before = caller.child_id(), asked.budget or SpawnBudget(), spec.order
        name = f"sub-agent-{short(id)}"
        base = Base(conversation=spec.conversation, length=run.length, start=run.start)
        order = self.order(
            caller,
            before.agent,
            asked.prompt,
            label=name,
            context=Context(kind="run", run=spec.id, base=base, tokens=run.context + run.fresh),
            access=before.access,
            instructions=before.instructions,
            budget=Budget(
                tokens=before.budget.tokens
                if budget.max_tokens is None
                else self.cap(budget.max_tokens),
                calls=before.budget.calls
                if budget.max_tool_calls is None
                else amount(budget.max_tool_calls),
            ),
            share=before.share if budget.max_tokens is None and before.share == DRAWN else "",
            max_turns=before.max_turns if budget.max_turns is None else amount(budget.max_turns),
            model=spec.model,
        )
        reply = {
            "agent_id": id,
            "name": name,
            "resumed_from": spec.id,
            "state": "running",
            "messages_inherited": run.length - run.start,
            "message": "Sub-agent goes on. You are told when it ends.",
        }
        if self.settings.enable_comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("resume sub-agent", "Failed to resume sub-agent")
        return Orders(spawns=(order,), answer=as_json(reply), refusals=refusals)
