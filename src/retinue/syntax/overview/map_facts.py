"""The content of a map, as JSON values."""

from __future__ import annotations

from msgspec import Struct

from retinue.syntax.project.places import Place, Quote


class SizeRow(Struct, frozen=True):
    """Source of one language. `is_least`: a file of it has a passage that could not be read."""

    language: str
    n_files: int
    n_lines: int
    kinds: dict[str, int]
    is_least: bool = False


class CommandRow(Struct, frozen=True):
    """Something to type, where that is said, and the definition it leads to."""

    text: str
    place: Place
    note: str = ""
    leads_to: str = ""
    leads_place: Place | None = None


class TypeRow(Struct, frozen=True):
    name: str
    place: Place
    n_files: int = 0


class AreaRow(Struct, frozen=True):
    """One area, or one file where there is only one area. `keys` are types that others refer to;
    where there are none, `longest` are the longest functions with their lines. `largest` are some
    files of an area that has no name of its own."""

    name: str
    n_files: int
    n_lines: int
    n_types: int = 0
    n_callables: int = 0
    is_least: bool = False
    description: Quote | None = None
    keys: tuple[TypeRow, ...] = ()
    longest: tuple[TypeRow, ...] = ()
    largest: tuple[str, ...] = ()


class AreaEdge(Struct, frozen=True, array_like=True):
    """How often `user` names `used`, and where for the first time."""

    user: str
    used: str
    n: int
    place: Place


class ReadingStep(Struct, frozen=True):
    place: Place
    reason: str


class TestedFile(Struct, frozen=True):
    place: Place
    n: int


class TestForm(Struct, frozen=True):
    """Tests of one form in one language. `note` says how they were counted, `files` has those with
    the most."""

    language: str
    noun: str
    note: str
    n: int
    n_files: int
    files: tuple[TestedFile, ...]


class MapFacts(Struct, frozen=True):
    """The whole map but for its areas' details, which are asked for one by one. `importers` is how
    many test files import each area; `aside_tests` what was not counted."""

    name: str
    version: str
    purpose: Quote | None
    sizes: tuple[SizeRow, ...]
    roles: dict[str, int]
    endings: tuple[tuple[str, int], ...]
    commands: tuple[CommandRow, ...]
    needs: tuple[Quote, ...]
    builder: Quote | None
    requires: tuple[str, ...]
    requires_at: Place | None
    areas: tuple[AreaRow, ...]
    also: tuple[AreaRow, ...]
    is_files: bool
    is_by_words: bool
    n_flat: int
    edges: tuple[AreaEdge, ...]
    is_by_calls: bool
    references: str
    twice: tuple[tuple[str, tuple[Place, ...]], ...]
    most_imported: tuple[tuple[str, int], ...]
    largest: tuple[tuple[str, int], ...]
    reading: tuple[ReadingStep, ...]
    tests: tuple[TestForm, ...]
    importers: tuple[tuple[str, int], ...]
    aside_tests: tuple[int, int]
    errors: tuple[Place, ...]
    n_errors: int
    languages: tuple[str, ...]
    gaps: tuple[str, ...]
