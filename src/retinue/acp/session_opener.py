"""Opens sessions: new ones, and those recorded in the project's store."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any

from acp import RequestError, schema

from retinue.acp.editor_project import EditorProject, server_texts
from retinue.acp.editor_session import EditorSession
from retinue.acp.open_requests import OpenRequests
from retinue.acp.project_host import ProjectHost
from retinue.acp.prompt_text import invalid
from retinue.acp.session_list import PREFIX, sessions_in
from retinue.acp.session_settings import SessionSettings
from retinue.host import requests

NOT_FOUND = -32002


class SessionOpener:
    """The open sessions of one editor. `environ` and `flags` are those of the command; `store` is a
    file that was named, "" for the project's. `editor` is set when it is connected, `name` and
    `has_forms` when it has introduced itself."""

    def __init__(self, environ: Mapping[str, str], flags: Mapping[str, Any], store: str) -> None:
        self._environ, self._flags, self._store = environ, flags, store
        self._hosts: dict[str, ProjectHost] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.sessions: dict[str, EditorSession] = {}
        self.editor: Any = None
        self.name, self.has_forms = "the editor", False

    def session(self, id: str) -> EditorSession:
        if id not in self.sessions:
            raise RequestError(NOT_FOUND, f"Session {id!r} is not open here. Load it first.")
        return self.sessions[id]

    def project(self, cwd: str, folders: Any = None, servers: Any = None) -> EditorProject:
        """The project of a directory, with what the editor adds to it."""
        if not cwd.startswith("/"):
            raise invalid(f"cwd must be an absolute path, not {cwd!r}.")
        more = tuple(folders or ()), server_texts(servers or ())
        return EditorProject(self._environ, cwd, self._store, self._flags, *more)

    async def new(self, project: EditorProject, id: str = "") -> EditorSession:
        """A session without messages, with a name of its own if none is known."""
        id = id or PREFIX + secrets.token_hex(6)
        planned, terms = await asyncio.to_thread(project.plan)
        model = planned.choice.model
        models = await asyncio.to_thread(project.models, model)
        host = self._host(project)
        asks = OpenRequests(id, host, self.editor, self.name, self.has_forms)
        settings = SessionSettings(terms.mode or "manual", model, models)
        session = EditorSession(id, project, host, self.editor, asks, settings)
        if id in self.sessions:
            await self.sessions[id].close()
        self.sessions[id] = session
        task = asyncio.create_task(session.offer_commands())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session

    async def earlier(self, project: EditorProject, id: str) -> EditorSession:
        """A session of the store, by its name."""
        if not id.startswith(PREFIX):
            raise RequestError(NOT_FOUND, f"{id!r} is not the id of a session of Retinue.")
        host = self._host(project)
        page = await host.ask(requests.ListRequest(label=id, limit=1))
        if not page["runs"]:
            raise RequestError(NOT_FOUND, f"Session {id!r} has no messages in {project.cwd}.")
        detail = await host.ask(requests.ShowRequest(run=page["runs"][0]["id"]))
        session = await self.new(project, id)
        session.take_up(detail["id"], detail["model"])
        return session

    async def listed(self, cwd: str, cursor: str) -> schema.ListSessionsResponse:
        """A page of the sessions of a project."""
        return await sessions_in(self._host(self.project(cwd)), cwd, cursor)

    def _host(self, project: EditorProject) -> ProjectHost:
        """One for all sessions of a directory."""
        if project.cwd not in self._hosts:
            self._hosts[project.cwd] = ProjectHost(project.prepare)
        return self._hosts[project.cwd]
