"""Reads the head of a GGUF file, because the engine does not report it, and a file of another kind
must be found before the engine loads it."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from retinue.sandbox.regular_file import open_regular

CONTROL = 3
"""The type of tokens that mean something to the model itself: the ends of turns, and the like."""

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_WANTED_ARRAYS = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")


class GgufFacts(NamedTuple):
    """`template` is the model's own chat template; `controls` are the texts of its control
    tokens."""

    name: str
    window: int
    template: str
    controls: tuple[str, ...]


def read_facts(path: Path) -> GgufFacts:
    """Raises `ValueError` if the file is not GGUF, and `OSError` if it cannot be read."""
    fields = _fields(path, until="")
    tokens, kinds = (
        value if isinstance(value := fields.get(key), tuple) else () for key in _WANTED_ARRAYS
    )
    controls = tuple(
        str(t)
        for t, kind in zip(tokens, kinds, strict=False)
        if kind == CONTROL and len(str(t)) > 1
    )
    return GgufFacts(
        name=str(fields.get("general.name", "")),
        window=_window(fields),
        template=str(fields.get("tokenizer.chat_template", "")),
        controls=controls,
    )


def read_window(path: Path) -> int:
    """How many tokens the model was trained to see, 0 if it does not say; without reading its
    vocabulary."""
    return _window(_fields(path, until="tokenizer."))


def _window(fields: Mapping[str, Any]) -> int:
    window = fields.get(f"{fields.get('general.architecture', '')}.context_length", 0)
    return window if isinstance(window, int) else 0


def _fields(path: Path, until: str) -> dict[str, Any]:
    """The fields up to the first whose key starts with `until`."""
    if path.stat().st_size < 24:
        raise ValueError("too short to be a GGUF file")
    with (
        open(open_regular(path), "rb") as file,
        closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data,
    ):
        if data[:4] != b"GGUF":
            raise ValueError("not a GGUF file")
        version, _, n_fields = struct.unpack_from("<IQQ", data, 4)
        if version not in (2, 3):
            raise ValueError(f"a GGUF file of version {version}; versions 2 and 3 are supported")
        reader = _Reader(data)
        fields: dict[str, Any] = {}
        try:
            for _ in range(n_fields):
                key = reader.string()
                if until and key.startswith(until):
                    break
                fields[key] = reader.value(key)
        except (struct.error, KeyError, IndexError):
            raise ValueError("a damaged or truncated GGUF file") from None
    return fields


class _Reader:
    """Counts and lengths come from the file: each is held against the file's end before it is
    believed."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at, self._end = data, 24, len(data)

    def string(self) -> str:
        start, end = self._next_string()
        return self._data[start:end].decode("utf-8", "replace")

    def value(self, key: str) -> Any:
        return self._value(self._scalar("<I"), key)

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self._scalar(_SCALARS[kind])
        of, n = self._scalar("<I"), self._scalar("<Q")
        if n > self._end - self._at:
            raise IndexError(n)
        if of == _STRING:
            return self._strings(n, key in _WANTED_ARRAYS)
        form = _SCALARS[of]  # arrays of arrays are not written by anyone
        start, self._at = self._at, self._at + n * struct.calcsize(form)
        if self._at > self._end:
            raise IndexError(self._at)
        return (
            struct.unpack_from(f"<{n}{form[1:]}", self._data, start)
            if key in _WANTED_ARRAYS
            else ()
        )

    def _strings(self, n: int, is_read: bool) -> tuple[str, ...]:
        if is_read:
            return tuple(self.string() for _ in range(n))
        for _ in range(n):
            self._next_string()
        return ()

    def _scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return value

    def _next_string(self) -> tuple[int, int]:
        size = self._scalar("<Q")
        start, end = self._at, self._at + size
        if end > self._end:
            raise IndexError(end)
        self._at = end
        return start, end
