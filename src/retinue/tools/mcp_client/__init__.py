"""Tools of MCP servers: read a configuration, start the servers, use their tools. Both eras of the protocol, over pipes
and over HTTP, with nothing but aiohttp, and that only when a server is behind an address.
"""

from retinue.tools.mcp_client.mcp_tool import McpTool
from retinue.tools.mcp_client.protocol import Limits, McpError
from retinue.tools.mcp_client.server_config import Complaint, ServerConfig, Source, read_servers
from retinue.tools.mcp_client.servers import McpServers, Status, Withheld

__all__ = [
    "Complaint",
    "Limits",
    "McpError",
    "McpServers",
    "McpTool",
    "ServerConfig",
    "Source",
    "Status",
    "Withheld",
    "read_servers",
]
