"""The configuration for a command: the files that apply, their trust, and the merged result."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from retinue.errors import ConfigError
from retinue.formats.database_address import is_postgres, wrong_address
from retinue.formats.toml_text import load as load_toml
from retinue.host.project import Project
from retinue.host.project_paths import config_home
from retinue.sandbox.regular_file import read_small

if TYPE_CHECKING:
    from retinue.config.layers import EffectiveSettings, Layer

NAMES = ("config.toml", "config.json5", "config.json")


def user_file(environ: Mapping[str, str]) -> str:
    """The user's file: the first that is there, otherwise where it would be."""
    return _first(config_home(environ))


def project_files(root: str, cwd: str) -> list[str]:
    """The project's files that are there, that of its root first and the nearest last."""
    top, here = os.path.realpath(root), os.path.realpath(cwd)
    folders = [top]
    if here.startswith(top.rstrip("/") + "/"):
        steps = os.path.relpath(here, top).split("/")
        folders += [os.path.join(top, *steps[: n + 1]) for n in range(len(steps))]
    candidates = (_first(os.path.join(folder, ".retinue")) for folder in folders)
    return [file for file in candidates if os.path.lexists(file)]


def _first(folder: str) -> str:
    there = (os.path.join(folder, name) for name in NAMES)
    return next((path for path in there if os.path.lexists(path)), os.path.join(folder, NAMES[0]))


def load(
    project: Project, *, strict: bool = True, flags: Mapping[str, Any] | None = None
) -> EffectiveSettings:
    """The effective configuration. With `strict` every mistake of every place is raised together,
    as `ConfigProblems`; without, they are in `problems`. `notes` lists what is not used because it
    is not trusted. Providers that the user declares are known to this process from then on."""
    from retinue.config.layer_reader import read_environment, read_flags, read_layer
    from retinue.config.layers import EffectiveSettings

    layers: list[Layer] = []
    user = user_file(project.environ)
    if os.path.lexists(user):
        layers.append(read_layer(user, "user"))
    ours, notes = _of_project(project)
    others = [os.path.join(os.path.dirname(user), name) for name in NAMES]
    notes += [
        f"{file} is not used, because {user} exists"
        for file in others
        if file != user and os.path.lexists(file)
    ]
    layers += ours
    layers += [read_environment(project.environ), read_flags(flags or {})]
    settings = EffectiveSettings(layers, notes)
    if settings.value.providers:
        from retinue.config.model_config import adopt_declared, declarations

        adopt_declared(declarations(settings.value.models, settings.value.providers))
    return settings.checked() if strict else settings


TOLD = {
    "host.idle_seconds": "RETINUE_IDLE_SECONDS",
    "host.start_seconds": "RETINUE_START_SECONDS",
    "limits.total": "RETINUE_LIMITS_TOTAL",
    "retention.age": "RETINUE_RETENTION_AGE",
    "retention.count": "RETINUE_RETENTION_COUNT",
    "retention.size_mb": "RETINUE_RETENTION_SIZE_MB",
    "store.dispatch": "RETINUE_DISPATCH",
    "limits.calls_per_turn": "RETINUE_LIMITS_CALLS_PER_TURN",
    "models.probe": "RETINUE_PROBE",
}
"""Settings whose readers look at the environment only."""


def environment(project: Project, settings: EffectiveSettings) -> dict[str, str]:
    """The environment of a command with what is configured in files: keys and addresses of
    providers, what models cost, how fast providers are called, and `TOLD`."""
    from retinue.config.model_config import declarations, model_environment

    value = settings.value
    out = {
        **model_environment(value.models, project.environ),
        **declarations(value.models, value.providers),
    }
    for key, variable in TOLD.items():
        if settings.origin(key).kind in ("user", "project"):
            value = settings.get(key)
            out[variable] = _written(value)
    return out


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else str(int(value))


def stored(environ: Mapping[str, str]) -> str:
    """The store that the user's file names, "" for none. A relative path begins at that file."""
    path = of_user(environ, "store", "path")
    if not isinstance(path, str) or not path:
        return ""
    if is_postgres(path) or wrong_address(path):
        return path
    return os.path.join(config_home(environ), os.path.expanduser(path))


def of_user(environ: Mapping[str, str], section: str, name: str) -> Any:
    """What the user's own file says, None for nothing. Every command reads it, so nothing else is
    read here; problems in the file are reported by commands that need more of it."""
    file = user_file(environ)
    if not os.path.lexists(file):
        return None
    if not file.endswith(".toml"):
        from retinue.config.layer_reader import read_layer

        setting = read_layer(file, "user").by_key.get((section, name))
        return None if setting is None else setting.value
    try:
        table = load_toml(read_small(file).decode()).get(section)
    except (OSError, ValueError):
        return None
    return table.get(name) if isinstance(table, dict) else None


def _of_project(project: Project) -> tuple[list[Layer], list[str]]:
    from retinue.config.layer_reader import read_layer

    try:
        stands = project.trust.read()
    except ConfigError as error:
        return [], [str(error)]
    layers, notes = [], [stands.why()] if stands.why() else []
    for file in project_files(project.paths.root, project.paths.cwd):
        data = stands.read(file)
        if data is not None:
            layers.append(read_layer(file, "project", data))
        elif stands.is_trusted:
            reason = stands.refused.get(
                os.path.relpath(file, stands.root), "the file was changed just now"
            )
            notes.append(f"{file} is ignored: {reason}")
    return layers, notes
