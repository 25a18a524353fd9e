"""Tools of MCP servers: read a configuration, start the servers, use their tools. Both eras of the
protocol, over pipes and over HTTP, with nothing but aiohttp, and that only when a server is behind
an address."""

from retinue.tools.mcp_client.mcp_tool import McpTool
from retinue.tools.mcp_client.protocol import McpError, ServerLimits
from retinue.tools.mcp_client.server_config import (
    ServerComplaint,
    ServerConfig,
    ServerConfigSource,
    read_servers,
)
from retinue.tools.mcp_client.server_status import ServerStatus, Withheld
from retinue.tools.mcp_client.servers import McpServers

__all__ = [
    "McpError",
    "McpServers",
    "McpTool",
    "ServerComplaint",
    "ServerConfig",
    "ServerConfigSource",
    "ServerLimits",
    "ServerStatus",
    "Withheld",
    "read_servers",
]
