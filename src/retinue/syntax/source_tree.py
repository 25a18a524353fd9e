"""A tree of files with each file's role, and the facts of the parsed ones. Everything a report says
is computed from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import Struct

from retinue.syntax.facts import FileFacts

PARSED_ROLES = ("source", "test", "aside")


class TreeFile(Struct, frozen=True):
    """`role` is one of roles.ROLES. `facts` is None when the file was not parsed; `problem` says
    why it was not, although it should have been."""

    path: str
    role: str
    language: str = ""
    size: int = 0
    lines: int = 0
    facts: FileFacts | None = None
    problem: str = ""


@dataclass(frozen=True)
class SourceTree:
    """`files` is sorted by path, and has files of every role. `texts` are small files that reports
    quote (manifests, READMEs), by path. `gaps` say what was not looked at and why."""

    files: dict[str, TreeFile]
    texts: dict[str, str] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()

    def of_role(self, *roles: str) -> Iterator[TreeFile]:
        return (f for f in self.files.values() if f.role in roles)

    @cached_property
    def source(self) -> dict[str, TreeFile]:
        return {f.path: f for f in self.of_role("source")}

    @cached_property
    def parsed(self) -> dict[str, FileFacts]:
        """The facts of source, tests and what is aside, by path."""
        return {f.path: f.facts for f in self.files.values() if f.facts is not None}

    @cached_property
    def role_counts(self) -> dict[str, int]:
        counts = Counter(f.role for f in self.files.values())
        return dict(sorted(counts.items()))
