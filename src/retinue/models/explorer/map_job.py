"""The job `map`: survey the ground, hand out one part an area and one each for tests and history,
add up, report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from posixpath import basename, dirname, join, normpath

from retinue.models.explorer import areas as work
from retinue.models.explorer.child_report import Findings
from retinue.models.explorer.delegation import AreaTask, hand_out
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.languages import language_of
from retinue.models.explorer.map_facts import MapFacts, add_up
from retinue.models.explorer.map_report import EntryPoint, write_map
from retinue.models.explorer.matches import Hit, read_hits, read_paths, search
from retinue.models.explorer.report import Report, footer
from retinue.models.explorer.survey import Survey, area_part, history_part, survey, tests_part

WORK = {"area": work.area, "tests": work.tests, "history": work.history}
MOST_NAMED = 6
ASIDE = {
    "bench",
    "benchmarks",
    "docs",
    "doc",
    "examples",
    "example",
    "scripts",
    "tools",
    "hack",
    "contrib",
    "misc",
}


def map_job(book: KnownAnswers, note: str = "") -> Report | None:
    """The report, or None while something is still to be asked."""
    ground = survey(book)
    if book.pending:
        return None
    if ground is None:
        return _nothing(book, "The files could not be listed, so there is nothing to report.")
    tree = ground.tree
    if not tree.files:
        return _nothing(book, "This directory is empty: there is nothing to map.")
    areas = tree.areas
    order = [area_part(ground, a) for a in areas]
    tests = tests_part(ground)
    parts = [*order, *([tests] if tests else []), *([history_part()] if tree.source else [])]
    answers = gather(book, parts)
    if answers is None:
        return None
    facts = add_up(
        ground,
        [(a, answers[p.name]) for a, p in zip(areas, order, strict=True)],
        answers.get("tests"),
        answers.get("history") or Findings("history", whole=False),
    )
    entries = entry_points(book, ground)
    name_types(book, facts)
    if book.pending:
        return None
    return write_map(book, facts, entries, parts, answers, note)


def gather(
    book: KnownAnswers, parts: Sequence[AreaTask], *, fork: bool = False
) -> dict[str, Findings] | None:
    """The findings of all parts, by sub-agents or by our own hand; None while they are not all
    there."""
    answers = hand_out(book, parts, fork=fork)
    if book.pending or book.resting:
        return None
    for part in parts:
        if part.name not in answers:
            answers[part.name] = WORK[part.order["part"]](book, part.order)
    if book.pending:
        return None
    return answers


def _nothing(book: KnownAnswers, why: str) -> Report:
    report = Report()
    report.section(f"# Map\n\n{why}")
    for gap in book.gaps:
        report.section(f"- {gap}")
    report.section(footer(book, []))
    return report


def name_types(book: KnownAnswers, facts: MapFacts) -> None:
    """In how many files the types of the most imported modules are named."""
    chosen = []
    for path, _ in facts.most_imported[:12]:
        chosen += [t for t in facts.types_in(path)[:2] if len(t.name) > 2]
    for t in chosen[:MOST_NAMED]:
        language = language_of(t.path)
        if language is None:
            continue
        got = search(book, rf"\b{t.name}\b", "", mode="files", glob=language.glob)
        if got is not None and not got.error:
            facts.named_in[f"{t.path}:{t.name}"] = (len(read_paths(got.text)), got.cut)


def entry_points(book: KnownAnswers, ground: Survey) -> list[EntryPoint]:
    """Commands that manifests declare, with the line of what they call; then files that start by
    themselves."""
    out: list[EntryPoint] = []
    wanted: list[tuple[EntryPoint, str, str]] = []
    for manifest in ground.manifests:
        for name, target, line in manifest.scripts:
            entry = EntryPoint(name, target, (manifest.path, line))
            path, symbol = _target(ground, manifest.folder, target, name, basename(manifest.path))
            if path:
                entry.place = (
                    path,
                    next((h.line for h in ground.mains if h.path == path and hit_is_main(h)), 1),
                )
                if symbol:
                    wanted.append((entry, path, symbol))
            out.append(entry)
    for entry, path, symbol in wanted[:12]:
        got = search(book, rf"^(?:async )?(?:def|class) {symbol}\b|^{symbol}\b", path)
        hits = read_hits(got.text) if got is not None and not got.error else []
        if hits:
            entry.place, entry.symbol = (path, hits[0].line), symbol
    known = {e.place[0] for e in out if e.place}
    for path in ground.tree.source:
        if basename(path) == "__main__.py" and path not in known:
            line = next((h.line for h in ground.mains if h.path == path), 1)
            out.append(
                EntryPoint(f"python -m {_package(path, ground.tree.files)}", "", None, (path, line))
            )
            known.add(path)
    for hit in sorted(
        ground.mains, key=lambda h: (_is_aside(h.path), not hit_is_main(h), h.path, h.line)
    ):
        if hit.path not in known:
            known.add(hit.path)
            out.append(
                EntryPoint(_main_name(hit.path), "", None, (hit.path, hit.line), hit.text.strip())
            )
    return out


def hit_is_main(hit: Hit) -> bool:
    """A function that is called main, and not a line that allows a module to be run as well."""
    return "main(" in hit.text


def _is_aside(path: str) -> bool:
    return path.split("/")[0] in ASIDE


def _package(path: str, files: Mapping[str, int]) -> str:
    """The package that a file belongs to, as it is imported."""
    top = folder = dirname(path)
    while top and f"{top}/__init__.py" in files:
        top = dirname(top)
    return folder[len(top) :].strip("/").replace("/", ".") or folder


def _main_name(path: str) -> str:
    parts = path.split("/")
    if basename(path) in ("main.go", "main.rs", "main.c", "main.cpp") and len(parts) > 1:
        return parts[-2] if parts[-2] != "src" else (parts[-3] if len(parts) > 2 else "main")
    return ""


def _target(ground: Survey, folder: str, target: str, name: str, manifest: str) -> tuple[str, str]:
    """The file that a script of a manifest means, and the symbol in it."""
    files = ground.tree.files
    if manifest == "Cargo.toml":
        paths = (
            [target] if target else [f"src/bin/{name}.rs", f"src/bin/{name}/main.rs", "src/main.rs"]
        )
        return next((p for x in paths if (p := join(folder, x)) in files), ""), ""
    if re.fullmatch(r"[\w.]+:[\w.]+(?:\s*\[.*\])?", target):
        module, _, symbol = target.partition(":")
        rest = module.replace(".", "/")
        for base in ("src", "", "lib", "python"):
            for end in (".py", "/__init__.py"):
                path = join(folder, base, rest + end)
                if path in files:
                    return path, symbol.split(".")[0].split("[")[0].strip()
        return "", ""
    path = normpath(join(folder, target)) if target else ""
    if path in files:
        return path, ""
    guess = re.sub(r"^(?:.*/)?(?:dist|build|lib|out)/", "src/", target)
    guess = re.sub(r"\.[cm]?js$", "", normpath(guess))
    found = next(
        (p for e in (".ts", ".tsx", ".js", ".mts") if (p := join(folder, guess + e)) in files), ""
    )
    return found, ""
