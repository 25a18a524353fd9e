"""Decides which addresses a fetch may reach. A name is resolved once; every address that comes back
must be public; and the connection is made to those addresses and to no others."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from retinue.errors import ConfigError, Refused
from retinue.formats.host_names import plain_ip
from retinue.tools.builtin.blocked_networks import INNER, METADATA, blocked
from retinue.tools.builtin.web_address import IP, Target, host_of, refused

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Own = Collection[tuple[str, int]]

MOST_ADDRESSES = 64


class Gate:
    """Decides on each step of a fetch. `allow` are networks that may be reached though they are not
    public, each with a port if only that one ("10.1.0.0/16", "127.0.0.1:8080", "[::1]:8080");
    `ports` are those that may be used besides 80 and 443. `own` are the addresses of our own
    servers, read anew each time: nothing opens those."""

    def __init__(
        self,
        allow: Iterable[str] = (),
        *,
        ports: Iterable[int] = (),
        own: Own = (),
        resolve: Resolve | None = None,
    ) -> None:
        self._allow = [_exception(text) for text in allow]
        self._ports = {80, 443, *ports}
        self._own = own
        self._resolve = resolve or lookup

    async def admit(self, target: Target, hosts: tuple[str, ...] | None = None) -> list[IP]:
        """The addresses to which a connection for `target` may be made. Raises `Refused` and has
        then sent nothing, save the question of a name that may be asked for. `hosts` are all that
        the run may reach, None is any."""
        self._check_name(target, hosts)
        if target.ip is not None:
            addresses: list[IP] = [target.ip]
        else:
            texts = await self._resolve(target.host, target.port)
            try:
                addresses = list(
                    dict.fromkeys(ipaddress.ip_address(text.partition("%")[0]) for text in texts)
                )
            except ValueError:
                raise refused(f"{target.host} was resolved to an invalid address") from None
        if not addresses:
            raise refused(f"{target.host} has no address")
        for ip in addresses[:MOST_ADDRESSES]:
            self._check_ip(target, ip)
        return addresses[:MOST_ADDRESSES]

    def _check_name(self, target: Target, hosts: tuple[str, ...] | None) -> None:
        host = target.host
        if not may_reach(host, hosts):
            raise refused(
                f"{host} is not one of the hosts this run may use "
                f"({', '.join(hosts or ()) or 'none'})"
            )
        if host in METADATA:
            raise refused(f"{host} is a cloud's metadata server")
        if any(host == _name(name) and target.port == port for name, port in self._own):
            raise refused(f"{host}:{target.port} is Retinue's own server")
        if target.ip is None and not self._allow:
            if "." not in host:
                raise refused(
                    f"{host!r} is the name of a host in a private network. Use the full "
                    "name of a public host"
                )
            if host.endswith(tuple(f".{inner}" for inner in INNER)):
                raise refused(f"{host} is the name of a host in a private network")
        if target.port not in self._ports and not any(
            target.port == port for _, port in self._allow
        ):
            raise refused(
                f"port {target.port} is not allowed; allowed ports: "
                f"{', '.join(map(str, sorted(self._ports)))}"
            )

    def _check_ip(self, target: Target, ip: IP) -> None:
        where = f"{target.host} is {ip}, which is" if target.ip is None else f"{ip} is"
        if self._is_own(ip, target.port):
            raise refused(f"{where} Retinue's own server")
        for network, port in self._allow:
            if _holds(network, ip) and (
                target.port == port if port else target.port in self._ports
            ):
                return
        if target.port not in self._ports:
            raise refused(f"port {target.port} is not allowed at {ip}")
        why = blocked(ip) or ("this machine" if _is_local(ip) else "")
        if why:
            raise refused(f"{where} {why}")

    def _is_own(self, ip: IP, port: int) -> bool:
        real = plain_ip(ip)
        for name, own_port in self._own:
            if port != own_port:
                continue
            mine = _address(name)
            if mine is None or mine.is_unspecified:  # at any address of this machine
                if _is_here(real):
                    return True
            elif plain_ip(mine) == real or (mine.is_loopback and real.is_unspecified):
                return True
        return False


def may_reach(host: str, hosts: tuple[str, ...] | None) -> bool:
    """Whether a host is among those that are named; `*.example.org` are all below example.org, `*`
    is any."""
    if hosts is None:
        return True
    for pattern in hosts:
        if pattern == "*" or host == _name(pattern):
            return True
        if pattern.startswith("*.") and host.endswith("." + _name(pattern[2:])):
            return True
    return False


def _name(text: str) -> str:
    try:
        return host_of(f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text)[0]
    except Refused:
        return "\0"


def _address(text: str) -> IP | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _holds(network: Network, ip: IP) -> bool:
    return ip.version == network.version and ip in network


def _is_here(ip: IP) -> bool:
    return ip.is_loopback or ip.is_unspecified or _is_local(ip)


def _is_local(ip: IP) -> bool:
    """Whether an address is one of this machine's: then it would be its own sender. Nothing is sent
    to find out."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(ip), 9))
            return bool(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == ip)
    except OSError:
        return False


def _exception(text: str) -> tuple[Network, int | None]:
    """One entry of `allow`."""
    network, port = text, ""
    if text.startswith("["):
        network, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        network, _, port = text.partition(":")
    try:
        if port and not 0 < int(port) < 65_536:
            raise ValueError
        return ipaddress.ip_network(network), int(port) if port else None
    except ValueError:
        raise ConfigError(
            f"{text!r} in allow is not a network. Write e.g. 10.1.0.0/16, 127.0.0.1:8080 "
            "or [::1]:8080"
        ) from None


async def lookup(host: str, port: int) -> list[str]:
    """The addresses of a name, asked for once."""
    import asyncio

    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
    except (OSError, UnicodeError) as error:
        raise refused(
            f"{host} cannot be resolved ({getattr(error, 'strerror', None) or error})"
        ) from None
    return [str(address[0]) for _, _, _, _, address in answers]
