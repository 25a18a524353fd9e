"""Push notifications: sends the events of a task to addresses that its client set, each at least
once. Only public addresses are reached, unless an admin has named them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any

from retinue.errors import NotFound, Refused, RetinueError
from retinue.host.host import Host
from retinue.host.identity import Identity
from retinue.host.push_targets import PushTarget, PushTargets
from retinue.host.requests import ShowRequest
from retinue.host.server_events import encode
from retinue.server.a2a.a2a_errors import INVALID_PARAMS, A2aError, task_not_found
from retinue.server.a2a.a2a_requests import PushConfig, PushParams
from retinue.server.a2a.agent_tasks import AgentTasks
from retinue.server.run_turns import RunTurn
from retinue.tools.builtin.ssrf import Gate
from retinue.tools.builtin.web_address import Target, parse_url
from retinue.tools.builtin.web_connector import connector_for

log = logging.getLogger("retinue.host")
MEDIA = "application/a2a+json"
TIMEOUT_SECONDS = 10.0
WAITS_SECONDS = (1.0, 5.0, 30.0)
"""Between the tries."""


class PushNotifier:
    """Follows the tasks whose news someone wants."""

    def __init__(self, host: Host) -> None:
        self._host, self._gate = host, Gate()
        self._targets = PushTargets(host.introduction().store)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self) -> None:
        """Send the news of tasks that an earlier process has left."""
        for run in self._targets.waiting() - self._tasks.keys():
            self._follow(run)

    # configurations

    async def add(
        self, tasks: AgentTasks, run: str, config: PushConfig, start: int | None = None
    ) -> dict[str, Any]:
        """News from message `start` on, also if the task has ended by now; without one, from now
        on."""
        await tasks.context_of(run)
        secret = config.authentication
        shown_run = await tasks.host.show(ShowRequest(run=run), tasks.who)
        target = PushTarget(
            run=run,
            id=config.id or str(uuid.uuid4()),
            url=config.url,
            user=tasks.who.user,
            token=config.token or "",
            scheme=secret.scheme if secret is not None else "",
            credentials=(secret.credentials or "") if secret is not None else "",
            is_trusted=tasks.who.may("admin"),
            is_done=start is None and shown_run.ended_at is not None,
        )
        check_target(target)
        self._targets.add(target)
        if not target.is_done:
            self._follow(run, start)
        return shown(target)

    async def find(self, tasks: AgentTasks, params: PushParams) -> dict[str, Any]:
        await tasks.context_of(params.task_id)
        target = self._targets.find(params.task_id, params.id)
        if target is None:
            raise task_not_found(f"{params.task_id}/pushNotificationConfigs/{params.id}")
        return shown(target)

    async def listed(self, tasks: AgentTasks, params: PushParams) -> dict[str, Any]:
        await tasks.context_of(params.task_id)
        configs = [shown(target) for target in self._targets.of(params.task_id)]
        return {"configs": configs, "nextPageToken": ""}

    async def remove(self, tasks: AgentTasks, params: PushParams) -> dict[str, Any]:
        """What is not there is gone as well."""
        await tasks.context_of(params.task_id)
        self._targets.remove(params.task_id, params.id)
        return {}

    # telling

    def _follow(self, run: str, start: int | None = None) -> None:
        if run not in self._tasks:
            task = asyncio.ensure_future(self._tell(run, start))
            self._tasks[run] = task
            task.add_done_callback(lambda _: self._tasks.pop(run, None))

    async def _tell(self, run: str, start: int | None) -> None:
        targets = self._targets.of(run)
        who = Identity("push", frozenset({"run"}), targets[0].user if targets else "")
        tasks = AgentTasks(self._host, who)
        try:
            first = (await self._host.row(run)).run.length if start is None else start
            async for update in tasks.updates(RunTurn(run, first), is_endless=True):
                await asyncio.gather(*(self._send(t, update) for t in self._targets.of(run)))
            self._targets.done(run)
        except (NotFound, A2aError):
            self._targets.forget(run)
        except RetinueError as error:
            log.warning("the news of %s cannot be told: %s", run, error)

    async def _send(self, target: PushTarget, update: dict[str, Any]) -> None:
        """An address that cannot be reached is tried a few times; the others do not wait longer
        than that."""
        for wait in (*WAITS_SECONDS, None):
            try:
                await self._post(target, update)
                return
            except (OSError, RetinueError, TimeoutError, ValueError) as error:
                log.info("a notification for %s failed: %s", target.run, type(error).__name__)
            if wait is None or self._host.leave.is_set():
                return
            await asyncio.sleep(wait)

    async def _post(self, target: PushTarget, update: dict[str, Any]) -> None:
        import aiohttp

        place = parse_url(target.url)
        try:
            async with (
                asyncio.timeout(TIMEOUT_SECONDS),
                aiohttp.ClientSession(connector=await self._connector(target, place)) as session,
                session.post(
                    target.url,
                    data=encode(update),
                    headers=headers_of(target),
                    allow_redirects=False,
                ) as response,
            ):
                if response.status >= 300:
                    raise RetinueError(f"{place.host} answered {response.status}")
        except aiohttp.ClientError as error:
            raise RetinueError(type(error).__name__) from None

    async def _connector(self, target: PushTarget, place: Target) -> Any:
        """To checked addresses only."""
        if target.is_trusted:
            return None
        return connector_for(place, await self._gate.admit(place), None)


def check_target(target: PushTarget) -> None:
    """Raises `A2aError` for what could not be sent."""
    try:
        parse_url(target.url)
        for value in headers_of(target).values():
            if not value.isprintable() or not value.isascii():
                raise ValueError("a header has characters that cannot be sent")
    except (Refused, ValueError) as error:
        text = f"Notifications cannot be sent there: {error}"
        raise A2aError(INVALID_PARAMS, text) from None


def headers_of(target: PushTarget) -> dict[str, str]:
    headers = {"content-type": MEDIA, "user-agent": "retinue"}
    if target.token:
        headers["x-a2a-notification-token"] = target.token
    if target.scheme:
        headers["authorization"] = f"{target.scheme} {target.credentials}".strip()
    return headers


def shown(target: PushTarget) -> dict[str, Any]:
    """A configuration as its client gets it back: without what lets others in."""
    config: dict[str, Any] = {"id": target.id, "taskId": target.run, "url": target.url}
    if target.token:
        config["token"] = target.token
    if target.scheme:
        config["authentication"] = {"scheme": target.scheme}
    return config
