"""Writes a map: a page of Markdown in which every statement has its file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retinue.formats.safe_text import one_line
from retinue.models.explorer.map_text import (
    commands_text,
    history_text,
    size_text,
    tests_text,
    unseen_text,
)
from retinue.models.explorer.mermaid import graph
from retinue.models.explorer.report import OFFLINE, Report
from retinue.models.explorer.report_text import (
    WIDTH,
    bullets,
    cell,
    listed,
    plural,
    quoted,
    some,
    spot,
    wrapped,
)
from retinue.syntax.changes.change_set import CommitHistory
from retinue.syntax.overview.dependencies import has_cycle
from retinue.syntax.overview.map_facts import AreaRow, MapFacts
from retinue.syntax.project.places import Place

MADE = "Definitions, imports and tests from syntax trees (tree-sitter)"
MOST_TWICE = 1
MOST_IMPORTED = 5
MOST_ALSO = 4
MOST_MUTUAL = 2
PLACE_COLUMN = 80


def write_map(
    facts: MapFacts,
    details: Mapping[str, AreaRow],
    history: CommitHistory | None,
    *,
    full: bool,
    note: str = "",
    gaps: Sequence[str] = (),
) -> Report:
    report = Report()
    report.section(_top(facts, note))
    report.section(commands_text(facts, full=full), 4, "how to run it")
    report.section(_areas(facts, details, full=full), 2, "areas")
    report.section(_reading(facts), 3, "reading order")
    report.section(tests_text(facts, full=full) if facts.sizes else "", 5, "tests")
    report.section(history_text(history, full=full), 6, "history")
    report.section(unseen_text(facts, history, list(gaps)))
    origin = f"{MADE}, history from git." if history and not history.problem else f"{MADE}."
    report.section("---\n" + wrapped(f"{OFFLINE} {origin}"))
    return report


def _top(facts: MapFacts, note: str) -> str:
    title = one_line(" ".join(x for x in (facts.name, facts.version) if x), 80)
    lines = [f"# {title or 'This directory'}", ""]
    if note:
        lines += [wrapped(note), ""]
    if facts.purpose is None:
        lines += ["The project says nothing of itself.", ""]
    else:
        lines += [_with_place(one_line(facts.purpose.text, 400), spot(facts.purpose.place)), ""]
    return "\n".join([*lines, size_text(facts)])


def _with_place(text: str, place: str) -> str:
    """A sentence with its place at the right."""
    *above, last = wrapped(text).split("\n")
    column = max(len(last) + 1, min(PLACE_COLUMN, WIDTH - len(place)))
    if column + len(place) > WIDTH:
        return "\n".join([*above, last, place.rjust(WIDTH)])
    return "\n".join([*above, last.ljust(column) + place])


def _areas(facts: MapFacts, details: Mapping[str, AreaRow], *, full: bool) -> str:
    if not facts.areas:
        return ""
    what = "files" if facts.is_files else "areas"
    title = "## Areas"
    if facts.is_files:
        title = f"## How the {what} depend on each other" if len(facts.areas) > 1 else "## Files"
    parts = [title]
    if facts.is_by_words:
        n_files = sum(size.n_files for size in facts.sizes)
        parts.append(
            wrapped(
                f"{facts.n_flat:,} of {n_files:,} source files lie in one folder, so areas are the "
                "first word of the file name (three files or more)."
            )
        )
    names = {area.name for area in facts.areas}
    edges = [edge for edge in facts.edges if edge.user in names and edge.used in names]
    if len(facts.areas) > 1 and edges:
        parts += [graph(facts.areas, edges), wrapped(_legend(facts))]
    elif len(facts.areas) > 1:
        parts.append(f"No {what[:-1]} imports another.")
    parts.append(_table(facts, details))
    parts.append(bullets(_below_table(facts, full=full)))
    return "\n\n".join(part for part in parts if part)


def _legend(facts: MapFacts) -> str:
    if facts.is_by_calls:
        counted = (
            "Numbers at arrows are calls whose name is a function defined once in this tree, "
            "outside the caller's file. Static functions, and those defined more than once, are "
            "not counted."
        )
    else:
        counted = "Numbers at arrows are import statements."
    counted += " An arrow points at what is used."
    pairs = {(edge.user, edge.used): edge.n for edge in facts.edges}
    mutual = [p for p in pairs if p[0] < p[1] and (p[1], p[0]) in pairs]
    if not has_cycle(pairs):
        return f"{counted} There are no cycles."
    if not mutual:
        return f"{counted} There is a cycle of three or more of them."
    mutual.sort(key=lambda p: (-pairs[p] - pairs[p[1], p[0]], p))
    pair_texts = [f"{a} and {b}" for a, b in mutual]
    word = "call" if facts.is_by_calls else "import"
    pair_list = some(pair_texts, MOST_MUTUAL, "pair")
    if len(pair_texts) == 1:
        return f"{counted} {pair_texts[0]} {word} each other."
    return f"{counted} Pairs that {word} each other: {pair_list}."


def _table(facts: MapFacts, details: Mapping[str, AreaRow]) -> str:
    last = f"what it says of itself; key types ({facts.references})"
    if not any(row.keys for row in details.values()):
        last = "what it says of itself; its longest functions"
    head = "file" if facts.is_files else "area"
    columns = ["lines", "types", "functions, methods", last]
    if not facts.is_files:
        columns.insert(0, "files")
    lines = [f"| {head} | {' | '.join(columns)} |", "|---" + "|--:" * (len(columns) - 1) + "|---|"]
    for area in facts.areas:
        row = details.get(area.name)
        numbers = [f"{area.n_lines:,}"]
        if not facts.is_files:
            numbers.insert(0, f"{area.n_files:,}")
        if row is None:
            numbers += ["?", "?", "not explored"]
        else:
            least = "at least " if row.is_least else ""
            numbers += [f"{least}{row.n_types:,}", f"{least}{row.n_callables:,}", _area_text(row)]
        lines.append(f"| {cell(area.name)} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _area_text(row: AreaRow) -> str:
    parts = [quoted(row.description)] if row.description else []
    if row.largest:
        more = row.n_files - len(row.largest)
        parts.append(f"{', '.join(row.largest)}" + (f" and {more} more" if more else ""))
    parts.append(", ".join(f"`{t.name}` {spot(t.place)} ({t.n_files:,})" for t in row.keys))
    longest = [f"`{t.name}` {spot(t.place)} ({plural(t.n_files, 'line')})" for t in row.longest]
    parts.append(f"longest: {', '.join(longest)}" if longest else "")
    return cell("; ".join(part for part in parts if part)) or "-"


def _below_table(facts: MapFacts, *, full: bool) -> list[str]:
    lines = []
    if facts.also:
        rows = [f"{a.name} ({plural(a.n_files, 'file')})" for a in facts.also]
        lines.append(f"Also: {some(rows, len(rows) if full else MOST_ALSO)}.")
    most = len(facts.twice) if full else MOST_TWICE
    names = [f"`{name}` {_where(places)}" for name, places in facts.twice[:most]]
    if names:
        more = " and others (`--full` lists them)" if len(facts.twice) > most else ""
        lines.append(f"Defined more than once, so not ranked: {'; '.join(names)}{more}.")
    if facts.most_imported and not facts.is_by_calls and not facts.is_files:
        rows = [f"{path} ({n:,})" for path, n in facts.most_imported]
        row_text = some(rows, len(rows)) if full else ", ".join(rows[:MOST_IMPORTED])
        lines.append(f"Most imported (import statements in source files): {row_text}.")
    if facts.is_by_calls:
        rows = [f"{path} ({n:,})" for path, n in facts.largest]
        lines.append(f"The largest files (lines): {', '.join(rows)}.")
    return lines


def _where(places: Sequence[Place]) -> str:
    spots = [spot(place) for place in places]
    return listed(spots) if len(spots) <= 3 else some(spots, 3)


def _reading(facts: MapFacts) -> str:
    if len(facts.reading) < 2:
        return ""
    rows = [
        wrapped(f"{spot(step.place)}: {step.reason}", f"{n}. ", "   ")
        for n, step in enumerate(facts.reading, start=1)
    ]
    return "## Where to start reading\n\n" + "\n".join(rows)
