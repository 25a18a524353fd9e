"""Where a browser finds the dashboard of a host: the address that it serves, or one of loopback
that it opens when it is first asked."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from retinue.host.host_server import HostServer
from retinue.host.identity import OWNER
from retinue.host.keyring import Keyring
from retinue.host.page_replies import PageReply

PORT = 8711
LOOPBACK = "127.0.0.1"


class DashboardAccess:
    """Lets the owner's browser in. `listeners` are the sockets that the server has for others than
    commands."""

    def __init__(
        self, keyring: Keyring, server: HostServer, listeners: Sequence[socket.socket]
    ) -> None:
        self._keyring, self._server = keyring, server
        self.address = page_address(listeners[0]) if listeners else ""

    async def open(self, *, is_for_own_user: bool) -> PageReply:
        """The address with a code for one browser. Only the owner can ask for it."""
        if not self.address:
            listener = loopback_listener()
            await self._server.listen(listener)
            self.address = page_address(listener)
        code = self._keyring.new_code(OWNER, is_for_own_user=is_for_own_user)
        return PageReply(address=self.address, code=code)


def loopback_listener() -> socket.socket:
    """On the usual port, so that an address stays the same; on a free one if that is taken."""
    try:
        return socket.create_server((LOOPBACK, PORT), backlog=128)
    except OSError:
        return socket.create_server((LOOPBACK, 0), backlog=128)


def page_address(listener: socket.socket) -> str:
    """The address for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = LOOPBACK if ":" not in host else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
