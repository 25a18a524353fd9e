"""Converts text for PostgreSQL, which accepts neither NUL nor half a surrogate pair. (Bodies are
bytes of JSON, where both are escaped.)"""

from __future__ import annotations

from typing import Any

from psycopg.pq import Format
from psycopg.types.string import StrBinaryDumper, StrDumper


def _mended(text: str) -> bytes:
    return text.encode("utf-8", "replace").replace(b"\0", b"\xef\xbf\xbd")


class TextDumper(StrDumper):
    format = Format.TEXT

    def dump(self, obj: str) -> Any:
        return _mended(obj)


class BinaryTextDumper(StrBinaryDumper):
    format = Format.BINARY

    def dump(self, obj: str) -> Any:
        return _mended(obj)


TEXT_DUMPERS = (BinaryTextDumper, TextDumper)
"""The last one is preferred where the form is left open."""
