"""The sentences of a map: size, commands, tests, history, and what was not read."""

from __future__ import annotations

from retinue.models.explorer.report_text import bullets, listed, plural, some, spot, wrapped
from retinue.syntax.changes.change_set import CommitHistory
from retinue.syntax.overview.map_facts import CommandRow, MapFacts, SizeRow

KINDS = {
    "class": "class",
    "struct": "struct",
    "union": "union",
    "enum": "enum",
    "interface": "interface",
    "trait": "trait",
    "record": "record",
    "annotation": "annotation",
    "type": "named type",
    "module": "module",
    "namespace": "namespace",
    "macro": "macro",
    "method": "method",
    "function": "function",
}
"""The kinds of definitions in the order in which they are counted out."""
NAMED_TYPES = {
    "C": "typedef",
    "C++": "alias",
    "Rust": "type alias",
    "Go": "other named type",
    "TypeScript": "type alias",
}
LEFT_OUT = {
    "vendored": ("vendored file", ""),
    "patched copies": ("patched copy", ".pc/"),
    "packaging": ("file of packaging", "debian/"),
    "build output": ("file of build output", ""),
    "generated": ("generated file", ""),
    "minified": ("minified file", ""),
    "copy": ("copy", "the same bytes as a file that was read"),
    "binary": ("binary file", ""),
    "too large": ("file of more than 2 MB", ""),
    "link": ("link", ""),
    "version control": ("file of version control", ""),
    "not a file": ("entry that cannot be read as a file", ""),
    "no grammar": ("file in no language that is parsed", "searched as text by find"),
}
"""What is not parsed, with what its name does not say."""
MOST_KINDS = 2
MOST_COMMANDS = 8
MOST_NEEDED = 7
MOST_ENDINGS = 3
MOST_TESTS, MOST_REACHED = 3, 5
SMALL_PART = 0.05
"""Forms of tests with less than this part of all tests share a line."""
MOST_CHANGED = 5
COLUMN = 26
"""The widest first column of commands."""
COMMAND_WIDTH = 79
"""Commands stay in their columns on the narrowest terminal, too."""


def size_text(facts: MapFacts) -> str:
    if not facts.sizes:
        return wrapped(f"No source in a language that is parsed. {_beside(facts)}")
    n_files, n_lines = sum(s.n_files for s in facts.sizes), sum(s.n_lines for s in facts.sizes)
    total = f"{plural(n_files, 'source file')}, {plural(n_lines, 'line')}"
    if len(facts.sizes) == 1:
        one = facts.sizes[0]
        return wrapped(f"{one.language}. {total}: {_kinds(one)}.") + _below(facts)
    names = [f"{one.language} ({plural(one.n_files, 'file')})" for one in facts.sizes]
    counts = [f"{_kinds(one)} in {one.language}" for one in facts.sizes]
    n_defined = [sum(one.kinds.values()) for one in facts.sizes]
    if rest := sum(n_defined[MOST_KINDS:]):
        counts[MOST_KINDS:] = [f"{plural(rest, 'definition')} in the others"]
    return wrapped(f"{listed(names)}. {total}: {'; '.join(counts)}.") + _below(facts)


def _below(facts: MapFacts) -> str:
    beside = _beside(facts)
    return f"\n{wrapped(beside)}" if beside else ""


def _kinds(one: SizeRow) -> str:
    """Every kind with its count; a file with a syntax error makes them lower bounds."""
    least = "at least " if one.is_least else ""
    nouns = {**KINDS, "type": NAMED_TYPES.get(one.language, KINDS["type"])}
    counts = [plural(one.kinds[kind], noun) for kind, noun in nouns.items() if one.kinds.get(kind)]
    return least + (", ".join(counts) or "no definitions")


def _beside(facts: MapFacts) -> str:
    n_tests, n_aside = facts.roles.get("test", 0), facts.roles.get("aside", 0)
    n_other = facts.roles.get("no grammar", 0)
    parts = [plural(n_tests, "test file")] if n_tests else []
    if n_aside:
        parts.append(f"{plural(n_aside, 'file')} of examples, documentation and tooling")
    if n_other:
        endings = some([f"{n:,} {e}" for e, n in facts.endings], MOST_ENDINGS, "ending")
        parts.append(f"{plural(n_other, 'file')} in no language that is parsed ({endings})")
    return f"Beside it: {', '.join(parts)}." if parts else ""


def commands_text(facts: MapFacts, *, full: bool) -> str:
    most = len(facts.commands) if full else MOST_COMMANDS
    commands = facts.commands[:most]
    parts = []
    if commands:
        width = min(COLUMN, max(len(row.text) for row in commands))
        lines = [line for row in commands for line in _command(row, width)]
        if len(facts.commands) > most:
            lines.append(f"    and {len(facts.commands) - most} more")
        parts.append("\n".join(lines))
    needs = [f"{need.text} ({spot(need.place)})" for need in facts.needs]
    sentences = [f"needs {listed(needs)}"] if needs else []
    if facts.builder:
        sentences.append(f"built with {facts.builder.text} ({spot(facts.builder.place)})")
    text = "; ".join(sentences)
    text = f"{text[0].upper()}{text[1:]}. " if text else ""
    if facts.requires and facts.requires_at:
        most = len(facts.requires) if full else MOST_NEEDED
        text += f"Depends on {some(list(facts.requires), most)} ({spot(facts.requires_at)})."
    if text:
        parts.append(wrapped(text))
    return "## Run, build, test\n\n" + "\n\n".join(parts) if parts else ""


