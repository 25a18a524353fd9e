"""One table of a TOML text that a person keeps is set or taken out; all other lines, and comments
that belong to them, stay as they are."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from retinue.formats.toml_positions import KeyPositions, KeySpan, Path


def with_table(text: str, path: Path, values: Mapping[str, Any]) -> str:
    """With a table of these values: those that it has already stay where they are, and further
    tables beneath it as well. Behind all others if it is new."""
    places = KeyPositions(text)
    head = next((one for one in places.headers if one.path == path), None)
    end = _line_end(text)
    if head is None:
        lines = [f"[{'.'.join(map(str, path))}]", *_lines(values)]
        before = text.rstrip()
        return (before + end + end if before else "") + end.join(lines) + end
    known = {one.path[-1]: one for one in _own(places, path)}
    before_values = _at(tomllib.loads(text), path)
    changes: list[tuple[int, int, str]] = []
    for name, span in known.items():
        if name not in values:
            changes.append((*_whole_lines(text, span.at, span.stop), ""))
        elif before_values.get(str(name)) != values[str(name)]:
            changes.append((span.start, span.stop, _written(values[str(name)])))
    new = {k: v for k, v in values.items() if k not in known and k not in before_values}
    if new:
        _, place = _whole_lines(text, head.at, max([head.stop, *(k.stop for k in known.values())]))
        gap = "" if text[:place].endswith("\n") else end
        changes.append((place, place, gap + "".join(line + end for line in _lines(new))))
    for start, stop, piece in sorted(changes, reverse=True):
        text = text[:start] + piece + text[stop:]
    return text


def without_table(text: str, path: Path) -> str:
    """Without the table and those beneath it."""
    places = KeyPositions(text)
    for head in reversed(places.headers):
        if head.path[: len(path)] != path:
            continue
        inside = [one.stop for one in places.spots.values() if one.path[: len(path)] == path]
        after = [one.at for one in places.headers if one.at > head.at]
        limit = after[0] if after else len(text)
        start, stop = _whole_lines(
            text, head.at, max([head.stop, *(one for one in inside if head.at < one < limit)])
        )
        text = text[:start] + text[stop:] if start else text[stop:].lstrip()
    rest = text.rstrip()
    return rest + _line_end(text) if rest else ""


def _own(places: KeyPositions, path: Path) -> list[KeySpan]:
    """The keys of the table itself."""
    return [
        one
        for one in places.spots.values()
        if one.path[:-1] == path and one.kind == "value" and not one.inline
    ]


def _at(tree: Any, path: Path) -> Mapping[str, Any]:
    for name in path:
        tree = tree[name]
    table: Mapping[str, Any] = tree
    return table


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_written(value)}" for name, value in values.items()]


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _whole_lines(text: str, start: int, stop: int) -> tuple[int, int]:
    """From the beginning of the first line to behind the end of the last one."""
    end = text.find("\n", stop)
    return text.rfind("\n", 0, start) + 1, len(text) if end < 0 else end + 1
