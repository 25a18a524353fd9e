"""`agent_fork`: starts a child with the whole conversation. It returns immediately."""

from __future__ import annotations

from typing import Any, Literal

from retinue.core.spawn import fork_point
from retinue.core.spec import DRAWN, Actions, History
from retinue.core.values import Budget, ToolSchema, Value
from retinue.tools.base import Context, Returned
from retinue.tools.families.agent.agent_settings import PROVIDERS, AgentSettings, resolve
from retinue.tools.families.agent.agent_starter import ACCESS, Starter, ToolAccess, access_of
from retinue.tools.families.agent.agent_tool import FORK, MOST, comms_note, short, with_comms
from retinue.tools.families.base import CallComplaint, as_json, level_of, object_schema, reader_of


class ForkArgs(Value, forbid_unknown_fields=True):
    prompt: str
    provider: Literal["anthropic", "openai", "gemini"] | None = None
    model: str | None = None
    tool_access: ToolAccess | None = None
    budget_policy: str | None = None


class ForkTool(Starter):
    is_fork = True

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        note = f"The model's provider. Default: {self.provider_note()}."
        provider = {"type": "string", "enum": list(PROVIDERS), "description": note}
        policies = "Its budget: equal (default), remaining, proportional, or fixed:<tokens>."
        self.schema = ToolSchema(
            name=FORK,
            description=(
                "Start a sub-agent that has this whole conversation and continues with "
                "your prompt. Use it to try alternatives in parallel, or for work that "
                "needs this conversation. Returns immediately with its agent_id; you are "
                "notified when it ends."
            ),
            parameters=object_schema(
                {
                    "prompt": {
                        "type": "string",
                        "description": "What it should do; added to the conversation so far.",
                    },
                    "provider": provider,
                    "model": {"type": "string", "description": self.model_note()},
                    "tool_access": ACCESS,
                    "budget_policy": {"type": "string", "description": policies},
                },
                ("prompt",),
            ),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned:
        request = self.read(args, ForkArgs, "tool_access")
        access = self.read_access(request.tool_access)
        await self.check_limits(context, "fork agent", "forking")
        if not request.prompt.strip():
            raise CallComplaint("Fork prompt cannot be empty")
        look = reader_of(context)
        provider, model, real = resolve(
            self.settings, request.provider, request.model, context.spec.model, look
        )
        id, comms = context.child_id(), self.settings.enable_comms
        name = f"fork-{short(id)}"
        tokens, share = self._allowance(request.budget_policy, context)
        child_request = self.child_request(
            context,
            context.spec.request.agent,
            with_comms(request.prompt, context.run_id) if comms else request.prompt,
            label=name,
            history=History(kind="fork"),
            permissions=access_of(access, self.settings, context, level_of(context, self)),
            instructions=context.spec.request.instructions,
            budget=Budget(tokens=tokens),
            budget_share=share,
            model=real,
            max_turns=context.spec.request.max_turns,
        )
        reply = {
            "agent_id": id,
            "name": name,
            "provider": provider,
            "model": model,
            "state": "running",
            "messages_inherited": fork_point(context.row) - context.row.start,
            "message": "Forked agent spawned successfully. Use agent_status to check progress.",
        }
        if comms:
            reply["comms"] = comms_note(id)
        refusals = self.refusals("fork agent", "Failed to spawn forked agent")
        return Actions(spawns=(child_request,), answer=as_json(reply), refusals=refusals)

    def _allowance(self, policy: str | None, context: Context) -> tuple[int | None, str]:
        """Tokens, and the way to share. What cannot be read counts as `equal`, and so does
        `proportional`.

        With `remaining` the fork draws on its parent's own account: nothing is set aside for it, so
        that the parent can continue as well. A parent without a budget has no remainder."""
        kind, _, n = (policy or "equal").strip().partition(":")
        if kind == "fixed" and n.isascii() and n.isdecimal():
            n = n.lstrip("0") or "0"
            return self.cap(int(n) if len(n) <= len(str(MOST)) else MOST), ""
        mine, most = context.spec.request.budget.tokens, self.settings.max_budget_per_agent
        if kind == "remaining" and mine is not None:
            return (None, "") if most is None or most >= mine else (most, "remaining")
        return self.settings.default_budget, DRAWN
