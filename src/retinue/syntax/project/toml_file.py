"""A TOML text: its values, and the place of each."""

from __future__ import annotations

import tomllib
from typing import Any

from retinue.formats.toml_positions import KeyPositions
from retinue.syntax.project.places import Place, Quote, flat


class TomlFile:
    """Values of a TOML text and their places."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.data: dict[str, Any] = tomllib.loads(text)
        self._positions = KeyPositions(text)

    def at(self, *key: str | int) -> Place:
        return Place(self.path, max(1, self._positions.of(key)[0]))

    def get(self, *key: str | int) -> Any:
        value: Any = self.data
        for part in key:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def text(self, *key: str | int) -> str:
        value = self.get(*key)
        return value if isinstance(value, str) else ""

    def table(self, *key: str | int) -> dict[str, Any]:
        value = self.get(*key)
        return value if isinstance(value, dict) else {}

    def quote(self, *key: str | int) -> Quote | None:
        text = flat(self.text(*key))
        return Quote(text, self.at(*key)) if text else None
