"""Connects MCP over HTTP to the host in the same process."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Any

import msgspec

from retinue import __version__
from retinue.errors import Refused
from retinue.host.app import carry_out
from retinue.host.guest_keys import guest_key
from retinue.host.host import Host
from retinue.host.identity import Identity
from retinue.host.problem_documents import HttpProblem
from retinue.host.requests import HostRequest
from retinue.host.server_events import encode
from retinue.mcp.agent_offer import AgentOffer
from retinue.mcp.guests import Guest, guest_name
from retinue.mcp.host_link import HostLink
from retinue.mcp.http_endpoint import McpEndpoint
from retinue.mcp.rpc_messages import INVALID_REQUEST, RpcError
from retinue.mcp.rpc_server import RpcCall, RpcServer

INFO = {"name": "retinue", "title": "Retinue sub-agents", "version": __version__}


class MountedHost:
    """Carries out requests with the host of this process, with the rights of one identity."""

    def __init__(self, host: Host, who: Identity, secret: bytes) -> None:
        self._host, self._who, self._secret = host, who, secret

    async def ask(self, request: HostRequest, key: str = "") -> Any:
        try:
            reply = await carry_out(self._host, request, self._who, key)
        except HttpProblem as error:
            raise Refused("token", str(error)) from None
        return reply if isinstance(reply, bytes) else msgspec.json.decode(encode(reply))

    async def guest_key(self) -> bytes:
        store = self._host.introduction().store
        if not store:
            return self._secret  # its runs end with the process as well
        return await asyncio.to_thread(guest_key, store, self._who.user)


def mcp_endpoint(host: Host, guest: Guest) -> McpEndpoint:
    """MCP for the clients of this host, each with what `guest` may do. A token of a user is that
    user; one that sees all runs is a guest of its own all the same."""
    secret = secrets.token_bytes(32)

    def named(call: RpcCall) -> Guest:
        who = call.session.owner
        if not isinstance(who, Identity):
            raise RpcError(INVALID_REQUEST, "This request did not come through the guard.")
        return replace(guest, name=guest_name(who.user or who.name))

    def link_for(guest: Guest, who: Identity) -> HostLink:
        return MountedHost(host, Identity(who.name, who.scopes, who.user or guest.user), secret)

    server = RpcServer(AgentOffer(named, link_for), INFO)
    return McpEndpoint(server, host.leave.is_set)
