"""Addresses that are not public."""

from __future__ import annotations

import ipaddress

from retinue.tools.builtin.web_address import IP

METADATA = {
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
}
INNER = (
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "home.arpa",
    "lan",
    "corp",
    "private",
)
"""Names that lead to this machine or this network, by standard or by habit."""
_BLOCKED: dict[str, tuple[str, ...]] = {
    "this network": ("0.0.0.0/8",),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    "shared by a provider's customers": ("100.64.0.0/10",),
    "this machine": ("127.0.0.0/8",),
    "link-local": ("169.254.0.0/16",),
    "a cloud's metadata server": ("168.63.129.16/32", "fd00:ec2::254/128"),
    "reserved for protocols": (
        "192.0.0.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.175.48.0/24",
        "2001::/23",
    ),
    "for documentation": (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
    ),
    "a relay to other addresses": ("192.88.99.0/24", "2002::/16", "64:ff9b:1::/48"),
    "for benchmarks": ("198.18.0.0/15",),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("240.0.0.0/4", "2620:4f:8000::/48", "3ffe::/16"),
}
_NETWORKS = [(why, ipaddress.ip_network(net)) for why, nets in _BLOCKED.items() for net in nets]
_GLOBAL = ipaddress.IPv6Network("2000::/3")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def blocked(ip: IP) -> str:
    """Why an address is not public, or ""."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _MAPPED or ip in _NAT64:
            inner = blocked(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
            return f"another form of an address that is {inner}" if inner else ""
        if (
            int(ip) >> 32
        ) & 0xFDFFFFFF == 0x5EFE:  # ISATAP carries an IPv4 address in its last four bytes
            return "a tunnel to other addresses"
    for why, network in _NETWORKS:
        if ip.version == network.version and ip in network:
            return why
    if isinstance(ip, ipaddress.IPv6Address) and ip not in _GLOBAL:
        if ip.is_loopback:
            return "this machine"
        return "private" if ip.is_private else "not public"
    return "" if ip.is_global else "not public"
