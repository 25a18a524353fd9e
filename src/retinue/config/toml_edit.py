"""One value of a TOML file is changed, and nothing else in it: comments, order and blanks stay.
Each way to write it is tried and read back; when none leaves everything else as it was, the file is
left alone."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any

from retinue.config.config_file import fail, open_document, read_bytes
from retinue.config.layer_reader import read_layer
from retinue.config.layers import Kind
from retinue.config.problems import ConfigProblems
from retinue.errors import ConfigError
from retinue.formats.toml_positions import KeyPositions, KeySpan, dotted, quoted
from retinue.formats.toml_text import BadToml, load
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_folder
from retinue.sandbox.regular_file import lock

BOM = b"\xef\xbb\xbf"


def set_value(path: str, key: tuple[str, ...], value: Any, kind: Kind) -> bool:
    """Write a value into a file, which is made when it is missing; False when it says so already.
    `ConfigError` says why it cannot be done; then the file is as it was."""
    if not path.endswith(".toml"):
        raise ConfigError(
            f"{path} is not a TOML file, and this command can only change TOML. Edit it by hand."
        )
    folder = os.path.dirname(path)
    make_folder(folder)
    with _locked(folder):
        old = read_bytes(path) if os.path.lexists(path) else b""
        mark = BOM if old.startswith(BOM) else b""
        before = read_layer(path, kind, old)
        if old and not before.by_key and before.problems:
            open_document(path, old)  # raises when it cannot be parsed at all
        text = changed(old.removeprefix(BOM).decode("utf-8"), key, value, path)
        new = mark + text.encode("utf-8")
        if new == old:
            return False
        after = read_layer(path, kind, new)
        if key not in after.by_key or len(after.problems) > len(before.problems):
            messages = {p.message for p in before.problems}
            wrong = [p for p in after.problems if p.message not in messages]
            raise ConfigProblems(
                wrong or after.problems or fail(path, f"{dotted(key)} cannot be set here").problems
            )
        _replace(os.path.realpath(path), new)
        return True


def changed(text: str, key: tuple[str, ...], value: Any, name: str = "the file") -> str:
    """The text with this value; `ConfigError` when it cannot be written without touching something
    else."""
    places = KeyPositions(text)
    data = _parsed(text)
    if data is None or not places.whole:
        raise ConfigError(f"{name} is not valid TOML. Fix it first.")
    result = _with(data, key, value)
    for candidate in _candidates(text, places, key, literal(value)):
        if result is not None and _parsed(candidate) == result:
            return candidate
    line, _ = places.of(key)
    raise ConfigError(
        f"Cannot set {dotted(key)} in {name}{f' at line {line}' if line else ''} without "
        "changing other lines. Edit the file by hand. It was not changed."
    )


def literal(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f" {dotted((k,))} = {literal(v)}" for k, v in value.items())
            + (" }" if value else "}")
        )
    raise ConfigError(f"A {type(value).__name__} cannot be written to a configuration file")


def _candidates(text: str, places: KeyPositions, key: tuple[str, ...], value: str) -> Iterator[str]:
    spot = places.spots.get(key)
    if spot is not None:
        if spot.kind == "value" and not (
            spot.inline or "#" in text[spot.start : spot.stop].partition("\n")[2]
        ):
            yield text[: spot.start] + value + text[spot.stop :]
        return
    newline = "\r\n" if "\r\n" in text else "\n"
    for depth in range(len(key) - 1, 0, -1):
        for header in places.headers:
            if header.path == key[:depth]:
                at = _end_of_section(text, places, header)
                yield _inserted(text, at, f"{dotted(key[depth:])} = {value}", newline)
        if depth == len(key) - 1:
            body = text if not text or text.endswith("\n") else text + newline
            gap = newline if body.strip() else ""
            yield f"{body}{gap}[{dotted(key[:-1])}]{newline}{dotted(key[-1:])} = {value}{newline}"
    yield _inserted(text, _end_of_section(text, places, None), f"{dotted(key)} = {value}", newline)


def _end_of_section(text: str, places: KeyPositions, header: KeySpan | None) -> int:
    """Behind the last line of a section that says something; of the top, when there is no
    header."""
    begin = header.stop if header is not None else 0
    end = min((h.at for h in places.headers if h.at >= begin), default=len(text))
    last = max(
        (s.stop for s in places.spots.values() if begin <= s.at < end),
        default=begin if header else -1,
    )
    if last < 0:
        return 0
    newline = text.find("\n", last)
    return len(text) if newline < 0 else newline + 1


def _inserted(text: str, at: int, line: str, newline: str) -> str:
    head = text[:at]
    return head + (newline if head and not head.endswith("\n") else "") + line + newline + text[at:]


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return load(text)
    except BadToml:
        return None


def _with(data: dict[str, Any], key: tuple[str, ...], value: Any) -> dict[str, Any] | None:
    head, *rest = key
    if not rest:
        return {**data, head: list(value) if isinstance(value, tuple) else value}
    inner = data.get(head, {})
    if not isinstance(inner, dict):
        return None
    branch = _with(inner, tuple(rest), value)
    return None if branch is None else {**data, head: branch}


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(fd)
        yield
    finally:
        os.close(fd)


def _replace(path: str, data: bytes) -> None:
    """The file, whole or as it was, with the rights that it had."""
    mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o600
    write_file(path, data, mode)
