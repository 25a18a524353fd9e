"""A tool of a server as a Retinue tool: its description, its permissions, and how a call ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retinue.core.effects import ChildOutcome
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import one_line
from retinue.tools.base import Context, Returned, Risk, ToolResult
from retinue.tools.mcp_client.protocol import McpError
from retinue.tools.mcp_client.server_config import Kind

if TYPE_CHECKING:
    from retinue.tools.mcp_client.server_lifecycle import KeptServer

OPEN = "The call may still have taken effect. Check before you repeat it."


def effects(annotations: Any, kind: Kind, is_trusted: bool) -> tuple[Risk, Restart]:
    """What a tool can do, and whether it may be repeated. A server's own word counts only where its
    user has said so; else a tool may do anything and is never repeated. Whatever goes to another
    machine is never a mere reading."""
    if not is_trusted or not isinstance(annotations, Mapping):
        return "execute", "unsafe"
    if annotations.get("readOnlyHint") is True:
        is_near = kind == "stdio" and annotations.get("openWorldHint") is not True
        return "read" if is_near else "network", "pure"
    return "execute", "keyed" if annotations.get("idempotentHint") is True else "unsafe"


class McpTool:
    """Made by `McpServers`. `server_name` and `tool_name` are the server's and its own word for
    it; `used` gets the id of each run that calls it."""

    subject = ""
    guarded = True

    def __init__(
        self,
        server: KeptServer,
        schema: ToolSchema,
        tool_name: str,
        risk: Risk,
        restart: Restart,
        used: Callable[[str], None] | None = None,
    ) -> None:
        self._server, self.schema, self.tool_name = server, schema, tool_name
        self._used = used
        self.risk: Risk = risk
        self.restart: Restart = restart

    @property
    def server_name(self) -> str:
        return self._server.config.name

    @property
    def secrets(self) -> dict[str, str]:
        return self._server.config.secrets

    @property
    def approval(self) -> str:
        """How the configuration wants its calls approved, "" when it says nothing."""
        return self._server.config.approval

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        if self._used is not None:
            self._used(context.spec.id)
        return await self.call(args)

    async def call(self, args: dict[str, Any]) -> ToolResult:
        """Whatever the server does, this is an answer that the model can act on."""
        try:
            return await self._server.call(self.tool_name, args)
        except McpError as error:
            who = f"The MCP server {one_line(self.server_name, 60)!r}"
            problem = (
                f"{who} rejected the call"
                if error.fault == "refused" and error.code
                else f"{who} failed"
            )
            text = f"{problem} ({error.fault}): {error}"
            return ToolResult(
                text=clip(f"{text}\n{OPEN}" if error.is_open else text, 8_000), error=True
            )
        except ConfigError as error:
            return ToolResult(text=f"The call was not made: {error}", error=True)

    def summary(self, args: dict[str, Any]) -> str:
        """One line for the live view."""
        arguments = " ".join(
            f"{k}={v if isinstance(v, str | int | float) else '…'}"
            for k, v in list(args.items())[:4]
        )
        return one_line(f"{self.server_name}: {self.tool_name} {arguments}", 120)

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        raise ConfigError(f"{self.schema.name} starts no children")
