"""The operations of A2A on tasks. A task is a run; a context is a conversation, which the next task
in it continues."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

from retinue.errors import NotFound
from retinue.host.app import carry_out
from retinue.host.host import Host
from retinue.host.identity import Identity
from retinue.host.operations import Scope
from retinue.host.replies import AgentInfo
from retinue.host.requests import (
    MOST_RUNS,
    DefinitionsRequest,
    OutcomeRequest,
    RunTerms,
    ShowRequest,
    TranscriptRequest,
)
from retinue.outcomes import Outcome
from retinue.server.a2a import task_objects as objects
from retinue.server.a2a.a2a_errors import (
    INVALID_PARAMS,
    NOT_CANCELABLE,
    UNSUPPORTED,
    A2aError,
    task_not_found,
)
from retinue.server.a2a.a2a_requests import SendParams, TaskParams, text_of
from retinue.server.run_turns import RunTurn, RunTurns
from retinue.server.turn_events import (
    MessageDone,
    TurnEnded,
    TurnEvent,
    TurnParked,
    parked_on,
    waits_for_decision,
)


class AgentTasks:
    """The tasks of one client."""

    def __init__(self, host: Host, who: Identity, scope: Scope = "run") -> None:
        self.turns = RunTurns(host, who, scope)
        self.host, self.who = host, who

    async def agents(self) -> list[AgentInfo]:
        return list((await carry_out(self.host, DefinitionsRequest(), self.who)).agents)

    # sending

    async def send(self, params: SendParams) -> RunTurn:
        """A message for a new task, or for one that is open."""
        message, text = params.message, text_of(params.message)
        if message.task_id:
            return await self._send_to(message.task_id, message.context_id, text)
        agent = await self.agent_named(params.tenant or "")
        context = message.context_id or str(uuid.uuid4())
        terms = RunTerms(meta={objects.CONTEXT: context})
        earlier = await self._earlier(context, agent.name) if message.context_id else ""
        if earlier:
            return await self.turns.go_on(earlier, text, terms)
        return await self.turns.begin(agent.name, text, terms)

    async def agent_named(self, name: str) -> AgentInfo:
        """The agent of this name; the first without one."""
        agents = await self.agents()
        for agent in agents:
            if name in ("", agent.name):
                return agent
        raise A2aError(INVALID_PARAMS, f"Agent {name[:80]!r} not found.")

    async def _send_to(self, task: str, context: str | None, text: str) -> RunTurn:
        context_known = await self.context_of(task)
        if context and context != context_known:
            raise A2aError(INVALID_PARAMS, f"Task {task} belongs to another context.")
        detail = await self.host.show(ShowRequest(run=task), self.who)
        if detail.ended_at is not None:
            raise A2aError(
                UNSUPPORTED,
                f"Task {task} is over. Send a message with its context and without its id to "
                "continue.",
            )
        return await self.turns.go_on(task, text, RunTerms())

    async def _earlier(self, context: str, agent: str) -> str:
        """The newest task of a context, if it is over and this agent's: the next one continues
        it."""
        for line in await self.host.runs_with({objects.CONTEXT: context}, self.who):
            is_theirs = line.label == agent and line.ended_at is not None
            return line.id if is_theirs else ""
        return ""

    # reading

    async def context_of(self, task: str) -> str:
        """The context of a task. Raises `A2aError` for one that is not there or is not theirs."""
        try:
            await self.host.check_visible([task], self.who)
            context = (await self.host.row(task)).spec.meta.get(objects.CONTEXT)
        except NotFound:
            context = None
        if context is None:
            raise task_not_found(task)
        return context

    async def task(
        self, id: str, most: int | None = None, *, has_artifacts: bool = True
    ) -> dict[str, Any]:
        """The whole object."""
        context, host = await self.context_of(id), self.host
        outcome = (await host.outcome(OutcomeRequest(run=id), self.who)).outcome
        detail = await host.show(ShowRequest(run=id), self.who)
        out: dict[str, Any] = {"id": id, "contextId": context}
        out["status"] = await self._status(id, context, detail.state, outcome, detail.created_at)
        if has_artifacts and (results := objects.artifacts(outcome)):
            out["artifacts"] = results
        if most != 0 and (messages := await self._history(id, context, most)):
            out["history"] = messages
        return out

    async def beginning(self, turn: RunTurn, most: int | None) -> dict[str, Any]:
        """The task as its stream begins: at work, with what was said until then. How it ends comes
        behind it, also if that is known by now."""
        task = await self.task(turn.run, most, has_artifacts=False)
        detail = await self.host.show(ShowRequest(run=turn.run), self.who)
        if detail.ended_at is not None:
            task["status"] = objects.status(objects.WORKING, detail.created_at)
        if "history" in task:
            words = [m for m in task["history"] if m["role"] == "ROLE_USER"]
            task["history"] = words
        return task

    async def _status(
        self, id: str, context: str, word: str, outcome: Outcome | None, created_at: int
    ) -> dict[str, Any]:
        if outcome is not None:
            text = outcome.error if outcome.state != "completed" else ""
            message = objects.agent_message(id, context, f"{id}-end", text) if text else None
            return objects.status(objects.ENDS[outcome.state], outcome.ended_ms, message)
        questions = await parked_on(self.host, self.who, id)
        is_undecided = not questions and await waits_for_decision(self.host, self.who, id)
        state = objects.state_of(word, is_asked=bool(questions), is_undecided=is_undecided)
        message = None
        if questions:
            words = "\n\n".join(q.text for q in questions)
            message = objects.agent_message(id, context, f"{id}-{questions[0].id}", words)
        return objects.status(state, created_at, message)

    async def _history(self, id: str, context: str, most: int | None) -> list[dict[str, Any]]:
        row = await self.host.row(id)
        first = row.spec.base.length if row.spec.base is not None else 0
        page = TranscriptRequest(run=id, start=first, limit=MOST_RUNS)
        reply = await self.host.transcript(page, self.who)
        return objects.history(id, context, reply.messages, first, most)

    # ending

    async def cancel(self, params: TaskParams) -> dict[str, Any]:
        await self.context_of(params.id)
        detail = await self.host.show(ShowRequest(run=params.id), self.who)
        if detail.ended_at is not None:
            raise A2aError(NOT_CANCELABLE, f"Task {params.id} is over.")
        await self.turns.cancel(params.id, "cancelled by the client")
        return await self.task(params.id)

    # following

    async def ended(self, turn: RunTurn) -> None:
        """When a turn is over: its task has ended, or waits for someone."""
        async for event in self.turns.follow(turn).events():
            if isinstance(event, TurnParked | TurnEnded):
                return

    async def updates(self, turn: RunTurn, *, is_endless: bool) -> AsyncIterator[dict[str, Any]]:
        """The news of a task: what its agent says on the way, what it asks, and how it ends. With
        `is_endless`, until it ends, whatever it waits for in between."""
        context = await self.context_of(turn.run)
        follower = self.turns.follow(turn)
        if is_endless:
            follower.stops_when_parked = False
            follower.known = await parked_on(self.host, self.who, turn.run)
        async for event in follower.events():
            for update in update_of(event, turn.run, context):
                yield update

    async def subscribe(self, id: str) -> tuple[dict[str, Any], RunTurn]:
        """The task as it is, and the turn that begins now."""
        now = await self.task(id)
        if now["status"]["state"] in objects.TERMINAL:
            raise A2aError(UNSUPPORTED, f"Task {id} is over. Get it instead.")
        row = await self.host.row(id)
        return now, RunTurn(id, row.run.length)


def update_of(event: TurnEvent, task: str, context: str) -> list[dict[str, Any]]:
    """What clients get for one event."""
    if isinstance(event, MessageDone):
        text, id = event.message.text, f"{task}-{event.n}"
        if not text or not event.message.calls:
            return []  # the last message is the result
        remark = objects.agent_message(task, context, id, text)
        return [
            objects.status_update(task, context, objects.status(objects.WORKING, event.at, remark))
        ]
    if isinstance(event, TurnParked):
        words = "\n\n".join(q.text for q in event.questions)
        question = objects.agent_message(task, context, f"{task}-{event.questions[0].id}", words)
        state = objects.status(objects.INPUT_REQUIRED, event.at, question)
        return [objects.status_update(task, context, state)]
    if not isinstance(event, TurnEnded):
        return []
    outcome = event.outcome
    results = [objects.artifact_update(task, context, one) for one in objects.artifacts(outcome)]
    text = outcome.error if outcome.state != "completed" else ""
    message = objects.agent_message(task, context, f"{task}-end", text) if text else None
    state = objects.status(objects.ENDS[outcome.state], outcome.ended_ms, message)
    return [*results, objects.status_update(task, context, state)]
