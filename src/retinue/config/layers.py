"""Merges settings by precedence: flags, environment, project files, user files, defaults. Every
value remembers where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from retinue.config.family_sections import families_of
from retinue.config.problems import ConfigProblems, Problem, problem
from retinue.config.schema import Configuration
from retinue.config.setting_list import setting_of
from retinue.core.values import Value

Kind = Literal["default", "user", "project", "environment", "flag"]
RANK: dict[str, int] = {"default": 0, "user": 1, "project": 2, "environment": 3, "flag": 4}


class SettingSource(Value):
    """Where a value came from: a file with its line, a variable, a flag, or nowhere."""

    kind: Kind = "default"
    where: str = ""
    line: int = 0

    def __str__(self) -> str:
        if self.kind == "default":
            return "default"
        return f"{self.kind}: {self.where}{f':{self.line}' if self.line else ''}"


class FoundSetting(NamedTuple):
    """A value that was set, and where. A list that several places add to has several."""

    value: Any
    origins: tuple[SettingSource, ...]


class Layer:
    """What one place says: validated values by key, and all its mistakes."""

    def __init__(self, kind: Kind, where: str) -> None:
        self.kind: Kind = kind
        self.where = where
        self.by_key: dict[tuple[str, ...], FoundSetting] = {}
        self.problems: list[Problem] = []

    def put(self, key: tuple[str, ...], value: Any, origin: SettingSource) -> None:
        self.by_key[key] = FoundSetting(value, (origin,))


class EffectiveSettings:
    """The effective configuration. `problems` are the mistakes of all places; what is wrong was not
    used."""

    def __init__(self, layers: Iterable[Layer], notes: Iterable[str] = ()) -> None:
        self.layers = tuple(sorted(layers, key=lambda layer: RANK[layer.kind]))
        self.notes = tuple(notes)
        self.problems = tuple(p for layer in self.layers for p in layer.problems)
        self.by_key: dict[tuple[str, ...], FoundSetting] = {}
        for layer in self.layers:
            for key, setting in layer.by_key.items():
                self._merge(key, setting)

    def _merge(self, key: tuple[str, ...], entry: FoundSetting) -> None:
        setting, setting_by_key = setting_of(key), self.by_key.get(key)
        if setting_by_key is not None and setting is not None and setting.about.joins:
            both = tuple(dict.fromkeys((*setting_by_key.value, *entry.value)))
            entry = FoundSetting(both, (*setting_by_key.origins, *entry.origins))
        self.by_key[key] = entry

    def checked(self) -> EffectiveSettings:
        """Itself, when nothing is wrong; raises everything that is."""
        if self.problems:
            raise ConfigProblems(self.problems)
        return self

    @property
    def value(self) -> Configuration:
        """As one value."""
        tree: dict[str, Any] = {}
        for key, (value, _) in self.by_key.items():
            here = tree
            for part in key[:-1]:
                here = here.setdefault(part, {})
            here[key[-1]] = value
        try:
            return msgspec.convert(tree, Configuration)
        except msgspec.ValidationError as error:
            raise ConfigProblems([problem("the configuration", str(error))]) from None

    def get(self, key: str) -> Any:
        """The value of a scalar or list by its key, as in `models.default`."""
        parts = tuple(key.split("."))
        entry = self.by_key.get(parts)
        if entry is not None:
            return entry.value
        setting = setting_of(parts)
        return None if setting is None else setting.default

    def origin(self, key: str) -> SettingSource:
        setting = self.by_key.get(tuple(key.split(".")))
        return setting.origins[-1] if setting is not None else SettingSource()

    @property
    def families(self) -> tuple[Any, ...]:
        """Families with their settings, ready for an agent. A family that the nearest `profiles`
        leaves out is off."""
        sections: dict[str, dict[str, Any]] = {}
        for key, (value, _) in self.by_key.items():
            if key[0] == "families":
                sections.setdefault(key[1], {})[key[2]] = value
        return families_of(self.get("profiles"), sections)

    @property
    def rules(self) -> tuple[str, ...]:
        """Permission rules as the core reads them."""
        return tuple(
            f"{effect}: {text}"
            for effect in ("deny", "ask", "allow")
            for text in self.get(f"permissions.{effect}")
        )
