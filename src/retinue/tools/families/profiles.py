"""Families by name, and profiles: a profile is a family with other defaults, nothing more."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import msgspec

from retinue.errors import ConfigError
from retinue.tools.families.base import Family

_HOMES = {
    "agent": ("retinue.tools.families.agent", "AgentFamily"),
    "delegate": ("retinue.tools.families.delegate", "DelegateFamily"),
    "fanout": ("retinue.tools.families.fanout", "FanoutFamily"),
    "sessions": ("retinue.tools.families.sessions", "SessionsFamily"),
    "subagent": ("retinue.tools.families.subagent", "SubagentFamily"),
}
PROFILES: dict[str, tuple[str, dict[str, Any]]] = {
    "meerkat": (
        "agent",
        {
            "default_provider": "anthropic",
            "default_model": None,
            "allowed_models": {
                "anthropic": ["claude-opus-4-6", "claude-sonnet-4-5", "claude-opus-4-5"],
                "openai": ["gpt-5.2", "gpt-5.2-pro"],
                "gemini": ["gemini-3-flash-preview", "gemini-3-pro-preview"],
            },
        },
    ),
    "meepo": ("delegate", {}),
    "phoenix": ("fanout", {}),
    "clawdbot": ("sessions", {}),
    "openclaw": (
        "sessions",
        {
            "max_concurrent": 8,
            "timeout_means": "run",
            "cleanup": "keep",
            "announce": "requester",
            "keys": "agent",
            "max_children_per_agent": 5,
        },
    ),
    "xzatoma": ("subagent", {}),
}
"""Profile -> its family, and the settings in which it differs from the family's defaults."""


def family(name: str, /, **settings: Any) -> Family:
    """A family by its own name (agent, delegate, fanout, sessions, subagent) or by a profile's (meerkat, meepo,
    phoenix, clawdbot, openclaw, xzatoma), with some settings set otherwise."""
    kind, defaults = PROFILES.get(name, (name, {}))
    home = _HOMES.get(kind)
    if home is None:
        known = [*_HOMES, *PROFILES]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no family or profile {name!r}.{hint} There is: {', '.join(known)}")
    module, class_name = home
    made: type[Family] = getattr(importlib.import_module(module), class_name)
    try:
        values = msgspec.convert({**defaults, **settings}, made.settings_type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the settings of family {kind!r} are wrong: {error}") from None
    return made(values)
