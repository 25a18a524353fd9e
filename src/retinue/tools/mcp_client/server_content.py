"""What servers offer beside tools: resources to read, and prompts for people. All of it is data of
the server, bounded, and shown or sent only when someone asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.core.values import Value
from retinue.errors import ConfigError
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import clean, one_line
from retinue.tools.base import ToolResult
from retinue.tools.mcp_client.protocol import McpError, encode
from retinue.tools.mcp_client.result_content import answer

if TYPE_CHECKING:
    from retinue.tools.mcp_client.server_lifecycle import KeptServer

MAX_PAGES = 20
MOST_ITEMS = 1_000
MOST_PROMPT = 200_000
"""Characters of a prompt."""
NO_METHOD = -32601


class ListedResource(Value):
    """A resource, or with `is_template` a way to write the URIs of many."""

    server: str
    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""
    is_template: bool = False

    @property
    def line(self) -> str:
        words = ", ".join(filter(None, (self.name, self.media_type, self.description)))
        kind = "template " if self.is_template else ""
        return f"{kind}{self.uri}{f' ({words})' if words else ''}"


class PromptArgument(Value):
    """A value that a prompt takes."""

    name: str
    description: str = ""
    required: bool = False


class ListedPrompt(Value):
    """A prompt of a server, with the arguments that it takes."""

    server: str
    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


async def resources_of(server: KeptServer) -> list[ListedResource]:
    """The resources of a server, then its templates."""
    if not server.has("resources"):
        return []
    rows = await _pages(server, "resources/list", "resources")
    templates = await _pages(server, "resources/templates/list", "resourceTemplates")
    fields = [(row, "uri", False) for row in rows]
    fields += [(row, "uriTemplate", True) for row in templates]
    return [
        ListedResource(
            server=server.config.name,
            uri=_word(row, key, 2_000),
            name=_word(row, "title") or _word(row, "name"),
            description=_word(row, "description"),
            media_type=_word(row, "mimeType"),
            is_template=is_template,
        )
        for row, key, is_template in fields
        if _word(row, key, 2_000)
    ]


async def read_resource(server: KeptServer, uri: str) -> ToolResult:
    """What a resource holds: texts, and pictures that models can look at."""
    result = await server.ask("resources/read", {"uri": uri})
    contents = result.get("contents")
    blocks = [
        {"type": "resource", "resource": one}
        for one in (contents if isinstance(contents, list) else [])
    ]
    return answer({"content": blocks}, server.limits)


async def prompts_of(server: KeptServer) -> list[ListedPrompt]:
    if not server.has("prompts"):
        return []
    rows = await _pages(server, "prompts/list", "prompts")
    return [
        ListedPrompt(
            server=server.config.name,
            name=_word(row, "name"),
            title=_word(row, "title"),
            description=_word(row, "description"),
            arguments=_arguments(row.get("arguments")),
        )
        for row in rows
        if _word(row, "name")
    ]


async def prompt_text(server: KeptServer, name: str, arguments: Mapping[str, str]) -> str:
    """The messages of a prompt as one text, which a person sends as a task. Who speaks is said when
    it is not only the user."""
    result = await server.ask("prompts/get", {"name": name, "arguments": dict(arguments)})
    rows = result.get("messages")
    messages = [row for row in (rows if isinstance(rows, list) else []) if isinstance(row, dict)]
    is_dialogue = any(row.get("role") != "user" for row in messages)
    parts = []
    for row in messages:
        content = row.get("content")
        blocks = content if isinstance(content, list) else [content]
        text = answer({"content": blocks}, server.limits).text
        parts.append(f"{_word(row, 'role') or 'user'}: {text}" if is_dialogue else text)
    text = clip(clean("\n\n".join(parts)).strip(), MOST_PROMPT)
    if not text:
        raise ConfigError(f"The prompt {name!r} of MCP server {server.config.name!r} is empty.")
    return text


async def _pages(server: KeptServer, method: str, key: str) -> list[dict[str, Any]]:
    """All pages of a list. A cursor that comes again, or too much, ends it; a server that offers no
    such list has an empty one."""
    rows: list[dict[str, Any]] = []
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    n_bytes = 0
    for _ in range(MAX_PAGES):
        try:
            page = await server.ask(method, params)
        except McpError as error:
            if error.code == NO_METHOD:
                return rows
            raise
        items = page.get(key)
        rows += [row for row in (items if isinstance(items, list) else []) if isinstance(row, dict)]
        n_bytes += len(encode(page))
        cursor = page.get("nextCursor")
        is_much = len(rows) >= MOST_ITEMS or n_bytes > server.limits.message_bytes
        if not isinstance(cursor, str) or cursor in cursors or is_much:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    return rows[:MOST_ITEMS]


def _arguments(value: Any) -> tuple[PromptArgument, ...]:
    rows = [row for row in (value if isinstance(value, list) else []) if isinstance(row, dict)]
    return tuple(
        PromptArgument(
            name=_word(row, "name"),
            description=_word(row, "description"),
            required=row.get("required") is True,
        )
        for row in rows[:50]
        if _word(row, "name")
    )


def _word(row: Mapping[str, Any], key: str, most: int = 300) -> str:
    value = row.get(key)
    return one_line(value, most) if isinstance(value, str) else ""
