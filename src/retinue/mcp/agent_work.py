"""What the tools do: each is a few requests to the host, in the name of the guest."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any

from retinue.errors import NotFound
from retinue.host import requests
from retinue.mcp import tool_arguments as arguments
from retinue.mcp.agent_reports import AgentReport, tool_result
from retinue.mcp.guests import Guest, shares, terms_of, work_directory
from retinue.mcp.host_link import HostLink
from retinue.mcp.rpc_server import RpcCall
from retinue.mcp.run_reader import RunReader
from retinue.mcp.run_waits import RunWaits
from retinue.mcp.tool_arguments import ToolProblem
from retinue.mcp.tool_table import MOST_SECONDS
from retinue.view import format as words

STARTED = "Started in the background. Call result with the ids to collect the answers."
RUNNING = (
    "Some agents are still running. They go on by themselves: call result with their ids again, or "
    "do something else first."
)


class AgentWork:
    """The tools of one guest."""

    def __init__(self, link: HostLink, guest: Guest) -> None:
        self.link, self.guest = link, guest
        self.reader = RunReader(link)
        self.waits = RunWaits(link, self.reader)
        self._starting = asyncio.Lock()

    # starting

    async def delegate(self, wanted: arguments.DelegateArguments) -> tuple[str, ...]:
        """Start a run for each task; all of them, or none."""
        guest, n = self.guest, len(wanted.tasks)
        directory = work_directory(guest, wanted.directory)
        async with self._starting:  # so that two calls do not share out the same money
            usd, tokens = shares(
                guest, await self.reader.charges(), n, wanted.budget_usd, wanted.max_tokens
            )
            terms = terms_of(guest, directory, _tool_names(wanted.tools), usd=usd, tokens=tokens)
            runs: list[str] = []
            try:
                for task in wanted.tasks:
                    start = requests.StartRequest(
                        task=task,
                        agent=wanted.agent,
                        model=wanted.model or guest.model,
                        terms=terms,
                    )
                    reply = await self.link.ask(start, key=uuid.uuid4().hex)
                    runs.append(reply["run"])
            except BaseException:
                if runs:
                    await self.stop(tuple(runs), "the others could not be started")
                raise
        return tuple(runs)

    async def fork(self, wanted: arguments.ForkArguments) -> tuple[str, ...]:
        async with self._starting:
            usd, tokens = shares(self.guest, await self.reader.charges(), 1, None, None)
            terms = terms_of(self.guest, "", None, usd=usd, tokens=tokens)
            request = requests.ForkRequest(run=wanted.id, task=wanted.task, terms=terms)
            return ((await self.link.ask(request))["run"],)

    async def started(
        self, call: RpcCall, begin: Coroutine[Any, Any, tuple[str, ...]], background: bool
    ) -> dict[str, Any]:
        """Start runs and wait for them. A client that takes its request back stops them; one that
        has only gone does not."""
        starting = asyncio.ensure_future(begin)
        try:
            runs = await asyncio.shield(starting)
            if background:
                return tool_result(await self.reader.reports(runs), STARTED)
            return await self.collected(call, runs, MOST_SECONDS)
        except asyncio.CancelledError:
            if call.is_cancelled:
                await self.stop(await starting, "the client cancelled its request")
            raise

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

    async def result(self, call: RpcCall, wanted: arguments.ResultArguments) -> dict[str, Any]:
        return await self.collected(call, tuple(dict.fromkeys(wanted.ids)), wanted.wait_seconds)

    async def agents(self, wanted: arguments.AgentsArguments) -> dict[str, Any]:
        if wanted.ids is not None:
            return tool_result(await self.reader.reports(wanted.ids))
        lines = await self.reader.listed()
        if wanted.state == "open":
            lines = [line for line in lines if line["state"] not in words.ENDS]
        return tool_result([await self._listed(line) for line in lines[: wanted.limit]])

    async def _listed(self, line: dict[str, Any]) -> AgentReport:
        """An ended one in a list is told without its answer."""
        if line["state"] not in words.ENDS:
            return await self.reader.report(line["id"])
        return AgentReport(
            id=line["id"],
            state=line["state"],
            label=line["label"],
            turns=line["turns"],
            tokens=line["tokens"],
            usd=line["usd"],
            created_at=line["created_at"],
            ended_at=line["ended_at"],
        )

    # changing

    async def send(self, wanted: arguments.SendArguments) -> dict[str, Any]:
        shown = await self.link.ask(requests.ShowRequest(run=wanted.id))
        if shown["state"] not in words.ENDS:
            await self.link.ask(
                requests.SendRequest(run=wanted.id, text=wanted.text, steer=wanted.interrupt)
            )
            return tool_result(await self.reader.reports([wanted.id]), "The message was sent.")
        async with self._starting:
            usd, tokens = shares(self.guest, await self.reader.charges(), 1, None, None)
            terms = terms_of(self.guest, "", None, usd=usd, tokens=tokens)
            request = requests.ResumeRequest(run=wanted.id, task=wanted.text, terms=terms)
            run = (await self.link.ask(request))["run"]
        note = f"{wanted.id} had ended. It continues as {run}: call result with this id."
        return tool_result(await self.reader.reports([run]), note)

    async def cancel(self, wanted: arguments.CancelArguments) -> dict[str, Any]:
        runs = tuple(dict.fromkeys(wanted.ids))
        await self.stop(runs, wanted.reason or "cancelled by the client")
        result = tool_result(await self.reader.reports(runs))
        return {**result, "isError": False}

    async def stop(self, runs: tuple[str, ...], reason: str) -> None:
        await self.link.ask(requests.CancelRequest(runs=runs, reason=reason))

    async def answer(self, wanted: arguments.AnswerArguments) -> dict[str, Any]:
        asked = await self.reader.questions([wanted.id])
        named = [q for q in asked if wanted.question in ("", q["id"])]
        if not named:
            raise ToolProblem(f"{wanted.id} has no such open question. Call agents to see them.")
        if len(named) > 1:
            listed = "; ".join(f"{q['id']}: {q['text']}" for q in named)
            raise ToolProblem(f"Several questions are open. Name one with question: {listed}")
        question = named[0]
        if question["kind"] == "question" and not wanted.text:
            raise ToolProblem("This is a question in words. Answer it with text.")
        if question["kind"] != "question":
            self._check_decision(question, wanted)
        await self.link.ask(
            requests.AnswerRequest(
                run=wanted.id,
                question=question["id"],
                text=wanted.text,
                allow=wanted.allow,
                by=self.guest.user,
            )
        )
        return tool_result(await self.reader.reports([wanted.id]), "Answered.")

    def _check_decision(self, question: dict[str, Any], wanted: arguments.AnswerArguments) -> None:
        """A model may always deny. That it allows what its own agent wants to do, a person has to
        have permitted."""
        if wanted.allow is None:
            raise ToolProblem("This is a permission request. Answer it with allow: true or false.")
        if wanted.allow and not self.guest.may_approve:
            raise ToolProblem(
                "Only a person may allow this. Ask the user to run `retinue approve "
                f"{words.short_id(question['run'])}`, or answer with allow: false."
            )


def _tool_names(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Our names of these tools, whatever the client calls them. Raises `ConfigError`."""
    from retinue.host.run_setup import tool_names

    if names is None:
        return None
    return tuple(dict.fromkeys(ours for name in names for ours in tool_names(name)))


def not_found(error: NotFound) -> str:
    return f"{error} Call agents to list yours."
