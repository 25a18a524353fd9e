"""The address of a PostgreSQL store. The password in it is for the driver only: `shown` is what
people and logs see."""

from __future__ import annotations

import re
from urllib.parse import unquote

SCHEMES = ("postgresql://", "postgres://")
_PASSWORD = re.compile(r"(?<=://)([^/?#]*)@|(?<=[?&])((?:ssl)?password)=([^&#]*)", re.IGNORECASE)


def is_postgres(store: object) -> bool:
    """Whether this names a database, not a file."""
    return isinstance(store, str) and store.startswith(SCHEMES)


def shown(url: str) -> str:
    """The address without its passwords."""

    def hide(match: re.Match[str]) -> str:
        if match[2]:
            return f"{match[2]}=***"
        user, colon, _ = match[1].partition(":")
        return f"{user}:***@" if colon else f"{user}@"

    return _PASSWORD.sub(hide, url)


def without_password(url: str) -> str:
    """The address that names the database, for those who bring the password in another way."""
    return shown(url).replace(":***@", "@").replace("&password=***", "")


def hidden(url: str, text: str) -> str:
    """A text of the driver or the server without the passwords of this address."""
    secrets: set[str] = set()
    for match in _PASSWORD.finditer(url):
        secret = match[3] if match[2] else match[1].partition(":")[2]
        secrets |= {url, secret, unquote(secret)}
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, shown(url) if secret == url else "***")
    return text
