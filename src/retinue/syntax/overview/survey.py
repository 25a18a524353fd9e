"""Answers the questions `map` and `area`: a tree as areas, and each of them in detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from posixpath import basename, dirname, splitext

from retinue.syntax.facts import CALLABLE_KINDS, TYPE_KINDS, DefinitionSite, count_kinds
from retinue.syntax.overview import areas as area_division
from retinue.syntax.overview import entry_points, test_counts
from retinue.syntax.overview.dependencies import Dependencies, dependencies
from retinue.syntax.overview.descriptions import description, purpose
from retinue.syntax.overview.key_types import (
    TypeUse,
    defined_twice,
    key_types,
    reference_words,
)
from retinue.syntax.overview.map_facts import AreaEdge, AreaRow, MapFacts, SizeRow, TypeRow
from retinue.syntax.overview.reading_order import reading_order
from retinue.syntax.project.manifests import read_project
from retinue.syntax.project.places import Place, Quote
from retinue.syntax.project.project_facts import ProjectFacts
from retinue.syntax.resolution import FileResolver
from retinue.syntax.source_languages import LANGUAGES
from retinue.syntax.source_tree import SourceTree

MOST_AREAS, MOST_FILES = 9, 10
LEAST_AREAS = 2
FILES = "files"
"""The name of the part that has every file, where there is only one area."""
OTHER = area_division.OTHER
KEYS, FEW_KEYS, ALL_KEYS = 4, 2, 10
FEW_AREAS = 6
"""With more areas or files than these, each of them shows fewer key types, so that the map stays a
page."""
MOST_LISTED, ALL_LISTED = 5, 400


@dataclass(frozen=True)
class TreeSurvey:
    """A tree and what is computed from all of it."""

    tree: SourceTree

    @cached_property
    def resolver(self) -> FileResolver:
        return FileResolver(self.tree)

    @cached_property
    def project(self) -> ProjectFacts:
        return read_project(self.tree.texts)

    @cached_property
    def folders(self) -> dict[str, str]:
        return area_division.divide({p: f.size for p, f in self.tree.source.items()})

    @cached_property
    def is_files(self) -> bool:
        """One area has all but single files, so files are shown instead."""
        n_files = Counter(self.folders.values())
        large = [name for name, n in n_files.items() if n > 1]
        return len(large) < LEAST_AREAS and not area_division.is_by_words(n_files)

    @cached_property
    def area_of(self) -> dict[str, str]:
        return {p: p for p in self.tree.source} if self.is_files else self.folders

    @cached_property
    def names(self) -> list[str]:
        """All areas, the one with most lines first."""
        lines: Counter[str] = Counter()
        for path, area in self.area_of.items():
            lines[area] += self.tree.source[path].lines
        return sorted(lines, key=lambda name: (-lines[name], name))

    @cached_property
    def shown(self) -> list[str]:
        """The areas of the page. Of files, those of the one area, and those that have to do with
        them."""
        if not self.is_files:
            return self.names[:MOST_AREAS]
        n_files = Counter(self.folders.values())
        main = min(n_files, key=lambda name: (-n_files[name], name), default="")
        is_alone = n_files[main] > 1
        own = {path for path, area in self.folders.items() if area == main or not is_alone}
        pairs = self.dependencies.edges
        own |= {a for a, b in pairs if b in own} | {b for a, b in pairs if a in own}
        return [name for name in self.names if name in own][:MOST_FILES]

    def _n_keys(self, text: Quote | None) -> int:
        """Of many areas, one that says what it is shows a type less."""
        if len(self.shown) <= FEW_AREAS:
            return KEYS
        return FEW_KEYS - (text is not None)

    @cached_property
    def uses(self) -> list[TypeUse]:
        return key_types(self.tree, self.resolver)

    @cached_property
    def dependencies(self) -> Dependencies:
        return dependencies(self.tree, self.area_of, self.resolver)

    def files(self, area: str) -> list[str]:
        return [path for path, name in self.area_of.items() if name == area]

    def definitions(self, paths: Iterable[str]) -> list[DefinitionSite]:
        return [d for p in paths if p in self.tree.parsed for d in self.tree.parsed[p].definitions]

    def has_errors(self, paths: Iterable[str]) -> bool:
        return any(p in self.tree.parsed and self.tree.parsed[p].errors for p in paths)

    def row(self, area: str) -> AreaRow:
        """An area by its size alone."""
        files = self.files(area)
        n_lines = sum(self.tree.source[p].lines for p in files)
        return AreaRow(area, len(files), n_lines)

    def details(self, area: str, *, full: bool = False) -> AreaRow:
        files = self.files(area)
        text = None if area == OTHER else description(self.tree, area, files)
        most = ALL_KEYS if full else self._n_keys(text)
        definitions = self.definitions(files)
        inside = set(files)
        keys = [
            TypeRow(u.definition.name, u.place, u.n_files) for u in self.uses if u.path in inside
        ]
        return AreaRow(
            area,
            len(files),
            sum(self.tree.source[p].lines for p in files),
            n_types=sum(d.kind in TYPE_KINDS for d in definitions),
            n_callables=sum(d.kind in CALLABLE_KINDS for d in definitions),
            is_least=self.has_errors(files),
            description=text,
            largest=tuple(self._largest(files)) if area == OTHER else (),
            keys=tuple(keys[:most]),
            longest=() if keys else self._longest(files, most),
        )

    def _largest(self, files: list[str]) -> list[str]:
        return sorted(files, key=lambda p: (-self.tree.source[p].lines, p))[:KEYS]

    def _longest(self, files: list[str], most: int) -> tuple[TypeRow, ...]:
        """The longest functions, where no type is referred to."""
        rows = [
            TypeRow(one.title, Place(path, one.line), one.end - one.line + 1)
            for path in files
            if path in self.tree.parsed
            for one in self.tree.parsed[path].definitions
            if one.kind in CALLABLE_KINDS and "local" not in one.marks
        ]
        return tuple(sorted(rows, key=lambda row: (-row.n_files, row.place))[: min(most, 3)])


def area_answer(tree: SourceTree, area: str, *, full: bool = False) -> list[AreaRow]:
    """The details of one area; of each file of the page when that is what the map shows."""
    survey = TreeSurvey(tree)
    names = survey.shown if area == FILES else [area]
    return [survey.details(name, full=full) for name in names if name in survey.names]


def area_answers(tree: SourceTree, *, full: bool = False) -> dict[str, list[AreaRow]]:
    """The same for every part of the map, by its name."""
    survey = TreeSurvey(tree)
    rows = [survey.details(name, full=full) for name in survey.shown]
    return {FILES: rows} if survey.is_files else {row.name: [row] for row in rows}


def map_answer(tree: SourceTree, folder: str = "", *, full: bool = False) -> MapFacts:
    """The whole map. `folder` is the name of the tree's folder, for a project without a name."""
    survey = TreeSurvey(tree)
    project, needs = survey.project, survey.dependencies
    rows = entry_points.commands(tree, project)
    root = project.root
    main = next((m for m in root if m.requires), None)
    errors, most = _errors(tree), ALL_LISTED if full else MOST_LISTED
    flat = Counter(p.rpartition("/")[0] for p in tree.source)
    return MapFacts(
        name=project.name or folder,
        version=project.version,
        purpose=purpose(tree, project.description),
        sizes=tuple(_sizes(survey)),
        roles=tree.role_counts,
        endings=tuple(_endings(tree)),
        commands=tuple(rows),
        needs=tuple(q for m in root for q in m.needs),
        builder=next((m.builder for m in root if m.builder), None),
        requires=tuple(main.requires) if main else (),
        requires_at=main.requires_at if main else None,
        areas=tuple(survey.row(name) for name in survey.shown),
        also=tuple(survey.row(name) for name in survey.names if name not in survey.shown),
        is_files=survey.is_files,
        is_by_words=area_division.is_by_words(survey.names),
        n_flat=max(flat.values(), default=0),
        edges=tuple(_edges(needs)),
        is_by_calls=needs.is_by_calls,
        references=reference_words({tree.files[use.path].language for use in survey.uses}),
        twice=tuple(_twice(survey)[:most]),
        most_imported=tuple(_most_imported(tree, needs)[:most]),
        largest=tuple(_largest(tree)),
        reading=tuple(reading_order(tree, rows, survey.uses, needs, survey.resolver)),
        tests=tuple(test_counts.count_tests(tree, most)),
        importers=tuple(test_counts.importers(tree, survey.folders, survey.resolver)),
        aside_tests=test_counts.aside_tests(tree),
        errors=tuple(errors[:most]),
        n_errors=len(errors),
        languages=tuple(sorted({f.language for f in tree.source.values()})),
        gaps=tree.gaps,
    )


