"""Turns of clients of other protocols: a turn starts a run, continues an ended run's conversation,
or delivers what an open run waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from retinue.core.values import ToolSchema, Usage
from retinue.errors import NotFound, Refused
from retinue.host.app import carry_out
from retinue.host.client_tools import open_calls, run_of_call, tools_of
from retinue.host.host import Host
from retinue.host.identity import Identity
from retinue.host.operations import Scope
from retinue.host.requests import (
    AnswerRequest,
    CancelRequest,
    ForkRequest,
    ResumeRequest,
    RunTerms,
    SendRequest,
    ShowRequest,
    StartRequest,
    TreeRequest,
)
from retinue.open_questions import OpenQuestion
from retinue.run_info import RunTree
from retinue.server.turn_events import TurnFollower, text_questions


@dataclass(frozen=True)
class RunTurn:
    """A turn: the run, the first message of it that belongs to this turn, and what the run's tree
    had used before."""

    run: str
    start: int = 0
    before: Usage = Usage()


class RunTurns:
    """The turns of one client. A token with the scope `run` is enough: words for its own agents are
    messages, not permissions."""

    def __init__(self, host: Host, who: Identity, scope: Scope = "run") -> None:
        self.host, self.who = host, who
        who.need(scope, "This request")

    async def begin(self, agent: str, task: str, terms: RunTerms, key: str = "") -> RunTurn:
        request = StartRequest(task=task, agent=agent, terms=terms)
        return RunTurn((await carry_out(self.host, request, self.who, key)).run)

    async def go_on(self, run: str, task: str, terms: RunTerms) -> RunTurn:
        """A run that has ended continues as a new one; an open one gets a message. A conversation
        that was continued before is forked."""
        detail = await carry_out(self.host, ShowRequest(run=run), self.who)
        if detail.ended_at is None:
            return await self._say(run, task)
        try:
            resume = ResumeRequest(run=run, task=task, terms=terms)
            new = (await carry_out(self.host, resume, self.who)).run
        except Refused as error:
            if error.limit not in ("conversation", "agent"):
                raise
            fork = ForkRequest(run=run, task=task, terms=terms)
            new = (await carry_out(self.host, fork, self.who)).run
        row = await self.host.row(new)
        return RunTurn(new, row.spec.base.length if row.spec.base is not None else 0)

    async def _say(self, run: str, text: str) -> RunTurn:
        """Words for an open run: the answer, if it has asked for one, else a message."""
        turn = await self._now(run)
        questions = await text_questions(self.host, self.who, run)
        theirs = await self.client_tools(run)
        named = [q for q in questions if q.tool not in theirs]
        if named:
            await self._answer(named[0], text)
        elif questions:
            raise Refused("tools", f"Run {run} waits for the results of its tool calls.")
        else:
            await carry_out(self.host, SendRequest(run=run, text=text), self.who)
        return turn

    async def bring(self, run: str, results: Mapping[str, str]) -> RunTurn:
        """The results of tool calls, by the ids of the calls. What was brought before changes
        nothing."""
        await self.host.check_visible([run], self.who)
        turn = await self._now(run)
        waiting = open_calls(await self.host.row(run))
        if not waiting.keys() & results.keys():
            raise NotFound("No tool call waits for these results. They may have been sent before.")
        questions = {q.id: q for q in await text_questions(self.host, self.who, run)}
        for id, question in waiting.items():
            if id in results and question in questions:
                await self._answer(questions[question], results[id])
        return turn

    async def caller(self, ids: Iterable[str]) -> str:
        """The run that waits for the result of one of these calls, "" if none does."""
        for id in ids:
            run = run_of_call(id)
            with contextlib.suppress(NotFound):
                await self.host.check_visible([run] if run else [], self.who)
                if run and id in open_calls(await self.host.row(run)):
                    return run
        return ""

    async def _answer(self, question: OpenQuestion, text: str) -> None:
        request = AnswerRequest(run=question.run, question=question.id, text=text or "(empty)")
        await self.host.answer(request, self.who)

    async def _now(self, run: str) -> RunTurn:
        row = await self.host.row(run)
        return RunTurn(run, row.run.length, await self.used(run))

    async def client_tools(self, run: str) -> dict[str, ToolSchema]:
        row = await self.host.row(run)
        return {tool.name: tool for tool in tools_of(row.spec.meta)}

    def follow(self, turn: RunTurn, *, in_pieces: bool = False) -> TurnFollower:
        return TurnFollower(self.host, self.who, turn.run, turn.start, in_pieces=in_pieces)

    async def used(self, run: str) -> Usage:
        """What a run and everything below it has used."""
        return _sum(await carry_out(self.host, TreeRequest(run=run), self.who))

    async def used_in(self, turn: RunTurn) -> Usage:
        """What of it belongs to this turn."""
        now, before = await self.used(turn.run), turn.before
        return Usage(
            input=now.input - before.input,
            output=now.output - before.output,
            estimated=now.estimated - before.estimated,
            cache_read=now.cache_read - before.cache_read,
            cache_write=now.cache_write - before.cache_write,
        )

    async def cancel(self, run: str, reason: str) -> None:
        await carry_out(self.host, CancelRequest(runs=(run,), reason=reason), self.who)

    def client_left(self, run: str) -> None:
        """A client that goes away takes its request back, unless it is we who are leaving."""
        if not self.host.leave.is_set():
            work = self.cancel(run, "the client disconnected")
            task = asyncio.ensure_future(work)
            _LEFT.add(task)
            task.add_done_callback(_LEFT.discard)


_LEFT: set[asyncio.Future[None]] = set()
"""Held here until they are done: the loop itself holds tasks only weakly."""


def _sum(tree: RunTree) -> Usage:
    usage = tree.usage
    for child in tree.children:
        usage = usage.plus(_sum(child))
    return usage
