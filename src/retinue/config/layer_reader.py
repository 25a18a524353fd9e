"""A layer of settings, read from a file, the environment or flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec

from retinue.config.config_file import ConfigDocument, open_document
from retinue.config.family_sections import HEADS, SECTIONS, FamilySections
from retinue.config.layers import Kind, Layer, SettingSource
from retinue.config.problems import MOST_PROBLEMS, ConfigProblems, problem, shown, unknown
from retinue.config.schema import SEEDED, About, Configuration, ModelsSection, explained
from retinue.config.setting_list import (
    bare,
    check_value,
    every_setting,
    from_text,
    is_mapping,
    setting_of,
)
from retinue.formats.toml_positions import Path, dotted


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
        sections = [n for n in self._sections if n not in SEEDED]
        for name, value in self._document.data.items():
            if name in HEADS:
                continue
            if self._is_full():
                return
            if name not in sections:
                self._say((name,), _unknown_section(name, [*SECTIONS, *SEEDED, *sections], value))
                continue
            kind, about = self._sections[name]
            if about is not None:
                self._leaf((name,), kind, about, value)
            elif not isinstance(value, dict):
                self._say(
                    (name,), f"{name} is a section. Write [{name}] with its settings below it"
                )
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
        for family, values in seeds.settings.items():
            for key, (value, path) in values.items():
                self._put(("families", family, key), value, path)

    def _section(
        self, path: tuple[str, ...], kind: type[msgspec.Struct], data: dict[str, Any]
    ) -> None:
        fields = explained(kind)
        for name, value in data.items():
            if self._is_full():
                return
            if path == ("models",) and ":" in name:
                self._model(name, value)
                continue
            if name not in fields:
                self._say(
                    (*path, name), _unknown_key(name, fields, f"setting in [{dotted(path)}]", value)
                )
                continue
            leaf, about = fields[name]
            assert about is not None
            self._leaf((*path, name), leaf, about, value)

    def _model(self, name: str, value: Any) -> None:
        """[models."provider:model"] is short for [models.facts."provider:model"]."""
        kind, about = explained(ModelsSection)["facts"]
        assert about is not None
        if not isinstance(value, dict):
            self._say(("models", name), f'Write [models."{shown(name)}"] with its facts below it')
        elif about.scope == "user" and self._layer.kind == "project":
            self._leaf(("models", name), kind, about, value)
        else:
            self._entry(("models", "facts", name), get_args(bare(kind))[1], about, value)

    def _leaf(self, path: tuple[str, ...], kind: Any, about: About, value: Any) -> None:
        if about.scope == "user" and self._layer.kind == "project":
            self._say(
                path,
                f"{dotted(path)} can only be set in your user config. Remove it from the "
                "project's file.",
            )
            return
        if not is_mapping(kind):
            self._take(path, path, kind, about, value)
            return
        if not isinstance(value, dict):
            self._say(
                path,
                f"{dotted(path)} is a section. Write [{dotted(path)}] with one line per name",
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
            name = check_entry(path, value)
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


def _unknown_section(name: str, known_names: Iterable[str], value: Any) -> str:
    names = list(known_names)
    for section, (kind, about) in explained(Configuration).items():
        if about is None and name in kind.__struct_fields__:
            return f"Unknown section: {shown(name)!r}. Did you mean {section + '.' + name!r}?"
    return _unknown_key(name, names, "section", value)


def _unknown_key(name: str, known_names: Iterable[str], what: str, value: Any) -> str:
    text = unknown(name, known_names, what)
    if isinstance(value, str) and re.search(r"key|token|secret|password", name, re.IGNORECASE):
        text += (
            " Never put keys in files. Set the key in the environment; `models.keys` "
            "names the variable."
        )
    return text


def read_environment(environ: Mapping[str, str]) -> Layer:
    """What RETINUE_* variables say."""
    layer = Layer("environment", "the environment")
    for setting in every_setting():
        name = next((v for v in setting.variables if environ.get(v, "").strip()), "")
        if not name:
            continue
        try:
            value = from_text(setting, environ[name])
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
