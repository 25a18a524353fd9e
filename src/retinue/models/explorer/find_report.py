"""The report on what `symbols` found: the essential first, each statement with its file and
line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill

from retinue.formats.safe_text import one_line
from retinue.models.explorer.report import Report
from retinue.models.explorer.report_text import at, cell, sentence, some
from retinue.syntax.symbol_answers import FoundDefinition, FoundPlace, NameAnswer, WordAnswer

WIDTH = 100
COMMANDS = frozenset(("ruby", "bash"))
CALLABLE = ("function", "method", "macro")
ROLES = {"source": "source", "test": "tests", "aside": "examples and docs"}


def write_names(report: Report, answer: NameAnswer) -> None:
    report.section(_definitions(answer))
    report.section(_imports(answer), 2, "imports")
    report.section(_calls(answer), 1, "calls")
    report.section(_mentions(answer), 3, "mentions")


def prose(text: str) -> str:
    """A paragraph in lines that are not too long; a place is never broken."""
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def count(n: int, noun: str) -> str:
    ending = "es" if noun.endswith("s") else "s"
    return f"{n:,} {noun}{'' if n == 1 else ending}"


def place(one: FoundDefinition | FoundPlace) -> str:
    return at(one_line(one.path, 300), one.line)


def code(text: str, most: int = 120) -> str:
    return f"`{one_line(text, most).replace('`', chr(39))}`"


def _definitions(answer: NameAnswer) -> str:
    if not answer.definitions:
        lines = [
            f"{code(answer.name)} is defined nowhere in {count(answer.n_parsed, 'file')} that can "
            "be parsed."
        ]
        if answer.shared:
            lines.append(f"Under another owner: {_listed(answer.shared, 6)}.")
        lines += [f"Nearest names: {_listed(answer.near, 3)}."] if answer.near else []
        return "\n\n".join(map(prose, lines))
    blocks = [block for one in answer.definitions for block in (*_block(one), "")]
    lines = [*blocks, _how_many(answer)]
    if answer.declared:
        lines[-1] += f" Declared in {some([place(p) for p in answer.declared], 3)}."
    lines[-1] = prose(lines[-1])
    if answer.near:
        lines += ["", prose(f"Near names: {_listed(answer.near, 3)}.")]
    return "\n".join(lines)


def _how_many(answer: NameAnswer) -> str:
    files = f"{count(answer.n_parsed, 'file')} that can be parsed"
    least = "at least " if answer.at_least else ""
    if answer.n_definitions > 1:
        n_hidden = answer.n_definitions - len(answer.definitions)
        more = f", {n_hidden} of them not shown" if n_hidden else ""
        text = f"The name is defined {least}{answer.n_definitions} times in {files}{more}."
    else:
        text = f"It is the only definition of this name in {files}."
        if answer.shared:
            text = f"Of this owner it is the only one in {files}; others: "
            text += f"{_listed(answer.shared, 6)}."
    if answer.at_least:
        text += f" The grammar cannot read passages of {some(list(answer.at_least), 3)}."
    return text


def _block(one: FoundDefinition) -> list[str]:
    members = [count(n, kind) for kind, n in sorted(one.members.items())]
    end = f"to line {one.end}{''.join(f', {m}' for m in members)}"
    owner = one.title.rpartition(".")[0]
    inside = f", in {owner}" if owner else ""
    lines = [
        f"    {place(one)}   {one_line(one.head or f'{one.kind} {one.title}', 100)}",
        f"    {end}{inside}",
    ]
    if one.doc:
        quote = sentence(one.doc).replace('"', "'")
        lines.append(f'    "{quote}" {at(one_line(one.path, 300), one.doc_line)}')
    return lines


def _listed(items: Sequence[FoundDefinition], most: int) -> str:
    return some([f"{code(d.title)} {place(d)}" for d in items], most)


def _imports(answer: NameAnswer) -> str:
    if not (answer.imports or answer.extended or answer.named):
        return ""
    lines = ["## Imported, extended, named", ""]
    source = [p for p in answer.imports if p.role == "source"]
    rows = [f"| {place(p)} | imported |" for p in source]
    rows += [
        f"| {place(p)} | {code(p.around)} names it among its bases |"
        for p in answer.extended
        if p.role == "source"
    ]
    rows += [f"| {place(p)} | {code(p.text, 80)} |" for p in answer.named]
    if rows:
        lines += ["| place | how |", "|---|---|", *map(cell_row, rows), ""]
    lines.append(
        prose(
            f"Import statements that name it: {_by_role(answer.n_imports)}. "
            f"Class statements that name it among their bases: {_by_role(answer.n_extended)}."
        )
    )
    return "\n".join(lines)


def cell_row(row: str) -> str:
    head, middle, tail = row.partition(" | ")
    return f"{head}{middle}{cell(tail.removesuffix(' |'))} |"


def _by_role(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    if not total:
        return "none"
    parts = [f"{n:,} in {ROLES.get(role, role)}" for role, n in _ordered(counts)]
    return parts[0] if len(parts) == 1 else f"{total:,} ({', '.join(parts)})"


def _ordered(counts: dict[str, int]) -> list[tuple[str, int]]:
    order = [*ROLES, "no grammar"]
    return sorted(counts.items(), key=lambda i: order.index(i[0]) if i[0] in order else 9)


def _calls(answer: NameAnswer) -> str:
    total = sum(answer.n_calls.values())
    if not total:
        kinds = {d.kind for d in answer.definitions}
        is_type = bool(kinds) and not kinds & set(CALLABLE)
        how = f"Called as {code(answer.name.split('.')[-1] + '(...)')}" if is_type else "Called"
        least = " (files with errors aside)" if answer.at_least else ""
        return f"## Calls\n\n{how}: nowhere in the files that can be parsed{least}."
    words = "Calls or attribute reads" if COMMANDS & set(answer.languages) else "Calls"
    least = "at least " if answer.at_least else ""
    lines = [
        f"## {words}: {least}{total:,}, in {count(answer.n_call_files, 'file')}",
        "",
        "| call | in |",
        "|---|---|",
    ]
    lines += [
        f"| {place(c)} {cell(code(c.text, 100))} | {code(c.around) if c.around else 'file level'} |"
        for c in answer.calls
    ]
    if len(answer.calls) < total:
        lines += ["", f"and {total - len(answer.calls):,} more: {_by_role(answer.n_calls)} in all."]
    n_same = answer.n_definitions + len(answer.shared)
    if n_same > 1:
        lines += [
            "",
            prose(
                f"By name: {n_same} definitions have this name, so which one runs is not told by "
                "syntax."
            ),
        ]
    return "\n".join(lines)


def _mentions(answer: NameAnswer) -> str:
    counts = {r: n for r, n in answer.mentions.items() if r in ROLES}
    if not answer.mentions:
        return "## Mentions\n\nThe word stands in no file that was searched."
    text = f"The word stands in {_files_by_role(counts)}, comments and strings included"
    if others := answer.mentions.get("no grammar", 0):
        where = ", ".join(f"{n:,} in {folder}" for folder, n in answer.elsewhere.items())
        text += f", and in {count(others, 'file')} in no language that is parsed ({where})"
    return f"## Mentions\n\n{prose(text)}."


def _files_by_role(counts: dict[str, int]) -> str:
    names = {"source": "source", "test": "test", "aside": "example or documentation"}
    parts = [f"{n:,} {names[role]}" for role, n in _ordered(counts)]
    total = sum(counts.values())
    return f"{' and '.join(parts)} file{'' if total == 1 else 's'}" if parts else "no source file"


def write_words(report: Report, answer: WordAnswer) -> None:
    if not answer.words:
        report.section("The question names nothing to look for.")
        return
    words = _joined(code(w) for w in answer.words)
    base = f"{count(answer.n_definitions, 'definition')} in {count(answer.n_files, 'source file')}"
    if not answer.hits:
        lines = [f"No definition in source has {words} in its name, docstring or file name."]
        lines += [f"Nearest names: {_listed(answer.near, 3)}."] if answer.near else []
        report.section("\n".join([*lines, f"Looked through: {base}."]))
        return
    report.section(
        prose(
            "No identifier in the question, so names, docstrings and file names were ranked for "
            f"{words}. {_where(answer.hits)}"
        )
    )
    report.section("\n".join(_groups(answer)))
    report.section(_callers(answer), 1, "calls")
    report.section(f"Ranked by BM25 over {base}.")


def _joined(items: Iterable[str]) -> str:
    *head, last = list(items)
    return f"{', '.join(head)} and {last}" if head else last


def _where(hits: Sequence[FoundDefinition]) -> str:
    paths = sorted({h.path for h in hits})
    n = "best place is" if len(hits) == 1 else f"{len(hits)} best places are"
    if len(paths) == 1:
        return f"The {n} in one file: {one_line(paths[0], 300)}."
    return f"The {n} in {len(paths)} files."


def _groups(answer: WordAnswer) -> list[str]:
    """Hits below the type that they belong to, the best first."""
    owners = {(d.path, d.title): d for d in (*answer.owners, *answer.hits)}
    groups: dict[tuple[str, str], list[FoundDefinition]] = {}
    for hit in answer.hits:
        owner = hit.title.rpartition(".")[0]
        key = (hit.path, owner if (hit.path, owner) in owners else hit.title)
        groups.setdefault(key, []).append(hit)
    lines: list[str] = []
    for n, (key, hits) in enumerate(groups.items(), 1):
        head = owners.get(key, hits[0])
        lines.append(
            f"{n}. {code(head.title)} {place(head)}, {_article(head.kind)}, to line {head.end}"
        )
        lines += [f"   {_quoted(head)}"] if head.doc else []
        for hit in hits:
            if hit.title != head.title:
                quote = f": {_quoted(hit)}" if hit.doc else ""
                name = hit.title.rpartition(".")[2]
                lines.append(f"   - {code(name)} {place(hit)}, to line {hit.end}{quote}")
    return lines


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _quoted(one: FoundDefinition) -> str:
    return '"' + sentence(one.doc).replace('"', "'") + '"'


def _callers(answer: WordAnswer) -> str:
    if not answer.calls:
        return ""
    lines = ["## Who calls it", "", "| call | in |", "|---|---|"]
    for call in answer.calls:
        inside = code(call.around) if call.around else "file level"
        lines.append(f"| {code(call.text + '(...)')} {place(call)} | {inside} |")
    several = [f"{code(n)} ({k})" for n, k in sorted(answer.same_name.items()) if k > 1]
    if several:
        lines += [
            "",
            prose(
                f"By name: defined more than once in source: {', '.join(several)}, so which one "
                "runs is not told by syntax."
            ),
        ]
    return "\n".join(lines)
