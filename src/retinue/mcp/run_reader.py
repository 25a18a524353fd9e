"""Collects a host's data about a guest's runs into reports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from retinue.host import requests
from retinue.mcp.agent_costs import cost_of_end, cost_so_far, spent_of
from retinue.mcp.agent_reports import AgentReport, answer_text, doing_words
from retinue.mcp.guests import RunCharge
from retinue.mcp.host_link import HostLink
from retinue.outcomes import missing_note
from retinue.view import format as view_format

TAIL = 4
"""Messages at the end of a conversation that show what its agent is at."""


class RunReader:
    """Asks a host about runs. Changes nothing."""

    def __init__(self, link: HostLink) -> None:
        self._link = link

    async def reports(self, runs: Sequence[str]) -> list[AgentReport]:
        return list(await asyncio.gather(*(self.report(run) for run in runs)))

    async def report(self, run: str) -> AgentReport:
        """One run. Raises `NotFound` for one of another user."""
        detail = await self._link.ask(requests.ShowRequest(run=run))
        # In this order: a run that ends in between has its outcome, and none is shown as ended
        # without.
        end = await self._link.ask(requests.OutcomeRequest(run=run))
        outcome = end["outcome"]
        if outcome is None:
            return await self._open(run, detail)
        missing, note = missing_note(outcome, f"the result of {run}")
        return AgentReport(
            id=run,
            state=outcome["state"],
            label=detail["label"],
            text=answer_text(outcome),
            error=outcome["error"],
            turns=outcome["tree_turns"],
            cost=cost_of_end(outcome),
            n_agents=len(outcome["children"]),
            created_at=detail["created_at"],
            ended_at=outcome["ended_at"],
            missing=missing,
            missing_note=note,
        )

    async def _open(self, run: str, detail: dict[str, Any]) -> AgentReport:
        start = max(0, detail["messages"] - TAIL)
        spending, tail, tree = await asyncio.gather(
            self._link.ask(requests.SpendingRequest(run=run)),
            self._link.ask(requests.TranscriptRequest(run=run, start=start, limit=TAIL)),
            self._link.ask(requests.TreeRequest(run=run)),
        )
        questions = await self.questions([run])
        spent = spent_of(spending["spending"])
        return AgentReport(
            id=run,
            state="asking" if questions else detail["state"],
            label=detail["label"],
            doing=doing_words(tail["messages"]),
            turns=spent.get("turns", 0),
            cost=cost_so_far(detail["model"], spent),
            n_agents=_below(tree),
            created_at=detail["created_at"],
            questions=questions,
        )

    async def questions(self, runs: Sequence[str]) -> list[dict[str, Any]]:
        """What they and those below them ask."""
        replies = await asyncio.gather(
            *(self._link.ask(requests.QuestionsRequest(run=run)) for run in runs)
        )
        return [question for reply in replies for question in reply["questions"]]

    async def listed(self) -> list[dict[str, Any]]:
        """Every run that the guest has started, newest first, with what it has cost."""
        lines, costs = await asyncio.gather(
            self._pages(requests.ListRequest(limit=requests.MOST_RUNS)),
            self._pages(requests.CostsRequest(limit=requests.MOST_RUNS)),
        )
        by_run = {cost["run"]: cost for cost in costs}
        reports = [{**by_run[line["id"]], **line} for line in lines if line["id"] in by_run]
        return sorted(reports, key=lambda line: (line["created_at"], line["id"]), reverse=True)

    async def _pages(self, request: Any) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = []
        before = ""
        while True:
            page = await self._link.ask(type(request)(limit=request.limit, before=before))
            runs += page["runs"]
            before = page["next"]
            if not before:
                return runs

    async def charges(self) -> list[RunCharge]:
        """The guest's runs as its budget sees them."""
        lines = await self.listed()
        return list(await asyncio.gather(*(self._charge(line) for line in lines)))

    async def _charge(self, line: dict[str, Any]) -> RunCharge:
        if line["state"] in view_format.ENDS:
            return RunCharge(False, line["usd"], line["tokens"])
        reply = await self._link.ask(requests.SpendingRequest(run=line["id"]))
        limit = reply["spending"].get("limit", {})
        return RunCharge(True, line["usd"], line["tokens"], limit.get("usd"), limit.get("tokens"))


def _below(tree: dict[str, Any]) -> int:
    return sum(1 + _below(child) for child in tree["children"])
