"""The answer of a symbol search, as values for a conversation."""

from __future__ import annotations

from msgspec import Struct


class FoundDefinition(Struct, frozen=True, omit_defaults=True):
    path: str
    line: int
    end: int
    kind: str
    title: str
    head: str = ""
    doc: str = ""
    doc_line: int = 0
    role: str = "source"
    language: str = ""
    members: dict[str, int] = {}
    bases: tuple[str, ...] = ()
    score: float = 0.0


class FoundPlace(Struct, frozen=True, omit_defaults=True):
    """`text` is the line; `around` the definition that it is in."""

    path: str
    line: int
    text: str = ""
    around: str = ""
    role: str = "source"


class NameAnswer(Struct, frozen=True, omit_defaults=True):
    """One name, looked up exactly. `mentions` are files that have the word, by role; `elsewhere`
    those without a grammar by their first folder. `at_least`: files among those searched could not
    be read whole. Lists hold the first; `n_calls` and the like count all. `shared` are the
    definitions of the same last name that an owner in the question has excluded."""

    name: str
    n_parsed: int
    definitions: tuple[FoundDefinition, ...] = ()
    n_definitions: int = 0
    shared: tuple[FoundDefinition, ...] = ()
    declared: tuple[FoundPlace, ...] = ()
    imports: tuple[FoundPlace, ...] = ()
    n_imports: dict[str, int] = {}
    extended: tuple[FoundPlace, ...] = ()
    n_extended: dict[str, int] = {}
    calls: tuple[FoundPlace, ...] = ()
    n_calls: dict[str, int] = {}
    n_call_files: int = 0
    named: tuple[FoundPlace, ...] = ()
    mentions: dict[str, int] = {}
    elsewhere: dict[str, int] = {}
    near: tuple[FoundDefinition, ...] = ()
    at_least: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


class WordAnswer(Struct, frozen=True, omit_defaults=True):
    """Definitions ranked for words. `calls` are those of the best by name."""

    words: tuple[str, ...]
    n_definitions: int = 0
    n_files: int = 0
    hits: tuple[FoundDefinition, ...] = ()
    owners: tuple[FoundDefinition, ...] = ()
    calls: tuple[FoundPlace, ...] = ()
    same_name: dict[str, int] = {}
    near: tuple[FoundDefinition, ...] = ()
    at_least: tuple[str, ...] = ()


class FindAnswer(Struct, frozen=True, omit_defaults=True):
    """Either names or words. `left_out` counts roles that were not searched; `gaps` say what else
    was not."""

    names: tuple[NameAnswer, ...] = ()
    words: WordAnswer | None = None
    left_out: dict[str, int] = {}
    problems: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
