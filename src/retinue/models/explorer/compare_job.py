"""The job `compare`: two explorers go through two folders with the same checklist, and are put side
by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.formats.safe_text import one_line
from retinue.models.explorer.areas import HEAD_LINES, doc_of, either, type_rows
from retinue.models.explorer.child_report import Findings, Row
from retinue.models.explorer.delegation import AreaTask, hand_out
from retinue.models.explorer.file_kinds import is_test
from retinue.models.explorer.intent import paths_in
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.languages import language_of
from retinue.models.explorer.manifests import numbered
from retinue.models.explorer.matches import Sweep
from retinue.models.explorer.report import Report, footer, gaps
from retinue.models.explorer.report_text import at, cell, kib, plural, some
from retinue.models.explorer.survey import survey

CHECKLIST = (
    "what it is",
    "files",
    "source files",
    "source size",
    "languages",
    "definitions",
    "types",
    "largest source file",
    "test files",
    "documents",
    "generated or vendored",
    "manifests",
    "commands",
    "declared dependencies",
)
MOST_PATHS = 600


def compare_job(book: KnownAnswers, text: str, note: str = "") -> Report | None:
    paths = paths_in(text)[:2]
    report = Report()
    if len(paths) < 2:
        report.section("# Compare\n\nTwo folders are needed: compare `path/a` and `path/b`.")
        report.section(footer(book, []))
        return report
    parts = [
        AreaTask(
            p,
            f"Explore {p} with the checklist.",
            {"part": "side", "name": p, "root": "" if p == "." else p},
        )
        for p in paths
    ]
    answers = hand_out(book, parts, fork=True)
    if book.pending or book.resting:
        return None
    for part in parts:
        if part.name not in answers:
            answers[part.name] = side(book, part.order)
    if book.pending:
        return None
    found = [answers[p.name] for p in parts]
    _write(report, paths, found, note)
    report.section(gaps(book, found))
    report.section(footer(book, found))
    return report


def side(book: KnownAnswers, order: dict[str, Any]) -> Findings:
    """One side of a comparison, item by item."""
    name, root = str(order.get("name", "")), str(order.get("root", ""))
    ground = survey(book, root)
    if book.pending:
        return Findings(name)
    if ground is None:
        return Findings(
            name, [], whole=False, why="; ".join(book.gaps) or f"{name} could not be listed"
        )
    tree = ground.tree
    languages = list(dict.fromkeys(x for f in tree.source if (x := language_of(f))))
    types = Sweep(book, either([x.types for x in languages]))
    counts = Sweep(book, either([x.definitions for x in languages]), mode="count")
    if languages:
        types.over([root])
        counts.over([root])
    if book.pending:
        return Findings(name)
    heads = [
        p
        for x in languages
        for n in x.heads
        for p in (_join(root, n), _join(root, f"src/{n}"))
        if p in tree.files
    ]
    head = book.ask("read", path=heads[0], limit=HEAD_LINES) if heads else None
    if book.pending:
        return Findings(name)
    source = set(tree.source)
    listed = type_rows([h for h in types.hits if h.path in source])
    defined = sum(n for p, n in counts.counts.items() if p in source)
    rows: list[Row] = [
        ["fact", key, value, path, line] for key, value, path, line in _facts(ground)
    ]
    said = doc_of(heads[0], numbered(head.text)) if head is not None and not head.error else None
    if said and not any(row[1] == "what it is" for row in rows):
        rows.insert(0, ["fact", "what it is", said[0], heads[0], said[1]])
    rows.append(["fact", "definitions", _bound(defined, counts.whole), "", 0])
    n_types = sum(len(row[2]) for row in listed)
    rows.append(["fact", "types", _bound(n_types, types.whole), "", 0])
    skip = len(root) + 1 if root else 0
    own = sorted(p for p in tree.files if tree.is_source(p) and not is_test(p))
    rows.append(["paths", [[p[skip:], tree.files[p]] for p in own[:MOST_PATHS]]])
    rows += listed
    whole = tree.is_whole and types.whole and counts.whole and len(own) <= MOST_PATHS
    return Findings(name, rows, whole)


def _bound(n: int, whole: bool) -> str:
    return str(n) if whole else f"at least {n}"


def _facts(ground: Any) -> list[tuple[str, str, str, int]]:
    tree = ground.tree
    out: list[tuple[str, str, str, int]] = []

    def add(key: str, value: str, path: str = "", line: int = 0) -> None:
        out.append((key, value, path, line))

    said = next((m.description for m in ground.manifests if m.description), None) or ground.intro
    if said:
        add("what it is", one_line(said[0], 140), said[1], said[2])
    add("files", str(len(tree.files)))
    add("source files", str(len(tree.source)))
    add("source size", kib(tree.size(tree.source)))
    total = tree.size(tree.source)
    if total:
        add("languages", some([f"{n} {100 * b / total:.0f}%" for n, _, b in tree.languages], 5))
        big = max(tree.source, key=lambda f: (tree.files[f], f))
        add("largest source file", kib(tree.files[big]), big, 1)
    add("test files", str(len(tree.tests)))
    add("documents", str(len(tree.docs)))
    add("generated or vendored", str(len(tree.generated) + len(tree.foreign)))
    for manifest in ground.manifests[:2]:
        add("manifests", manifest.name or "unnamed", manifest.path, 1)
    for manifest in ground.manifests:
        for name, _, line in manifest.scripts[:4]:
            add("commands", f"`{name}`", manifest.path, line)
        for name, line in manifest.requires[:8]:
            add("declared dependencies", f"`{name}`", manifest.path, line)
    return out


def _write(report: Report, paths: Sequence[str], found: Sequence[Findings], note: str) -> None:
    top = [f"# {paths[0]} and {paths[1]}", ""]
    if note:
        top += [note, ""]
    top += [f"| | {cell(paths[0])} | {cell(paths[1])} |", "|---|---|---|"]
    for key in CHECKLIST:
        cells = [_cell(one, key) for one in found]
        if any(cells):
            top.append(f"| {key} | {cell(cells[0] or '-')} | {cell(cells[1] or '-')} |")
    report.section("\n".join(top))
    if any(f.why for f in found):
        return
    report.section(_types(paths, found), 3, "types")
    report.section(_files(paths, found), 2, "files")


def _cell(one: Findings, key: str) -> str:
    if one.why:
        return "not explored"
    told = []
    for item, value, path, line in one.get("fact", str, str, str, int):
        if item == key:
            told.append(f"{value} ({at(path, line)})" if path else value)
    return some(told, 6)


def _named(one: Findings) -> dict[str, tuple[str, int]]:
    out: dict[str, tuple[str, int]] = {}
    for path, types in one.get("types", str, list):
        for item in types:
            match item:
                case [str(name), int(line)]:
                    out.setdefault(name, (path, line))
    return out


def _types(paths: Sequence[str], found: Sequence[Findings]) -> str:
    a, b = (_named(f) for f in found)
    both = sorted(a.keys() & b.keys())
    lines = ["## Types", ""]
    if both:
        told = [f"`{n}` {at(*a[n])}, `{n}` {at(*b[n])}" for n in both]
        lines.append(f"- in both ({len(both)}): {some(told, 8)}")
    for path, mine, other in ((paths[0], a, b), (paths[1], b, a)):
        only = sorted(mine.keys() - other.keys())
        if only:
            lines.append(
                f"- only in {path} ({len(only)}): "
                f"{some([f'`{n}` {at(*mine[n])}' for n in only], 10)}"
            )
    return "\n".join(lines) if len(lines) > 2 else ""


def _files(paths: Sequence[str], found: Sequence[Findings]) -> str:
    sizes: list[dict[str, int]] = []
    for one in found:
        rows: list[Any] = next((r for (r,) in one.get("paths", list)), [])
        sizes.append({p: n for p, n in (r for r in rows if isinstance(r, list) and len(r) == 2)})
    a, b = sizes
    both = sorted(a.keys() & b.keys())
    same = [p for p in both if a[p] == b[p]]
    lines = [
        "## Files",
        "",
        f"- the same path in both: {plural(len(both), 'source file')}, {len(same)} of them of the "
        "same size",
    ]
    other = sorted((p for p in both if a[p] != b[p]), key=lambda p: (-abs(a[p] - b[p]), p))
    if other:
        told = [
            f"{at(_join(paths[0], p), 1)} {kib(a[p])}, {at(_join(paths[1], p), 1)} {kib(b[p])}"
            for p in other
        ]
        lines.append(f"- different sizes: {some(told, 6)}")
    return "\n".join(lines) if both else ""


def _join(root: str, path: str) -> str:
    return path if root in ("", ".") else f"{root}/{path}"
