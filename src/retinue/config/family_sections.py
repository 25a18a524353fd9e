"""The sections of a configuration file about families, in each accepted spelling. All become
settings by family, with the place of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.config.config_file import ConfigDocument, camel, snake
from retinue.config.problems import MOST_PROBLEMS, ConfigProblems, Problem, shown, unknown
from retinue.errors import ConfigError
from retinue.formats.toml_positions import Path
from retinue.tools.families.base import Family
from retinue.tools.families.profiles import (
    FAMILIES,
    PROFILES,
    family_type,
    make_family,
    settings_of,
)
from retinue.tools.families.setting_spelling import as_written, inner_names, near

SECTIONS: dict[str, str] = {
    "sub_agents": "agent",
    "orchestrator": "delegate",
    "agent.subagents": "sessions",
    "agent.subagent": "subagent",
}
"""Sections as the five documents name them, and the family that each of them sets."""
TOP = ("profiles", "families")
HEADS = (*TOP, *(section.partition(".")[0] for section in SECTIONS))
"""Keys at the top of a file that are read here."""

Settings = dict[str, dict[str, tuple[Any, Path]]]


class FamilySections:
    """What a file says about families. `settings` is by family and key, each with its path."""

    def __init__(self, document: ConfigDocument) -> None:
        self._document = document
        self.problems: list[Problem] = []
        self.profiles: tuple[str, ...] | None = None
        self.settings: Settings = {}
        for key, value in document.data.items():
            if key in HEADS:
                self._section(key, value)
        self._profiles(document.data.get("profiles"))
        self._check()

    def families(self) -> tuple[Family, ...]:
        """Ready to be given to an agent. Raises all that was wrong."""
        if self.problems:
            raise ConfigProblems(self.problems)
        plain = {
            kind: {k: v for k, (v, _) in values.items()} for kind, values in self.settings.items()
        }
        return families_of(self.profiles, plain)

    def _say(self, path: Path, message: str) -> None:
        self.problems.append(self._document.problem(path, message))

    def _section(self, key: str, value: Any) -> None:
        if key == "agent":
            if not isinstance(value, dict):
                self._say((key,), "`agent` is a table, e.g. [agent.subagents]")
                return
            for inner, settings in list(value.items())[:MOST_PROBLEMS]:
                kind = SECTIONS.get(f"agent.{inner}")
                if kind is None:
                    self._say((key, inner), unknown(f"agent.{inner}", [*SECTIONS, *TOP], "section"))
                else:
                    self._put(kind, settings, (key, inner))
        elif key == "families":
            if not isinstance(value, dict):
                self._say((key,), "`families` has one table per family, e.g. [families.fanout]")
                return
            for kind, settings in list(value.items())[:MOST_PROBLEMS]:
                if kind in PROFILES:
                    home = settings_of(kind)[0]
                    word = (
                        f"{kind!r} is a profile. Name it in `profiles`, and set its "
                        f"family, e.g. [families.{home}]"
                    )
                    self._say((key, kind), word)
                elif kind not in FAMILIES:
                    self._say((key, kind), unknown(kind, FAMILIES, "family"))
                else:
                    self._put(kind, settings, (key, kind))
        elif key in SECTIONS:
            self._put(SECTIONS[key], value, (key,))

    def _put(self, kind: str, settings: Any, path: Path) -> None:
        if not isinstance(settings, dict):
            self._say(path, f"The settings of family {kind!r} must be a table")
            return
        mine = self.settings.setdefault(kind, {})
        for key, value in settings.items():
            if kind == "sessions" and key == "tools" and isinstance(value, dict):
                mine |= {
                    f"tools_{name}": (names, (*path, key, name)) for name, names in value.items()
                }
            else:
                mine[snake(key) if kind == "sessions" else key] = (value, (*path, key))

    def _profiles(self, listed: Any) -> None:
        if listed is None:
            return
        if not isinstance(listed, list) or not all(isinstance(p, str) for p in listed):
            self._say(("profiles",), "`profiles` must be a list of names")
            return
        kinds: dict[str, str] = {}
        for profile in listed[:MOST_PROBLEMS]:
            if profile not in PROFILES and profile not in FAMILIES:
                self._say(
                    ("profiles",), unknown(profile, [*PROFILES, *FAMILIES], "profile or family")
                )
                continue
            kind, _ = settings_of(profile)
            if kind in kinds:
                both = (
                    f"as {kinds[kind]!r} and as {profile!r}"
                    if kinds[kind] != profile
                    else f"as {profile!r}"
                )
                self._say(
                    ("profiles",),
                    f"Family {kind!r} is named twice in `profiles`, {both}. Remove one.",
                )
            kinds[kind] = profile
        self.profiles = tuple(listed)
        for kind in self.settings:
            if kind not in kinds and len(kinds) == len(listed):
                path = next((p for _, p in self.settings[kind].values()), ("families", kind))[
                    :-1
                ] or (kind,)
                self._say(path, f"Family {kind!r} has settings, but `profiles` does not name it")

    def _check(self) -> None:
        named = {
            settings_of(p)[0]: p for p in self.profiles or () if p in PROFILES or p in FAMILIES
        }
        for kind, values in self.settings.items():
            type_ = family_type(kind).settings_type
            fields = type_.__struct_fields__
            for key, (_, path) in list(values.items())[:MOST_PROBLEMS]:
                if key not in fields:
                    names = [str(p[-1]) for _, p in values.values()]
                    there = as_written(
                        fields, names, is_camels=family_type(kind).camels
                    ) + inner_names(type_)
                    of = f"setting of family {kind!r}"
                    if kind == "sessions" and path[-2] == "tools":
                        there, of = ["allow", "deny"], f"setting of tools of family {kind!r}"
                    hint = near(str(path[-1]), there) or f" Known: {', '.join(there)}"
                    self._say(path, f"Unknown {of}: {shown(str(path[-1]))!r}.{hint}")
            self._try(named.get(kind, kind), {k: v for k, v in values.items() if k in fields})

    def _try(self, profile: str, settings: dict[str, tuple[Any, Path]]) -> None:
        """A family names its first mistake; without that setting, the next one."""
        rest = dict(settings)
        while rest:
            try:
                make_family(profile, **{k: v for k, (v, _) in rest.items()})
                return
            except ConfigError as error:
                problem = str(error)
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                problem = f"The settings of family {settings_of(profile)[0]!r} are invalid: {error}"
            key = next((k for k in rest if k in problem or camel(k) in problem), None)
            if key:
                *_, outer, last = rest[key][1]
                name = f"{outer}.{last}" if outer == "tools" else str(last)
                problem = problem.replace(camel(key), str(last)).replace(f"`$.{key}", f"`$.{name}")
            self._say(rest[key][1] if key else next(iter(rest.values()))[1][:-1], problem)
            if key is None:
                return
            del rest[key]


def families_of(
    profiles: tuple[str, ...] | None, settings: Mapping[str, Mapping[str, Any]]
) -> tuple[Family, ...]:
    """The families that are turned on: those named, or without names those that have settings."""
    listed = list(settings) if profiles is None else profiles
    return tuple(make_family(p, **settings.get(settings_of(p)[0], {})) for p in listed)
