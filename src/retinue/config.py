"""Configuration files: TOML or JSON5 become families with their settings. A file is data, never code, and a mistake in
it is reported with its line and with what was probably meant.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.values import Value
from retinue.errors import ConfigError
from retinue.tools.families.base import Family
from retinue.tools.families.profiles import FAMILIES, PROFILES, family, family_type, settings_of

if TYPE_CHECKING:
    from retinue.models.catalog import Catalog

SECTIONS: dict[str, str] = {
    "sub_agents": "agent",
    "orchestrator": "delegate",
    "agent.subagents": "sessions",
    "agent.subagent": "subagent",
}
"""Sections as the five documents name them, and the family that each of them sets."""
TOP = ("profiles", "families")
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


class Config(Value):
    """What a file says. `families` are ready to be given to an agent."""

    families: tuple[Any, ...] = ()
    path: str = ""


def environment_secrets() -> dict[str, str]:
    """The secret values of the environment by their names: what must not be written down anywhere."""
    from retinue.core.secrets import secrets_of

    return secrets_of(os.environ)


def environment_catalog() -> Catalog:
    """The models that the environment has keys for."""
    from retinue.models.catalog import Catalog

    return Catalog(os.environ)


def read_config(path: str | Path) -> Config:
    """Read a configuration file; its suffix tells TOML from JSON5. Raises `ConfigError`."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {file}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    parse = _json5 if file.suffix in (".json", ".json5") else _toml
    return Config(families=families_in(parse(text, str(file)), text, str(file)), path=str(file))


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from None


def _json5(text: str, name: str) -> dict[str, Any]:
    try:
        import pyjson5
    except ImportError:
        raise ConfigError(f"{name} is JSON5, which needs the extra json5: pip install 'retinue[json5]'") from None
    try:
        value = pyjson5.decode(text)
    except Exception as error:
        raise ConfigError(f"{name} is not valid JSON5: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name} must hold an object, not {type(value).__name__}")
    return value


def families_in(data: dict[str, Any], text: str = "", name: str = "the configuration") -> tuple[Family, ...]:
    """The families that a configuration turns on, with their settings.

    `profiles` names them; each of the documents' sections sets one. Without `profiles`, a section turns its family on.
    """
    where = _Where(text, name)
    sections = _sections(data, where)
    listed = data.get("profiles")
    if listed is None:
        listed = list(sections)
    if not isinstance(listed, list) or not all(isinstance(p, str) for p in listed):
        raise where.error("profiles", "profiles must be a list of names")
    out: dict[str, Family] = {}
    for profile in listed:
        if profile not in PROFILES and profile not in FAMILIES:
            raise where.unknown(profile, [*PROFILES, *FAMILIES], "profile or family")
        kind, _ = settings_of(profile)
        if kind in out:
            raise where.error(profile, f"family {kind!r} is named twice in profiles")
        out[kind] = _make(profile, kind, sections.get(kind, {}), where)
    for kind in sections:
        if kind not in out:
            raise where.error(kind, f"there are settings for family {kind!r}, but profiles does not name it")
    return tuple(out.values())


def _make(profile: str, kind: str, settings: dict[str, Any], where: _Where) -> Family:
    known = family_type(kind).settings_type.__struct_fields__
    for key in settings:
        if key not in known:
            raise where.unknown(key, known, f"setting of family {kind!r}")
    try:
        return family(profile, **settings)
    except ConfigError as error:
        key = next((k for k in settings if k in str(error) or _camel(k) in str(error)), kind)
        raise where.error(key, str(error)) from None


def _sections(data: dict[str, Any], where: _Where) -> dict[str, dict[str, Any]]:
    """The settings of each family, whichever way the file writes them."""
    out: dict[str, dict[str, Any]] = {}
    for key, value in data.items():
        if key == "agent" and isinstance(value, dict):
            for inner, settings in value.items():
                _add(out, f"agent.{inner}", settings, where)
        elif key == "families":
            if not isinstance(value, dict):
                raise where.error(key, "families holds one table a family, as in [families.fanout]")
            for kind, settings in value.items():
                if kind not in FAMILIES:
                    raise where.unknown(kind, list(FAMILIES), "family")
                _put(out, kind, settings, where)
        elif key not in TOP:
            _add(out, key, value, where)
    return out


def _add(out: dict[str, dict[str, Any]], section: str, settings: Any, where: _Where) -> None:
    kind = SECTIONS.get(section)
    if kind is None:
        raise where.unknown(section, [*SECTIONS, *TOP], "section")
    _put(out, kind, settings, where)


def _put(out: dict[str, dict[str, Any]], kind: str, settings: Any, where: _Where) -> None:
    if not isinstance(settings, dict):
        raise where.error(kind, f"the settings of family {kind!r} must be a table")
    mine = out.setdefault(kind, {})
    for key, value in settings.items():
        if kind == "sessions" and key == "tools" and isinstance(value, dict):
            mine |= {f"tools_{name}": names for name, names in value.items()}
        else:
            mine[_snake(key) if kind == "sessions" else key] = value


def _snake(name: str) -> str:
    return _CAMEL.sub(lambda m: "_" + m[1].lower(), name)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


class _Where:
    """Finds the line of a key, so that an error can be looked up."""

    def __init__(self, text: str, name: str) -> None:
        self._lines, self._name = text.splitlines(), name

    def error(self, key: str, message: str) -> ConfigError:
        last = key.rsplit(".", 1)[-1]
        word = re.compile(rf"(?<![\w-])({re.escape(last)}|{re.escape(_camel(last))})(?![\w-])")
        line = next((n for n, text in enumerate(self._lines, 1) if word.search(text.split("#")[0])), None)
        return ConfigError(f"{self._name}{f', line {line}' if line else ''}: {message}")

    def unknown(self, key: str, known: Any, what: str) -> ConfigError:
        near = difflib.get_close_matches(key, list(known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return self.error(key, f"there is no {what} {key!r}.{hint} There is: {', '.join(known)}")
