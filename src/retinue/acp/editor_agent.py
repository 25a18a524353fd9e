"""The agent that an editor talks to: the methods of the protocol, over the sessions of one
editor."""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar, cast

from acp import PROTOCOL_VERSION, RequestError, schema

from retinue import __version__
from retinue.acp.editor_project import EditorProject, server_texts
from retinue.acp.editor_session import EditorSession
from retinue.acp.open_requests import OpenRequests
from retinue.acp.project_host import ProjectHost
from retinue.acp.prompt_text import invalid, prompt_text
from retinue.acp.session_settings import SessionSettings
from retinue.errors import NoKey, RetinueError
from retinue.formats.safe_text import one_line
from retinue.host import requests

P = ParamSpec("P")
T = TypeVar("T")
PREFIX = "acp-"
KEYS = "keys"
PAGE = 50
Servers = list[Any] | None


def in_words(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Our errors are errors of the protocol, with the same words."""

    @functools.wraps(method)
    async def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except NoKey as error:
            raise RequestError(-32000, str(error)) from None
        except RetinueError as error:
            raise RequestError(-32603, str(error)) from None

    return told


class EditorAgent:
    """`environ` and `flags` are those of the command; `store` is a file that was named, "" for the
    project's."""

    def __init__(self, environ: Mapping[str, str], flags: Mapping[str, Any], store: str) -> None:
        self._environ, self._flags, self._store = environ, flags, store
        self._hosts: dict[str, ProjectHost] = {}
        self._sessions: dict[str, EditorSession] = {}
        self._editor: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._name, self._has_forms = "the editor", False

    def on_connect(self, conn: Any) -> None:
        self._editor = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> schema.InitializeResponse:
        if client_info is not None:
            self._name = one_line(client_info.title or client_info.name, 60) or self._name
        elicitation = client_capabilities.elicitation if client_capabilities is not None else None
        self._has_forms = elicitation is not None and elicitation.form is not None
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="retinue", title="Retinue", version=__version__),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=True),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                ),
            ),
            auth_methods=[
                schema.AuthMethodAgent(
                    id=KEYS,
                    name="API key in the environment",
                    description="Set the key of a provider in the editor's settings for this "
                    "agent, or in Retinue's configuration. Without one, offline/explorer answers.",
                )
            ],
        )

    @in_words
    async def authenticate(self, method_id: str, **kwargs: Any) -> schema.AuthenticateResponse:
        """Keys are read anew with every prompt; here it is only checked that there is one."""
        if method_id != KEYS:
            raise invalid(f"Unknown method {method_id!r}. Known: {KEYS}.")
        project = EditorProject(self._environ, os.getcwd(), self._store, self._flags)
        if not await asyncio.to_thread(project.has_key):
            raise RequestError(
                -32000,
                "No API key is set. Add one to the editor's settings for this agent, for example "
                "ANTHROPIC_API_KEY, and start the agent again. Sessions work without one, with "
                "offline/explorer.",
            )
        return schema.AuthenticateResponse()

    # sessions

    @in_words
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Servers = None,
        **kwargs: Any,
    ) -> schema.NewSessionResponse:
        session = await self._made(self._id(), cwd, additional_directories, mcp_servers)
        settings = session.settings
        return schema.NewSessionResponse(
            session_id=session.id, modes=settings.modes, config_options=settings.options
        )

    @in_words
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: Servers = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> schema.LoadSessionResponse:
        session = await self._earlier(session_id, cwd, additional_directories, mcp_servers)
        await session.replay()
        await session.go_on()
        settings = session.settings
        return schema.LoadSessionResponse(modes=settings.modes, config_options=settings.options)

    @in_words
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Servers = None,
        **kwargs: Any,
    ) -> schema.ResumeSessionResponse:
        session = await self._earlier(session_id, cwd, additional_directories, mcp_servers)
        await session.go_on()
        settings = session.settings
        return schema.ResumeSessionResponse(modes=settings.modes, config_options=settings.options)

    @in_words
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: Servers = None,
        **kwargs: Any,
    ) -> schema.ForkSessionResponse:
        source = await self._earlier(session_id, cwd, additional_directories, mcp_servers)
        session = await self._made(self._id(), cwd, additional_directories, mcp_servers)
        session.take_up(source.run, source.settings.model)
        session.is_fork, settings = True, session.settings
        return schema.ForkSessionResponse(
            session_id=session.id, modes=settings.modes, config_options=settings.options
        )

    @in_words
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> schema.ListSessionsResponse:
        """The sessions of a project, those that were used last first."""
        place, sessions = cwd or os.getcwd(), dict[str, schema.SessionInfo]()
        before, is_last = cursor or "", False
        host = self._host(EditorProject(self._environ, place, self._store, self._flags))
        while len(sessions) < PAGE and not is_last:
            page = await host.ask(requests.ListRequest(limit=PAGE, before=before))
            before, is_last = page["next"], not page["next"]
            for line in page["runs"]:
                label = line["label"]
                if label.startswith(PREFIX):
                    time = datetime.fromtimestamp(line["created_at"] / 1000, UTC).isoformat()
                    title = one_line(line.get("task", ""), 80)
                    sessions.setdefault(
                        label,
                        schema.SessionInfo(
                            session_id=label, cwd=place, title=title, updated_at=time
                        ),
                    )
        return schema.ListSessionsResponse(
            sessions=list(sessions.values()), next_cursor=before or None
        )

    async def close_session(self, session_id: str, **kwargs: Any) -> schema.CloseSessionResponse:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
        return schema.CloseSessionResponse()

    # in a session

    @in_words
    async def prompt(
        self, session_id: str, prompt: list[Any], **kwargs: Any
    ) -> schema.PromptResponse:
        session = self._session(session_id)
        return await session.prompt(prompt_text(prompt))

    @in_words
    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        if session_id in self._sessions:
            await self._sessions[session_id].cancel()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> schema.SetSessionModeResponse:
        self._session(session_id).settings.set_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> schema.SetSessionConfigOptionResponse:
        settings = self._session(session_id).settings
        settings.set_option(config_id, value)
        return schema.SetSessionConfigOptionResponse(config_options=settings.options)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return

    # what they share

    def _id(self) -> str:
        return PREFIX + secrets.token_hex(6)

    def _session(self, id: str) -> EditorSession:
        if id not in self._sessions:
            raise RequestError(-32002, f"Session {id!r} is not open here. Load it first.")
        return self._sessions[id]

    def _host(self, project: EditorProject) -> ProjectHost:
        """One for all sessions of a directory."""
        if project.cwd not in self._hosts:
            self._hosts[project.cwd] = ProjectHost(project.prepare)
        return self._hosts[project.cwd]

    async def _made(
        self, id: str, cwd: str, folders: list[str] | None, servers: Servers
    ) -> EditorSession:
        if not cwd.startswith("/"):
            raise invalid(f"cwd must be an absolute path, not {cwd!r}.")
        project = EditorProject(
            self._environ,
            cwd,
            self._store,
            self._flags,
            tuple(folders or ()),
            server_texts(servers or ()),
        )
        planned, terms = await asyncio.to_thread(project.plan)
        model = planned.choice.model
        models = await asyncio.to_thread(project.models, model)
        host = self._host(project)
        asks = OpenRequests(id, host, self._editor, self._name, self._has_forms)
        settings = SessionSettings(terms.mode or "manual", model, models)
        session = EditorSession(id, project, host, self._editor, asks, settings)
        if id in self._sessions:
            await self._sessions[id].close()
        self._sessions[id] = session
        task = asyncio.create_task(self._offer(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return session

    async def _offer(self, session: EditorSession) -> None:
        await asyncio.sleep(0)  # the editor first learns that there is a session
        await session.offer_commands()

    async def _earlier(
        self, id: str, cwd: str, folders: list[str] | None, servers: Servers
    ) -> EditorSession:
        """A session of the store, by its name."""
        if not id.startswith(PREFIX):
            raise RequestError(-32002, f"{id!r} is not the id of a session of Retinue.")
        project = EditorProject(self._environ, cwd, self._store, self._flags)
        host = self._host(project)
        page = await host.ask(requests.ListRequest(label=id, limit=1))
        if not page["runs"]:
            raise RequestError(-32002, f"Session {id!r} has no messages in {cwd}.")
        run = cast(str, page["runs"][0]["id"])
        detail = await host.ask(requests.ShowRequest(run=run))
        session = await self._made(id, cwd, folders, servers)
        session.take_up(run, detail["model"])
        return session
