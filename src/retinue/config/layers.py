"""Settings from several places become one: a flag before the environment before the project's files
before the user's before what is built in. Every value remembers where it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from retinue.config.config_file import ConfigDocument, open_document
from retinue.config.family_sections import HEADS, SECTIONS, FamilySections, families_of
from retinue.config.problems import MOST_PROBLEMS, ConfigProblems, Problem, problem, shown, unknown
from retinue.config.schema import SEEDED, About, Configuration, explained
from retinue.config.setting_list import (
    bare,
    check_value,
    every_setting,
    from_text,
    is_mapping,
    setting_of,
)
from retinue.core.values import Value
from retinue.formats.toml_positions import Path, dotted

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
        self.found: dict[tuple[str, ...], FoundSetting] = {}
        self.problems: list[Problem] = []

    def put(self, key: tuple[str, ...], value: Any, origin: SettingSource) -> None:
        self.found[key] = FoundSetting(value, (origin,))


def read_layer(path: str, kind: Kind, data: bytes | None = None) -> Layer:
    """All that a file says. What cannot be read at all is a problem of the layer, like everything
    else."""
    layer = Layer(kind, path)
    try:
        document = open_document(path, data)
    except ConfigProblems as error:
        layer.problems.extend(error.problems)
        return layer
    _Walk(document, layer).walk()
    layer.problems.sort(key=lambda p: (p.line, p.column))
    return layer


class _Walk:
    """Goes through a document beside the schema."""

    def __init__(self, document: ConfigDocument, layer: Layer) -> None:
        self._document, self._layer = document, layer
        self._sections = explained(Configuration)

    def walk(self) -> None:
        known = [n for n in self._sections if n not in SEEDED]
        for name, value in self._document.data.items():
            if name in HEADS:
                continue
            if self._is_full():
                return
            if name not in known:
                self._say((name,), _unknown_section(name, [*SECTIONS, *SEEDED, *known], value))
                continue
            kind, about = self._sections[name]
            if about is not None:
                self._leaf((name,), kind, about, value)
            elif not isinstance(value, dict):
                self._say((name,), f"{name} is a section: write [{name}] and its settings below")
            else:
                self._section((name,), kind, value)
        self._seeds()

    def _is_full(self) -> bool:
        return len(self._layer.problems) >= MOST_PROBLEMS

    def _seeds(self) -> None:
        seeds = FamilySections(self._document)
        self._layer.problems.extend(seeds.problems)
        if seeds.profiles is not None:
            self._put(("profiles",), seeds.profiles, ("profiles",))
        for family, found in seeds.settings.items():
            for key, (value, path) in found.items():
                self._put(("families", family, key), value, path)

    def _section(
        self, path: tuple[str, ...], kind: type[msgspec.Struct], data: dict[str, Any]
    ) -> None:
        fields = explained(kind)
        for name, value in data.items():
            if self._is_full():
                return
            if name not in fields:
                self._say(
                    (*path, name), _unknown_key(name, fields, f"setting in [{dotted(path)}]", value)
                )
                continue
            leaf, about = fields[name]
            assert about is not None
            self._leaf((*path, name), leaf, about, value)

    def _leaf(self, path: tuple[str, ...], kind: Any, about: About, value: Any) -> None:
        if about.scope == "user" and self._layer.kind == "project":
            self._say(
                path,
                f"{dotted(path)} may stand in your own file only, never in a project's: take it "
                "out of here",
            )
            return
        if not is_mapping(kind):
            self._take(path, path, kind, about, value)
            return
        if not isinstance(value, dict):
            self._say(
                path,
                f"{dotted(path)} is a section: write [{dotted(path)}] and one line for each name",
            )
            return
        inner = get_args(bare(kind))[1]
        for name, item in value.items():
            if self._is_full():
                return
            self._entry((*path, name), inner, about, item)

    def _entry(self, path: tuple[str, ...], kind: Any, about: About, value: Any) -> None:
        from retinue.config.model_config import check_entry

        try:
            name = check_entry(path)
        except ValueError as error:
            self._say(path, str(error))
            return
        self._take((*path[:-1], name), path, kind, about, value)

    def _take(self, key: tuple[str, ...], path: Path, kind: Any, about: About, value: Any) -> None:
        try:
            checked = check_value(kind, about, value)
        except ValueError as error:
            self._say(path, f"{shown(dotted(path))}: {error}")
            return
        self._put(key, checked, path)

    def _put(self, key: tuple[str, ...], value: Any, path: Path) -> None:
        line, _ = self._document.place(path)
        self._layer.put(
            key, value, SettingSource(kind=self._layer.kind, where=self._layer.where, line=line)
        )

    def _say(self, path: Path, message: str) -> None:
        self._layer.problems.append(self._document.problem(path, message))


def _unknown_section(name: str, known: Iterable[str], value: Any) -> str:
    names = list(known)
    for section, (kind, about) in explained(Configuration).items():
        if about is None and name in kind.__struct_fields__:
            return f"there is no section {shown(name)!r}. Did you mean {section + '.' + name!r}?"
    return _unknown_key(name, names, "section", value)


def _unknown_key(name: str, known: Iterable[str], what: str, value: Any) -> str:
    text = unknown(name, known, what)
    if isinstance(value, str) and re.search(r"key|token|secret|password", name, re.IGNORECASE):
        text += (
            ". Keys are never written into files: put it into the environment; models.keys "
            "names the variable"
        )
    return text


def read_environment(environ: Mapping[str, str]) -> Layer:
    """What RETINUE_* variables say."""
    layer = Layer("environment", "the environment")
    for setting in every_setting():
        name = setting.variable
        text = environ.get(name, "") if name else ""
        if not text.strip():
            continue
        try:
            value = from_text(setting, text)
        except ValueError as error:
            layer.problems.append(problem(name, str(error), key=dotted(setting.key)))
        else:
            layer.put(setting.key, value, SettingSource(kind="environment", where=name))
    return layer


def read_flags(flags: Mapping[str, Any]) -> Layer:
    """What flags say, by the keys of settings; None was not said."""
    layer = Layer("flag", "the command line")
    for name, value in flags.items():
        key = tuple(name.split("."))
        setting = setting_of(key)
        if value is None or setting is None:
            continue
        where = setting.about.flag or name
        try:
            checked = check_value(
                setting.type, setting.about, list(value) if isinstance(value, tuple) else value
            )
        except ValueError as error:
            layer.problems.append(problem(where, str(error), key=name))
        else:
            layer.put(key, checked, SettingSource(kind="flag", where=where))
    return layer


class EffectiveSettings:
    """The effective configuration. `problems` are the mistakes of all places; what is wrong was not
    used."""

    def __init__(self, layers: Iterable[Layer], notes: Iterable[str] = ()) -> None:
        self.layers = tuple(sorted(layers, key=lambda layer: RANK[layer.kind]))
        self.notes = tuple(notes)
        self.problems = tuple(p for layer in self.layers for p in layer.problems)
        self.found: dict[tuple[str, ...], FoundSetting] = {}
        for layer in self.layers:
            for key, found in layer.found.items():
                self._merge(key, found)

    def _merge(self, key: tuple[str, ...], found: FoundSetting) -> None:
        setting, known = setting_of(key), self.found.get(key)
        if known is not None and setting is not None and setting.about.joins:
            both = tuple(dict.fromkeys((*known.value, *found.value)))
            found = FoundSetting(both, (*known.origins, *found.origins))
        self.found[key] = found

    def checked(self) -> EffectiveSettings:
        """Itself, when nothing is wrong; raises everything that is."""
        if self.problems:
            raise ConfigProblems(self.problems)
        return self

    @property
    def value(self) -> Configuration:
        """As one value."""
        tree: dict[str, Any] = {}
        for key, (value, _) in self.found.items():
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
        found = self.found.get(parts)
        if found is not None:
            return found.value
        setting = setting_of(parts)
        return None if setting is None else setting.default

    def origin(self, key: str) -> SettingSource:
        found = self.found.get(tuple(key.split(".")))
        return found.origins[-1] if found is not None else SettingSource()

    @property
    def families(self) -> tuple[Any, ...]:
        """Families with their settings, ready for an agent. A family that the nearest `profiles`
        leaves out is off."""
        found: dict[str, dict[str, Any]] = {}
        for key, (value, _) in self.found.items():
            if key[0] == "families":
                found.setdefault(key[1], {})[key[2]] = value
        return families_of(self.get("profiles"), found)

    @property
    def rules(self) -> tuple[str, ...]:
        """Permission rules as the core reads them."""
        return tuple(
            f"{effect}: {text}"
            for effect in ("deny", "ask", "allow")
            for text in self.get(f"permissions.{effect}")
        )
