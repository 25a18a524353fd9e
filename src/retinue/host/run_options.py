"""A user's options for one run, as the options of the runtime."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from retinue.agent import Agent
from retinue.core.capabilities import narrow
from retinue.core.spec import Lane
from retinue.core.state import RunRecord
from retinue.core.values import Budget, Permissions
from retinue.errors import ConfigError
from retinue.host.client_tools import META, kept
from retinue.host.requests import RunTerms

RAISED = ("tokens", "usd", "turns", "calls", "seconds")


def start_options(terms: RunTerms, label: str, agent: Agent) -> dict[str, Any]:
    """The options of a new run. What an agent's file allows itself binds as well: the stricter of
    the two holds, and of its budget whatever the user has not set otherwise."""
    out = _with_limits(terms, agent.budget, {"label": terms.label or label})
    if terms.instructions:
        out["instructions"] = _instructions(terms, agent)
    access = narrow(_own_access(agent), _access(terms, Permissions()))
    if access != Permissions():
        out["permissions"] = access
    return out


def widens(terms: RunTerms, agent: Agent) -> bool:
    """Whether a run could spend or last more than its agent's own limits say."""
    own = agent.request_defaults
    milliseconds = own.get("timeout_ms")
    limits: list[tuple[float | None, float | None]] = [
        (terms.max_turns, own.get("max_turns")),
        (terms.timeout_seconds, None if milliseconds is None else milliseconds / 1000),
    ]
    amounts_asked = amounts(terms, agent.budget)
    limits += [(amount, getattr(agent.budget, name)) for name, amount in amounts_asked.items()]
    return any(amount is not None and most is not None and amount > most for amount, most in limits)


def amounts(terms: RunTerms, own: Budget) -> dict[str, float]:
    """The amounts of a budget that a user sets, `own` being the agent's."""
    out: dict[str, float] = {}
    for name in RAISED:
        amount, most = getattr(terms.budget, name), getattr(own, name)
        if amount is not None:
            out[name] = min(amount, most) if terms.within_agent and most is not None else amount
    return out


def _with_limits(terms: RunTerms, own: Budget, out: dict[str, Any]) -> dict[str, Any]:
    """`own` is the budget of the agent, of which holds whatever the user has not set otherwise."""
    if terms.cwd:
        out["cwd"] = terms.cwd
    if not terms.follow_links:
        out["follow_links"] = False
    if terms.budget != Budget():
        out["budget"] = replace(own, **amounts(terms, own))
    if terms.on_limit:
        out["budget"] = replace(out.get("budget") or own, on_limit=terms.on_limit)
    if terms.timeout_seconds is not None:
        out["timeout"] = terms.timeout_seconds
    if terms.max_turns is not None:
        out["max_turns"] = terms.max_turns
    if terms.questions:
        out["questions"] = terms.questions
    if terms.families:
        out["families"] = dict(terms.families)
    if terms.meta:
        out["meta"] = dict(terms.meta)
    if terms.client_tools:
        out["meta"] = {**terms.meta, **kept(terms.client_tools)}
    return out


def next_options(row: RunRecord, terms: RunTerms, agent: Agent) -> dict[str, Any]:
    """The options of a run that continues another: what held for that one, where the user sets
    nothing else."""
    spec, request = row.spec, row.spec.request
    capabilities = row.run.permissions or spec.permissions
    out = _with_limits(
        terms, agent.budget, {"label": terms.label or request.label or request.agent}
    )
    if terms.instructions:
        out["instructions"] = _instructions(terms, agent)
    if terms.client_tools == () and META in spec.meta:
        out["meta"] = {**terms.meta, **kept(())}
    out.setdefault("cwd", request.cwd)
    out.setdefault("model", spec.model)
    if request.questions:
        out.setdefault("questions", request.questions)
    # A family that is turned on had been turned off by the same user; what the agent's file denies
    # stays denied.
    names = {name for f in agent.family_list if terms.families.get(f.name) for name in f.tool_names}
    lifted = names - {*_own_access(agent).deny}
    if lifted & {*capabilities.deny}:
        capabilities = replace(
            capabilities, deny=tuple(d for d in capabilities.deny if d not in lifted)
        )
    out["permissions"] = _access(terms, capabilities)
    return out


def lane_options(terms: RunTerms, agent: Agent, user: str) -> dict[str, Any]:
    """The lane of a user in front of the agent's own. It is named by the host, so that no one can
    take the places of another."""
    if terms.at_once is None:
        return {}
    lane = Lane(name=f"user {user}", size=terms.at_once)
    return {"lanes": (lane, *agent.request_defaults.get("lanes", ()))}


def _instructions(terms: RunTerms, agent: Agent) -> str:
    own = agent.full_instructions(terms.families)
    return f"{own}\n\n{terms.instructions}" if own else terms.instructions


def _own_access(agent: Agent) -> Permissions:
    access: Permissions = agent.options.get("permissions", Permissions())
    return access


def _access(terms: RunTerms, capabilities: Permissions) -> Permissions:
    changes: dict[str, Any] = {}
    if terms.mode:
        changes["mode"] = terms.mode
    if terms.rules:
        changes["rules"] = tuple(sorted({*capabilities.rules, *terms.rules}))
    if terms.deny:
        changes["deny"] = tuple(sorted({*capabilities.deny, *terms.deny}))
    if terms.tools is not None:
        of_client = (tool.name for tool in terms.client_tools or ())
        changes["tools"] = tuple(sorted({*terms.tools, *of_client}))
    if terms.read:
        changes |= {"read": tuple(sorted(terms.read)), "write": tuple(sorted(terms.read))}
    try:
        return replace(capabilities, **changes) if changes else capabilities
    except ValueError as error:
        raise ConfigError(f"{error}.") from None
