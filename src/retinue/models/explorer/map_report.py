"""How a map is written: every statement beside the file and line where it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import basename, dirname

from retinue.formats.safe_text import one_line
from retinue.models.explorer.child_report import Findings
from retinue.models.explorer.delegation import AreaTask
from retinue.models.explorer.file_tree import titled
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.languages import language_of
from retinue.models.explorer.map_facts import (
    AreaFacts,
    MapFacts,
    hot_spots,
    reading_order,
    untested,
)
from retinue.models.explorer.report import Report, footer, gaps
from retinue.models.explorer.report_text import at, cell, kib, plural, some

_SAFE = re.compile(r"[^\w/.+,* (){}-]")
MOST_ENTRIES, MOST_TARGETS, MOST_TYPES, MOST_MODULES, MOST_UNTESTED = 8, 12, 5, 8, 5


@dataclass
class EntryPoint:
    """`said` is where a manifest declares it, `place` where it begins."""

    name: str
    target: str
    said: tuple[str, int] | None = None
    place: tuple[str, int] | None = None
    text: str = ""
    symbol: str = ""


def write_map(
    book: KnownAnswers,
    facts: MapFacts,
    entries: Sequence[EntryPoint],
    parts: Sequence[AreaTask],
    answers: Mapping[str, Findings],
    note: str,
) -> Report:
    report = Report()
    found = [answers[p.name] for p in parts]
    report.section(_top(facts, note))
    report.section(_entries(facts, entries), 3, "entry points")
    report.section(_areas(facts), 1, "areas")
    report.section(_details(facts), 5, "key types")
    report.section(_graph(facts), 4, "dependencies")
    report.section(_imported(facts), 6, "most imported")
    report.section(_hot(facts), 7, "hot spots")
    report.section(_untested(facts), 8, "tests")
    report.section(_order(facts, entries), 2, "reading order")
    report.section(gaps(book, found))
    report.section(footer(book, found))
    return report


def _top(facts: MapFacts, note: str) -> str:
    ground, tree = facts.ground, facts.ground.tree
    root = next((m for m in ground.manifests if not m.folder), None)
    named = root.name if root and root.name else ground.title[0] if ground.title else ""
    described = next(
        (m.description for m in ground.manifests if not m.folder and m.description), None
    )
    described = (
        described
        or ground.intro
        or next((m.description for m in ground.manifests if m.description), None)
    )
    lines = [f"# {one_line(named, 80) or 'Map of this directory'}", ""]
    if note:
        lines += [note, ""]
    if described:
        lines += [f"{described[0]} ({at(described[1], described[2])})", ""]
    else:
        lines += ["No manifest or README says what this is.", ""]
    source, more = tree.source, "" if tree.is_whole else "at least "
    total = tree.size(source)
    if source:
        shares = [
            f"{n} {100 * b / total:.0f}%" if total else n
            for n, _, b in tree.languages
            if b >= total / 200
        ]
        lines.append(
            f"{more}{plural(len(tree.files), 'file')}; {plural(len(source), 'source file')}, "
            f"{kib(total)}: {some(shares, 6)}."
        )
    else:
        kinds = sorted({f.rsplit(".", 1)[-1] for f in tree.files if "." in basename(f)})
        lines.append(
            f"{more}{plural(len(tree.files), 'file')}, none of them source code"
            f"{f' (kinds: {some(kinds, 8)})' if kinds else ''}."
        )
        lines += [
            "",
            "Largest: "
            + some([f"{at(f, 1)} ({kib(n)})" for f, n in _largest(tree.files)], 5)
            + ".",
        ]
    aside = [
        plural(len(tree.tests), "test file") if tree.tests else "",
        plural(len(tree.docs), "document") if tree.docs else "",
        f"{len(tree.generated)} generated" if tree.generated else "",
        f"{len(tree.foreign)} vendored" if tree.foreign else "",
    ]
    if any(aside):
        lines.append(f"Besides the source: {', '.join(a for a in aside if a)}.")
    needs = [(n, m.path, line) for m in ground.manifests for n, line in m.requires]
    if needs:
        lines += [
            "",
            "Depends on: " + some([f"`{n}` ({at(p, line)})" for n, p, line in needs], 8) + ".",
        ]
    return "\n".join(lines)


def _largest(files: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(files.items(), key=lambda kv: (-kv[1], kv[0]))[:5]


def _entries(facts: MapFacts, entries: Sequence[EntryPoint]) -> str:
    named = [e for e in entries if e.name or e.said]
    lines = [_entry(e) for e in named[:MOST_ENTRIES]]
    if len(named) > MOST_ENTRIES:
        lines.append(f"- and {len(named) - MOST_ENTRIES} more")
    runnable = [at(*e.place) for e in entries if e.place and not (e.name or e.said)]
    if runnable:
        lines.append(f"- can be run directly: {some(runnable, MOST_ENTRIES)}")
    targets = facts.ground.targets
    if targets:
        lines.append(
            "- make: " + some([f"`{n}` ({at(p, line)})" for n, p, line in targets], MOST_TARGETS)
        )
    return "## Entry points\n\n" + "\n".join(lines) if lines else ""


def _entry(e: EntryPoint) -> str:
    line = f"- `{e.name}`"
    if e.target:
        line += f" -> `{e.target}`"
    if e.said:
        line += f" ({at(*e.said)})"
    if e.place and e.symbol:
        return f"{line}: `{e.symbol}` {at(*e.place)}"
    if e.place and e.said:
        own = e.place[0].endswith(e.target)
        return f"{line}: {at(*e.place)}" if own else f"{line}, by its name from {at(*e.place)}"
    return f"{line}: {at(*e.place)}" if e.place else line


def _areas(facts: MapFacts) -> str:
    if not facts.areas:
        return ""
    lines = [
        "## Areas",
        "",
        "| area | files | size | definitions | what it is |",
        "|---|--:|--:|--:|---|",
    ]
    for a in facts.areas:
        what = f"{a.doc[0]} ({at(a.doc[1], a.doc[2])})" if a.doc else _no_word(facts, a)
        n = "?" if a.is_missing else f"{a.definitions}" if a.exact else f"{a.definitions}+"
        lines.append(
            f"| {cell(a.area.title)} | {len(a.area.files)} | {kib(a.area.bytes)} | {n} | "
            f"{cell(what)} |"
        )
    return "\n".join(lines)


def _no_word(facts: MapFacts, a: AreaFacts) -> str:
    if a.is_missing:
        return "not explored"
    files = facts.ground.tree.files
    biggest = max(a.area.files, key=lambda f: (files[f], f))
    return f"no description; largest file {at(biggest, 1)} ({kib(files[biggest])})"


def _details(facts: MapFacts) -> str:
    blocks = []
    for a in facts.areas:
        lines = []
        if a.types:
            shown = [f"`{t.name}` {at(t.path, t.line)}" for t in a.types]
            lines.append(f"- key types: {', '.join(shown[:MOST_TYPES])}")
        if a.uses:
            uses = sorted(a.uses.items(), key=lambda kv: (-kv[1], kv[0]))
            told = [
                f"{titled(n)} ({plural(k, 'import line')}, e.g. {at(*a.proof[n])})" for n, k in uses
            ]
            lines.append(f"- uses: {some(told, 4)}")
        if lines:
            blocks.append(f"`{a.area.title}`\n\n" + "\n".join(lines))
    return "## Key types and what each area uses\n\n" + "\n\n".join(blocks) if blocks else ""


def _graph(facts: MapFacts) -> str:
    edges = [(a.area.name, to, n) for a in facts.areas for to, n in a.uses.items()]
    if not edges:
        return ""
    ids = {a.area.name: f"a{n}" for n, a in enumerate(facts.areas)}
    used = {x for e in edges for x in e[:2]}
    lines = ["## How the areas depend on each other", "", "```mermaid", "graph LR"]
    for name, id in ids.items():
        if name in used:
            lines.append(f'  {id}["{_SAFE.sub("", name) or "(root)"}"]')
    for start, to, n in sorted(edges, key=lambda e: (-e[2], e[0], e[1])):
        lines.append(f"  {ids[start]} -->|{n}| {ids[to]}")
    both = sorted({tuple(sorted(e[:2])) for e in edges if (e[1], e[0]) in {x[:2] for x in edges}})
    lines += ["```", "", "Numbers are import lines."]
    if both:
        lines.append(
            "In both directions: "
            + some([f"{titled(a)} and {titled(b)}" for a, b in both], 5)
            + "."
        )
    return "\n".join(lines)


def _imported(facts: MapFacts) -> str:
    if not facts.imported:
        return ""
    rows = facts.most_imported[:MOST_MODULES]
    lines = ["## Most imported modules", ""]
    if not facts.exact_imports:
        lines[0] += " (at least)"
    for path, n in rows:
        types = facts.types_in(path)[:3]
        place = path if path in facts.ground.tree.files else _some_file(facts, path)
        line = f"- {at(place, 1)}" + (f" (package {path}/)" if place != path else "")
        line += f", {plural(n, 'import line')}"
        told = []
        for t in types:
            named = facts.named_in.get(f"{t.path}:{t.name}")
            more = (
                f", named in {'at least ' if named[1] else ''}{plural(named[0], 'file')}"
                if named
                else ""
            )
            told.append(f"`{t.name}` {at(t.path, t.line)}{more}")
        lines.append(line + (f": {'; '.join(told)}" if told else ""))
    return "\n".join(lines)


def _some_file(facts: MapFacts, folder: str) -> str:
    if types := facts.types_in(folder):
        return types[0].path
    files = [f for f in facts.ground.tree.source if dirname(f) == folder and language_of(f)]
    return max(files, key=lambda f: (facts.ground.tree.files[f], f)) if files else folder


def _hot(facts: MapFacts) -> str:
    commits = next(facts.history.get("commits", int, str, str, str, str), None)
    rows = hot_spots(facts)
    if commits is None or not rows:
        return ""
    n, new, new_day, old, old_day = commits
    days = f", {old_day} to {new_day}" if new_day and old_day else ""
    lines = [
        "## Hot spots",
        "",
        f"Size times changes, over the last {plural(n, 'commit')} ({old}..{new}{days}):",
        "",
    ]
    lines += [f"- {at(p, 1)}: {kib(size)}, changed in {plural(k, 'commit')}" for p, size, k in rows]
    return "\n".join(lines)


def _untested(facts: MapFacts) -> str:
    tree, tests = facts.ground.tree, facts.tests
    inline = sum(a.inline_tests for a in facts.areas)
    if not tree.source:
        return ""
    if not tree.tests and not inline:
        return "## Tests\n\nNo test file was found." if tree.is_whole else ""
    lines = ["## Tests", ""]
    cases = next((n for (n,) in tests.get("cases", int)), 0) if tests else 0
    if tree.tests:
        more = "" if tests and tests.whole else "at least "
        top = [f"{at(p, 1)} ({n})" for p, n in tests.get("case_of", str, int)] if tests else []
        lines.append(
            f"{plural(len(tree.tests), 'test file')}, {more}{plural(cases, 'test case')}"
            + (f"; most in {some(top, 3)}." if top else ".")
        )
    if inline:
        lines.append(f"{plural(inline, 'source file')} with tests inside (`#[cfg(test)]`).")
    if (tests is None or tests.whole) and not any(a.is_missing for a in facts.areas):
        bare, files = untested(facts)
        for a in bare:
            lines.append(
                f"- {a.area.title}: no test imports it, is inside it or is named after it "
                f"({_example(a)})"
            )
        if files:
            shown = [f"{at(f, 1)} ({kib(tree.files[f])})" for f in files]
            told = ", ".join(shown[:MOST_UNTESTED])
            lines.append(
                f"- the largest files that no test imports directly or is named after: {told}"
            )
    return "\n".join(lines)


def _example(a: AreaFacts) -> str:
    return f"{plural(len(a.area.files), 'file')}, e.g. {at(a.area.files[0], 1)}"


def _order(facts: MapFacts, entries: Sequence[EntryPoint]) -> str:
    places = [e.place for e in entries if e.place and (e.said or e.name)]
    rows = reading_order(facts, places)
    if not rows:
        return ""
    return "## Reading order\n\n" + "\n".join(
        f"{n}. {at(p, line)}: {why}" for n, (p, line, why) in enumerate(rows, 1)
    )
