"""The small process that a client starts: its guest, and the connection to the host."""

from __future__ import annotations

from dataclasses import replace

from retinue import __version__
from retinue.mcp.agent_offer import AgentOffer
from retinue.mcp.guests import Guest, guest_name
from retinue.mcp.host_link import HostLink, Prepare, SocketHost
from retinue.mcp.rpc_server import RpcCall, RpcServer
from retinue.mcp.stdio_server import StdioServer

INFO = {"name": "retinue", "title": "Retinue sub-agents", "version": __version__}


def stdio_server(prepare: Prepare, guest: Guest) -> StdioServer:
    """A server for the client at stdin. A guest without a name has the one by which its client
    calls itself first; another name later gives it neither other agents nor a new budget."""
    guests = [guest] if guest.name else []

    def named(call: RpcCall) -> Guest:
        if not guests:
            guests.append(replace(guest, name=guest_name(call.client.name)))
        return guests[0]

    def link_for(guest: Guest, owner: None) -> HostLink:
        return SocketHost(prepare, guest.user)

    return StdioServer(RpcServer(AgentOffer(named, link_for, is_local=True), INFO))
