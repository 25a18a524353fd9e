"""The address of a PostgreSQL store. The password in it is for the driver only: `shown` is what
people and logs see."""

from __future__ import annotations

import re
from urllib.parse import unquote

SCHEMES = ("postgresql://", "postgres://")
LEAST_PART = 4
# The driver ends a password at the first @, and the login at the first slash. A slash or an @ that
# should have been encoded leaves it without a password, but what was meant as one is not shown.
_LOGIN = re.compile(
    r"(?<=://)(?:[^/@]*@(?:[^/?@]*@)*|[^/:@?#\[]+:(?!\d*(?:,[^/@]*)?(?:[/?#]|$))[^@]*@)"
)
_FIELD = re.compile(r"(?<=[?&])((?:ssl)?password)=([^&]*)", re.IGNORECASE)
_OTHER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|postgres\w*:", re.IGNORECASE)


def is_postgres(store: object) -> bool:
    """Whether this names a database, not a file."""
    return isinstance(store, str) and store.startswith(SCHEMES)


def wrong_address(store: object) -> str:
    """Why this is neither a file nor a database that can be used, or "". As a file it would have
    the password in its name."""
    if not isinstance(store, str) or is_postgres(store) or _OTHER.match(store) is None:
        return ""
    return (
        f"{shown(store)} is not the address of a store. Name a file, or a database as "
        "postgresql://USER@HOST:PORT/DATABASE."
    )


def shown(url: str) -> str:
    """The address without its passwords."""

    def hide(match: re.Match[str]) -> str:
        user, colon, _ = match[0][:-1].partition(":")
        return f"{user}:***@" if colon else match[0]

    return _FIELD.sub(r"\1=***", _LOGIN.sub(hide, url))


def without_password(url: str) -> str:
    """The address that names the database, for those who bring the password in another way."""
    text = re.sub(r"&(?:ssl)?password=\*\*\*|(?<=\?)(?:ssl)?password=\*\*\*&", "", shown(url))
    return text.replace(":***@", "@")


def passwords(url: str) -> list[str]:
    """Those in an address, as written there and decoded."""
    login = _LOGIN.search(url)
    passwords_written = [login[0][:-1].partition(":")[2] if login is not None else ""]
    passwords_written += [value for _, value in _FIELD.findall(url)]
    return list(
        dict.fromkeys(form for one in passwords_written if one for form in (one, unquote(one)))
    )


def hidden(url: str, text: str) -> str:
    """A text of the driver or the server without the passwords of this address. Of one that it
    could not read it may name a part."""
    secrets = passwords(url)
    parts = [part for one in secrets for part in re.split(r"[/?#@:,]", one)]
    words = {*secrets, *(part for part in parts if len(part) >= LEAST_PART)}
    if words:
        text = text.replace(url, shown(url))
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, "***")
    return text
