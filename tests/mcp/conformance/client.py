"""Our MCP client as the conformance suite starts it, with the address of a server: it connects,
looks at everything that is offered, reads and calls it, and leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from retinue.errors import RetinueError
from retinue.tools.mcp_client import McpError, McpServers
from retinue.tools.mcp_client.config_dialects import translate
from retinue.tools.mcp_client.server_config import ServerConfigSource
from retinue.tools.mcp_client.server_content import read_resource, resources_of

VALUES: dict[str, Any] = {
    "string": "test",
    "integer": 3,
    "number": 5,
    "boolean": True,
    "array": [],
    "object": {},
}


def context() -> dict[str, Any]:
    """What the scenario tells its client."""
    value = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    return value if isinstance(value, dict) else {}


def arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A value of the right type for each parameter."""
    properties = schema.get("properties", {})
    return {name: _value(field) for name, field in properties.items() if isinstance(field, dict)}


def _value(field: Mapping[str, Any]) -> Any:
    choices = field.get("enum")
    return choices[0] if choices else VALUES.get(str(field.get("type", "string")), "test")


async def calls(servers: McpServers) -> None:
    """What the scenario wants called, or each tool once."""
    target = {row["name"]: row["arguments"] for row in context().get("toolCalls", ())}
    for tool in servers.tools():
        args = target.get(tool.tool_name, arguments(tool.schema.parameters))
        await tool.call(args)


async def contents(servers: McpServers) -> None:
    for server in servers.with_resources():
        with contextlib.suppress(McpError):
            for resource in await resources_of(server):
                if not resource.is_template:
                    await read_resource(server, resource.uri)
    for prompt in await servers.prompts():
        values = {argument.name: "test" for argument in prompt.arguments}
        with contextlib.suppress(RetinueError):
            await servers.prompt(prompt.server, prompt.name, values)


class Headless:
    """A browser whose person is logged in and allows everything."""

    redirect_uri = "http://127.0.0.1:8765/callback"

    async def go(self, url: str, state: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, allow_redirects=False) as response,
        ):
            return response.headers["Location"]


@contextlib.asynccontextmanager
async def visit(port: int) -> AsyncIterator[Headless]:
    yield Headless()


def oauth() -> dict[str, Any]:
    """What a person has configured about the login."""
    value = context()
    names = {"clientId": "client_id", "clientSecret": "client_secret", "issuer": "issuer"}
    settings = {ours: value[theirs] for ours, theirs in names.items() if theirs in value}
    if os.environ.get("MCP_CONFORMANCE_SCENARIO") == "auth/basic-cimd":
        settings["clientId"] = "https://conformance-test.local/client-metadata.json"
    return settings


async def main(url: str) -> int:
    tree = {"mcpServers": {"suite": {"type": "http", "url": url, "oauth": oauth()}}}
    configs, _ = translate(tree, ServerConfigSource(), {}, {})
    async with McpServers(configs, visit=visit) as servers:
        (status,) = servers.status()
        if status.state != "ready":
            sys.stderr.write(f"{status.state}: {status.reason}\n")
            return 1
        await calls(servers)
        await contents(servers)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
