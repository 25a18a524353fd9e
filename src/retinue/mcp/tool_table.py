"""The tools that a client's model sees: a short, fixed list. Every word here is in the prompt of
every session of the client."""

from __future__ import annotations

from typing import Any

from retinue.mcp.protocol_versions import ClientFacts

MOST_TASKS = 16
MOST_SECONDS = 50
STARTING = ("delegate", "fork")
"""The tools that start work, and so can be tasks."""
INSTRUCTIONS = (
    "Sub-agents that work on their own, in parallel, and survive restarts. Use delegate for work "
    "that can be described completely and takes many steps; do small things yourself. Agents do "
    "not see this conversation: put everything they need into the task. Read a result before you "
    "rely on it."
)

_STRING = {"type": "string"}
_IDS = {"type": "array", "items": _STRING}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "object", "properties": properties}
    return {**out, "required": list(required)} if required else out


def _said(text: str, kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "description": text}


_AGENTS = _object(
    ("agents",),
    agents={
        "type": "array",
        "items": _object(
            ("id", "state"),
            id=_STRING,
            state=_STRING,
            text=_STRING,
            usd={"type": "number"},
        ),
    },
)
_SHORT = _object(("agents",), agents={"type": "array"})
_BACKGROUND = _said("Return ids now; collect with result.", "boolean")


def _tool(
    name: str,
    description: str,
    parameters: dict[str, Any],
    **hints: bool,
) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {**parameters, "additionalProperties": False},
        "outputSchema": _AGENTS if name == "result" else _SHORT,
        "annotations": {f"{hint}Hint": value for hint, value in hints.items()},
    }


TOOLS: tuple[dict[str, Any], ...] = (
    _tool(
        "delegate",
        "Start one sub-agent for each task; they work in parallel. Waits up to "
        f"{MOST_SECONDS} s for the answers.",
        _object(
            ("tasks",),
            tasks={
                **_said("Complete instructions, one per agent.", "array"),
                "items": _STRING,
                "minItems": 1,
                "maxItems": MOST_TASKS,
            },
            agent=_said("Name of an agent definition."),
            model=_said("provider:model"),
            budget_usd=_said("Limit for each agent.", "number"),
            max_tokens=_said("Limit for each agent.", "integer"),
            tools={**_said("Only these tools.", "array"), "items": _STRING},
            directory=_said("Where they work."),
            background=_BACKGROUND,
        ),
        readOnly=False,
        openWorld=True,
    ),
    _tool(
        "agents",
        "List your agents, newest first: state, what they do, cost, questions.",
        _object(
            ids=_IDS,
            state={"enum": ["open", "all"], "description": "Default: all."},
            limit={"type": "integer", "minimum": 1, "maximum": 100},
        ),
        readOnly=True,
    ),
    _tool(
        "result",
        f"Wait up to {MOST_SECONDS} s for agents to end, and read their answers.",
        _object(
            ("ids",),
            ids=_IDS,
            wait_seconds={"type": "number", "minimum": 0, "maximum": MOST_SECONDS},
        ),
        readOnly=True,
    ),
    _tool(
        "send",
        "Send a message to an agent. One that has ended continues as a new agent.",
        _object(("id", "text"), id=_STRING, text=_STRING, interrupt={"type": "boolean"}),
        readOnly=False,
        destructive=False,
    ),
    _tool(
        "cancel",
        "Stop agents and their sub-agents.",
        _object(("ids",), ids=_IDS, reason=_STRING),
        readOnly=False,
        idempotent=True,
    ),
    _tool(
        "fork",
        "Start an agent with the conversation of another so far, and a new task.",
        _object(("id", "task"), id=_STRING, task=_STRING, background=_BACKGROUND),
        readOnly=False,
        openWorld=True,
    ),
    _tool(
        "answer",
        "Answer what an agent asks: text for a question, allow for a permission.",
        _object(("id",), id=_STRING, question=_STRING, text=_STRING, allow={"type": "boolean"}),
        readOnly=False,
    ),
)


def tools_for(client: ClientFacts) -> list[dict[str, Any]]:
    """The list as the client's version has it."""
    if not client.has_old_tasks:
        return list(TOOLS)
    optional = {"execution": {"taskSupport": "optional"}}
    return [{**tool, **optional} if tool["name"] in STARTING else tool for tool in TOOLS]
