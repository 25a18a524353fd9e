"""`artifact`: pages through a result that was too long to show in full."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from retinue.core.effects import ChildOutcome
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError, RetinueError
from retinue.formats.fair_cut import whole_characters
from retinue.tools.base import Context, Returned, Risk, ToolResult

PAGE = 32_768


class ArtifactTool:
    """Reads by the name given after a cut text, at most `page` bytes at a time, never half a
    character."""

    restart: Restart = "pure"
    risk: Risk = "read"

    def __init__(
        self, read: Callable[[str, int, int | None], Awaitable[bytes]], page: int = PAGE
    ) -> None:
        self._read = read
        self._page = page
        self.schema = ToolSchema(
            name="artifact",
            description="Read part of a truncated output. `id` is in the truncation note; `offset` "
            "and `limit` are in bytes.",
            parameters={
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "offset": {"type": "integer", "minimum": 0},
                    "limit": {"type": "integer", "minimum": 4, "maximum": page},
                },
                "required": ["id"],
                "additionalProperties": False,
            },
        )

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        id, offset, limit = args.get("id"), args.get("offset", 0), args.get("limit", self._page)
        ints = all(isinstance(n, int) and not isinstance(n, bool) for n in (offset, limit))
        if not isinstance(id, str) or not ints or offset < 0 or not 4 <= limit <= self._page:
            return ToolResult(
                text=f"Invalid parameters: id, offset >= 0, limit from 4 to {self._page}.",
                error=True,
            )
        try:
            data = await self._read(id, offset, limit)
        except RetinueError as error:
            return ToolResult(text=str(error), error=True)
        at_end = len(data) < limit
        if not at_end:
            data = whole_characters(data)
        end = "this is the end" if at_end else f"continue with offset {offset + len(data)}"
        return ToolResult(
            text=f"{data.decode('utf-8', 'replace')}\n[bytes {offset} to {offset + len(data)}; "
            f"{end}]"
        )

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        raise ConfigError("artifact starts no children")
