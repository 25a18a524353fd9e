"""Keys of a server's entry, and their names in other dialects."""

from __future__ import annotations

import re
from typing import Any

from retinue.tools.mcp_client.server_config import Kind

KINDS: dict[str, Kind] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
ALIAS = re.compile(r"[A-Za-z0-9_-]{1,64}")
DEFINING = (
    *("command", "args", "env", "env_vars", "cwd", "url", "httpUrl", "headers"),
    *("http_headers", "env_http_headers", "bearer_token_env_var", "trust", "oauth"),
)
"""What decides which program runs, what it is given, and whether it is believed."""


def list_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def type_name(value: Any) -> str:
    names = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        type(None): "nothing",
    }
    return names.get(type(value), "a number")
