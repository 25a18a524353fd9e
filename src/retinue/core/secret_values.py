"""Decides which values are secrets: of an environment, of headers, of an address, of a command
line. By their names where they have one, and by their shape."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from retinue.core.arguments import is_deep
from retinue.core.redaction import pieces

_SECRET = re.compile(
    r"KEY|SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE|BEARER|WEBHOOK|AUTHORIZATION|_PWD$"
    r"|(?:^|_)(?:PASS|AUTH|PAT|DSN|SIG|SIGNATURE)(?:_|$)",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"(?:_(?:FILE|PATH|DIR|SOCK|HOME|NAME|HOST|PORT)|(?<!WEBHOOK)_UR[IL]|MAX_?TOKENS|TOKENS?_?LIMIT)$",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s@:]*)(?::([^/\s]*))?@")
_IN_PAIRS = re.compile(
    r"(?i)\b(?:password|passwd|pwd|\w*key|\w*secret|\w*token|sig)\s*=\s*('[^']*'|\"[^\"]*\"|[^\s;&'\"]+)"
)
_IN_HEADER = re.compile(r"\s*([A-Za-z][\w-]{1,15})\s+(\S+)\s*")
_SCHEMES = ("bearer", "basic", "token", "apikey", "api-key", "bot", "key", "digest", "negotiate")
_WELL_KNOWN = re.compile(
    r"(?<![\w-])(?:(?:sk-|sk_|rk_|gh[opsu]_|github_pat_|glpat-|xox[abeprs]-|AKIA|AIza|hf_|gsk_|xai-|whsec_|npm_|pypi-|ntn_)"
    r"[\w-]{12,}|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)*)",
    re.ASCII,
)
"""What begins like a key of a provider, and JSON web tokens."""
_LIKE_A_KEY = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])(?=.*[A-Za-z0-9]{12})[\w+/=~-]{20,}", re.ASCII)
_DEFAULT = re.compile(r"\$\{([^}:]+):-([^}]*)\}")
_HEADER_LINE = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?::\s+|=)(.+)", re.DOTALL)
_HARMLESS_HEADER = re.compile(
    r"accept.*|content-.*|user-agent|host|origin|referer|cache-control|connection|.*-version",
    re.IGNORECASE,
)
# Long values in the settings of a server that are not secrets: paths, hosts, addresses (these are
# looked into).
_PLAIN = re.compile(r"[/~.]|[A-Za-z]:[\\/]|\S*://|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?$", re.ASCII)
_MIXED = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{6,}")
LONG, SHORT = 16, 10
MOST_JSON = 64 << 10


def secret_names(environ: Mapping[str, str]) -> list[str]:
    """The variables of an environment that hold a secret, or an address or settings with one in
    them."""
    return sorted({name.partition(" ")[0] for name in secrets_of(environ)})


def secrets_of(environ: Mapping[str, str], *, like_keys: bool = False) -> dict[str, str]:
    """The secret values of an environment, or of headers, by their names. Of an address it is the
    password, or the user when there is no password; of a list of settings the values of those that
    are named so. With `like_keys` a value counts also when it only looks like a key, as commit
    hashes do too."""
    secrets: dict[str, str] = {}
    for name, value in environ.items():
        is_named = _is_named(name)
        is_key = _WELL_KNOWN.fullmatch(value) or (like_keys and _LIKE_A_KEY.fullmatch(value))
        candidates = [value] if is_named or is_key else []
        candidates += [default for _, default in _DEFAULT.findall(value) if is_named]
        for n, one in enumerate([*candidates, *_inside(value, like_keys=like_keys)]):
            secrets[f"{name} {n}" if n else name] = one
    return {name: value for name, value in secrets.items() if any(pieces(value))}


def secrets_of_server(
    name: str,
    *,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    url: str = "",
    args: Sequence[str] = (),
) -> dict[str, str]:
    """Those of a server whose settings are written for it alone. There a header is a secret unless
    its name says otherwise, and a variable if it is long and not a path or host: too much is hidden
    rather than too little."""
    env, headers = env or {}, headers or {}
    values = {n: v for n, v in env.items() if _is_long(v)}
    values |= {
        n: v for n, v in headers.items() if not _HARMLESS_HEADER.fullmatch(n) and any(pieces(v))
    }
    defaults = [
        d
        for v in (*env.values(), *headers.values(), *args)
        for _, d in _DEFAULT.findall(v)
        if _is_long(d)
    ]
    return {
        **values,
        **{f"{name}_default {n}": one for n, one in enumerate(defaults)},
        **secrets_of(env, like_keys=True),
        **secrets_of(headers, like_keys=True),
        **secrets_of_address(f"{name}_url", url),
        **secrets_of_command(f"{name}_args", args),
    }


def secrets_of_entry(name: str, entry: Mapping[str, Any]) -> dict[str, str]:
    """The same of a server as a file has it, whatever its dialect calls things."""
    maps = {
        k: {n: v for n, v in m.items() if isinstance(v, str)}
        for k, m in entry.items()
        if isinstance(m, Mapping)
    }
    lists = {
        k: [v for v in m if isinstance(v, str)]
        for k, m in entry.items()
        if isinstance(m, (list, tuple))
    }
    secrets = dict[str, str]()
    for key, values in maps.items():
        is_headers = "header" in key.lower()
        own = secrets_of_server(
            f"{name} {key}", env={} if is_headers else values, headers=values if is_headers else {}
        )
        secrets |= {f"{name} {key} {n}": one for n, one in own.items()}
    for key, words in lists.items():
        secrets |= secrets_of_server(f"{name} {key}", args=words)
    for key, value in entry.items():
        if isinstance(value, str):
            secrets |= secrets_of_address(f"{name} {key}", value)
            secrets |= secrets_of_command(f"{name} {key} words", value.split())
    return secrets


def secrets_of_address(name: str, url: str) -> dict[str, str]:
    """Passwords in an address, what its query says under a name of a secret, and parts of its path
    like keys."""
    secrets = [*_inside(url, like_keys=True)]
    return {f"{name} {n}": one for n, one in enumerate(secrets) if any(pieces(one))}


def secrets_of_command(name: str, args: Sequence[str]) -> dict[str, str]:
    """The values of options that are named like secrets, and words like keys."""
    secrets: list[str] = []
    for before, word in zip(("", *args), args, strict=False):
        option, sign, value = word.partition("=")
        if (
            before.startswith("-")
            and "=" not in before
            and _SECRET.search(before.replace("-", "_"))
        ):
            secrets.append(word)
        elif option.startswith("-") and sign and _SECRET.search(option.replace("-", "_")):
            secrets.append(value)
        elif _WELL_KNOWN.fullmatch(word) or _LIKE_A_KEY.fullmatch(word):
            secrets.append(word)
        if (line := _HEADER_LINE.fullmatch(word.lstrip("-"))) is not None:
            secrets += secrets_of({line[1]: line[2]}, like_keys=True).values()
        secrets += _inside(word, like_keys=True)
    return {f"{name} {n}": one for n, one in enumerate(secrets) if any(pieces(one))}


def _is_named(name: str) -> bool:
    plain = name.replace("-", "_")
    return bool(_SECRET.search(plain) and not _HARMLESS.search(plain))


def _is_long(value: str) -> bool:
    """Whether a value of a server's own is too long to be an ordinary setting."""
    if _PLAIN.match(value) or any(c.isspace() for c in value):
        return False
    return len(value) >= LONG or (len(value) >= SHORT and _MIXED.search(value) is not None)


