"""Names a server's tool `mcp__server__tool`, unique and stable, and selects the wanted tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from retinue.core.ids import digest

MAX_NAME = 64
PREFIX = "mcp__"

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_HASHED = re.compile(r"_[0-9a-f]{8}$")
Key = tuple[str, str]
"""The names of a server and of one of its tools, as they themselves write them."""


def plain_name(server: str, tool: str) -> str:
    """Characters that a provider does not take become `_`; what is too long ends in a hash of the
    whole, and so does what looks as if it did: no one can write the name that another would get."""
    name = PREFIX + "__".join(_OTHER.sub("_", part) for part in (server, tool))
    is_short = len(name) <= MAX_NAME and not _HASHED.search(name)
    return name if is_short else _with_hash(name, server, tool)


def _with_hash(name: str, server: str, tool: str) -> str:
    return f"{name[: MAX_NAME - 9]}_{digest(server, tool)[:8]}"


def names(keys: Iterable[Key], aliases: Mapping[Key, str]) -> dict[Key, str]:
    """A name for each tool. When two would have the same, neither gets it: both end in a hash, so
    that no server can take over a name by inventing a tool, and the order in which servers are
    known does not matter."""
    plain_names = {key: aliases.get(key) or plain_name(*key) for key in keys}
    n = Counter(plain_names.values())
    return {
        key: name if n[name] == 1 else _with_hash(plain_name(*key), *key)
        for key, name in plain_names.items()
    }


def is_wanted(tool: str, include: Sequence[str] | None, exclude: Sequence[str]) -> bool:
    """Patterns of the tool's own name. Excluding is stronger than including."""
    if any(fnmatchcase(tool, pattern) for pattern in exclude):
        return False
    return include is None or any(fnmatchcase(tool, pattern) for pattern in include)


def is_named(pattern: str, key: Key, name: str) -> bool:
    """Whether an agent's list of tools means this one: by its name here (with `*`), `mcp__server`
    for all of a server, or `server/tool` and `server/*`."""
    if fnmatchcase(name, pattern):
        return True
    server, tool = key
    if pattern.startswith(PREFIX):
        return pattern == PREFIX + _OTHER.sub("_", server) or fnmatchcase(plain_name(*key), pattern)
    head, slash, tail = pattern.rpartition("/")
    return bool(slash) and head == server and fnmatchcase(tool, tail)
