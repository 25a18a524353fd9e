"""Parses host names in one way, for the rules on an address and for the code that connects
to it."""

from __future__ import annotations

import ipaddress
import unicodedata

IP = ipaddress.IPv4Address | ipaddress.IPv6Address

_DOTS = dict.fromkeys(map(ord, "\u3002\uff0e\uff61"), ".")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def ascii_name(text: str) -> str:
    """A name as it is looked up, by IDNA 2008 (`ß` is a letter of its own): full-width digits and
    the dots of other scripts become plain ones. Raises `UnicodeError` for what cannot be a name."""
    text = unicodedata.normalize("NFKC", text).translate(_DOTS).lower()
    if text.isascii():
        return text
    try:
        import idna  # comes with aiohttp, without which nothing is fetched
    except ImportError:
        raise UnicodeError(f"{text[:100]!r} needs the package idna") from None
    return idna.encode(text, uts46=True).decode().lower()


def plain_ip(ip: IP) -> IP:
    """Without the wrapping of IPv4 in IPv6."""
    if isinstance(ip, ipaddress.IPv6Address) and (ip in _MAPPED or ip in _NAT64):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip


def spelled(authority: str) -> str:
    """The host of an address or of a rule as it is asked for, without its port."""
    if authority.startswith("[") or authority.count(":") > 1:
        inner = authority.removeprefix("[").partition("]")[0]
        try:
            return str(plain_ip(ipaddress.IPv6Address(inner)))
        except ValueError:
            return inner.lower()
    name = authority.partition(":")[0]
    try:
        return ascii_name(name).rstrip(".")
    except UnicodeError:
        letters = "".join(c for c in name if unicodedata.category(c) != "Cf")
        return unicodedata.normalize("NFKC", letters).translate(_DOTS).lower().rstrip(".")
