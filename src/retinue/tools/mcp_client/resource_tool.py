"""`mcp_resources`: one tool for the resources of all MCP servers that an agent has: list them, and
read one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.effects import ChildOutcome
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import one_line
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.mcp_client.protocol import McpError
from retinue.tools.mcp_client.server_content import read_resource, resources_of

if TYPE_CHECKING:
    from retinue.tools.mcp_client.server_lifecycle import KeptServer
    from retinue.tools.mcp_client.servers import McpServers

NAME = "mcp_resources"
DESCRIPTION = (
    "List or read what MCP servers offer as resources: documents, records, files. `list` shows "
    "their URIs and templates, of one server or of all. `read` returns the content of one `uri`; "
    "fill in the parts of a template that are in braces."
)
PARAMETERS = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["list", "read"]},
        "server": {"type": "string", "description": "Name of the server; needed for `read`."},
        "uri": {"type": "string", "description": "The resource to read."},
    },
    "required": ["action"],
    "additionalProperties": False,
}


class ResourceTool:
    """`all_servers` are asked in this order. What it may do is said by the servers' users alone: a
    server on this machine that is trusted is only read; everything else may go anywhere."""

    subject = "uri"
    guarded = True
    restart: Restart = "pure"

    def __init__(self, *all_servers: McpServers) -> None:
        self._all = all_servers
        self.schema = ToolSchema(name=NAME, description=DESCRIPTION, parameters=PARAMETERS)
        configs = [server.config for server in self._servers().values()]
        is_near = all(config.kind == "stdio" and config.trust for config in configs)
        self.risk: Risk = "read" if is_near else "network"

    def _servers(self) -> dict[str, KeptServer]:
        out: dict[str, KeptServer] = {}
        for servers in self._all:
            for server in servers.with_resources():
                out.setdefault(server.config.name, server)
        return out

    @property
    def secrets(self) -> dict[str, str]:
        return {
            name: value
            for server in self._servers().values()
            for name, value in server.config.secrets.items()
        }

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        for servers in self._all:
            servers.note_use(context.spec.id)
        action, name, uri = (str(args.get(key) or "") for key in ("action", "server", "uri"))
        server_map = self._servers()
        if name and name not in server_map:
            return _error(
                f"Unknown server {name!r}. Servers with resources: {', '.join(server_map)}."
            )
        try:
            if action == "list":
                return await self._list([server_map[name]] if name else list(server_map.values()))
            if action != "read":
                return _error(f"Unknown action {action!r}. Use list or read.")
            if not name or not uri:
                return _error("`read` needs `server` and `uri`. Use `list` to see them.")
            return await read_resource(server_map[name], uri)
        except McpError as error:
            return _error(f"The MCP server {name!r} failed ({error.fault}): {error}")

    async def _list(self, servers: Sequence[KeptServer]) -> ToolResult:
        """A server that fails does not hide the others."""
        parts = []
        for server in servers:
            title = one_line(server.config.name, 60)
            try:
                lines = [resource.line for resource in await resources_of(server)]
            except McpError as error:
                lines = [f"failed: {one_line(str(error), 500)}"]
            parts.append("\n".join([f"{title}:", *(f"- {line}" for line in lines or ["none"])]))
        return ToolResult(text="\n\n".join(parts) or "No server offers resources.")

    def summary(self, args: dict[str, Any]) -> str:
        """One line for the live view."""
        server, uri = args.get("server") or "all servers", args.get("uri")
        return one_line(f"resources of {server}: {uri or 'list'}", 120)

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        raise ConfigError(f"{NAME} starts no children")


def _error(text: str) -> ToolResult:
    return ToolResult(text=clip(text, 8_000), error=True)
