"""Families by name, and profiles: a family with other defaults."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack, overload

import msgspec

from retinue.current_models import allowed
from retinue.errors import ConfigError
from retinue.formats.suggestion import did_you_mean
from retinue.tools.families.base import Family
from retinue.tools.families.setting_spelling import read_settings
from retinue.tools.families.setting_types import (
    AgentFamilySettings,
    DelegateFamilySettings,
    FanoutFamilySettings,
    SessionsFamilySettings,
    SubagentFamilySettings,
)

FamilyName = Literal[
    "agent",
    "delegate",
    "fanout",
    "sessions",
    "subagent",
    "meerkat",
    "meepo",
    "phoenix",
    "clawdbot",
    "openclaw",
    "xzatoma",
]
_HOMES = {
    "agent": ("retinue.tools.families.agent.agent_family", "AgentFamily"),
    "delegate": ("retinue.tools.families.delegate.delegate_family", "DelegateFamily"),
    "fanout": ("retinue.tools.families.fanout.fanout_family", "FanoutFamily"),
    "sessions": ("retinue.tools.families.sessions.sessions_family", "SessionsFamily"),
    "subagent": ("retinue.tools.families.subagent.subagent_family", "SubagentFamily"),
}
FAMILIES = tuple(_HOMES)
PROFILES: dict[str, tuple[str, dict[str, Any]]] = {
    "meerkat": (
        "agent",
        {
            "default_provider": "anthropic",
            "default_model": None,
            "allowed_models": allowed(),
            "more_tools": False,
            "more_keys": False,
        },
    ),
    "meepo": (
        "delegate",
        {
            "parallel_timeout_secs": 120.0,
            "background_timeout_secs": 600.0,
            "turns_per_task": 10,
            "stall_secs": None,
            "more_tools": False,
            "task_fields": [],
        },
    ),
    "phoenix": (
        "fanout",
        {"task_fields": [], "aggregate": "turn", "while_waiting": "refuse"},
    ),
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
            "control": True,
            "archive_after_minutes": 60,
            "default_deny": [
                "agents_list",
                "cron",
                "gateway",
                "memory_get",
                "memory_search",
                "session_status",
                "whatsapp_login",
            ],
        },
    ),
    "xzatoma": ("subagent", {}),
}
"""Profile -> its family, and the settings in which it differs from the family's defaults."""


def settings_of(name: str) -> tuple[str, dict[str, Any]]:
    """The family of a name, and the settings in which it differs."""
    return PROFILES.get(name, (name, {}))


def family_type(kind: str) -> type[Family]:
    """The class of a family; its module is loaded when it is first asked for."""
    module, class_name = _HOMES[kind]
    kind_of_family: type[Family] = getattr(importlib.import_module(module), class_name)
    return kind_of_family


@overload
def family(
    name: Literal["agent", "meerkat"], /, **settings: Unpack[AgentFamilySettings]
) -> Family: ...
@overload
def family(
    name: Literal["delegate", "meepo"], /, **settings: Unpack[DelegateFamilySettings]
) -> Family: ...
@overload
def family(
    name: Literal["fanout", "phoenix"], /, **settings: Unpack[FanoutFamilySettings]
) -> Family: ...
@overload
def family(
    name: Literal["sessions", "clawdbot", "openclaw"], /, **settings: Unpack[SessionsFamilySettings]
) -> Family: ...
@overload
def family(
    name: Literal["subagent", "xzatoma"], /, **settings: Unpack[SubagentFamilySettings]
) -> Family: ...
def family(name: str, /, **settings: Any) -> Family:
    """A family by its own name (agent, delegate, fanout, sessions, subagent) or by a profile's
    (meerkat, meepo, phoenix, clawdbot, openclaw, xzatoma), with some settings set otherwise."""
    return make_family(name, **settings)


def make_family(name: str, /, **settings: Any) -> Family:
    """The same for names that are only known when the program runs."""
    kind, defaults = settings_of(name)
    if kind not in FAMILIES:
        names = [*FAMILIES, *PROFILES]
        hint = did_you_mean(name, names)
        raise ConfigError(f"Unknown family or profile {name!r}.{hint} Known: {', '.join(names)}")
    kind_of = family_type(kind)
    values_given = read_settings(name, kind_of.settings_type, settings, is_camels=kind_of.camels)
    try:
        values = msgspec.convert({**defaults, **values_given}, kind_of.settings_type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Invalid settings of family {kind!r}: {error}") from None
    instance = kind_of(values)
    instance.profile = name
    return instance


def check_once(owner: str, families: Sequence[Family | str] | Family) -> None:
    """No agent has a family twice: its profiles are the same tools with other defaults."""
    if isinstance(families, str | Family):
        raise ConfigError(f"{owner}: `families` is a list, e.g. families=[{_shown(families)}]")
    if not isinstance(families, Sequence):
        raise ConfigError(
            f"{owner}: `families` is a list, e.g. families=['fanout'], not {families!r}"
        )
    names: dict[str, str] = {}
    for one in families:
        if not isinstance(one, str | Family):
            raise ConfigError(
                f"{owner}: {one!r} is not a family. Name one, or use the result of "
                "family(name, ...)"
            )
        name = one if isinstance(one, str) else one.profile or one.name
        kind = settings_of(name)[0] if isinstance(one, str) else one.name
        if kind in names:
            both = f"{names[kind]!r} and {name!r}" if names[kind] != name else f"{name!r} twice"
            raise ConfigError(
                f"{owner} has {both}, which are the same family, {kind!r}: a profile is a "
                "family with other defaults. Name one of them, and change its settings "
                "with family(name, ...)"
            )
        names[kind] = name


def _shown(one: Family | str) -> str:
    return repr(one) if isinstance(one, str) else f"family({one.profile or one.name!r}, ...)"


def check_switches(owner: str, families: Sequence[Family], switches: object) -> None:
    """What turns families on and off for one run."""
    there = ", ".join(f.name for f in families) or "none"
    how = f'e.g. families={{"{families[0].name if families else "agent"}": False}}'
    if not isinstance(switches, Mapping):
        raise ConfigError(
            f"`families` of a run turns families of its agent on or off, {how}. {owner} "
            f"has: {there}. To change which families it has, use Agent(families=[...])"
        )
    for name, is_on in switches.items():
        kind = settings_of(name)[0] if isinstance(name, str) else ""
        if name not in {f.name for f in families}:
            if kind != name and kind in {f.name for f in families}:
                raise ConfigError(
                    f"{name!r} is a profile. For a run, name its family: {{{kind!r}: {is_on!r}}}"
                )
            raise ConfigError(f"{owner} has no family {name!r}. It has: {there}")
        if not isinstance(is_on, bool):
            raise ConfigError(
                f"`families` has {is_on!r} for {name!r}. Use True or False, {how}. "
                "Settings are for family(...)"
            )
