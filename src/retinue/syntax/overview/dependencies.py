"""Dependencies between areas: imports that name a file of another area or, if most of the source is
C, calls of functions defined once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from posixpath import basename, dirname

from retinue.syntax.project.places import Place
from retinue.syntax.resolution import FileResolver
from retinue.syntax.source_tree import SourceTree

HEADS = ("__init__.py", "lib.rs", "mod.rs", "main.rs", "doc.go", "index.js", "index.ts")


@dataclass
class Dependencies:
    """`edges` counts by pair of areas, `first` is a place for each. `n_imports` is how many import
    statements of source name each file. `is_by_calls`: calls were counted, not imports."""

    edges: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str], Place] = field(default_factory=dict)
    n_imports: Counter[str] = field(default_factory=Counter)
    is_by_calls: bool = False


def dependencies(
    tree: SourceTree, area_of: Mapping[str, str], resolver: FileResolver
) -> Dependencies:
    result = Dependencies(is_by_calls=is_mostly_c(tree))
    places: set[tuple[str, int, str]] = set()
    for path, line, targets in statements(tree, resolver, tree.source):
        result.n_imports.update({_module(target) for target in targets})
        for area in areas_named(targets, area_of):
            if area != area_of[path] and (path, line, area) not in places:
                places.add((path, line, area))
                if not result.is_by_calls:
                    _count(result, (area_of[path], area), Place(path, line))
    if result.is_by_calls:
        for path, line, home in calls_between(tree):
            if area_of[home] != area_of[path]:
                _count(result, (area_of[path], area_of[home]), Place(path, line))
    return result


def _module(path: str) -> str:
    """What an import names: a file, or in Go a folder."""
    return f"{dirname(path)}/" if path.endswith(".go") else path


def _count(result: Dependencies, pair: tuple[str, str], place: Place) -> None:
    result.edges[pair] += 1
    result.first.setdefault(pair, place)


def is_mostly_c(tree: SourceTree) -> bool:
    sizes: Counter[str] = Counter()
    for one in tree.source.values():
        sizes[one.language] += one.size
    return sizes["c"] * 2 > sizes.total()


def statements(
    tree: SourceTree, resolver: FileResolver, paths: Iterable[str]
) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Each import that names files of the tree: its place, and the files."""
    for path in paths:
        facts = tree.parsed.get(path)
        for one in facts.imports if facts is not None else ():
            if one.module.startswith("mod "):  # Rust declares a module so; it does not use it
                continue
            targets = tuple(t for t in resolver.files(path, one) if t != path)
            if targets:
                yield path, one.line, targets


def areas_named(targets: tuple[str, ...], area_of: Mapping[str, str]) -> list[str]:
    """The areas of some files. Those of a whole package count as the area of its head."""
    heads = [t for t in targets if basename(t) in HEADS and t in area_of]
    areas = [t for t in targets if t in area_of]
    is_package = len(areas) > 1 and areas[0].endswith((".rs", ".go"))
    choice = (heads or areas)[:1] if is_package else areas
    return sorted({area_of[t] for t in choice})


def calls_between(tree: SourceTree) -> Iterator[tuple[str, int, str]]:
    """Calls by name of C functions that are not static and are defined once, outside of the file
    that calls: the place of the call, and the file of the definition."""
    homes: dict[str, set[str]] = defaultdict(set)
    for path in tree.source:
        for one in tree.parsed[path].definitions if path in tree.parsed else ():
            if one.kind == "function" and "static" not in one.marks:
                homes[one.name].add(path)
    for path, file in tree.source.items():
        facts = tree.parsed.get(path)
        if facts is None or file.language != "c":
            continue
        own = {one.name for one in facts.definitions}
        for call in facts.calls:
            if len(homes.get(call.name, ())) == 1 and call.name not in own:
                yield path, call.line, next(iter(homes[call.name]))


def has_cycle(edges: Mapping[tuple[str, str], int]) -> bool:
    after: dict[str, set[str]] = defaultdict(set)
    for user, used in edges:
        after[user].add(used)
    nodes_done: set[str] = set()
    for start in sorted(after):
        open_: list[tuple[str, list[str]]] = [(start, sorted(after[start]))]
        on_way = {start}
        while open_:
            node, rest = open_[-1]
            if not rest:
                nodes_done.add(node)
                on_way.discard(node)
                open_.pop()
                continue
            following = rest.pop()
            if following in on_way:
                return True
            if following not in nodes_done:
                on_way.add(following)
                open_.append((following, sorted(after.get(following, ()))))
    return False
