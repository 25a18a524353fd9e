"""The position of each key of a JSON text. `json` tells values and not their lines; this tells
lines and leaves the values to it."""

from __future__ import annotations

import json
import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n|[^\s{}\[\],:"]+')
Path = tuple[str | int, ...]


def key_lines(text: str) -> dict[Path, int]:
    """The line of every key and list item by its path. The text has to be JSON."""
    lines: dict[Path, int] = {}
    path: list[str | int] = []
    is_list: list[bool] = []
    line, key_is_next = 1, False
    for token in (match[0] for match in _TOKEN.finditer(text)):
        if token == "\n":
            line += 1
        elif token in "{[":
            is_list.append(token == "[")
            path.append(0 if token == "[" else "")
            key_is_next = token == "{"
            if token == "[":
                lines[tuple(path)] = line
        elif token in "}]":
            is_list.pop()
            path.pop()
            key_is_next = False
        elif token == ",":
            key_is_next = bool(is_list) and not is_list[-1]
            last = path[-1] if path else ""
            if isinstance(last, int):
                path[-1] = last + 1
                lines[tuple(path)] = line
        elif key_is_next and token.startswith('"'):
            path[-1] = str(json.loads(token))
            lines[tuple(path)] = line
            key_is_next = False
    return lines
