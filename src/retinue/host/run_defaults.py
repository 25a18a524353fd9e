"""What a run is told by the configuration where its command says nothing: flags come first, then the environment, the
project's file if it is trusted, and the user's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from retinue.cli import run_arguments as asking
from retinue.cli.context import Door
from retinue.core.values import Capabilities
from retinue.errors import ConfigError
from retinue.host import project_config as settings
from retinue.view import format as words

if TYPE_CHECKING:
    from retinue.config.layers import Settings
    from retinue.config.schema import Configuration
    from retinue.tools.families.base import Family

FILLED = {
    "agent": "agents.default",
    "max_budget_usd": "limits.max_budget_usd",
    "max_tokens": "limits.max_tokens",
    "on_limit": "limits.on_limit",
    "max_turns": "limits.max_turns",
    "timeout": "limits.timeout",
    "permission_mode": "permissions.mode",
    "permission_prompts": "permissions.prompts",
    "output_format": "output.format",
    "color": "output.color",
    "quiet": "output.quiet",
    "strict_mcp_config": "mcp.strict",
}
"""Flags of a command, and the setting that stands in for one that is not given."""
JOINED = {"add_dir": "permissions.directories", "mcp_config": "mcp.files"}
"""Flags that can be given several times: what is configured comes behind."""


def configured(door: Door, told: dict[str, Any], context: click.Context) -> Configuration:
    """Fill in what was not said, and take keys and addresses into the environment. Raises `ConfigError` with everything
    that is wrong."""
    found = settings.load(door)
    told["add_dir"] = tuple(os.path.abspath(folder) for folder in told["add_dir"])
    fill(found, told, context.get_parameter_source)
    root = door.places.root
    told["add_dir"] = tuple(os.path.normpath(os.path.join(root, os.path.expanduser(d))) for d in told["add_dir"])
    door.environ, door.is_configured = settings.environment(door, found), True
    return found.value


def environ(door: Door) -> Mapping[str, str]:
    """The environment for a host, with what is configured. What is wrong with a file is told by the commands that start
    runs; the others do without it."""
    if not door.is_configured:
        door.environ = settings.environment(door, settings.load(door, strict=False))
        door.is_configured = True
    return door.environ


def fill(found: Settings, told: dict[str, Any], source: Callable[[str], Any]) -> None:
    """`source` says where the value of a flag comes from, None for what the command has no flag for."""

    def is_set(name: str, key: str) -> bool:
        kind = found.origin(key).kind
        return kind != "default" and (kind != "environment" or source(name) is None)

    said = {"permission_mode"} if told.get("sandbox") or told.get("yolo") else set()
    if told.get("go_on") or told.get("resume"):
        said.add("agent")  # a run goes on with its own
    for name, key in FILLED.items():
        is_open = source(name) in (None, click.core.ParameterSource.DEFAULT)
        if name in told.keys() - said and is_open and is_set(name, key):
            told[name] = found.get(key)
            if name == "timeout" and isinstance(told[name], str):
                told[name] = words.seconds(told[name])
    for name, key in JOINED.items():
        if name in told and is_set(name, key):
            told[name] = tuple(dict.fromkeys((*told[name], *found.get(key))))
    told["rules"] = found.rules
    told["config_model"] = found.get("models.default") if found.origin("models.default").kind != "environment" else ""


def access(value: Configuration) -> Capabilities:
    """The most that a run may do."""
    return Capabilities(
        hosts=("*",) if value.sandbox.network else None,
        env=tuple(sorted(set(value.sandbox.env))) or None,
        depth=value.limits.depth,
        fanout=value.limits.children,
    )


def tools(value: Configuration) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Patterns of the only tools that there are, None for all, and of those that there are not."""
    told = value.tools
    only = None if told.enabled is None else _tools("tools.enabled", told.enabled)
    return only, _tools("tools.disabled", told.disabled)


def _tools(key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(ours for name in names for ours in asking.tool_names(name)))
    except click.UsageError as error:
        raise ConfigError(f"{key}: {error.message}") from None


def families_of(value: Configuration, named: Sequence[str] | None) -> tuple[Family, ...]:
    """The families of a conversation with their settings: those named, or those that are configured."""
    from retinue.host.plan import FAMILY
    from retinue.tools.families.profiles import family, settings_of

    usual, told = families(value)
    names = (usual or (FAMILY,)) if named is None else named
    return tuple(family(name, **told.get(settings_of(name)[0], {})) for name in names)


def families(value: Configuration) -> tuple[tuple[str, ...] | None, dict[str, dict[str, Any]]]:
    """The families that are configured, None for the usual ones, and the settings of each by its own name."""
    listed = list(value.families) if value.profiles is None else value.profiles
    return tuple(listed) or None, {name: dict(told) for name, told in value.families.items()}


def model_name(name: str, value: Configuration) -> str:
    """What a name of a model stands for."""
    if not name:
        return ""
    from retinue.config.model_config import resolved

    return resolved(name, value.models)


def refuse_model(model: str, allow: Mapping[str, tuple[str, ...]]) -> None:
    """ConfigError for a model of a provider of which others are allowed."""
    for part in model.split("|"):
        head, _, name = part.strip().partition(":")
        if name and head in allow and not any(fnmatchcase(name, pattern) for pattern in allow[head]):
            raise ConfigError(f"the configuration does not allow {part.strip()}: models.allow.{head} has others")
