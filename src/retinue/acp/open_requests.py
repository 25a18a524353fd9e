"""The requests of a session that wait for the user in the editor. A question that wants words, and
an editor that has no forms: the turn ends, and the next prompt is the answer."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from acp import RequestError, schema
from acp.helpers import update_agent_message_text

from retinue.acp import person_requests
from retinue.acp.project_host import ProjectHost
from retinue.acp.tree_updates import TreeUpdates
from retinue.errors import RetinueError
from retinue.host import requests


class PermissionEditor(Protocol):
    """What is asked of the editor."""

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None: ...

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **kwargs: Any,
    ) -> schema.RequestPermissionResponse: ...

    async def create_elicitation(self, message: str, mode: Any, **kwargs: Any) -> Any: ...


class OpenRequests:
    """`by` is who answers, for the record; `has_forms`: whether the editor can ask for words."""

    def __init__(
        self, session: str, host: ProjectHost, editor: PermissionEditor, by: str, has_forms: bool
    ) -> None:
        self._session, self._host, self._editor = session, host, editor
        self._by, self._has_forms = by, has_forms
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._in_words: dict[str, dict[str, Any]] = {}
        self._leave: asyncio.Future[None] | None = None

    def waiting_for_words(self) -> asyncio.Future[None]:
        """Done when a turn has to end because only the person can continue it; raises if it is the
        provider who wants something of the person."""
        self._leave = asyncio.get_running_loop().create_future()
        return self._leave

    def leave(self, error: RequestError | None = None) -> None:
        """End the turn. The run stays open."""
        if self._leave is None or self._leave.done():
            return
        if error is None:
            self._leave.set_result(None)
        else:
            self._leave.set_exception(error)

    async def look(self, run: str, updates: TreeUpdates) -> bool:
        """Ask what a run and its sub-agents ask, each question once. False while there is one whose
        call the editor does not have yet."""
        reply = await self._host.ask(requests.QuestionsRequest(run=run))
        is_complete = True
        for question in reply["questions"]:
            if question["id"] in self._tasks:
                continue
            id = updates.call_id(question["run"], question.get("call", {}).get("id", ""))
            if not id:
                is_complete = False
                continue
            call = person_requests.shown_call(
                question, id, updates.cwd, is_own=question["run"] == updates.top
            )
            self._tasks[question["id"]] = asyncio.create_task(self._ask(question, call))
        return is_complete

    async def answered(self, text: str) -> bool:
        """Take the text as the answer to the question that a turn ended with."""
        for id, question in list(self._in_words.items()):
            del self._in_words[id]
            try:
                await self._host.ask(person_requests.words(question, text, self._by))
            except RetinueError:
                continue  # it was answered elsewhere
            return True
        return False

    def forget(self) -> None:
        """The run has ended: no one waits for an answer."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._in_words.clear()

    close = forget

    async def _ask(self, question: dict[str, Any], call: schema.ToolCallUpdate) -> None:
        """One question to the person. What is not answered stays open, for `retinue approve`."""
        choices = person_requests.options(question)
        try:
            if choices:
                request = await self._choice(question, call, choices)
            elif self._has_forms:
                request = await self._form(question)
            else:
                await self._hand_over(question)
                return
            if request is not None:
                await self._host.ask(request)
        except RetinueError:
            return  # it was answered elsewhere
        except (RequestError, ConnectionError):
            return

    async def _choice(
        self,
        question: dict[str, Any],
        call: schema.ToolCallUpdate,
        choices: list[schema.PermissionOption],
    ) -> requests.AnswerRequest | None:
        response = await self._editor.request_permission(
            session_id=self._session, tool_call=call, options=choices
        )
        outcome = response.outcome
        if not isinstance(outcome, schema.AllowedOutcome):
            return None  # the turn was cancelled
        return person_requests.decision(question, outcome.option_id, self._by)

    async def _form(self, question: dict[str, Any]) -> requests.AnswerRequest | None:
        message = f"{question['label']} asks: {question['text']}"
        mode = person_requests.form(self._session)
        response = await self._editor.create_elicitation(message=message, mode=mode)
        content = getattr(response, "content", None) or {}
        answer = content.get("answer")
        if isinstance(answer, str) and answer.strip():
            return person_requests.words(question, answer, self._by)
        if getattr(response, "action", "") == "decline":
            return person_requests.words(question, person_requests.NO_ANSWER, self._by)
        await self._hand_over(question)
        return None

    async def _hand_over(self, question: dict[str, Any]) -> None:
        self._in_words[question["id"]] = question
        text = f"{question['label']} asks: {question['text']}\n\nYour next message is the answer."
        await self._editor.session_update(
            session_id=self._session, update=update_agent_message_text(f"\n\n{text}\n")
        )
        self.leave()
