"""Waits for runs on behalf of a client: reports progress, and passes questions to its user."""

from __future__ import annotations

import asyncio
from typing import Any

from retinue.errors import NotFound, Refused
from retinue.host import requests
from retinue.mcp import rpc_messages as rpc
from retinue.mcp.agent_reports import progress_of, status_words
from retinue.mcp.host_link import HostLink
from retinue.mcp.question_forms import answer_request, form_request
from retinue.mcp.rpc_messages import RpcError
from retinue.mcp.rpc_server import RpcCall
from retinue.mcp.run_reader import RunReader
from retinue.mcp.task_ids import runs_of, task_id

BEAT_SECONDS = 1.0


class RunWaits:
    """Waits for the runs of one guest."""

    def __init__(self, link: HostLink, reader: RunReader) -> None:
        self._link, self._reader = link, reader

    async def until_ended(
        self, call: RpcCall, runs: tuple[str, ...], seconds: float
    ) -> dict[str, Any] | None:
        """Until all have ended or the time is over: None. Or a result that asks the client for
        input, in the era that has such."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        asked_ids: set[str] = set()
        while True:
            rest = max(0.0, until - loop.time())
            wait = requests.WaitRequest(runs=runs, timeout_seconds=min(BEAT_SECONDS, rest))
            states = (await self._link.ask(wait))["states"]
            if all(states.values()):
                return None
            await self._report_progress(call, runs)
            if call.client.can_elicit:
                questions = await self._reader.questions(runs)
                if questions and call.client.is_stateless:
                    return await self._input_required(call, runs, questions)
                new = [q for q in questions if q["id"] not in asked_ids]
                if new:
                    before = loop.time()
                    asked_ids.add(new[0]["id"])
                    await self._ask_user(call, new[0])
                    until += loop.time() - before  # a person took it
                    continue
            if rest <= 0:
                return None

    async def _report_progress(self, call: RpcCall, runs: tuple[str, ...]) -> None:
        if "progressToken" in call.request.meta:
            reports = await self._reader.reports(runs)
            await call.progress(progress_of(reports), None, status_words(reports))

    async def _ask_user(self, call: RpcCall, question: dict[str, Any]) -> None:
        params = form_request(question, call.client)
        try:
            response = await call.ask_client("elicitation/create", params)
        except RpcError:
            return  # the question stays open: agents shows it, and answer answers it
        await self.take_answer(question, response, call.client.name)

    async def _input_required(
        self, call: RpcCall, runs: tuple[str, ...], questions: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return {
            "resultType": "input_required",
            "inputRequests": {
                q["id"]: {"method": "elicitation/create", "params": form_request(q, call.client)}
                for q in questions
            },
            "requestState": task_id(runs, await self._link.guest_key()),
        }

    async def resumed(self, call: RpcCall) -> tuple[str, ...]:
        """The runs of a request that comes again with what its user answered; () for a new one."""
        state = call.params.get("requestState")
        if state is None:
            return ()
        runs = runs_of(state, await self._link.guest_key()) if isinstance(state, str) else ()
        if not runs:
            raise RpcError(rpc.INVALID_PARAMS, "requestState is not one that this server gave.")
        await self.take_answers(runs, call.params.get("inputResponses"), call.client.name)
        return runs

    async def take_answers(self, runs: tuple[str, ...], responses: Any, by: str) -> None:
        """Answers by the ids of questions. Those that are no longer asked change nothing."""
        if not isinstance(responses, dict):
            return
        for question in await self._reader.questions(runs):
            await self.take_answer(question, responses.get(question["id"]), by)

    async def take_answer(self, question: dict[str, Any], response: Any, by: str) -> None:
        request = answer_request(question, response, f"the user of {by or 'an MCP client'}")
        if request is not None:
            try:
                await self._link.ask(request)
            except (NotFound, Refused):
                return  # another client has answered it
