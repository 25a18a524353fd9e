"""Parses web addresses strictly, in this file alone: whatever two programs could read differently
is refused."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urljoin

from retinue.errors import Refused
from retinue.formats.host_names import ascii_name

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
LONGEST_URL = 8_192
_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?)?", re.DOTALL
)
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_SLASH = re.compile(r"[/\\;]")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """An address taken apart. `host` is in small ASCII letters without a dot at the end; `ip` is
    set when it is one."""

    scheme: str
    host: str
    port: int
    path: str
    query: str
    ip: IP | None = None

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (
            "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        )

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}{'?' if self.query else ''}{self.query}"


def parse_url(url: str) -> Target:
    """The one reading of an address. Whatever two programs might read differently is refused, not
    guessed."""
    if len(url) > LONGEST_URL:
        raise refused(f"the URL has {len(url)} characters; the limit is {LONGEST_URL}")
    url = url.strip(" \t\r\n")
    if _FORBIDDEN.search(url):
        raise refused(
            "the URL contains a space, a backslash or a control character. Percent-encode it"
        )
    match = _URL.fullmatch(url)
    scheme = match[1].lower() if match else ""
    if scheme not in _PORTS or match is None or match[2] is None:
        what = (
            f"{scheme!r} URLs are not supported" if scheme and scheme not in _PORTS else "not a URL"
        )
        raise refused(f"{what}. Use a URL that starts with http:// or https://")
    if "@" in match[2]:
        raise refused("the URL contains a user name or a password. Remove everything up to the @")
    text, port = _split_port(match[2], _PORTS[scheme])
    host, ip = host_of(text)
    path, query = _plain_path(_quoted(match[3])), _quoted((match[4] or "?")[1:])
    return Target(scheme, host, port, path, query, ip)


def redirect_target(target: Target, location: str) -> Target:
    """Where a redirect leads, read as strictly as the first address."""
    location = location.strip(" \t\r\n")
    if len(location) > LONGEST_URL or _FORBIDDEN.search(location):
        raise refused("the page redirects to an invalid URL")
    try:
        return parse_url(urljoin(target.url, location))
    except ValueError as error:
        raise refused(f"the page redirects to an invalid URL ({error})") from None


def _plain_path(path: str) -> str:
    """A path as rules see it and as it is asked for: without `.` and `..`, and with letters that
    are written as such. Where those who decode a slash would see another path than those who do
    not, no one knows what is meant."""
    path = _ESCAPED.sub(_letter, path)
    parts: list[str] = []
    for part in path.split("/")[1:]:
        if part == "..":
            parts[-1:] = []
        elif part != ".":
            parts.append(part)
    if path.endswith(("/.", "/..")):
        parts.append("")
    if any(piece in (".", "..") for part in parts for piece in _SLASH.split(_decoded(part))):
        raise refused(
            "the path contains .. between slashes that are written as %2f or similar. "
            "Write the path you mean"
        )
    return "/" + "/".join(parts)


def _decoded(part: str) -> str:
    for _ in range(3):
        part = unquote(part, errors="replace")
    return part


def _letter(match: re.Match[str]) -> str:
    """The character of an escape, if it needs no escape."""
    char = chr(int(match[1], 16))
    return char if char.isascii() and (char.isalnum() or char in "-._~") else match[0]


def _quoted(text: str) -> str:
    return quote(text, safe="%/:=&?~#+!$,;'@()*[]-._|^`{}", errors="replace")


def _split_port(authority: str, default: int) -> tuple[str, int]:
    end = authority.rfind("]")
    host, colon, port = authority.rpartition(":")
    if not colon or end > len(host):
        return authority, default
    if port and not (
        port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536
    ):
        raise refused(f"{port!r} is not a valid port")
    return host, int(port) if port else default


def host_of(text: str) -> tuple[str, IP | None]:
    """A name in ASCII, or an address in its one usual form."""
    if text.startswith("["):
        try:
            if not text.endswith("]") or "%" in text:
                raise ValueError
            six = ipaddress.IPv6Address(text[1:-1])
        except ValueError:
            raise refused(f"{text} is not a valid IPv6 address (zones are not supported)") from None
        # Written as IPv4 in IPv6 it is the same host, for rules about addresses too.
        one = six.ipv4_mapped or six
        return str(one), one
    name = _ascii(text)
    name = name[:-1] if name.endswith(".") else name
    labels = name.split(".")
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise refused(f"{text[:100]!r} is not a valid host name")
    if _NUMBER.fullmatch(labels[-1]):
        # inet_aton reads 127.1, 0x7f000001, 017700000001 and 2130706433 as addresses: only one way
        # to write is taken.
        try:
            four = ipaddress.IPv4Address(name)
        except ValueError:
            raise refused(
                f"{text!r} is an address in an unusual form. Write it as four decimal numbers"
            ) from None
        return str(four), four
    return name, None


def _ascii(text: str) -> str:
    try:
        return ascii_name(text)
    except UnicodeError:
        raise refused(f"{text[:100]!r} is not a valid host name") from None


def refused(message: str) -> Refused:
    return Refused("fetch", message)