def _inside(value: str, *, like_keys: bool = False) -> Iterator[str]:
    """Passwords inside of addresses, of settings, of headers and of JSON, as written there and
    decoded."""
    for user, password in _IN_URL.findall(value):
        one = password or user
        yield one
        if "%" in one:
            yield unquote(one, errors="surrogateescape")
    for one in _IN_PAIRS.findall(value):
        yield one.strip("'\"")
    if (header := _IN_HEADER.fullmatch(value)) is not None and header[1].lower() in _SCHEMES:
        yield header[2]
        if header[1].lower() == "basic":
            with contextlib.suppress(ValueError):
                yield (
                    base64.b64decode(header[2], validate=True)
                    .decode("utf-8", "replace")
                    .partition(":")[2]
                )
    for match in _WELL_KNOWN.finditer(value):
        yield match[0]
    for name, default in _DEFAULT.findall(value):
        yield from secrets_of({name: default}, like_keys=like_keys).values()
    if "://" in value and not any(c.isspace() for c in value):
        yield from _in_address(value)
    if value.lstrip()[:1] in ("{", "["):
        yield from _in_json(value, like_keys=like_keys)


def _in_address(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
    except ValueError:
        return
    yield from (v for k, v in query if _SECRET.search(k.replace("-", "_")))
    yield from (
        one for part in parts.path.split("/") if _LIKE_A_KEY.fullmatch(one := unquote(part))
    )


def _in_json(text: str, *, like_keys: bool) -> Iterator[str]:
    if len(text) > MOST_JSON or is_deep(text):
        return
    try:
        todo: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield from secrets_of(
                {k: v for k, v in value.items() if isinstance(v, str)}, like_keys=like_keys
            ).values()
            todo += [v for v in value.values() if not isinstance(v, str)]
        elif isinstance(value, list):
            yield from secrets_of_command("", [v for v in value if isinstance(v, str)]).values()
            todo += [v for v in value if not isinstance(v, str)]
