"""What a server says when it wants a login: the header `WWW-Authenticate` of a 401 or 403."""

from __future__ import annotations

import re
from collections.abc import Iterable

from retinue.core.value_base import Value

MAX_HEADER = 8 << 10
MAX_SCOPE = 2_000

_BEARER = re.compile(r"(?:^|[\s,])bearer(?:\s+|$)", re.IGNORECASE)
_FIELD = re.compile(r'([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class AuthChallenge(Value):
    """`metadata_url` is where the server describes how to log in; `scope` what it wants allowed."""

    scope: str = ""
    metadata_url: str = ""
    error: str = ""


def challenge_of(headers: Iterable[str]) -> AuthChallenge:
    """The first challenge for a bearer token; an empty one if there is none."""
    for header in headers:
        match = _BEARER.search(header[:MAX_HEADER])
        if match is not None:
            fields: dict[str, str] = {}
            for name, quoted, plain in _FIELD.findall(header[match.end() : MAX_HEADER]):
                fields.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
            return AuthChallenge(
                scope=scope_text(fields.get("scope", "").split()),
                metadata_url=fields.get("resource_metadata", ""),
                error=fields.get("error", ""),
            )
    return AuthChallenge()


def scope_text(words: Iterable[str]) -> str:
    """Each scope once, in the order they came in; others are omitted."""
    scopes = [word for word in dict.fromkeys(words) if _SCOPE.fullmatch(word)]
    text = " ".join(scopes)
    return text if len(text) <= MAX_SCOPE else text[:MAX_SCOPE].rpartition(" ")[0]
