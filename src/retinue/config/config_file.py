"""Reads a configuration file, or says in one sentence why it cannot be read."""

from __future__ import annotations

import errno
import re
from typing import Any

from retinue.config.problems import MOST_PROBLEMS, ConfigProblems, Problem, problem, shown
from retinue.formats.toml_positions import KeyPositions, Path, dotted
from retinue.formats.toml_text import BadToml, load
from retinue.sandbox.regular_file import drain, open_regular

MOST_BYTES = 1 << 18
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def fail(where: str, message: str, line: int = 0, column: int = 0) -> ConfigProblems:
    return ConfigProblems([problem(where, message, line, column)])


def read_bytes(path: str) -> bytes:
    """A regular file of at most 256 KiB. Anything else is a `ConfigProblems` of one sentence."""
    try:
        data = drain(open_regular(path), MOST_BYTES)
    except FileNotFoundError:
        raise fail(path, f"Configuration file {path} not found") from None
    except IsADirectoryError:
        raise fail(path, "Expected a file, not a directory") from None
    except OSError as error:
        raise fail(path, _unreadable(error)) from None
    if len(data) > MOST_BYTES:
        raise fail(
            path,
            f"The file is larger than {MOST_BYTES >> 10} KiB and was not read",
        )
    return data


def _unreadable(error: OSError) -> str:
    advice = "check its file permissions" if error.errno == errno.EACCES else "check the path"
    return f"Cannot read the file ({error.strerror}): {advice}"


def decode(data: bytes, path: str) -> str:
    """UTF-8, with or without the mark of its order."""
    body = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        message = f"The file is not UTF-8 (byte {body[error.start]:#04x}). Save it as UTF-8"
        raise fail(path, message, before.count(b"\n") + 1, column) from None


class ConfigDocument:
    """One file: its data, and the position of each key."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        self.is_toml = not path.endswith((".json", ".json5"))
        self.positions = KeyPositions(text) if self.is_toml else None
        self.data: dict[str, Any] = self._toml() if self.is_toml else _json5(text, path)

    def _toml(self) -> dict[str, Any]:
        assert self.positions is not None
        try:
            return load(self.text)
        except BadToml as error:
            if self.positions.twice:
                raise ConfigProblems(
                    map(self._twice, self.positions.twice[:MOST_PROBLEMS])
                ) from None
            place = f" (column {error.column})" if error.column else ""
            message = f"Invalid TOML: {shown(error.message, 200)}{place}"
            raise fail(self.path, message, error.line, error.column) from None

    def _twice(self, pair: tuple[Any, Any]) -> Problem:
        assert self.positions is not None
        first, again = pair
        line, column = self.positions.line(again.at), self.positions.column(again.at)
        key = shown(dotted(again.path))
        message = f"{key} is set twice, first on line {self.positions.line(first.at)}. Remove one."
        return problem(self.path, message, line, column, key)

    def problem(self, path: Path, message: str) -> Problem:
        """A mistake at a key."""
        line, column = self.place(path)
        return problem(self.path, message, line, column, dotted(path))

    def place(self, path: Path) -> tuple[int, int]:
        """Line and column of a key. JSON5 comes without places: there the key is looked for as a
        word."""
        if self.positions is not None:
            return self.positions.of(path)
        words = [part for part in path if isinstance(part, str)]
        for word in reversed(words):
            match = re.search(
                rf"(?<![\w-])(?:{re.escape(word)}|{re.escape(camel(word))})(?![\w-])",
                _bare(self.text),
            )
            if match:
                before = self.text[: match.start()]
                return before.count("\n") + 1, match.start() - (before.rfind("\n") + 1) + 1
        return 0, 0


def _bare(text: str) -> str:
    """The text with blanks for its comments."""
    return re.sub(
        r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|//[^\n]*|/\*.*?\*/',
        lambda m: m[0] if m[0][0] in "\"'" else re.sub(r"[^\n]", " ", m[0]),
        text,
        flags=re.DOTALL,
    )


def _json5(text: str, path: str) -> dict[str, Any]:
    import pyjson5

    try:
        value = pyjson5.decode(text, maxdepth=100)
    except Exception as error:
        problem = str(error.args[0]) if error.args else type(error).__name__
        raise fail(
            path, f"Invalid JSON5: {shown(problem, 200)}", _json5_line(text, problem)
        ) from None
    if not isinstance(value, dict):
        raise fail(path, f"Expected an object, not {type(value).__name__}")
    return value


def _json5_line(text: str, message: str) -> int:
    position = re.search(r"near (\d+)", message)
    return text[: int(position[1])].count("\n") + 1 if position else 0


def open_document(path: str, data: bytes | None = None) -> ConfigDocument:
    """Read and parse a file; `data` is its content when it was read already."""
    return ConfigDocument(decode(read_bytes(path) if data is None else data, path), path)


def snake(name: str) -> str:
    return _CAMEL.sub(lambda m: "_" + m[1].lower(), name)


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
