"""What the MCP tools do: each makes a few requests to the host for its guest."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from retinue.errors import NotFound, RetinueError
from retinue.host import requests
from retinue.mcp import tool_arguments as arguments
from retinue.mcp.agent_costs import cost_so_far
from retinue.mcp.agent_reports import AgentReport, task_label, tool_result
from retinue.mcp.client_roots import rooted
from retinue.mcp.guests import Guest, shares, terms_of, work_directory
from retinue.mcp.host_link import HostLink
from retinue.mcp.rpc_server import RpcCall
from retinue.mcp.run_reader import RunReader
from retinue.mcp.run_waits import RunWaits
from retinue.mcp.tool_arguments import ToolProblem
from retinue.view import format as view_format

STARTED = "Started in the background. Call result with the ids to collect the answers."
RUNNING = (
    "Some agents are still running. They continue by themselves: call result with their ids "
    "again, or do something else first."
)


class AgentWork:
    """The tools of one guest."""

    def __init__(self, link: HostLink, guest: Guest) -> None:
        self.link, self.guest = link, guest
        self.reader = RunReader(link)
        self.waits = RunWaits(link, self.reader)
        self._starting = asyncio.Lock()

    # starting

    async def delegate(
        self, args: arguments.DelegateArguments, roots: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Start a run for each task; all of them, or none. `roots` are the client's directories."""
        guest, n = rooted(self.guest, roots), len(args.tasks)
        directory = work_directory(guest, args.directory)
        async with self._starting:  # so that two calls do not share out the same money
            usd, tokens = shares(
                guest, await self.reader.charges(), n, args.budget_usd, args.max_tokens
            )
            tools = _tool_names(args.tools)
            runs: list[str] = []
            try:
                for task in args.tasks:
                    label = task_label(task)
                    start = requests.StartRequest(
                        task=task,
                        agent=args.agent,
                        model=args.model or guest.model,
                        families=guest.families,
                        terms=terms_of(
                            guest, directory, tools, label=label, usd=usd, tokens=tokens
                        ),
                    )
                    reply = await self.link.ask(start, key=uuid.uuid4().hex)
                    runs.append(reply["run"])
            except BaseException:
                if runs:
                    await self.stop(tuple(runs), "the others could not be started")
                raise
        return tuple(runs)

    async def fork(self, args: arguments.ForkArguments) -> tuple[str, ...]:
        async with self._starting:
            usd, tokens = shares(self.guest, await self.reader.charges(), 1, None, None)
            label = task_label(args.task)
            terms = terms_of(self.guest, "", None, label=label, usd=usd, tokens=tokens)
            request = requests.ForkRequest(run=args.id, task=args.task, terms=terms)
            return ((await self.link.ask(request))["run"],)

    async def started(
        self,
        call: RpcCall,
        begin: Coroutine[Any, Any, tuple[str, ...]],
        answer: Callable[[tuple[str, ...]], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Start runs, and `answer` with them. A client that takes its request back stops them, also
        while they are being started; one that has only gone does not."""
        starting = asyncio.ensure_future(begin)
        try:
            return await answer(await asyncio.shield(starting))
        except asyncio.CancelledError:
            if call.is_cancelled:
                await call.session.finish(self._taken_back(starting))
            raise

    async def _taken_back(self, starting: asyncio.Future[tuple[str, ...]]) -> None:
        try:
            runs = await starting
        except (ToolProblem, RetinueError):
            return  # nothing was started
        await self.stop(runs, "the client cancelled its request")

    async def in_background(self, runs: tuple[str, ...]) -> dict[str, Any]:
        return tool_result(await self.reader.reports(runs), STARTED)

    # waiting and reading

    async def collected(
        self, call: RpcCall, runs: tuple[str, ...], seconds: float
    ) -> dict[str, Any]:
        """The answers, after at most this time; or what the client's user has to be asked first."""
        needed = await self.waits.until_ended(call, runs, seconds)
        if needed is not None:
            return needed
        reports = await self.reader.reports(runs)
        is_over = all(report.is_ended for report in reports)
        return tool_result(reports, "" if is_over else RUNNING)

    async def result(self, call: RpcCall, args: arguments.ResultArguments) -> dict[str, Any]:
        return await self.collected(call, tuple(dict.fromkeys(args.ids)), args.wait_seconds)

    async def agents(self, args: arguments.AgentsArguments) -> dict[str, Any]:
        if args.ids is not None:
            return tool_result(await self.reader.reports(args.ids))
        lines = await self.reader.listed()
        if args.state == "open":
            lines = [line for line in lines if line["state"] not in view_format.ENDS]
        return tool_result([await self._listed(line) for line in lines[: args.limit]])

    async def _listed(self, line: dict[str, Any]) -> AgentReport:
        """An ended one in a list is shown without its answer."""
        if line["state"] not in view_format.ENDS:
            return await self.reader.report(line["id"])
        return AgentReport(
            id=line["id"],
            state=line["state"],
            label=line["label"],
            turns=line["turns"],
            cost=cost_so_far(line["model"], line),
            created_at=line["created_at"],
            ended_at=line["ended_at"],
        )

    # changing

    async def send(self, args: arguments.SendArguments) -> dict[str, Any]:
        detail = await self.link.ask(requests.ShowRequest(run=args.id))
        if detail["state"] not in view_format.ENDS:
            await self.link.ask(
                requests.SendRequest(run=args.id, text=args.text, steer=args.interrupt)
            )
            return tool_result(await self.reader.reports([args.id]), "The message was sent.")
        async with self._starting:
            usd, tokens = shares(self.guest, await self.reader.charges(), 1, None, None)
            terms = terms_of(self.guest, "", None, usd=usd, tokens=tokens)
            request = requests.ResumeRequest(run=args.id, task=args.text, terms=terms)
            run = (await self.link.ask(request))["run"]
        note = f"{args.id} had ended. It continues as {run}: call result with this id."
        return tool_result(await self.reader.reports([run]), note)

    async def cancel(self, args: arguments.CancelArguments) -> dict[str, Any]:
        runs = tuple(dict.fromkeys(args.ids))
        await self.stop(runs, args.reason or "cancelled by the client")
        result = tool_result(await self.reader.reports(runs))
        return {**result, "isError": False}

    async def stop(self, runs: tuple[str, ...], reason: str) -> None:
        await self.link.ask(requests.CancelRequest(runs=runs, reason=reason))

    async def answer(self, args: arguments.AnswerArguments) -> dict[str, Any]:
        questions = await self.reader.questions([args.id])
        named = [q for q in questions if args.question in ("", q["id"])]
        if not named:
            raise ToolProblem(f"{args.id} has no such open question. Call agents to see them.")
        if len(named) > 1:
            listed = "; ".join(f"{q['id']}: {q['text']}" for q in named)
            raise ToolProblem(f"Several questions are open. Name one with question: {listed}")
        question = named[0]
        if question["kind"] == "question" and not args.text:
            raise ToolProblem("This is a question in words. Answer it with text.")
        if question["kind"] != "question":
            self._check_decision(question, args)
        await self.link.ask(
            requests.AnswerRequest(
                run=args.id,
                question=question["id"],
                text=args.text,
                allow=args.allow,
                by=self.guest.user,
            )
        )
        return tool_result(await self.reader.reports([args.id]), "Answered.")

    def _check_decision(self, question: dict[str, Any], args: arguments.AnswerArguments) -> None:
        """A model may always deny. That it allows what its own agent wants to do, a person has to
        have permitted."""
        if args.allow is None:
            raise ToolProblem("This is a permission request. Answer it with allow: true or false.")
        if args.allow and not self.guest.may_approve:
            raise ToolProblem(
                "Only a person may allow this. Ask the user to run `retinue approve "
                f"{view_format.short_id(question['run'])}`, or answer with allow: false."
            )


def _tool_names(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Our names of these tools, whatever the client calls them. Raises `ConfigError`."""
    from retinue.host.run_setup import tool_names

    if names is None:
        return None
    return tuple(dict.fromkeys(ours for name in names for ours in tool_names(name)))


def not_found(error: NotFound) -> str:
    return f"{error} Call agents to list yours."
