"""Receives the calls of one guest: its tools, tasks and resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from retinue.errors import NotFound, RetinueError
from retinue.mcp import tool_arguments as arguments
from retinue.mcp.agent_reports import problem_result
from retinue.mcp.agent_resources import AgentResources
from retinue.mcp.agent_work import AgentWork, not_found
from retinue.mcp.client_roots import asked_roots, roots_needed
from retinue.mcp.guests import Guest
from retinue.mcp.host_link import HostLink
from retinue.mcp.rpc_server import RpcCall
from retinue.mcp.run_tasks import RunTasks
from retinue.mcp.subscriptions import Subscriptions
from retinue.mcp.task_methods import TaskMethods, created_task
from retinue.mcp.tool_arguments import ToolProblem, read_arguments
from retinue.mcp.tool_table import MOST_SECONDS, STARTING


class GuestCalls:
    """Whatever goes wrong in a tool becomes a result that the calling model can act on. With
    `is_local`, the client's directories are on this machine."""

    def __init__(self, link: HostLink, guest: Guest, *, is_local: bool) -> None:
        self._is_local = is_local
        self._work = AgentWork(link, guest)
        self._tasks = RunTasks(self._work)
        self.tasks = TaskMethods(self._tasks)
        self.resources = AgentResources(self._work)
        self.subscriptions = Subscriptions(self._tasks, self.resources.version)

    async def call_tool(self, name: str, call: RpcCall) -> dict[str, Any]:
        try:
            runs = await self._work.waits.resumed(call)
            if runs:
                return await self._work.collected(call, runs, MOST_SECONDS)
            raw = call.params.get("arguments")
            if name in STARTING:
                return await self._start(name, raw, call)
            return await self._other(name, raw, call)
        except ToolProblem as error:
            return problem_result(str(error))
        except NotFound as error:
            return problem_result(not_found(error))
        except RetinueError as error:
            return problem_result(str(error))

    async def _start(self, name: str, raw: Any, call: RpcCall) -> dict[str, Any]:
        begin: Callable[[], Any]
        if name == "delegate":
            many = read_arguments(name, raw, arguments.DelegateArguments)
            roots = await asked_roots(call) if self._is_local else ()
            if roots is None:
                return roots_needed()
            begin, background = lambda: self._work.delegate(many, roots), many.background
        else:
            one = read_arguments(name, raw, arguments.ForkArguments)
            begin, background = lambda: self._work.fork(one), one.background
        is_asked = call.client.has_old_tasks and "task" in call.params

        async def as_task(runs: tuple[str, ...]) -> dict[str, Any]:
            state = await self._tasks.of_runs(runs, call.client)
            if is_asked:
                self.subscriptions.follow_task(call, state)
            return created_task(state, call.client)

        async def as_result(runs: tuple[str, ...]) -> dict[str, Any]:
            return await self._work.collected(call, runs, MOST_SECONDS)

        if is_asked or (call.client.has_tasks and not background):
            return await self._work.started(call, begin(), as_task)
        answer = self._work.in_background if background else as_result
        return await self._work.started(call, begin(), answer)

    async def _other(self, name: str, raw: Any, call: RpcCall) -> dict[str, Any]:
        work = self._work
        table: dict[str, tuple[type[Any], Callable[[Any], Awaitable[dict[str, Any]]]]] = {
            "agents": (arguments.AgentsArguments, work.agents),
            "result": (arguments.ResultArguments, lambda args: work.result(call, args)),
            "send": (arguments.SendArguments, work.send),
            "cancel": (arguments.CancelArguments, work.cancel),
            "answer": (arguments.AnswerArguments, work.answer),
        }
        kind, function = table[name]
        return await function(read_arguments(name, raw, kind))
