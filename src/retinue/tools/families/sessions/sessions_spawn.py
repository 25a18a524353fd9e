"""`sessions_spawn`: starts a run in its own session, and continues, or waits a while for
its reply."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from retinue.core.answer_layout import Laid, Long, Sheet
from retinue.core.provenance import total
from retinue.core.spec import Actions, History, Lane, RunRequest, WaitForRuns
from retinue.core.state import ending_of
from retinue.core.values import Permissions, SpawnLimits, ToolSchema
from retinue.tools.base import Context, Returned, ToolResult
from retinue.tools.families.base import (
    TURNS,
    CallComplaint,
    FamilyTool,
    as_json,
    helper_name,
    level_of,
    object_schema,
    reader_of,
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
        self.settings, self.notices = settings, words_of(settings)
        self.schema = ToolSchema(
            name=SPAWN,
            description=(
                "Start a sub-agent in an isolated session and continue; its result is "
                "announced when it ends. It does not see your conversation. Do short "
                "tasks yourself. " + TURNS
            ),
            parameters=object_schema(spawn_properties(settings), ("task",)),
        )

    async def answer(self, context: Context, args: dict[str, Any]) -> Returned | Laid:
        if context.is_woken:
            return await self._after_wait(context, args)
        for name, why in REFUSED.items():
            if name in args:
                raise CallComplaint(f"{SPAWN} does not accept '{name}': {why}")
        request = self.read(args, SessionsSpawnArgs, "tools")
        if not request.task.strip():
            raise CallComplaint(f"{self.invalid_prefix}: task cannot be empty")
        if wrong := self._wrong(request):
            return ToolResult(text=status("error", wrong), error=True)
        if refused := await self._forbidden(context, request):
            return ToolResult(text=status("forbidden", refused), error=True)
        model = request.model.strip() or self.settings.model
        models = reader_of(context).models()
        if model and model not in models:
            return ToolResult(
                text=status("error", f"unknown model '{model}'; known: {', '.join(models)}"),
                error=True,
            )
        if request.thread and not context.spec.origin.channel:
            return ToolResult(text=status("error", NO_CHAT), error=True)
        try:
            cwd = (
                await asyncio.to_thread(directory, context, request.cwd)
                if request.cwd
                else context.cwd
            )
        except CallComplaint as complaint:
            return ToolResult(text=status("error", str(complaint)), error=True)
        return self._start(context, replace(request, cwd=cwd), model)

    def _wrong(self, request: SessionsSpawnArgs) -> str:
        if request.agent_id and not AGENT_ID.fullmatch(request.agent_id):
            return (
                f"invalid agentId '{request.agent_id[:80]}': use lower-case letters, "
                "digits, - and _ (at most 64)"
            )
        if request.mode == "session" and not request.thread:
            return 'mode "session" requires thread: true'
        return ""

    async def _forbidden(self, context: Context, request: SessionsSpawnArgs) -> str:
        """In the order of the checks: the depth, the children, the agents allowed."""
        s, depth = self.settings, level_of(context, self)
        if depth >= s.max_spawn_depth:
            return TOO_DEEP.format(depth=depth, most=s.max_spawn_depth)
        active = sum(ending_of(run) is None for _, run in await context.children())
        if s.max_children_per_agent is not None and active >= s.max_children_per_agent:
            return (
                f"too many active children ({active}/{s.max_children_per_agent}); wait for one "
                "to end"
            )
        allowed = {*s.allow_agents, lead_of(context.spec.request.agent)}
        if request.agent_id and not {"*", request.agent_id} & allowed:
            return (
                f"agentId '{request.agent_id}' is not allowed (allowed: "
                f"{', '.join(s.allow_agents) or 'none'})"
            )
        return ""

    def _start(self, context: Context, request: SessionsSpawnArgs, model: str) -> Returned:
        s, id = self.settings, context.child_id()
        key = s.key(id, request.agent_id or lead_of(context.spec.request.agent))
        child_request = self._child_request(context, request, key, model)
        refusals = self.refusals(context, request.agent_id)
        reply: dict[str, Any] = {
            "status": "accepted",
            "childSessionKey": key,
            "runId": id,
            "mode": request.mode,
        }
        if request.model.strip():
            reply["modelApplied"] = True
        if request.thread:
            reply["thread"] = key
        if s.timeout_means == "wait" and request.timeout_seconds:
            wait = WaitForRuns(
                runs=(id,), timeout_ms=_ms(request.timeout_seconds), then=as_json(reply)
            )
            return Actions(spawns=(child_request,), wait=wait, refusals=refusals)
        return Actions(
            spawns=(child_request,), answer=as_json({**reply, "note": NOTE}), refusals=refusals
        )

    async def _after_wait(self, context: Context, reply: dict[str, Any]) -> Laid:
        """The wait is over: the reply, or a note that the session continues. It is announced all
        the same."""
        id = reply["runId"]
        runs = {spec.id: run for spec, run in await context.children()}
        ended = {o.id: o.ending for o in context.ended_children}
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
            outcome = runs[id]
            reply |= {
                "status": "ok",
                "reply": Long(outcome.last_text),
                **_missing(total(outcome.helpers, outcome.n_children, ())),
            }
        else:
            reply |= {"status": "timeout", "note": f"It is still running. {NOTE}"}
        return Sheet(reply)

    def _child_request(
        self, context: Context, request: SessionsSpawnArgs, key: str, model: str
    ) -> RunRequest:
        """A fork is the calling run again, without its agent's own defaults; others start from
        their agent's."""
        s, mine = self.settings, context.spec.request
        own = request.agent_id in ("", lead_of(mine.agent))
        fork = own and request.context == "fork"
        agent = mine.agent if fork else helper_name(mine.agent, "sessions")
        if not own:
            agent = request.agent_id
        options: dict[str, Any] = {
            "label": request.label.strip() or request.task_name.strip() or "subagent",
            "permissions": self._access(context, agent, request.tools or ToolLists()),
            "cwd": request.cwd,
            "retention": "keep" if request.mode == "session" else request.cleanup or s.cleanup,
            **self.common(context, key),
            **self._run_limit(request),
            **(_thread(context, key) if request.thread else {}),
        }
        if model:
            options["model"] = model
        if request.context == "fork":
            options["history"] = History(kind="fork")
        if own:
            options["retry"] = mine.retry
        task = self._first_message(context, request.task)
        if fork:
            return RunRequest(
                agent=agent,
                task=task,
                instructions=mine.instructions,
                **{"model": context.spec.model, **options},
            )
        return context.request(agent, task, **options)

    def common(self, context: Context, key: str) -> dict[str, Any]:
        """What the requests of all runs in a session have: their lane and limits, and where the
        result goes.

        The chat of the requester gets the message of an announce turn. A session that asked and has
        no chat, or was spawned itself, gets the notice instead, and stays open for it: so nothing
        is lost, and no session ends before its children."""
        s = self.settings
        chat = s.announce == "chat"
        is_announced = chat and bool(context.spec.origin.channel) and not context.spec.parent
        return {
            "join": "none",
            "result_order": "creation",
            "stay_open": False,
            "must_submit": False,
            "on_unknown_tool": "ignore",
            "group": key,
            "group_kind": SESSION,
            "lanes": (Lane(name=LANE, size=s.max_concurrent),),
            "limits": SpawnLimits(
                depth=context.spec.depth - level_of(context, self) + s.max_spawn_depth,
                children=s.max_children_per_agent,
            ),
            "report": "announce" if chat else "text",
            "report_prompt": ANNOUNCE if chat else "",
            "skip_token": SKIP if chat else f"{SKIP} {SILENT}",
            "announce": is_announced,
            "tell_parent": not is_announced,
            "on_parent_end": "keep" if is_announced else "wait",
        }

    def refusals(self, context: Context, agent: str = "") -> dict[str, str]:
        """What the machine counts again when it takes the request."""
        most, depth = self.settings.max_children_per_agent, level_of(context, self)
        staff = (
            ", ".join(a for a in context.spec.permissions.agents or () if "." not in a) or "none"
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

    def _run_limit(self, request: SessionsSpawnArgs) -> dict[str, Any]:
        """0 means no limit; if nothing is set, the agent's own limit stays."""
        seconds = request.run_timeout_seconds
        if seconds is None and self.settings.timeout_means == "run":
            seconds = request.timeout_seconds
        if seconds is None:
            seconds = self.settings.run_timeout_seconds or None
        return {} if seconds is None else {"timeout_ms": _ms(seconds) if seconds else None}

    def _access(self, context: Context, agent: str, lists: ToolLists) -> Permissions:
        """All tools but those that start others; one that may spawn itself keeps those for
        sessions. An allow list has to name them like any other. Deny wins, wherever it is set."""
        s = self.settings
        leaf = level_of(context, self) + 1 >= s.max_spawn_depth
        theirs = {
            name
            for name, tool in reader_of(context).tools(agent).items()
            if isinstance(tool, FamilyTool)
        }
        hidden = {*theirs, *TOOLS} - {*(() if leaf else TOOLS)}
        deny = {*s.default_deny, *s.tools_deny, *lists.deny, *hidden}
        allow = [set(names) for names in (s.tools_allow, lists.allow) if names is not None]
        tools = None if not allow else tuple(sorted(set.intersection(*allow)))
        return Permissions(tools=tools, deny=tuple(sorted(deny)), may_spawn=not leaf)

    def _first_message(self, context: Context, task: str) -> str:
        depth, most = level_of(context, self) + 1, self.settings.max_spawn_depth
        role = LEAF if depth >= most else ORCHESTRATOR
        if self.settings.announce == "requester":
            role += f" Reply with exactly {SILENT} if there is nothing worth telling."
        return CONTEXT.format(depth=depth, most=most, role=role, task=task)


def _thread(context: Context, key: str) -> dict[str, Any]:
    """A session with a thread of its own sends its result there, wherever else the result goes."""
    return {"origin": replace(context.spec.origin, thread=key), "announce": True}


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
