"""Which servers we are logged in to, with the tokens. They are secrets: the file is its owner's
alone, beside the store, and nothing of it is shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from retinue.core.value_base import Value
from retinue.tools.mcp_client.oauth.auth_requests import OAuthClient
from retinue.tools.mcp_client.own_file import FileContent, OwnFile


class LoginRecord(Value):
    """A login to the server at an address. Tokens are for this `resource` and from this `issuer`,
    and go nowhere else. `wanted` is the scope that the next login has to ask for."""

    access: str = ""
    refresh: str = ""
    scope: str = ""
    wanted: str = ""
    resource: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    client: OAuthClient | None = None


class LoginRecords(FileContent):
    """What the file of logins has, by the addresses of servers."""

    servers: dict[str, LoginRecord] = msgspec.field(default_factory=dict)


class LoginFile:
    """Without `path` logins last as long as this object. Only one login to a server is under way
    at a time (`turn`): a token that renews others may be used once."""

    def __init__(self, path: Path | None = None) -> None:
        self._file = OwnFile(path, LoginRecords, "logins", "log in to each server again")
        self._turns: dict[str, asyncio.Lock] = {}

    def turn(self, url: str) -> asyncio.Lock:
        return self._turns.setdefault(url, asyncio.Lock())

    def record(self, url: str) -> LoginRecord:
        return self._file.read().servers.get(url) or LoginRecord()

    def keep(self, url: str, record: LoginRecord) -> None:
        with self._file.changing() as content:
            content.servers[url] = record

    def forget(self, url: str) -> bool:
        """Whether there was one."""
        with self._file.changing() as content:
            return content.servers.pop(url, None) is not None
