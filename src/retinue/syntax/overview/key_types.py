"""Key types: those that other source files mention most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from retinue.syntax.facts import TYPE_KINDS, DefinitionSite
from retinue.syntax.project.places import Place
from retinue.syntax.resolution import FileResolver
from retinue.syntax.source_languages import LANGUAGES
from retinue.syntax.source_tree import SourceTree

PRELUDE = frozenset(("Result", "Option", "Error"))
"""Names that every file has anyway."""


@dataclass(frozen=True, slots=True)
class TypeUse:
    """`n_files` is how many other source files refer to it."""

    definition: DefinitionSite
    path: str
    n_files: int

    @property
    def place(self) -> Place:
        return Place(self.path, self.definition.line)


def types_of(tree: SourceTree) -> Iterator[tuple[str, DefinitionSite]]:
    """The types that source defines, and their files. Those inside functions are omitted."""
    for path in tree.source:
        facts = tree.parsed.get(path)
        for one in facts.definitions if facts is not None else ():
            if one.kind in TYPE_KINDS and "local" not in one.marks and one.name:
                yield path, one


def defined_twice(tree: SourceTree) -> dict[str, list[Place]]:
    """Names of types that several source files define, and where."""
    places: dict[str, list[Place]] = defaultdict(list)
    for path, one in types_of(tree):
        places[one.name].append(Place(path, one.line))
    return {
        name: spots for name, spots in places.items() if len({place.path for place in spots}) > 1
    }


def key_types(tree: SourceTree, resolver: FileResolver) -> list[TypeUse]:
    """All types that other source files refer to, the most used first."""
    imported = _imported(tree, resolver)
    named = Counter(
        name
        for path in tree.source
        if (facts := tree.parsed.get(path)) is not None
        for name in facts.types
    )
    twice = defined_twice(tree)
    uses: dict[tuple[str, str], TypeUse] = {}
    for path, one in types_of(tree):
        if one.name in twice:
            continue
        language = LANGUAGES[tree.files[path].language]
        if language.references == "import":
            n_files = len(imported[one.name, path])
        else:
            n_files = named[one.name] - (one.name in tree.parsed[path].types)
            n_files = 0 if one.name in PRELUDE else n_files
        if n_files > 0:
            uses.setdefault((path, one.name), TypeUse(one, path, n_files))
    return sorted(uses.values(), key=lambda use: (-use.n_files, use.path, use.definition.line))


def _imported(tree: SourceTree, resolver: FileResolver) -> dict[tuple[str, str], set[str]]:
    """Which source files import a name from a file."""
    users: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in tree.source:
        facts = tree.parsed.get(path)
        for one in facts.imports if facts is not None else ():
            for target in resolver.files(path, one) if one.names else ():
                if target != path:
                    for name in one.names:
                        users[name, target].add(path)
    return users


def reference_words(languages: set[str]) -> str:
    """What a number behind a type counts, in the languages of a tree."""
    rules = {LANGUAGES[key].references for key in languages} or {"name"}
    words = {
        "import": "imported by name",
        "type": "named as a type",
        "name": "named",
    }
    phrases = [words[rule] for rule in ("import", "type", "name") if rule in rules]
    return f"{' or '.join(phrases)} in other source files"
