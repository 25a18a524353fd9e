"""Retinue as an MCP server: any MCP client gets sub-agents that are durable and stay within a
budget. A client talks to a thin process over stdio or to the host over HTTP; the work is the
host's."""
