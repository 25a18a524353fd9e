"""`agent_spawn`: starts a child with a clean context. It returns immediately."""

from __future__ import annotations

from typing import Any

from retinue.core.spec import DRAWN, Actions, RunRequest
from retinue.core.values import Budget, ToolSchema, Value
from retinue.tools.base import Context, Returned
from retinue.tools.families.agent.agent_settings import ALIASES, PROVIDERS, AgentSettings, resolve
from retinue.tools.families.agent.agent_starter import ACCESS, Starter, ToolAccess, access_of
from retinue.tools.families.agent.agent_tool import (
    MOST,
    SPAWN,
    SpawnBudget,
    comms_note,
    guide,
    short,
    with_comms,
)
from retinue.tools.families.base import (
    TURNS,
    CallComplaint,
    as_json,
    helper_name,
    level_of,
    object_schema,
    reader_of,
)


class AgentSpawnArgs(Value, forbid_unknown_fields=True):
    prompt: str
    provider: str | None = None
    model: str | None = None
    tool_access: ToolAccess | None = None
    budget: SpawnBudget | None = None
    system_prompt: str | None = None
    host_mode: bool = False


def amount(number: int | None) -> int | None:
    return None if number is None else min(number, MOST)


class AgentSpawnTool(Starter):
    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        default = settings.default_budget
        left_out = "no token limit" if default is None else f"{default} tokens"
        providers = (
            f"The model's provider: {', '.join(PROVIDERS)}. Default: {self.provider_note()}."
        )
        properties: dict[str, Any] = {
            "prompt": {"type": "string", "description": "The complete task; it sees nothing else."},
            "provider": {"type": "string", "description": providers},
            "model": {"type": "string", "description": self.model_note()},
            "tool_access": ACCESS,
            "budget": {
                **object_schema(
                    {f: {"type": "integer", "minimum": 0} for f in SpawnBudget.__struct_fields__}
                ),
                "description": f"Maximum to use. Default: {left_out}.",
            },
            "system_prompt": {
                "type": "string",
                "description": "Instructions for it, instead of yours.",
            },
        }
        if settings.enable_comms:
            note = "Keep it active for messages after its first answer (default: false)."
            properties["host_mode"] = {"type": "boolean", "description": note}
        self.schema = ToolSchema(
            name=SPAWN,
            description=(
                "Start a sub-agent with an empty context for an independent task. "
                "Returns immediately with its agent_id; you are notified when it ends. " + TURNS
            ),
            parameters=object_schema(properties, ("prompt",)),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        request = self.read(args, AgentSpawnArgs, "tool_access", "budget")
        access = self.read_access(request.tool_access)
        await self.check_limits(context, "spawn sub-agent", "spawning")
        if not request.prompt.strip():
            raise CallComplaint("Prompt cannot be empty")
        if request.host_mode and not self.settings.enable_comms:
            raise CallComplaint("host_mode requires comms to be enabled for sub-agents")
        if request.provider is not None and request.provider.strip().lower() not in ALIASES:
            raise CallComplaint(f"Invalid provider: {request.provider}")
        provider_asked = (
            ALIASES[request.provider.strip().lower()] if request.provider is not None else None
        )
        look = reader_of(context)
        provider, model, real = resolve(
            self.settings, provider_asked, request.model, context.spec.model, look
        )
        id = context.child_id()
        name = f"sub-agent-{short(id)}"
        child_request = self._child_request(context, request, access, name, real)
        reply = {
            "agent_id": id,
            "name": name,
            "provider": provider,
            "model": model,
            "state": "running",
            "message": "Sub-agent spawned successfully. Use agent_status to check progress.",
        }
        if self.settings.enable_comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("spawn sub-agent", "Failed to spawn sub-agent")
        return Actions(spawns=(child_request,), answer=as_json(reply), refusals=refusals)

    def _child_request(
        self,
        context: Context,
        request: AgentSpawnArgs,
        access: ToolAccess | None,
        name: str,
        model: str,
    ) -> RunRequest:
        settings, budget = self.settings, request.budget or SpawnBudget()
        is_default = budget.max_tokens is None
        tokens = (
            settings.default_budget if budget.max_tokens is None else self.cap(budget.max_tokens)
        )
        task = request.prompt
        if settings.enable_comms:
            task = with_comms(task, context.run_id, host=request.host_mode)
        return self.child_request(
            context,
            helper_name(context.spec.request.agent, "agent"),
            task,
            label=name,
            permissions=access_of(access, settings, context, level_of(context, self)),
            instructions=request.system_prompt
            if request.system_prompt is not None
            else self._inherited(context),
            budget=Budget(tokens=tokens, calls=amount(budget.max_tool_calls)),
            budget_share=DRAWN if is_default else "",
            max_turns=amount(budget.max_turns),
            model=model,
            stay_open=request.host_mode,
        )

    def _inherited(self, context: Context) -> str | None:
        """Sub-agents are defined with the instructions of their parent's agent. The run's own
        instructions take precedence, but not what they say about tools that sub-agents do not have.
        "" means none."""
        if not self.settings.inherit_system_prompt:
            return ""
        instructions = context.spec.request.instructions
        return (
            None
            if instructions is None
            else instructions.replace(guide(self.settings.more_tools), "").strip()
        )
