"""The input of the review's checks: a whole change, and the current tree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from retinue.syntax.changes.definition_changes import DefinitionChange, Version
from retinue.syntax.project.places import Place
from retinue.syntax.source_tree import SourceTree


@dataclass(frozen=True)
class ReviewedFile:
    """A changed file that was read. `added` are its new lines."""

    path: str
    role: str
    old: Version | None
    new: Version | None
    added: tuple[tuple[int, str], ...]

    def code(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
        """New lines of code, no comments or texts, that match."""
        for n, text in self.added:
            match = pattern.search(text)
            if match and self.new is not None and n in self.new.tokens.lines:
                yield n, match


@dataclass(frozen=True)
class ReviewInput:
    """A whole change. `tree` is what lies on the disk now."""

    tree: SourceTree
    files: Sequence[ReviewedFile]
    changes: Sequence[DefinitionChange]
    changelog: tuple[str, str] | None = None
    """The path of the changelog and what is new in it; None when there is none."""

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(file.path for file in self.files)

    @cached_property
    def n_defined(self) -> Counter[str]:
        """How often each name is defined in the tree."""
        return Counter(
            one.name
            for facts in self.tree.parsed.values()
            for one in facts.definitions
            if "declared" not in one.marks
        )

    def calls(self, name: str) -> list[Place]:
        return [
            Place(path, call.line)
            for path, facts in self.tree.parsed.items()
            for call in facts.calls
            if call.name == name
        ]
