"""Checks of values beyond their type: names of models, variables, rules, addresses, durations. Each
check returns the value to use or raises `ValueError`. No message quotes what might be a secret."""

from __future__ import annotations

import math
import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from retinue.config.problems import looks_secret, shown
from retinue.core.call_rules import read_rule
from retinue.core.values import MODES
from retinue.formats.durations import seconds
from retinue.formats.suggestion import did_you_mean

MODE_WORDS = {
    **{mode.lower(): mode for mode in MODES},
    "default": "manual",
    "ask": "manual",
    "accept-edits": "acceptEdits",
    "auto_edit": "acceptEdits",
    "auto-edit": "acceptEdits",
    "read-only": "plan",
    "dont-ask": "dontAsk",
    "workspace-write": "auto",
    "bypass": "bypassPermissions",
    "yolo": "bypassPermissions",
    "danger-full-access": "bypassPermissions",
}
"""Permission modes, and the names that other programs have for them."""
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|COOKIE|AUTH|BEARER", re.IGNORECASE)
_PROVIDER = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
MOST_TEXT = 4_096


def mode(text: str) -> str:
    mode_name = MODE_WORDS.get(text.lower())
    if mode_name is None:
        raise ValueError(
            f"Unknown permission mode: {shown(text)!r}.{did_you_mean(text, MODES)} Known: "
            f"{', '.join(MODES)}"
        )
    return mode_name


def variable(text: str) -> str:
    """The name of an environment variable. Capitals only: most keys would pass as a name
    otherwise."""
    if not _VARIABLE.fullmatch(text) or looks_secret(text):
        raise ValueError(
            "Expected the name of an environment variable in capitals, e.g. "
            '"WORK_API_KEY". The value is hidden because it may be a key. Never put keys '
            "in files; set them in the environment."
        )
    return text


def rule(text: str) -> str:
    """What comes after `allow:`, `ask:` or `deny:`."""
    if re.match(r"\s*(allow|ask|deny)\s*:", text):
        raise ValueError(
            f"{shown(text)!r}: remove `allow:`, `ask:` or `deny:`; the key already says "
            "which it is."
        )
    try:
        read = read_rule(f"ask: {text.strip()}")
    except ValueError:
        raise ValueError(
            f"{shown(text)!r} is not a rule. Write a tool name, optionally with a pattern "
            'in parentheses, e.g. "shell(git log*)"'
        ) from None
    return read.words.removeprefix("ask: ")


def model(text: str) -> str:
    """A model: `provider:model`, `offline/explorer`, `local/...`, an alias, or a chain of them with
    `|`."""
    from retinue.current_models import example
    from retinue.errors import ConfigError
    from retinue.models.providers import provider_name

    if not text.strip() or len(text) > MOST_TEXT or not text.isprintable():
        raise ValueError(f"Expected the name of a model, e.g. {example()}")
    if looks_secret(text):
        raise ValueError(
            "Expected the name of a model. The value is hidden because it looks like a key"
        )
    for part in text.split("|"):
        head, colon, rest = (piece.strip() for piece in part.partition(":"))
        if colon and not rest:
            raise ValueError(f"{shown(text)!r} has no model name. Use PROVIDER:MODEL")
        if colon and not may_be_own(head):
            try:
                provider_name(head)
            except ConfigError as error:
                raise ValueError(str(error)) from None
    return text.strip()


def may_be_own(name: str) -> bool:
    """Whether a name can be that of a provider that the user declares, and is not a misspelt one.
    If no file declares it, that is said when it is used."""
    from retinue.models.providers import ALIASES, LOCAL, PROVIDERS

    is_like_one = bool(did_you_mean(name, [*PROVIDERS, *ALIASES, LOCAL]))
    return bool(_PROVIDER.fullmatch(name)) and not is_like_one


def url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("Invalid URL. Use e.g. https://example.org/v1") from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == 0
        or not text.isprintable()
    ):
        raise ValueError("Invalid URL. Use e.g. https://example.org/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "A URL must not contain a user name or password. Put secrets in the environment"
        )
    return text


def duration(value: float | str) -> float:
    """Seconds, more than none."""
    if isinstance(value, str):
        value = seconds(shown(value))
    if not 0 < value < math.inf:
        raise ValueError("A duration must be more than 0 and finite")
    return float(value)


def provider(entry: dict[str, Any]) -> dict[str, Any]:
    """Where a provider is and how fast it is called: `models.provider_settings.ProviderEntry`."""
    from retinue.models.provider_settings import ProviderEntry

    if isinstance(name := entry.get("key"), str):
        variable(name)
    if isinstance(address := entry.get("base_url"), str):
        url(address)
    return _fields(entry, ProviderEntry)


def facts(entry: dict[str, Any]) -> dict[str, Any]:
    """What is known of a model: `models.model_facts.ModelFacts`."""
    from retinue.models.model_facts import ModelFacts

    return _fields(entry, ModelFacts)


def price(entry: dict[str, Any]) -> dict[str, Any]:
    """What a model costs: `models.prices.Price`."""
    from retinue.models.prices import Price

    return _fields(entry, Price)


def _fields(entry: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    from retinue.errors import ConfigError

    for name in entry:
        if name not in kind.__struct_fields__:
            there = ", ".join(kind.__struct_fields__)
            raise ValueError(
                "Unknown name "
                f"{shown(name)!r}.{did_you_mean(name, kind.__struct_fields__)} Known: "
                f"{there}"
            )
    try:
        msgspec.convert(entry, kind)
    except msgspec.ValidationError as error:
        raise ValueError(shown(str(error), 200)) from None
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return entry


def server(entry: dict[str, Any]) -> dict[str, Any]:
    """One server of tools in Codex's way. The client checks its types; this checks only that it
    contains no secret."""
    for field in ("env", "http_headers", "headers"):
        mapping = entry.get(field)
        for name, value in mapping.items() if isinstance(mapping, dict) else ():
            if (
                isinstance(value, str)
                and "${" not in value
                and value
                and (looks_secret(value) or (_SECRET_NAME.search(name) and len(value) >= 8))
            ):
                raise ValueError(
                    f"{field}.{shown(name)} looks like a secret, which must not be in a "
                    "file. Name the variable that holds it in env_vars, env_http_headers "
                    "or bearer_token_env_var"
                )
    args = entry.get("args")
    for text in args if isinstance(args, list) else ():
        if isinstance(text, str) and looks_secret(text):
            raise ValueError(
                "`args` contains what looks like a key. Name the variable that holds it, "
                'e.g. "${MY_KEY}"'
            )
    return entry
