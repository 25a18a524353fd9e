"""A server made with the official SDK, which speaks both eras: `sdk_server.py stdio` or
`sdk_server.py http PORT`."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("sdk")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True, openWorldHint=False))  # type: ignore[call-arg]
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def slowly(n: int, ctx: Context) -> str:
    """Report progress n times, then end."""
    import anyio

    for i in range(n):
        await ctx.report_progress(i + 1, n)
        await anyio.sleep(0.05)
    return "done"


@server.tool()
def fails() -> str:
    """Always fails."""
    raise ValueError("it cannot be done")


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    import uvicorn

    uvicorn.run(
        server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning"
    )
