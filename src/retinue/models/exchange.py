"""Sends the requests of one model: to a fixed target, with a prepared head and the body in
pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, urlsplit

from retinue.errors import ConfigError
from retinue.formats.host_names import ascii_name
from retinue.models.new_connections import Route

TOGETHER = 256 << 10
_SAFE = "!$%&'()*+,-./:;=?@_~"
"""What stays as it is in a path; what is already quoted in the address stays so too."""


class RequestSender:
    """The `route` and the head of every request."""

    __slots__ = ("head", "route")

    def __init__(self, url: str, headers: Mapping[str, str], proxy: str | None = None) -> None:
        for name, value in headers.items():
            if not name or not name.isascii() or any(c in "\r\n\0" for c in name + value):
                raise ConfigError(f"the header {name!r} contains characters that are not allowed")
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        usual = 443 if is_tls else 80
        try:
            host = ascii_name(parts.hostname or "")
            host.encode("idna")  # labels that are empty or too long
        except UnicodeError:
            raise ConfigError("the host name of a provider's URL is invalid") from None
        self.route = Route(host, parts.port or usual, is_tls, proxy)
        target = quote(f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}", safe=_SAFE)
        at = self.route.authority.removesuffix(f":{usual}")
        lines = [
            f"POST {target} HTTP/1.1",
            f"Host: {at}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        self.head = "\r\n".join([*lines, "Content-Length: "]).encode()

    def writes(self, body: Sequence[bytes], size: int) -> tuple[bytes, Iterator[bytes] | None]:
        """What is written first, and then: small pieces together, for each time costs as much as
        copying some."""
        head = b"%b%d\r\n\r\n" % (self.head, size)
        if size <= TOGETHER:
            return b"".join((head, *body)), None
        more = _together(head, body)
        return next(more), more


def _together(head: bytes, body: Sequence[bytes]) -> Iterator[bytes]:
    some, size = [head], len(head)
    for piece in body:
        if size + len(piece) > TOGETHER:
            yield b"".join(some)
            some, size = [], 0
        some.append(piece)
        size += len(piece)
    yield b"".join(some)
