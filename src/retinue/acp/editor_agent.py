"""The agent that an editor talks to: the methods of the protocol, over the sessions of one
editor."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from acp import PROTOCOL_VERSION, RequestError, schema

from retinue import __version__
from retinue.acp.prompt_text import invalid, prompt_text
from retinue.acp.session_opener import SessionOpener
from retinue.errors import NoKey, RetinueError
from retinue.formats.safe_text import one_line

P = ParamSpec("P")
T = TypeVar("T")
KEYS = "keys"
Servers = list[Any] | None


def in_words(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Our errors are errors of the protocol, with the same words."""

    @functools.wraps(method)
    async def translated(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except NoKey as error:
            raise RequestError(-32000, str(error)) from None
        except RetinueError as error:
            raise RequestError(-32603, str(error)) from None

    return translated


class EditorAgent:
    """`opener` has the open sessions, and opens others."""

    def __init__(self, opener: SessionOpener) -> None:
        self._opener = opener

    def on_connect(self, conn: Any) -> None:
        self._opener.editor = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **kwargs: Any,
    ) -> schema.InitializeResponse:
        if client_info is not None:
            name = one_line(client_info.title or client_info.name, 60)
            self._opener.name = name or self._opener.name
        elicitation = client_capabilities.elicitation if client_capabilities is not None else None
        self._opener.has_forms = elicitation is not None and elicitation.form is not None
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
        project = self._opener.project(os.getcwd())
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
        project = self._opener.project(cwd, additional_directories, mcp_servers)
        session = await self._opener.new(project)
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
        project = self._opener.project(cwd, additional_directories, mcp_servers)
        session = await self._opener.earlier(project, session_id)
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
        project = self._opener.project(cwd, additional_directories, mcp_servers)
        session = await self._opener.earlier(project, session_id)
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
        project = self._opener.project(cwd, additional_directories, mcp_servers)
        source = await self._opener.earlier(project, session_id)
        session = await self._opener.new(project)
        session.take_up(source.run, source.settings.model)
        session.is_fork, settings = True, session.settings
        return schema.ForkSessionResponse(
            session_id=session.id, modes=settings.modes, config_options=settings.options
        )

    @in_words
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> schema.ListSessionsResponse:
        return await self._opener.listed(cwd or os.getcwd(), cursor or "")

    async def close_session(self, session_id: str, **kwargs: Any) -> schema.CloseSessionResponse:
        session = self._opener.sessions.pop(session_id, None)
        if session is not None:
            await session.close()
        return schema.CloseSessionResponse()

    # in a session

    @in_words
    async def prompt(
        self, session_id: str, prompt: list[Any], **kwargs: Any
    ) -> schema.PromptResponse:
        session = self._opener.session(session_id)
        return await session.prompt(prompt_text(prompt))

    @in_words
    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        if session_id in self._opener.sessions:
            await self._opener.session(session_id).cancel()

    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> schema.SetSessionModeResponse:
        self._opener.session(session_id).settings.set_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> schema.SetSessionConfigOptionResponse:
        settings = self._opener.session(session_id).settings
        settings.set_option(config_id, value)
        return schema.SetSessionConfigOptionResponse(config_options=settings.options)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        return
