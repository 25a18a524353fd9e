"""Configuration values for display, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of, secrets_of_address, secrets_of_entry
from retinue.formats.database_address import passwords


class ShownValues:
    """Takes out of values what no one should see on a screen."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ, self._redactor = environ, Redactor(secrets_of(environ))

    def value(self, key: tuple[str, ...], value: Any) -> Any:
        self._redactor.learn(_secrets_in(key, value))
        if key[0] == "mcp_servers" and isinstance(value, dict):
            secret = ("env", "headers", "http_headers")
            value = {
                k: dict.fromkeys(v, "(hidden)") if k in secret and isinstance(v, dict) else v
                for k, v in value.items()
            }
        return self._clean(value)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redactor.clean(value)
        if isinstance(value, dict):
            return {k: self._clean(v) for k, v in value.items()}
        return [self._clean(v) for v in value] if isinstance(value, (list, tuple)) else value

    def state(self, key: tuple[str, ...], value: Any) -> str:
        """Whether the variable that is named is set."""
        if key[:2] == ("models", "keys") or key[-1] == "secret_env":
            return "set" if self._environ.get(str(value), "").strip() else "not set"
        return ""


def _secrets_in(key: tuple[str, ...], value: Any) -> dict[str, str]:
    """The secrets that a setting holds itself: those of a server, and those in addresses."""
    if key[0] == "mcp_servers":
        entries = [{key[-1]: value}, *([value, *value.values()] if isinstance(value, dict) else [])]
        groups = [secrets_of_entry("", entry) for entry in entries if isinstance(entry, dict)]
    elif isinstance(value, str):
        own = {f"{key[-1]} password {n}": one for n, one in enumerate(passwords(value))}
        groups = [secrets_of_address(key[-1], value), own]
    else:
        values = value.values() if isinstance(value, dict) else value
        inner = values if isinstance(value, (dict, list, tuple)) else ()
        groups = [_secrets_in(key, one) for one in inner]
    return {f"{n} {k}": v for n, own in enumerate(groups) for k, v in own.items()}
