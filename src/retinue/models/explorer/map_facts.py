"""What the parts of a map add up to: which module is imported how often, which area uses which,
what is hot, what no test names. Only counts and comparisons; nothing here is guessed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from posixpath import basename, dirname, splitext

from retinue.models.explorer.child_report import Findings
from retinue.models.explorer.file_kinds import is_test
from retinue.models.explorer.file_tree import Area
from retinue.models.explorer.import_resolver import Resolver
from retinue.models.explorer.imports import Import
from retinue.models.explorer.languages import language_of
from retinue.models.explorer.survey import Survey


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    path: str
    line: int


@dataclass
class AreaFacts:
    area: Area
    found: Findings
    doc: tuple[str, str, int] | None = None
    definitions: int = 0
    exact: bool = False
    inline_tests: int = 0
    types: list[Type] = field(default_factory=list)
    uses: dict[str, int] = field(default_factory=dict)
    proof: dict[str, tuple[str, int]] = field(default_factory=dict)
    tested_by: int = 0
    tests_inside: int = 0

    @property
    def is_missing(self) -> bool:
        return bool(self.found.why)


@dataclass
class MapFacts:
    ground: Survey
    areas: list[AreaFacts]
    tests: Findings | None
    history: Findings
    imported: Counter[str] = field(default_factory=Counter)
    tested: set[str] = field(default_factory=set)
    exact_imports: bool = True
    named_in: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def area_of(self, path: str) -> str | None:
        return self._homes.get(path)

    _homes: dict[str, str] = field(default_factory=dict)

    @property
    def most_imported(self) -> list[tuple[str, int]]:
        return sorted(self.imported.items(), key=lambda kv: (-kv[1], kv[0]))

    def types_in(self, path: str) -> list[Type]:
        """The types of a file, or for a folder those of the files in it."""
        return [t for a in self.areas for t in a.types if path in (t.path, dirname(t.path))]


def add_up(
    ground: Survey,
    areas: Sequence[tuple[Area, Findings]],
    tests: Findings | None,
    history: Findings,
) -> MapFacts:
    tree = ground.tree
    facts = MapFacts(ground, [_area(a, f, ground) for a, f in areas], tests, history)
    for area in facts.areas:
        for path in area.area.files:
            facts._homes[path] = area.area.name
            if path.endswith(".go"):
                facts._homes.setdefault(dirname(path), area.area.name)
    resolver = Resolver((f for f in tree.files if tree.is_source(f)), ground.crates, ground.go)
    for area in facts.areas:
        facts.exact_imports = facts.exact_imports and area.found.whole
        for targets, n, path, line in _imports(area.found, resolver):
            for target in sorted(targets):
                facts.imported[target] += n
                home = facts.area_of(target)
                if home is not None and home != area.area.name:
                    area.uses[home] = area.uses.get(home, 0) + n
                    area.proof.setdefault(home, (path, line))
    if tests is not None:
        _cover(facts, tests, resolver)
    names: Counter[tuple[str, str]] = Counter()
    for area in facts.areas:
        for lang, ref, counts in area.found.get("names", str, str, dict):
            for path in resolver.resolve(Import(lang, ref)):
                names.update({(path, k): v for k, v in counts.items() if isinstance(v, int)})
    for area in facts.areas:
        area.types = _ranked(area.types, facts.imported, names)
    return facts


def _area(area: Area, found: Findings, ground: Survey) -> AreaFacts:
    out = AreaFacts(area, found)
    files = ground.tree.files
    for text, path, line in found.get("doc", str, str, int):
        if path in files:
            out.doc = (text, path, line)
    for n, whole in found.get("defs", int, bool):
        out.definitions, out.exact = n, whole
    for (n,) in found.get("inline", int):
        out.inline_tests = n
    mine = set(area.files)
    for path, types in found.get("types", str, list):
        for item in types if path in mine else ():
            match item:
                case [str(name), int(line)]:
                    out.types.append(Type(name, path, line))
    folders = {dirname(f) for f in area.files}
    out.tests_inside = sum(
        1 for t in ground.tree.tests if dirname(t) in folders or dirname(dirname(t)) in folders
    )
    return out


def _imports(found: Findings, resolver: Resolver) -> list[tuple[set[str], int, str, int]]:
    out = []
    for lang, ref, names, n, path, line in found.get("imp", str, str, list, int, str, int):
        low = tuple(x for x in names if isinstance(x, str))
        targets = resolver.resolve(Import(lang, ref, low))
        targets.discard(path)
        if targets:
            out.append((targets, n, path, line))
    return out


def _cover(facts: MapFacts, tests: Findings, resolver: Resolver) -> None:
    by_name = {a.area.name: a for a in facts.areas}
    for lang, ref, names in tests.get("covers", str, str, list):
        low = tuple(n for n in names if isinstance(n, str) and lang != "rs")
        for target in sorted(resolver.resolve(Import(lang, ref, low))):
            facts.tested.add(target)
            home = facts.area_of(target)
            if home is not None:
                by_name[home].tested_by += 1
    stems = {_tested_name(t) for t in facts.ground.tree.tests}
    for path in facts.ground.tree.source:
        if splitext(basename(path))[0] in stems:
            facts.tested.add(path)


def _tested_name(path: str) -> str:
    """The name of what a test file is about, by its own name."""
    name = re.sub(r"\.(?:test|spec)$", "", splitext(basename(path))[0])
    return re.sub(r"^test_|_test$|_spec$|(?:Test|Tests|Spec)$", "", name)


def _ranked(
    types: Sequence[Type], imported: Counter[str], names: Counter[tuple[str, str]]
) -> list[Type]:
    """Types that are often imported come first, then those of modules that are, then those a file
    is named after."""

    def key(t: Type) -> tuple[int, int, str, int]:
        stem = splitext(basename(t.path))[0].replace("_", "").replace("-", "").lower()
        named = stem == t.name.lower()
        minor = bool(re.search(r"(?:Error|Exception|Args|Options|Props|Params|Kind)$", t.name))
        weight = (
            2 * (names[t.path, t.name] or names[dirname(t.path), t.name])
            + min(5, imported[t.path] or imported[dirname(t.path)])
            + 6 * named
            - 6 * minor
        )
        return (-weight, 0 if named else 1, t.path, t.line)

    return sorted(types, key=key)


def hot_spots(facts: MapFacts, most: int = 6) -> list[tuple[str, int, int]]:
    """Source files by size times commits: path, bytes, commits."""
    source = set(facts.ground.tree.source)
    rows = [
        (p, facts.ground.tree.files[p], n)
        for p, n in facts.history.get("churn", str, int)
        if p in source
    ]
    rows = [r for r in rows if r[2] > 1 and language_of(r[0])]
    return sorted(rows, key=lambda r: (-r[1] * r[2], r[0]))[:most]


def untested(facts: MapFacts) -> tuple[list[AreaFacts], list[str]]:
    """Areas, and the largest files, that no test imports, lies beside, or is named after."""
    bare = [a for a in facts.areas if not a.tested_by and not a.tests_inside and not a.inline_tests]
    bare = [a for a in bare if not any(f in facts.tested for f in a.area.files)]
    inline = {a.area.name for a in facts.areas if a.inline_tests}
    files = [
        f
        for a in facts.areas
        if a not in bare and a.area.name not in inline
        for f in a.area.files
        if f not in facts.tested and dirname(f) not in facts.tested and _counts(f)
    ]
    files.sort(key=lambda f: (-facts.ground.tree.files[f], f))
    return bare, files


def _counts(path: str) -> bool:
    known = language_of(path)
    return known is not None and not is_test(path) and basename(path) not in known.heads


def reading_order(
    facts: MapFacts, entries: Sequence[tuple[str, int]], most: int = 10
) -> list[tuple[str, int, str]]:
    """Where to begin: what says what it is, what starts it, what everybody imports, then the head
    of each area."""
    out: list[tuple[str, int, str]] = []
    seen: set[str] = set()

    def add(path: str, line: int, why: str) -> None:
        if path not in seen and len(out) < most and path in facts.ground.tree.files:
            seen.add(path)
            out.append((path, line, why))

    ground, source = facts.ground, set(facts.ground.tree.source)
    if ground.intro is not None:
        add(ground.intro[1], ground.intro[2], "what the project says about itself")
    for path, line in entries[:2]:
        if path in source:
            add(path, line, "where it starts")
    top = [(p, n) for p, n in facts.most_imported if p in source and basename(p) != "__init__.py"]
    for path, n in top[:3]:
        first = next(iter(facts.types_in(path)), None)
        add(path, first.line if first else 1, f"named by {n} import line{'s' if n != 1 else ''}")
    for area in facts.areas:
        if area.types:
            t = area.types[0]
            add(t.path, t.line, f"`{t.name}`, a key type of {area.area.title}")
        elif area.area.files:
            files = ground.tree.files
            add(
                max(area.area.files, key=lambda f: (files[f], f)),
                1,
                f"the largest file of {area.area.title}",
            )
    return out
