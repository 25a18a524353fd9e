"""Where to start reading: at most seven files, each with the reason that a count or a manifest
gives."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.syntax.facts import CALLABLE_KINDS, TYPE_KINDS, DefinitionSite
from retinue.syntax.overview.dependencies import Dependencies
from retinue.syntax.overview.key_types import TypeUse
from retinue.syntax.overview.map_facts import CommandRow, ReadingStep
from retinue.syntax.project import readme
from retinue.syntax.project.places import Place, first_sentence, is_licence
from retinue.syntax.resolution import FileResolver
from retinue.syntax.source_languages import LANGUAGES
from retinue.syntax.source_tree import SourceTree

MOST = 7
LONGEST_QUOTE = 120
ERRORS = ("Error", "Exception", "Warning")


class ReadingOrder:
    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.steps: list[ReadingStep] = []
        self._seen: set[str] = set()
        self.largest = min(tree.source.values(), key=lambda f: (-f.lines, f.path), default=None)

    def add(self, place: Place, reason: str) -> None:
        if place.path not in self._seen and len(self.steps) < MOST:
            self._seen.add(place.path)
            self.steps.append(ReadingStep(place, reason))


def reading_order(
    tree: SourceTree,
    rows: Sequence[CommandRow],
    uses: Sequence[TypeUse],
    dependencies_here: Dependencies,
    resolver: FileResolver,
) -> list[ReadingStep]:
    order = ReadingOrder(tree)
    path = readme.readme_of(tree.texts)
    quote = readme.first_paragraph(path, tree.texts[path]) if path else None
    if path:
        order.add(quote.place if quote else Place(path, 1), "what the project says of itself")
    _entries(order, rows, resolver)
    _types(order, uses)
    largest = order.largest
    if largest is not None:
        order.add(Place(largest.path, 1), f"the largest file, {largest.lines:,} lines")
    for path, n in sorted(dependencies_here.n_imports.items(), key=lambda kv: (-kv[1], kv[0])):
        if path in tree.source and not path.endswith(("/__init__.py", ".go")):
            order.add(Place(path, 1), f"named by {n} import statement{'s' if n != 1 else ''}")
            break
    return order.steps


def _entries(order: ReadingOrder, rows: Sequence[CommandRow], resolver: FileResolver) -> None:
    """The first entry point, and the first function it calls that is defined once in the tree."""
    tree = order.tree
    entry = next((r for r in rows if r.leads_place and r.leads_place.path in tree.source), None)
    if entry is None or entry.leads_place is None:
        return
    place = entry.leads_place
    name = f"`{entry.leads_to}`, " if entry.leads_to else ""
    order.add(place, f"{name}where `{entry.text}` starts")
    facts = tree.parsed[place.path]
    if not facts.definitions and len({one.line for one in facts.imports}) == 1:
        _only_import(order, place.path, resolver)
        return
    main = next((n for n, d in enumerate(facts.definitions) if d.line == place.line), -1)
    calls = {c.name: c.line for c in reversed(facts.calls) if c.around == main}
    callee = _callee(tree, place.path, calls, resolver)
    if callee is not None:
        name, target = callee
        context = f"`{entry.leads_to}`" if entry.leads_to else place.path
        where = Place(place.path, calls[name])
        order.add(target, f"`{name}`, called by {context} ({where})")


def _callee(
    tree: SourceTree, path: str, calls: dict[str, int], resolver: FileResolver
) -> tuple[str, Place] | None:
    """Of functions that a file calls and whose name is defined once in the tree, in a file that it
    imports (in C in any file): the longest."""
    homes: dict[str, list[tuple[str, DefinitionSite]]] = {}
    for other in tree.source:
        facts = tree.parsed.get(other)
        for one in facts.definitions if facts is not None else ():
            if one.kind in CALLABLE_KINDS and one.name in calls:
                homes.setdefault(one.name, []).append((other, one))
    imported = {t for one in tree.parsed[path].imports for t in resolver.files(path, one)}
    rows = [
        (one.line - one.end, name, other, one)
        for name, spots in homes.items()
        if len(spots) == 1
        for other, one in spots
        if other != path
        and not one.owner
        and "local" not in one.marks
        and (other in imported or tree.files[path].language == "c")
    ]
    if not rows:
        return None
    name, other, one = min(rows, key=lambda row: row[:3])[1:]
    return name, Place(other, one.line)


def _only_import(order: ReadingOrder, path: str, resolver: FileResolver) -> None:
    """The file that an entry point hands on to."""
    one = order.tree.parsed[path].imports[0]
    targets = [t for t in resolver.files(path, one) if t in order.tree.source]
    if len(targets) == 1:
        where = Place(path, one.line)
        order.add(Place(targets[0], 1), f"the only file that {path} imports ({where})")


def _types(order: ReadingOrder, uses: Sequence[TypeUse]) -> None:
    """The type that most files refer to, without exceptions, and the classes that it extends, one
    above the other."""
    tree = order.tree
    errors = _errors(tree)
    top = next((use for use in uses if use.definition.name not in errors), None)
    if top is None:
        return
    language = LANGUAGES[tree.files[top.path].language]
    how = {"import": "imported by name", "type": "named as a type", "name": "named"}
    files = "source file" if top.n_files == 1 else "source files"
    counted = f"{how[language.references]} in {top.n_files} other {files}"
    reason = f"`{top.definition.name}`, {counted}"
    if order.largest is not None and order.largest.path == top.path:
        reason += f"; the largest file, {order.largest.lines:,} lines"
    order.add(top.place, reason + _quoted(top.definition.doc))
    homes: dict[str, list[tuple[Place, tuple[str, ...], str]]] = {}
    for path in tree.source:
        for one in tree.parsed[path].definitions if path in tree.parsed else ():
            if one.kind in TYPE_KINDS and "local" not in one.marks:
                row = (Place(path, one.line), one.bases, one.doc)
                homes.setdefault(one.name, []).append(row)
    name, bases = top.definition.name, top.definition.bases
    for _ in range(2):
        for base in bases:
            places = homes.get(base.rpartition(".")[2], [])
            if len(places) == 1:
                place, above, _ = places[0]
                order.add(place, f"`{base.rpartition('.')[2]}`, which `{name}` extends")
                name, bases = base.rpartition(".")[2], above
                break
        else:
            return


def _errors(tree: SourceTree) -> set[str]:
    """The names of exceptions: classes that are called so, or extend one that is."""
    bases: dict[str, set[str]] = {}
    for path in tree.source:
        for one in tree.parsed[path].definitions if path in tree.parsed else ():
            if one.kind in TYPE_KINDS:
                above = {base.rpartition(".")[2] for base in one.bases}
                bases.setdefault(one.name, set()).update(above)
    names = {name for name in bases if name.endswith(ERRORS)}
    while more := {n for n, above in bases.items() if n not in names and _has_error(above, names)}:
        names |= more
    return names


def _has_error(above: set[str], names: set[str]) -> bool:
    return any(name in names or name.endswith(ERRORS) for name in above)


def _quoted(doc: str) -> str:
    sentence = first_sentence(doc) if doc and not is_licence(doc) else ""
    return f'. "{sentence}"' if sentence and len(sentence) <= LONGEST_QUOTE else ""
