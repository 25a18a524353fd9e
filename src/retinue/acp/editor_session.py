"""One session of an editor. It is a conversation in the project's store: each prompt is a run that
continues the one before, and all of them have the session's id as their name, by which the
conversation is found again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

import msgspec
from acp import RequestError, schema
from acp.helpers import update_agent_thought_text
from msgspec.structs import replace

from retinue.acp.editor_project import EditorProject
from retinue.acp.open_requests import OpenRequests
from retinue.acp.project_host import ProjectHost
from retinue.acp.prompt_text import invalid
from retinue.acp.session_settings import SessionSettings
from retinue.acp.slash_commands import commands_of, expanded
from retinue.acp.tree_updates import TreeUpdates
from retinue.acp.turn_end import turn_end
from retinue.core.messages import Message
from retinue.errors import HostGone, RetinueError
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.host.planner import PlannedRun
from retinue.host.tree_items import RunAdded, RunChanged, TextArrived, TreeItem
from retinue.tree_record import RunRecord, TreeRecord
from retinue.view import format as view_format
from retinue.view import parked_runs, totals

PAGE = 200


class UpdatedEditor(Protocol):
    """The editor, as far as a session talks to it."""

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None: ...


class EditorSession:
    """`run` is the last run of the conversation, "" before the first prompt. With `is_fork` the
    next prompt begins a conversation of its own there."""

    def __init__(
        self,
        id: str,
        project: EditorProject,
        host: ProjectHost,
        editor: UpdatedEditor,
        asks: OpenRequests,
        settings: SessionSettings,
    ) -> None:
        self.id, self.project, self.host = id, project, host
        self.settings = settings
        self.run, self.is_fork = "", False
        self._editor, self._asks = editor, asks
        self._updates = TreeUpdates(project.cwd)
        self._model = settings.model
        self._rows: dict[str, RunRecord] = {}
        self._following: asyncio.Task[TreeRecord] | None = None
        self._is_prompted = self._is_cancelled = self._has_questions = False

    # what the editor asks for

    async def prompt(self, text: str) -> schema.PromptResponse:
        """One message, until there is nothing more to wait for."""
        if self._is_prompted:
            raise invalid("This session is still at work on the last prompt. Cancel it first.")
        self._is_prompted, self._is_cancelled = True, False
        waiting = self._asks.waiting_for_words()
        try:
            text = await expanded(self.project, self.host, text)
            if not await self._continued(text):
                self._follow(await self._begun(text))
            return await self._answer(waiting)
        finally:
            self._is_prompted = False
            waiting.cancel()

    async def cancel(self) -> None:
        """End the run that is under way, with its sub-agents."""
        self._is_cancelled = True
        if self._following is not None and not self._following.done():
            await self.host.ask(requests.CancelRequest(runs=(self.run,), reason="by the editor"))

    async def replay(self) -> None:
        """Show the conversation until now; what is still at work is shown as it happens."""
        start, length = 0, 1
        self._updates.follow(self.run)
        while start < length:
            page = await self.host.ask(
                requests.TranscriptRequest(run=self.run, start=start, limit=PAGE)
            )
            messages, length = msgspec.convert(page["messages"], list[Message]), page["length"]
            for n, message in enumerate(messages, start):
                for update in self._updates.message(n, message, is_replay=True):
                    await self.tell(update)
            start = start + len(messages) if messages else length

    def take_up(self, run: str, model: str) -> None:
        """Continue an earlier conversation, whose last run is this."""
        self.run, self._model = run, model
        self.settings.model = model
        self.settings.models = tuple(dict.fromkeys((model, *self.settings.models)))

    async def go_on(self) -> None:
        """Show what the last run does, if it is still at work."""
        state = (await self.host.ask(requests.ShowRequest(run=self.run)))["state"]
        if state not in view_format.ENDS:
            self._follow(self.run)

    async def offer_commands(self) -> None:
        """Tell the editor which commands there are, if any."""
        with contextlib.suppress(RetinueError, RequestError, ConnectionError):
            update = await commands_of(self.project, self.host)
            if update is not None:
                await self.tell(update)

    async def close(self) -> None:
        """Forget the session here. Its runs continue."""
        self._asks.close()
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._following

    async def tell(self, update: Any) -> None:
        await self._editor.session_update(session_id=self.id, update=update)

    # runs

    async def _continued(self, text: str) -> bool:
        """Give the text to a run that is still open: as the answer that it waits for, or as a
        message. False when there is none."""
        if self._following is not None and self._following.done() and self._following.exception():
            await self.go_on()  # only the way to the run was lost
        if self._following is None or self._following.done():
            return False
        await self.host.reach(again=True)  # with the keys of now
        if await self._asks.answered(text):
            return True
        try:
            await self.host.ask(requests.SendRequest(run=self.run, text=text))
        except HostGone:
            raise
        except RetinueError:  # it has ended meanwhile
            await self._following
            return False
        return True

    async def _begun(self, text: str) -> str:
        """Start the run of a prompt."""
        planned, terms = await asyncio.to_thread(self.project.plan, self.settings.model)
        await self.host.reach(again=True)  # with the keys of now
        terms = replace(terms, label=self.id, mode=self.settings.mode)
        plan, is_other = planned.plan, self.is_fork or self.settings.model != self._model
        if not self.run:
            start = requests.StartRequest(task=text, terms=terms, plan=plan, env=planned.env)
            reply = await self.host.ask(start)
            await self._introduce(text, planned, reply)
            return str(reply["run"])
        if planned.env and plan.servers:
            await self.host.ask(requests.ServersRequest(plan=plan, env=planned.env))
        request: requests.HostRequest = requests.ResumeRequest(run=self.run, task=text, terms=terms)
        if is_other:
            request = requests.ForkRequest(run=self.run, task=text, terms=terms, plan=plan)
        reply = await self.host.ask(request)
        self.is_fork, self._model = False, self.settings.model
        return str(reply["run"])

    async def _introduce(self, text: str, planned: PlannedRun, reply: dict[str, Any]) -> None:
        """What a person should know before the answer."""
        title = schema.SessionInfoUpdate(
            session_update="session_info_update", title=one_line(text, 80)
        )
        await self.tell(title)
        servers = [*planned.left_out, *reply["mcp"]]
        problems = [f"MCP server {s['name']}: {s['error']}" for s in servers if s["error"]]
        for line in (*planned.choice.hints, *planned.notes, *problems, *reply["notes"]):
            await self.tell(update_agent_thought_text(one_line(line, 400) + "\n"))

    def _follow(self, run: str) -> None:
        self.run = run
        self._rows.clear()
        self._updates.follow(run)
        self._following = asyncio.create_task(self._watch(run))
        self._following.add_done_callback(_retrieved)

    async def _watch(self, run: str) -> TreeRecord:
        async with contextlib.aclosing(self.host.watch(run)) as items:
            async for item in items:
                if isinstance(item, TreeRecord):
                    self._asks.forget()
                    return item
                for update in self._updates.updates(item):
                    await self.tell(update)
                await self._watch_item(item)
        raise HostGone("The host ended before the run did. Send your message again.")

    async def _watch_item(self, item: TreeItem) -> None:
        if isinstance(item, RunAdded) and item.spec.id == self.run and self._is_cancelled:
            await self.host.ask(requests.CancelRequest(runs=(self.run,), reason="by the editor"))
        if isinstance(item, RunChanged):
            self._take(item.row.record)
        if self._has_questions and not isinstance(item, TextArrived):
            self._has_questions = not await self._asks.look(self.run, self._updates)

    def _take(self, row: RunRecord) -> None:
        self._rows[row.spec.id] = row
        self._has_questions |= totals.word(row) == "needs_input"
        if (refused := parked_runs.refused(self._rows.values())) is not None:
            why = parked_runs.refusal(totals.waits_for(refused))
            self._asks.leave(RequestError(-32000, one_line(why, 400)))

    async def _answer(self, waiting: asyncio.Future[None]) -> schema.PromptResponse:
        """How the turn ended, or that a person has to say something first."""
        assert self._following is not None
        futures: set[asyncio.Future[Any]] = {self._following, waiting}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not self._following.done():
            waiting.result()
            return schema.PromptResponse(stop_reason="end_turn")
        if waiting.done():
            waiting.exception()
        final = self._following.result()
        if note := totals.missing_note(final.rows[0]):
            await self.tell(update_agent_thought_text(f"{one_line(note, 2_000)}\n"))
        return turn_end(final)


def _retrieved(task: asyncio.Task[Any]) -> None:
    """An error that no prompt waits for is shown with the next one."""
    if not task.cancelled():
        task.exception()
