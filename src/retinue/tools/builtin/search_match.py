"""The input and the matches of a search, as values."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import msgspec


class Piece(msgspec.Struct, frozen=True):
    text: str | None = None
    encoded: str | None = msgspec.field(name="bytes", default=None)

    def raw(self) -> bytes:
        return (
            base64.b64decode(self.encoded)
            if self.encoded is not None
            else (self.text or "").encode()
        )


class Span(msgspec.Struct, frozen=True):
    start: int


class Body(msgspec.Struct, frozen=True):
    path: Piece | None = None
    lines: Piece = Piece()
    line_number: int | None = None
    absolute_offset: int = 0
    submatches: tuple[Span, ...] = ()


class RipgrepMessage(msgspec.Struct, frozen=True):
    type: str
    data: Body


@dataclass(frozen=True, slots=True)
class Query:
    pattern: str
    ignore_case: bool = False
    context: int = 0
    first: bool = False
    glob: str = ""
    skip: tuple[str, ...] = ()


@dataclass(slots=True)
class MatchLine:
    """A line that matches (`start`: where, in bytes) or is next to one (`start` is -1)."""

    path: str
    number: int
    offset: int
    raw: bytes
    start: int


@dataclass(slots=True)
class SearchResult:
    """What a scan said. `why` says why it stopped early; `wrong` what is wrong with the pattern;
    `broken` what is wrong with the program that should have searched."""

    lines: list[MatchLine] = field(default_factory=list)
    why: str = ""
    wrong: str = ""
    broken: str = ""
