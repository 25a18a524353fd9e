"""What a run is told by the configuration where its command says nothing: flags come first, then the environment, the
project's file if it is trusted, and the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from retinue.cli import asking, settings, words
from retinue.cli.door import Door
from retinue.core.values import Capabilities
from retinue.errors import ConfigError

if TYPE_CHECKING:
    from retinue.config.layers import Settings
    from retinue.config.schema import Configuration

FILLED = {
    "agent": "agents.default",
    "max_budget_usd": "limits.max_budget_usd",
    "max_tokens": "limits.max_tokens",
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
    fill(found, told, lambda name: context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT)
    door.environ = settings.environment(door, found)
    return found.value


def fill(found: Settings, told: dict[str, Any], is_open: Any) -> None:
    def is_set(key: str) -> bool:
        return found.origin(key).kind not in ("default", "environment")

    said = {"permission_mode"} if told.get("sandbox") or told.get("yolo") else set()
    for name, key in FILLED.items():
        if name in told.keys() - said and is_open(name) and is_set(key):
            told[name] = found.get(key)
            if name == "timeout" and isinstance(told[name], str):
                told[name] = words.seconds(told[name])
    for name, key in JOINED.items():
        if name in told and is_set(key):
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


def families(value: Configuration) -> tuple[tuple[str, ...] | None, dict[str, dict[str, Any]]]:
    """The families that are configured, None for the usual ones, and the settings of each by its own name."""
    listed = list(value.families) if value.profiles is None else value.profiles
    return tuple(listed) or None, {name: dict(told) for name, told in value.families.items()}


def model_name(name: str, value: Configuration) -> str:
    """What a name of a model stands for."""
    if not name:
        return ""
    from retinue.config.models import resolved

    return resolved(name, value.models)


def refuse_model(model: str, allow: Mapping[str, tuple[str, ...]]) -> None:
    """ConfigError for a model of a provider of which others are allowed."""
    for part in model.split("|"):
        head, _, name = part.strip().partition(":")
        if name and head in allow and not any(fnmatchcase(name, pattern) for pattern in allow[head]):
            raise ConfigError(f"the configuration does not allow {part.strip()}: models.allow.{head} has others")
