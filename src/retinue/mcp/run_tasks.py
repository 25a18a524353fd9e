"""MCP tasks: a task is one run, or several started by one call; it is recorded before the client
gets its id, and is found by that id after every restart."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from retinue.errors import NotFound
from retinue.mcp.agent_reports import AgentReport, status_words, tool_result
from retinue.mcp.agent_work import AgentWork
from retinue.mcp.protocol_versions import ClientFacts
from retinue.mcp.question_forms import form_request
from retinue.mcp.task_ids import runs_of, task_id
from retinue.mcp.task_methods import TaskState


class RunTasks:
    """The tasks of one guest."""

    def __init__(self, work: AgentWork) -> None:
        self._work = work

    async def of_runs(self, runs: tuple[str, ...], client: ClientFacts) -> TaskState:
        reports = await self._work.reader.reports(runs)
        return _state(task_id(runs, await self._work.link.guest_key()), reports, client)

    async def find(self, id: str, client: ClientFacts) -> TaskState | None:
        runs = await self._runs(id)
        if not runs:
            return None
        try:
            return await self.of_runs(runs, client)
        except NotFound:
            return None  # deleted meanwhile

    async def update(self, id: str, responses: dict[str, Any], client: ClientFacts) -> None:
        await self._work.waits.take_answers(await self._runs(id), responses, client.name)

    async def cancel(self, id: str) -> None:
        await self._work.stop(await self._runs(id), "the client cancelled its task")

    async def _runs(self, id: str) -> tuple[str, ...]:
        return runs_of(id, await self._work.link.guest_key())


def _state(id: str, reports: Sequence[AgentReport], client: ClientFacts) -> TaskState:
    """A failed agent is a completed task whose result is an error: `failed` is for requests that
    went wrong themselves."""
    questions = [q for report in reports for q in report.questions]
    forms: dict[str, dict[str, Any]] = {}
    if all(report.is_ended for report in reports):
        is_stopped = all(report.state == "cancelled" for report in reports)
        status = "cancelled" if is_stopped else "completed"
    elif questions and client.can_elicit:
        status = "input_required"
        forms = {
            q["id"]: {"method": "elicitation/create", "params": form_request(q, client)}
            for q in questions
        }
    else:
        status = "working"
    ends = [report.ended_at for report in reports]
    now = int(time.time() * 1000)
    return TaskState(
        id=id,
        status=status,
        message=status_words(reports),
        created_at=min(report.created_at for report in reports),
        updated_at=max(now if end is None else end for end in ends),
        result=tool_result(reports),
        requests=forms,
    )
