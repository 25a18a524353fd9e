"""`sessions_spawn`: start a run in a session of its own, and go on, or wait a while for its reply."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from retinue.core.orders import Context, Lane, Order, Orders, Wait
from retinue.core.values import Capabilities, Limits, ToolSchema, Value, Words
from retinue.tools.base import Answer, Caller, Returned
from retinue.tools.families.base import (
    Complaint,
    FamilyTool,
    as_json,
    dialect_tools,
    helper_name,
    looking,
    object_schema,
)
from retinue.tools.families.sessions_settings import AGENT_ID, LANE, SKIP, SPAWN, TOOLS, SessionsSettings
from retinue.tools.families.states import SESSIONS, ending_of

DELIVERY = ("target", "transport", "channel", "to", "threadId", "replyTo")
NOTE = "Its completion will be pushed; do not poll. Go on with other work, or call sessions_yield to wait."
ANNOUNCE = (
    f"Write the message that tells the one who asked what came of this task. Reply with exactly {SKIP} if there is "
    "nothing worth telling."
)
STATS = "Stats: runtime {seconds}s, tokens {tokens} (in {input} / out {output}), session {id}"
_EVENT = (
    "[task_completion] source: subagent\nchildSessionKey: {key}\nchildSessionId: {id}\ntaskLabel: {label}\n"
    "status: %s\nstatusLabel: %s\nresult:\n%s\n" + STATS + "\n"
    "Reply instruction: treat the result as evidence; tell the user in your own words, or go on with the task."
)


def words(settings: SessionsSettings) -> Words:
    """The completion as the requester reads it. The status is the runtime's, never the model's."""
    event = _EVENT.replace("{key}", settings.key("{id}", "{agent}"))
    none = "(no output; it made {calls} tool calls)"
    return Words(
        notice={
            "completed": event % ("ok", "completed successfully", "{text}"),
            "incomplete": event % ("error", "stopped early: {stop}", "{text}"),
            "timed_out": event % ("timeout", "timed out", "{text}"),
            "": event % ("error", "failed: {error}", none),
        },
        announcement={"completed": "{text}"},
    )


class ToolLists(Value, forbid_unknown_fields=True):
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class SpawnArgs(Value, forbid_unknown_fields=True, rename="camel"):
    task: str
    label: str | None = None
    task_name: str | None = None
    agent_id: str | None = None
    runtime: Literal["subagent"] = "subagent"
    model: str | None = None
    timeout_seconds: float | None = None
    run_timeout_seconds: float | None = None
    cleanup: Literal["delete", "keep"] | None = None
    mode: Literal["run", "session"] = "run"
    thread: bool = False
    context: Literal["isolated", "fork"] = "isolated"
    cwd: str | None = None
    tools: ToolLists | None = None


class SpawnTool(FamilyTool):
    risk = "execute"

    def __init__(self, settings: SessionsSettings) -> None:
        self.settings = settings
        self.words = words(settings)
        waits = settings.timeout_means == "wait"
        timeout = "wait that long for its reply; 0 (default) does not wait" if waits else "limit the run; 0: no limit"
        self.schema = ToolSchema(
            name=SPAWN,
            description=(
                "Start a sub-agent in an isolated session and go on; its result is announced when it ends. It does not "
                "see your conversation."
            ),
            parameters=object_schema(
                {
                    "task": {"type": "string", "description": "The whole task."},
                    "label": {"type": "string", "description": "A short name for people."},
                    "taskName": {"type": "string", "description": "The same as label."},
                    "agentId": {"type": "string", "description": "Run as this agent; only those that are allowed."},
                    "runtime": {"type": "string", "enum": ["subagent"]},
                    "model": {"type": "string", "description": "Another model; a wrong name is an error."},
                    "timeoutSeconds": {"type": "number", "minimum": 0, "description": f"Seconds: {timeout}."},
                    "runTimeoutSeconds": {"type": "number", "minimum": 0, "description": "Limit the run; 0: no limit."},
                    "cleanup": {"type": "string", "enum": ["delete", "keep"], "description": f"({settings.cleanup})"},
                    "mode": {"type": "string", "enum": ["run", "session"], "description": "session needs thread."},
                    "thread": {"type": "boolean"},
                    "context": {"type": "string", "enum": ["isolated", "fork"]},
                    "cwd": {"type": "string"},
                    "tools": object_schema(
                        {n: {"type": "array", "items": {"type": "string"}} for n in ("allow", "deny")}
                    ),
                },
                ("task",),
            ),
        )

    async def answer(self, caller: Caller, args: dict[str, Any]) -> Returned:
        if caller.woken:
            return await self._after_wait(caller, args)
        for name in DELIVERY:
            if name in args:
                raise Complaint(f"{SPAWN} does not take '{name}': results go where the request came from")
        asked = self.read(args, SpawnArgs, "tools")
        if not asked.task.strip():
            raise Complaint("task cannot be empty")
        refused = await self._forbidden(caller, asked)
        if refused:
            return Answer(text=as_json({"status": "forbidden", "error": refused}), error=True)
        self._check_times(asked)
        model = asked.model or self.settings.model
        known = looking(caller).models()
        if model and model not in known:
            error = f"unknown model '{model}'; known: {', '.join(known)}"
            raise Complaint(as_json({"status": "error", "error": error}))
        return self._start(caller, asked, model)

    async def _forbidden(self, caller: Caller, asked: SpawnArgs) -> str:
        """In the order of the checks: the agent's name, the mode, the depth, the children, the agents allowed."""
        s, depth = self.settings, caller.spec.depth
        if asked.agent_id is not None and not AGENT_ID.fullmatch(asked.agent_id):
            raise Complaint(f"invalid agentId '{asked.agent_id}': use lower-case letters, digits, - and _ (64 at most)")
        if asked.mode == "session" and not asked.thread:
            raise Complaint('mode "session" requires thread: true')
        if depth >= s.max_spawn_depth:
            return f"{SPAWN} is not allowed at this depth (current depth: {depth}, max: {s.max_spawn_depth})"
        active = sum(ending_of(run) is None for _, run in await caller.children())
        if s.max_children_per_agent is not None and active >= s.max_children_per_agent:
            return f"too many active children ({active}/{s.max_children_per_agent}); wait for one to end"
        if asked.agent_id is not None and not {"*", asked.agent_id} & {*s.allow_agents, caller.spec.order.agent}:
            return f"agentId '{asked.agent_id}' is not allowed (allowed: {', '.join(s.allow_agents) or 'none'})"
        return ""

    def _check_times(self, asked: SpawnArgs) -> None:
        times = {"timeoutSeconds": asked.timeout_seconds, "runTimeoutSeconds": asked.run_timeout_seconds}
        for name, value in times.items():
            if value is not None and not 0 <= value <= 86_400:
                raise Complaint(f"{self.invalid}: {name} must be between 0 and 86400")

    def _start(self, caller: Caller, asked: SpawnArgs, model: str) -> Returned:
        s, id = self.settings, caller.child_id()
        order = self._order(caller, asked, model)
        reply: dict[str, Any] = {
            "status": "accepted",
            "childSessionKey": s.key(id, order.agent),
            "runId": id,
            "mode": asked.mode,
            "note": NOTE,
        }
        if asked.model is not None:
            reply["modelApplied"] = True
        text = as_json(reply)
        refusals = {
            "depth": _forbid(f"{SPAWN} is not allowed here: the depth limit is reached"),
            "children": _forbid(f"too many active children (max {s.max_children_per_agent})"),
        }
        seconds = asked.timeout_seconds or 0
        if s.timeout_means == "wait" and seconds:
            then = as_json({"runId": id, "childSessionKey": reply["childSessionKey"]})
            wait = Wait(runs=(id,), timeout_ms=round(seconds * 1000), then=then)
            return Orders(spawns=(order,), wait=wait, refusals=refusals)
        return Orders(spawns=(order,), answer=text, refusals=refusals)

    async def _after_wait(self, caller: Caller, then: dict[str, Any]) -> Returned:
        """The wait is over: the reply, or word that it goes on. It is announced all the same."""
        ending = next((o.ending for o in caller.back if o.id == then["runId"]), None)
        for spec, run in await caller.children():
            if spec.id == then["runId"]:
                ending = ending_of(run)
        reply: dict[str, Any] = {"status": "timeout" if ending is None else SESSIONS[ending.state], **then}
        if ending is None:
            reply["note"] = f"It is still running. {NOTE}"
        elif ending.state == "completed":
            reply["reply"] = ending.data if isinstance(ending.data, str) else ending.text
        else:
            reply["error"] = ending.error or ending.stop
        return Answer(text=as_json(reply))

    def _order(self, caller: Caller, asked: SpawnArgs, model: str) -> Order:
        s = self.settings
        agent = caller.spec.order.agent
        forks = asked.context == "fork"
        if asked.agent_id is None or asked.agent_id == agent:
            agent = agent if forks else helper_name(agent, "sessions")
        else:
            agent = asked.agent_id
        run_limit = asked.run_timeout_seconds
        if run_limit is None and s.timeout_means == "run":
            run_limit = asked.timeout_seconds
        run_limit = s.run_timeout_seconds if run_limit is None else run_limit
        session = asked.mode == "session"
        cleanup = "keep" if session else asked.cleanup or s.cleanup
        label = asked.label or asked.task_name or ""
        return caller.order(
            agent,
            self._first_message(caller, asked.task),
            label=label or "subagent",
            join="none",
            context=Context(kind="fork") if forks else Context(),
            access=self._access(caller, asked.tools),
            unknown_tool="ignore",
            lanes=(Lane(name=LANE, size=s.max_concurrent),),
            limits=Limits(depth=s.max_spawn_depth, children=s.max_children_per_agent),
            model=model,
            cwd=asked.cwd or caller.cwd,
            timeout_ms=round(run_limit * 1000) if run_limit else None,
            retention=cleanup,
            host=session,
            must_submit=False,
            **self._reports(caller, host=session),
        )

    def _reports(self, caller: Caller, *, host: bool) -> dict[str, Any]:
        """Where the result goes: to the chat by an announce turn, or to the session that asked, which stays for it.

        Without a chat to announce to, the session that asked is told, so that nothing is lost.
        """
        if self.settings.announce == "chat":
            told = bool(caller.spec.origin.channel)
            return {
                "report": "announce",
                "report_prompt": ANNOUNCE,
                "skip_token": SKIP,
                "announce": told,
                "news": not told,
                "bond": "keep" if told else "cancel" if host else "wait",
            }
        return {"report": "text", "announce": False, "news": True, "bond": "cancel" if host else "wait"}

    def _access(self, caller: Caller, lists: ToolLists | None) -> Capabilities:
        """All tools but those for sessions, unless it may spawn itself. Deny wins, whoever says it."""
        s, lists = self.settings, lists or ToolLists()
        leaf = caller.spec.depth + 1 >= s.max_spawn_depth
        kept = () if leaf else TOOLS
        deny = {*s.tools_deny, *lists.deny, *((dialect_tools(caller) | set(TOOLS)) - set(kept))}
        allow = [{*given, *kept} for given in (s.tools_allow, lists.allow) if given is not None]
        tools = None if not allow else tuple(sorted(set.intersection(*allow)))
        return Capabilities(tools=tools, deny=tuple(sorted(deny)), spawn=not leaf)

    def _first_message(self, caller: Caller, task: str) -> str:
        depth, most = caller.spec.depth + 1, self.settings.max_spawn_depth
        return (
            f"[Subagent context] You are a subagent at depth {depth}/{most}, started for one task; your session ends "
            f"with it. Stay on it, do not poll, and report results and how you got them.\n\n[Task] {task}"
        )


def _forbid(error: str) -> str:
    return msgspec.json.encode({"status": "forbidden", "error": error}).decode()