def _sizes(survey: TreeSurvey) -> list[SizeRow]:
    """Source by language, the one with most lines first."""
    titles: dict[str, list[str]] = {}
    for path, file in survey.tree.source.items():
        titles.setdefault(LANGUAGES[file.language].title, []).append(path)
    rows = [
        SizeRow(
            title,
            len(paths),
            sum(survey.tree.source[p].lines for p in paths),
            count_kinds(survey.definitions(paths)),
            survey.has_errors(paths),
        )
        for title, paths in titles.items()
    ]
    return sorted(rows, key=lambda row: (-row.n_lines, row.language))


def _endings(tree: SourceTree) -> list[tuple[str, int]]:
    """Files in no language that is parsed, by ending."""
    counts = Counter(
        splitext(basename(f.path))[1] or "without ending" for f in tree.of_role("no grammar")
    )
    return sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))


def _edges(result: Dependencies) -> list[AreaEdge]:
    rows = [
        AreaEdge(user, used, n, result.first[user, used])
        for (user, used), n in result.edges.items()
    ]
    return sorted(rows, key=lambda e: (-e.n, e.user, e.used))


def _twice(survey: TreeSurvey) -> list[tuple[str, tuple[Place, ...]]]:
    """Types that several files define, those first that most files could mean."""
    places = defined_twice(survey.tree)
    named = Counter(
        name
        for p in survey.tree.source
        if p in survey.tree.parsed
        for name in {n for i in survey.tree.parsed[p].imports for n in i.names}
        | set(survey.tree.parsed[p].types)
    )
    order = sorted(places, key=lambda name: (-named[name], name))
    return [(name, tuple(sorted(places[name]))) for name in order if named[name]]


def _most_imported(tree: SourceTree, result: Dependencies) -> list[tuple[str, int]]:
    names = {*tree.source, *(f"{dirname(path)}/" for path in tree.source)}
    rows = [(path, n) for path, n in result.n_imports.items() if path in names and n > 1]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _largest(tree: SourceTree) -> list[tuple[str, int]]:
    rows = [(f.path, f.lines) for f in tree.source.values()]
    return sorted(rows, key=lambda row: (-row[1], row[0]))[:MOST_LISTED]


def _errors(tree: SourceTree) -> list[Place]:
    return [
        Place(path, max(1, facts.error_line))
        for path, facts in tree.parsed.items()
        if facts.errors and tree.files[path].role in ("source", "test")
    ]