def _command(row: CommandRow, width: int) -> list[str]:
    """One command in columns; what does not fit continues below, and no place is cut."""
    leads = ""
    if row.leads_place is not None:
        name = f"`{row.leads_to}` " if row.leads_to else ""
        leads = f"->  {name}{spot(row.leads_place)}"
    place = "" if row.place == row.leads_place else spot(row.place)
    parts = [part for part in (row.note, place, leads) if part]
    head, indent = f"    {row.text.ljust(width)}  ", " " * (width + 6)
    if len(row.text) > width:
        lines = [head.rstrip()]
        head = indent
    else:
        lines = []
    line = head
    for n, part in enumerate(parts):
        gap = "  " if n else ""
        if n and len(line) + len(gap) + len(part) > COMMAND_WIDTH:
            lines.append(line)
            line, gap = indent, ""
        line += gap + part
    return [*lines, line]


def tests_text(facts: MapFacts, *, full: bool) -> str:
    title = "## Tests\n\n"
    if not facts.tests:
        return title + "No tests in a form that is known here."
    several = len({form.language for form in facts.tests}) > 1
    least = "at least " if any(place.path in _tested(facts) for place in facts.errors) else ""
    rows = []
    least_shown = 0 if full else SMALL_PART * sum(form.n for form in facts.tests)
    large = [form for form in facts.tests if form.n >= least_shown]
    small = [form for form in facts.tests if form.n < least_shown]
    for form in large:
        most = len(form.files) if full else MOST_TESTS
        files = [f"{spot(file.place)} ({file.n:,})" for file in form.files[:most]]
        note = f" ({form.note})" if form.note else ""
        counted = f"{least}{plural(form.n, form.noun)}{note} in {plural(form.n_files, 'file')}"
        head = f"{form.language}: " if several else ""
        if not head:
            counted = counted[0].upper() + counted[1:]
        rows.append(f"{head}{counted}: {_most(files, form.n_files)}.")
    if small:
        n, languages = sum(form.n for form in small), {form.language: None for form in small}
        rows[-1] += f" Beside them {least}{n:,} of other forms, in {listed(list(languages))}."
    if len(rows) > 1:
        return f"{title}{bullets(rows)}\n{_reached(facts)}"
    return title + wrapped(rows[0]) + _reached(facts)


def _most(files: list[str], n_files: int) -> str:
    more = n_files - len(files)
    return f"{', '.join(files)} and {more:,} more" if more else ", ".join(files)


def _tested(facts: MapFacts) -> set[str]:
    return {file.place.path for form in facts.tests for file in form.files}


def _reached(facts: MapFacts) -> str:
    """Which areas test files import, and what was not counted."""
    sentences = []
    if facts.importers:
        rows = [f"{area} {n:,}" for area, n in facts.importers]
        sentences.append(f"Test files that import each area: {some(rows, MOST_REACHED)}.")
        areas = {area for area, _ in facts.importers}
        missing = [a.name for a in facts.areas if a.name not in areas and not facts.is_files]
        if missing:
            sentences.append(f"No test file imports {some(missing, MOST_REACHED)}.")
    n, n_files = facts.aside_tests
    if n:
        sentences.append(
            f"Not counted: {n:,} in {plural(n_files, 'file')} of examples and the like."
        )
    return "\n" + wrapped(" ".join(sentences)) if sentences else ""


def history_text(history: CommitHistory | None, *, full: bool) -> str:
    """Which source files the last commits changed."""
    if history is None or history.problem or not history.n_commits:
        return ""
    rows = sorted(history.changes.items(), key=lambda row: (-row[1], row[0]))
    if not rows:
        return ""
    head = f"{rows[0][0]} ({plural(rows[0][1], 'commit')})"
    files = [head, *(f"{path} ({n})" for path, n in rows[1:])]
    commits = "commit" if history.n_commits == 1 else f"{history.n_commits:,} commits"
    are = "is not a merge" if history.n_commits == 1 else "are not merges"
    dates = f"{history.first} to {history.last}"
    most = len(files) if full else MOST_CHANGED
    file_text = some(files, most) if full else ", ".join(files[:most])
    return "## History\n\n" + wrapped(
        f"The last {commits} that {are}, {dates}, changed most often: {file_text}."
    )


def unseen_text(facts: MapFacts, history: CommitHistory | None, gaps: list[str]) -> str:
    """What was omitted, and what syntax does not show."""
    left_out = [
        f"{plural(facts.roles[role], noun)}{f' ({note})' if note else ''}"
        for role, (noun, note) in LEFT_OUT.items()
        if facts.roles.get(role)
    ]
    roles = {*LEFT_OUT, "source", "test", "aside"}
    left_out += [f"{n:,} files ({role})" for role, n in facts.roles.items() if role not in roles]
    rows = [f"{listed(left_out)}."] if left_out else []
    if facts.errors:
        places = _most([spot(place) for place in facts.errors[:3]], facts.n_errors)
        rows.append(
            f"The grammar cannot read a passage in {plural(facts.n_errors, 'file')} ({places}), "
            "so definitions and calls there may be missing."
        )
    elif facts.sizes:
        rows.append("No source or test file had a syntax error.")
    if facts.sizes:
        rows.append("What runs is not known: calls are told by name, types of values are not.")
    if history is not None and history.problem:
        rows.append(f"History: {history.problem}.")
    return "## Not looked at\n\n" + bullets([*rows, *facts.gaps, *gaps])
