"""Fills in what a command does not set for a run: from the environment, the project's file if
trusted, and the user's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from retinue.core.values import Permissions
from retinue.errors import ConfigError
from retinue.formats.durations import seconds
from retinue.host import project_config
from retinue.host.project import Project
from retinue.host.run_setup import tool_names

if TYPE_CHECKING:
    from retinue.config.layers import EffectiveSettings
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
"""Flags of a command, and the setting that is used for one that is not given."""
JOINED = {"add_dir": "permissions.directories", "mcp_config": "mcp.files"}
"""Flags that can be given several times: what is configured comes behind."""


def environment(project: Project, settings: EffectiveSettings | None = None) -> Mapping[str, str]:
    """The environment for a host, with what is configured. Problems in a file are reported by the
    commands that start runs; the others ignore the file."""
    return project_config.environment(
        project, settings or project_config.load(project, strict=False)
    )


def defaults(
    settings: EffectiveSettings, flags: Mapping[str, bool], *, keep: Collection[str] = ()
) -> dict[str, Any]:
    """What is configured, by the names of flags. `given` has each flag of the command, and whether
    it was given: one that was is omitted, as are those to `keep`. The environment is read by flags
    themselves, where there is one."""
    values: dict[str, Any] = {}
    for name, key in FILLED.items():
        kind = settings.origin(key).kind
        if (
            kind == "default"
            or (kind == "environment" and name in flags)
            or flags.get(name)
            or name in keep
        ):
            continue
        value = settings.get(key)
        values[name] = seconds(value) if name == "timeout" and isinstance(value, str) else value
    return values


def joined(
    settings: EffectiveSettings, flags: Mapping[str, bool], name: str, values: Sequence[str]
) -> tuple[str, ...]:
    """The values of a flag that can be given several times, with what is configured behind them."""
    key = JOINED[name]
    kind = settings.origin(key).kind
    if kind == "default" or (kind == "environment" and name in flags):
        return tuple(values)
    return tuple(dict.fromkeys((*values, *settings.get(key))))


def default_model(settings: EffectiveSettings) -> str:
    """The model that a file names; that of the environment is read where models are chosen."""
    value: str = settings.get("models.default")
    return value if settings.origin("models.default").kind != "environment" else ""


def access(value: Configuration) -> Permissions:
    """The most that a run may do."""
    return Permissions(
        hosts=("*",) if value.sandbox.network else None,
        env=tuple(sorted(set(value.sandbox.env))) or None,
        depth=value.limits.depth,
        fanout=value.limits.children,
    )


def tools(value: Configuration) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Patterns of the only tools that there are, None for all, and of those that there are not."""
    setting = value.tools
    only = None if setting.enabled is None else _tools("tools.enabled", setting.enabled)
    return only, _tools("tools.disabled", setting.disabled)


def _tools(key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(ours for name in names for ours in tool_names(name)))
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def families_of(value: Configuration, named: Sequence[str] | None) -> tuple[Family, ...]:
    """The families of a conversation with their settings: those named, or those that are
    configured."""
    from retinue.host.plan import FAMILY
    from retinue.tools.families.profiles import make_family, settings_of

    usual, settings = families(value)
    names = (usual or (FAMILY,)) if named is None else named
    return tuple(make_family(name, **settings.get(settings_of(name)[0], {})) for name in names)


def families(value: Configuration) -> tuple[tuple[str, ...] | None, dict[str, dict[str, Any]]]:
    """The families that are configured, None for the usual ones, and the settings of each by its
    own name."""
    listed = list(value.families) if value.profiles is None else value.profiles
    return tuple(listed) or None, {
        name: dict(settings) for name, settings in value.families.items()
    }


def model_name(name: str, value: Configuration) -> str:
    """The model that a name resolves to."""
    if not name:
        return ""
    from retinue.config.model_config import resolved

    return resolved(name, value.models)


def refuse_model(model: str, allow: Mapping[str, tuple[str, ...]]) -> None:
    """ConfigError for a model of a provider of which others are allowed."""
    for part in model.split("|"):
        head, _, name = part.strip().partition(":")
        if (
            name
            and head in allow
            and not any(fnmatchcase(name, pattern) for pattern in allow[head])
        ):
            raise ConfigError(
                f"The configuration does not allow {part.strip()}",
                f"Use a model that `models.allow.{head}` lists, or add this one to it.",
            )
