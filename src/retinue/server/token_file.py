"""Tokens in a file: one on each line, with its scopes and its user if it has one."""

from __future__ import annotations

import os
import stat

from retinue.errors import ConfigError
from retinue.host.operations import SCOPES
from retinue.server.mounting import AccessToken

MOST_BYTES = 1 << 20


def read_tokens(path: str) -> list[AccessToken]:
    """`TOKEN`, `TOKEN read,run` or `TOKEN read,run alice`; a token alone has every scope. Empty
    lines and those that begin with # are skipped. The file must be for its owner alone."""
    try:
        with open(path, encoding="utf-8") as file:
            info = os.fstat(file.fileno())
            text = file.read(MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The token file {path} cannot be read: {error}") from None
    if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise ConfigError(f"Other users can read the token file {path}. Run `chmod 600 {path}`.")
    tokens = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            tokens.append(_token(line.split(), f"{path}:{number}"))
    if not tokens:
        raise ConfigError(f"The token file {path} is empty. Write a token on its first line.")
    return tokens


def _token(words: list[str], where: str) -> AccessToken:
    value, *rest = words
    if len(rest) > 2:
        raise ConfigError(f"{where}: write TOKEN, TOKEN SCOPES, or TOKEN SCOPES USER.")
    scopes = tuple(rest[0].split(",")) if rest else SCOPES
    user = rest[1] if len(rest) == 2 else ""
    try:
        return AccessToken(value, scopes, user, name=user or f"line {where.rpartition(':')[2]}")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
