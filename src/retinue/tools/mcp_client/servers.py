"""All servers of a runtime: started together, their tools named, filtered and compared with the
approvals."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of
from retinue.core.values import ToolSchema
from retinue.errors import ConfigError, NotFound, Refused
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import one_line, reveal, several_lines
from retinue.tools.mcp_client import tool_names as names
from retinue.tools.mcp_client.approvals import Approvals, fingerprint, page
from retinue.tools.mcp_client.http_headers import header_problem
from retinue.tools.mcp_client.mcp_tool import McpTool, effects
from retinue.tools.mcp_client.oauth.login_file import LoginFile
from retinue.tools.mcp_client.oauth.server_login import ServerLogin, Visit
from retinue.tools.mcp_client.protocol import McpError, ServerLimits
from retinue.tools.mcp_client.server_config import ServerComplaint, ServerConfig
from retinue.tools.mcp_client.server_content import ListedPrompt, prompt_text, prompts_of
from retinue.tools.mcp_client.server_lifecycle import KeptServer
from retinue.tools.mcp_client.server_status import ServerStatus, Withheld
from retinue.tools.mcp_client.tool_schemas import Unusable, normal

AT_ONCE = 8


class _Checked:
    """A definition that was looked at: its hash, and the schema of its arguments, or why there is
    none. A large list of tools is asked about for each run, and changes seldom."""

    def __init__(
        self, definition: Mapping[str, Any], limits: ServerLimits, *, is_http: bool
    ) -> None:
        self.definition, self.print = definition, fingerprint(definition)
        self.parameters: dict[str, Any] = {}
        self.unusable: Unusable | None = None
        try:
            self.parameters = normal(definition.get("inputSchema"), limits.schema_bytes)
            if is_http and (problem := header_problem(definition.get("inputSchema"))):
                raise Unusable(problem)
        except Unusable as error:
            self.unusable = error
        words = definition.get("description")
        # What is taken out of a text is bounded too: several times what is kept of it is looked at.
        most = limits.description_chars
        self.description = (
            clip(several_lines(words[: 4 * most]), most) if isinstance(words, str) else ""
        )


class McpServers:
    """`approvals_file` keeps approvals; without it they last as long as this object. The tools that
    a server has when it is seen for the first time are approved with it, unless `approve_first` is
    False: its user has just chosen to run it. `workspace` is the directory that servers start in
    and get as their root. `environ` is where the few variables come from that every server may see.
    `skipped` are complaints about configuration, shown by `status`. `redactor` takes secrets out of
    everything that servers say; it learns those of their configuration. `used` gets the id of each
    run that calls a tool. `logins` keeps tokens of servers that want a login, and `visit` is how a
    person logs in; without it such a server is not usable before. All of it belongs to the loop
    that it was started on."""

    def __init__(
        self,
        configs: Iterable[ServerConfig],
        *,
        approvals_file: Path | None = None,
        workspace: Path | None = None,
        environ: Mapping[str, str] | None = None,
        skipped: Sequence[ServerComplaint] = (),
        approve_first: bool = True,
        limits: ServerLimits | None = None,
        redactor: Redactor | None = None,
        used: Callable[[str], None] | None = None,
        logins: LoginFile | None = None,
        visit: Visit | None = None,
    ) -> None:
        self._used = used
        logins = logins or LoginFile()
        self._limits = limits or ServerLimits()
        redactor = Redactor() if redactor is None else redactor
        redactor.learn(secrets_of(environ or {}))
        self._approvals = Approvals(approvals_file)
        self._skipped = tuple(skipped)
        self._approve_first = approve_first
        self._servers: dict[str, KeptServer] = {}
        self._looked: dict[names.Key, _Checked] = {}
        within = os.path.realpath(workspace or Path.cwd())
        roots = (workspace.absolute().as_uri(),) if workspace else ()
        for config in configs:
            if config.name in self._servers:
                raise ConfigError(f"Two MCP servers are named {config.name!r}. Rename one.")
            self._servers[config.name] = KeptServer(
                config,
                limits=self._limits,
                environ=environ or {},
                cwd=os.path.join(within, config.cwd),
                within=within,
                roots=roots,
                listed=self._listed,
                offers=self._withheld,
                redactor=redactor,
                login=ServerLogin(
                    config, logins, environ=environ or {}, redactor=redactor, visit=visit
                )
                if config.may_log_in
                else None,
            )
            redactor.learn(config.secrets)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all that are not disabled, a few at a time. A failed one is shown by `status`;
        ConfigError if it was `required`. A server whose configuration is not the approved one is
        not started."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(server: KeptServer) -> None:
            async with room:
                with contextlib.suppress(McpError):
                    if self._is_as_approved(server):
                        await server.start()

        for wrong in await asyncio.gather(
            *map(one, self._servers.values()), return_exceptions=True
        ):
            if wrong is not None:
                raise wrong
        missing = [
            s
            for s in self._servers.values()
            if s.config.required and s.state not in ("ready", "disabled")
        ]
        if missing:
            reasons = "; ".join(f"{one_line(s.config.name)}: {s.error}" for s in missing)
            raise ConfigError(f"A required MCP server could not be used: {reasons}")

    async def start_after_logins(self) -> None:
        """Start those that could not be used before, and that someone has logged in to since."""
        for server in self._servers.values():
            if server.state in ("dead", "failed") and server.login and server.login.has_news():
                with contextlib.suppress(McpError):
                    await self.restart(server.config.name)

    async def log_in(self, name: str) -> int:
        """Log in to a server, also if it has not asked for it yet. How many tools it offers then.
        McpError says why not."""
        server = self._server(name)
        if server.login is None:
            raise Refused(
                "mcp", f"MCP server {name!r} has a command or a token, so there is no login."
            )
        before = server.login.token()
        await server.restart()
        if server.login.token() == before:
            await server.login.log_in()
            await server.restart()
        return len(server.definitions)

    def _is_as_approved(self, server: KeptServer) -> bool:
        pinned = self._approvals.server(server.config.name)
        if (
            pinned is None
            or pinned.identity == server.config.identity
            or server.state == "disabled"
        ):
            return True
        server.state = "changed"
        server.error = (
            "its configuration changed since it was approved; approve it again to start the server"
        )
        return False

    # tools

    def _listed(self, server: KeptServer) -> None:
        if self._approvals.server(server.config.name) is None and self._approve_first:
            self._approvals.approve(
                server.config.name, server.config.identity, *server.definitions, whole=True
            )

    def _withheld(self, server: str, tool: str) -> str:
        """Why a tool may not be called now, "" if it may."""
        definition = self._servers[server].named.get(tool)
        if definition is None:
            return "the server no longer offers this tool"
        if not self._is_wanted(self._servers[server].config, tool):
            return "its configuration excludes this tool"
        state = self._approvals.state(server, tool, self._checked(server, definition).print)
        if state == "approved":
            return ""
        return (
            "its definition changed since it was approved"
            if state == "changed"
            else "not approved yet"
        )

    def _checked(self, server: str, definition: Mapping[str, Any]) -> _Checked:
        key = (server, definition["name"])
        looked = self._looked.get(key)
        if looked is None or looked.definition is not definition:
            is_http = self._servers[server].config.kind != "stdio"
            looked = self._looked[key] = _Checked(definition, self._limits, is_http=is_http)
        return looked

    def _is_wanted(self, config: ServerConfig, tool: str) -> bool:
        return names.is_wanted(tool, config.include, config.exclude)

    def _names(self) -> dict[names.Key, str]:
        """Of all tools, withheld ones too, so that a name does not depend on approvals."""
        keys, aliases = [], {}
        for server in self._servers.values():
            for definition in server.definitions:
                tool = definition["name"]
                if self._is_wanted(server.config, tool):
                    keys.append((server.config.name, tool))
                    if tool in server.config.aliases:
                        aliases[keys[-1]] = server.config.aliases[tool]
        return names.names(keys, aliases)

    def tools(self) -> list[McpTool]:
        """What can be offered to a model now, sorted by name."""
        return [tool for _, tool in sorted(self._made().items())]

    def resolve(self, pattern: str) -> list[McpTool]:
        """The tools that a word in an agent's list of tools means: `mcp__server__tool`,
        `mcp__server`, `server/tool`, `server/*`, or an alias; `*` and `?` as in a shell."""
        tools = self._made()
        keys = {name: key for key, name in self._names().items()}
        return [tools[n] for n in sorted(tools) if names.is_named(pattern, keys[n], n)]

    # what they offer beside tools

    def with_resources(self) -> list[KeptServer]:
        """The servers that offer resources."""
        return [server for server in self._servers.values() if server.has("resources")]

    def note_use(self, run: str) -> None:
        if self._used is not None:
            self._used(run)

    async def prompts(self) -> list[ListedPrompt]:
        """The prompts of all servers. One that cannot list them now has none."""
        out: list[ListedPrompt] = []
        for server in self._servers.values():
            with contextlib.suppress(McpError):
                out += await prompts_of(server)
        return out

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt, for a person to send as a task."""
        state = self._server(server)
        try:
            return await prompt_text(state, name, arguments)
        except McpError as error:
            raise Refused(
                "mcp", f"MCP server {server!r} gave no prompt {name!r}: {error}"
            ) from None

    def _made(self) -> dict[str, McpTool]:
        tools = {}
        for (server, tool), name in self._names().items():
            state = self._servers[server]
            definition = state.named[tool]
            looked = self._checked(server, definition)
            if looked.unusable is not None or self._withheld(server, tool):
                continue
            schema = ToolSchema(
                name=name, description=looked.description, parameters=looked.parameters
            )
            risk, restart = effects(
                definition.get("annotations"), state.config.kind, state.config.trust
            )
            tools[name] = McpTool(state, schema, tool, risk, restart, self._used)
        return tools

    # approvals

    async def approve(self, server: str, tool: str = "") -> None:
        """Approve one tool as it is offered now; without `tool`, the server as it is configured and
        all its tools. One that was not started for want of approval is started."""
        state = self._server(server)
        if tool:
            definition = state.named.get(tool)
            if definition is None:
                raise NotFound(
                    f"MCP server {server!r} has no tool {tool!r}. Use status() to list them."
                )
            self._approvals.approve(server, state.config.identity, definition)
            return
        if state.state == "changed":
            self._approvals.approve(server, state.config.identity, whole=True)
            state.state = "idle"
            await state.start()
        self._approvals.approve(server, state.config.identity, *state.definitions, whole=True)

    def _server(self, name: str) -> KeptServer:
        if name not in self._servers:
            raise NotFound(f"Unknown MCP server {name!r}.")
        return self._servers[name]

    # looking after them

    def status(self) -> list[ServerStatus]:
        """How each server is, and those that were omitted, with the reason."""
        name_table = self._names()
        out = [self._status(server, name_table) for server in self._servers.values()]
        for complaint in self._skipped:
            if complaint.fatal and complaint.server:
                out.append(
                    ServerStatus(
                        name=complaint.server,
                        state="skipped",
                        reason=str(complaint),
                        source=complaint.file,
                    )
                )
        return out

    def _status(self, server: KeptServer, names_by_key: Mapping[names.Key, str]) -> ServerStatus:
        config, hello = server.config, server.connection.hello if server.connection else None
        offered, withheld = [], []
        pinned = self._approvals.server(config.name)
        for definition in server.definitions:
            tool = definition["name"]
            if not self._is_wanted(config, tool):
                continue
            reason = self._withheld(config.name, tool)
            if (wrong := self._checked(config.name, definition).unusable) is not None:
                withheld.append(
                    Withheld(tool=reveal(tool, keep=""), reason=f"it cannot be used: {wrong}")
                )
                continue
            if reason:
                approved = pinned.shown.get(tool, "") if pinned else ""
                what = Withheld(
                    tool=reveal(tool, keep=""),
                    reason=reason,
                    offered=page(definition),
                    approved=approved,
                )
                withheld.append(what)
            else:
                offered.append(names_by_key[config.name, tool])
        for tool in server.connection.too_large if server.connection is not None else ():
            reason = f"its definition is larger than {4 * self._limits.schema_bytes} bytes"
            withheld.append(Withheld(tool=reveal(tool, keep=""), reason=reason))
        state = "dead" if server.connection is not None and server.connection.gone else server.state
        problem = server.connection.gone if server.connection else ""
        return ServerStatus(
            name=config.name,
            state=state,
            reason=server.error or problem,
            kind=config.kind,
            source=config.source.file,
            version=hello.version if hello else "",
            server=one_line(hello.name) if hello else "",
            tools=tuple(sorted(offered)),
            withheld=tuple(withheld),
            notes=tuple(self._notes(server)),
            instructions=several_lines(hello.instructions) if hello else "",
            n_starts=server.n_starts,
        )

    def _notes(self, server: KeptServer) -> list[str]:
        config = server.config
        tools = [d["name"] for d in server.definitions]
        patterns = [*(config.include or ()), *config.exclude, *config.aliases]
        idle = [
            p for p in patterns if tools and not any(names.is_wanted(t, (p,), ()) for t in tools)
        ]
        notes = [f"{one_line(p)!r} in the configuration matches no tool" for p in idle]
        if len(tools) >= self._limits.tools:
            notes.append(f"only the first {self._limits.tools} tools are used")
        n = server.connection.n_unreadable if server.connection else 0
        return [*notes, *([f"{n} messages could not be read"] if n else [])]

    async def restart(self, server: str) -> None:
        """Start one server anew, also one that was given up. McpError if that fails."""
        state = self._server(server)
        if self._is_as_approved(state):
            await state.restart()

    async def refresh(self) -> None:
        """List the tools of all servers anew."""
        for server in self._servers.values():
            try:
                await server.refresh()
            except McpError as error:
                server.error = str(error)

    async def rest(self) -> None:
        """End the processes of all servers. What they offer is still known, and the next call
        starts its server again."""
        ready = [server for server in self._servers.values() if server.state in ("ready", "dead")]
        await asyncio.gather(*(server.stop("idle") for server in ready), return_exceptions=True)

    async def close(self) -> None:
        """End all servers, in parallel, and leave nothing of them behind."""
        await asyncio.gather(
            *(server.stop() for server in self._servers.values()), return_exceptions=True
        )
