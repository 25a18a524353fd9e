"""`sessions_spawn`: start a run in a session of its own, and go on, or wait a while for its
reply."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.provenance import total
from retinue.core.spec import Context, Lane, Order, Orders, Wait
from retinue.core.state import ending_of
from retinue.core.values import Capabilities, Limits, ToolSchema
from retinue.tools.base import Answer, Caller, Returned
from retinue.tools.families.base import (
    CallComplaint,
    FamilyTool,
    as_json,
    helper_name,
    level_of,
    looking,
    object_schema,
)
from retinue.tools.families.child_directory import directory
from retinue.tools.families.sessions.session_result import _missing, is_announcing, session_result
from retinue.tools.families.sessions.sessions_settings import (
    AGENT_ID,
    LANE,
    SESSION,
    SILENT,
    SKIP,
    SPAWN,
    TOOLS,
    SessionsSettings,
    SessionTool,
    lead_of,
    status,
)
from retinue.tools.families.sessions.sessions_spawn_args import (
    SessionsSpawnArgs,
    ToolLists,
    spawn_properties,
)
from retinue.tools.families.sessions.sessions_texts import (
    ANNOUNCE,
    CONTEXT,
    LEAF,
    NO_CHAT,
    NOTE,
    ORCHESTRATOR,
    REFUSED,
    TOO_DEEP,
    words_of,
)


class SessionsSpawnTool(SessionTool):
    risk = "execute"
    starts = "sessions"

    def __init__(self, settings: SessionsSettings) -> None:
        self.settings, self.words = settings, words_of(settings)
        self.schema = ToolSchema(
            name=SPAWN,
            description=(
                "Start a sub-agent in an isolated session and continue; its result is "
                "announced when it ends. It does not see your conversation. Do short "
                "tasks yourself."
            ),
            parameters=object_schema(spawn_properties(settings), ("task",)),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned | Laid:
        if caller.woken:
            return await self._after_wait(caller, args)
        for name, why in REFUSED.items():
            if name in args:
                raise CallComplaint(f"{SPAWN} does not accept '{name}': {why}")
        asked = self.read(args, SessionsSpawnArgs, "tools")
        if not asked.task.strip():
            raise CallComplaint(f"{self.invalid}: task cannot be empty")
        if wrong := self._wrong(asked):
            return Answer(text=status("error", wrong), error=True)
        if refused := await self._forbidden(caller, asked):
            return Answer(text=status("forbidden", refused), error=True)
        model = asked.model.strip() or self.settings.model
        known = looking(caller).models()
        if model and model not in known:
            return Answer(
                text=status("error", f"unknown model '{model}'; known: {', '.join(known)}"),
                error=True,
            )
        if asked.thread and not caller.spec.origin.channel:
            return Answer(text=status("error", NO_CHAT), error=True)
        try:
            cwd = await asyncio.to_thread(directory, caller, asked.cwd) if asked.cwd else caller.cwd
        except CallComplaint as complaint:
            return Answer(text=status("error", str(complaint)), error=True)
        return self._start(caller, replace(asked, cwd=cwd), model)

    def _wrong(self, asked: SessionsSpawnArgs) -> str:
        if asked.agent_id and not AGENT_ID.fullmatch(asked.agent_id):
            return (
                f"invalid agentId '{asked.agent_id[:80]}': use lower-case letters, "
                "digits, - and _ (at most 64)"
            )
        if asked.mode == "session" and not asked.thread:
            return 'mode "session" requires thread: true'
        return ""

    async def _forbidden(self, caller: Caller, asked: SessionsSpawnArgs) -> str:
        """In the order of the checks: the depth, the children, the agents allowed."""
        s, depth = self.settings, level_of(caller, self)
        if depth >= s.max_spawn_depth:
            return TOO_DEEP.format(depth=depth, most=s.max_spawn_depth)
        active = sum(ending_of(run) is None for _, run in await caller.children())
        if s.max_children_per_agent is not None and active >= s.max_children_per_agent:
            return (
                f"too many active children ({active}/{s.max_children_per_agent}); wait for one "
                "to end"
            )
        allowed = {*s.allow_agents, lead_of(caller.spec.order.agent)}
        if asked.agent_id and not {"*", asked.agent_id} & allowed:
            return (
                f"agentId '{asked.agent_id}' is not allowed (allowed: "
                f"{', '.join(s.allow_agents) or 'none'})"
            )
        return ""

    def _start(self, caller: Caller, asked: SessionsSpawnArgs, model: str) -> Returned:
        s, id = self.settings, caller.child_id()
        key = s.key(id, asked.agent_id or lead_of(caller.spec.order.agent))
        order = self._order(caller, asked, key, model)
        refusals = self.refusals(caller, asked.agent_id)
        reply: dict[str, Any] = {
            "status": "accepted",
            "childSessionKey": key,
            "runId": id,
            "mode": asked.mode,
        }
        if asked.model.strip():
            reply["modelApplied"] = True
        if asked.thread:
            reply["thread"] = key
        if s.timeout_means == "wait" and asked.timeout_seconds:
            wait = Wait(runs=(id,), timeout_ms=_ms(asked.timeout_seconds), then=as_json(reply))
            return Orders(spawns=(order,), wait=wait, refusals=refusals)
        return Orders(spawns=(order,), answer=as_json({**reply, "note": NOTE}), refusals=refusals)

    async def _after_wait(self, caller: Caller, reply: dict[str, Any]) -> Laid:
        """The wait is over: the reply, or word that it goes on. It is announced all the same."""
        id = reply["runId"]
        runs = {spec.id: run for spec, run in await caller.children()}
        ended = {o.id: o.ending for o in caller.back}
        if id in runs and (ending := ending_of(runs[id])):
            ended[id] = ending
        if id in ended:
            reply |= session_result(ended[id])
        elif id not in runs:
            reply |= {
                "status": "unknown",
                "note": "It has just ended. Its result was announced.",
            }
        elif is_announcing(runs[id]):
            said = runs[id]
            reply |= {
                "status": "ok",
                "reply": Long(said.said),
                **_missing(total(said.helpers, said.n_children, ())),
            }
        else:
            reply |= {"status": "timeout", "note": f"It is still running. {NOTE}"}
        return Sheet(reply)

    def _order(self, caller: Caller, asked: SessionsSpawnArgs, key: str, model: str) -> Order:
        """A fork is the caller again, with nothing of its agent's own defaults; others start from
        their agent's."""
        s, mine = self.settings, caller.spec.order
        own = asked.agent_id in ("", lead_of(mine.agent))
        fork = own and asked.context == "fork"
        agent = (
            asked.agent_id
            if not own
            else mine.agent
            if fork
            else helper_name(mine.agent, "sessions")
        )
        options: dict[str, Any] = {
            "label": asked.label.strip() or asked.task_name.strip() or "subagent",
            "access": self._access(caller, agent, asked.tools or ToolLists()),
            "cwd": asked.cwd,
            "retention": "keep" if asked.mode == "session" else asked.cleanup or s.cleanup,
            **self.common(caller, key),
            **self._run_limit(asked),
            **(_thread(caller, key) if asked.thread else {}),
        }
        if model:
            options["model"] = model
        if asked.context == "fork":
            options["context"] = Context(kind="fork")
        if own:
            options["retry"] = mine.retry
        task = self._first_message(caller, asked.task)
        if fork:
            return Order(
                agent=agent,
                task=task,
                instructions=mine.instructions,
                **{"model": caller.spec.model, **options},
            )
        return caller.order(agent, task, **options)

    def common(self, caller: Caller, key: str) -> dict[str, Any]:
        """What the orders of all runs in a session have: their lane and limits, and where the
        result goes.

        The chat of the one who asked is told by an announce turn. A session that asked and has no
        chat, or was spawned itself, is told instead, and stays for it: so nothing is lost, and
        nobody is done whose children are not."""
        s = self.settings
        chat = s.announce == "chat"
        told = chat and bool(caller.spec.origin.channel) and not caller.spec.parent
        return {
            "join": "none",
            "results": "creation",
            "host": False,
            "must_submit": False,
            "unknown_tool": "ignore",
            "group": key,
            "group_kind": SESSION,
            "lanes": (Lane(name=LANE, size=s.max_concurrent),),
            "limits": Limits(
                depth=caller.spec.depth - level_of(caller, self) + s.max_spawn_depth,
                children=s.max_children_per_agent,
            ),
            "report": "announce" if chat else "text",
            "report_prompt": ANNOUNCE if chat else "",
            "skip_token": SKIP if chat else f"{SKIP} {SILENT}",
            "announce": told,
            "news": not told,
            "bond": "keep" if told else "wait",
        }

    def refusals(self, caller: Caller, agent: str = "") -> dict[str, str]:
        """What the machine counts again when it takes the order."""
        most, depth = self.settings.max_children_per_agent, level_of(caller, self)
        staff = (
            ", ".join(a for a in caller.spec.capabilities.agents or () if "." not in a) or "none"
        )
        full = (
            f"too many active children ({most}/{most}); wait for one to end"
            if most
            else "too many active children"
        )
        return {
            "": status("error", "{json}"),
            "depth": status(
                "forbidden", f"{SPAWN} is not allowed: you cannot spawn (current depth: {depth})"
            ),
            "children": status("forbidden", full),
            "agent": status("error", f"unknown agent '{agent}'. Agents you can spawn: {staff}"),
            "tools": status(
                "error",
                "it would have none of the allowed tools. Allow others, or none at all",
            ),
            "model": status("error", "you cannot use that model"),
            "budget": status("error", "its budget is more than is left of yours ({json})"),
            "breaker": status(
                "error",
                "the last sub-agents all failed with the same error. Wait a minute, or "
                "change the task",
            ),
        }

    def _run_limit(self, asked: SessionsSpawnArgs) -> dict[str, Any]:
        """0 is no limit; where nobody says anything, the agent's own limit stays."""
        given = asked.run_timeout_seconds
        if given is None and self.settings.timeout_means == "run":
            given = asked.timeout_seconds
        if given is None:
            given = self.settings.run_timeout_seconds or None
        return {} if given is None else {"timeout_ms": _ms(given) if given else None}

    def _access(self, caller: Caller, agent: str, lists: ToolLists) -> Capabilities:
        """All tools but those that start others; one that may spawn itself keeps those for
        sessions. An allow list has to name them like any other. Deny wins, whoever says it."""
        s = self.settings
        leaf = level_of(caller, self) + 1 >= s.max_spawn_depth
        theirs = {
            name
            for name, tool in looking(caller).tools(agent).items()
            if isinstance(tool, FamilyTool)
        }
        hidden = {*theirs, *TOOLS} - {*(() if leaf else TOOLS)}
        deny = {*s.default_deny, *s.tools_deny, *lists.deny, *hidden}
        allow = [set(given) for given in (s.tools_allow, lists.allow) if given is not None]
        tools = None if not allow else tuple(sorted(set.intersection(*allow)))
        return Capabilities(tools=tools, deny=tuple(sorted(deny)), spawn=not leaf)

    def _first_message(self, caller: Caller, task: str) -> str:
        depth, most = level_of(caller, self) + 1, self.settings.max_spawn_depth
        role = LEAF if depth >= most else ORCHESTRATOR
        if self.settings.announce == "requester":
            role += f" Reply with exactly {SILENT} if there is nothing worth telling."
        return CONTEXT.format(depth=depth, most=most, role=role, task=task)


def _thread(caller: Caller, key: str) -> dict[str, Any]:
    """A session with a thread of its own tells that what comes of it, whoever else is told."""
    return {"origin": replace(caller.spec.origin, thread=key), "announce": True}


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
