"""The job `find`: the words of a question, widened, are searched for area by area; what was found
is ranked, and shown with the function around it, five lines, and who calls it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from retinue.formats.safe_text import one_line
from retinue.models.explorer.areas import AreaFiles, missed_rows
from retinue.models.explorer.child_report import Findings, Row
from retinue.models.explorer.delegation import AreaTask, hand_out
from retinue.models.explorer.file_tree import Area, FileTree
from retinue.models.explorer.known_answers import KnownAnswers
from retinue.models.explorer.languages import language_of, name_in
from retinue.models.explorer.manifests import Lines, numbered
from retinue.models.explorer.matches import Hit, Sweep, read_hits, search
from retinue.models.explorer.report import Report, footer, gaps
from retinue.models.explorer.report_text import at, plural, some
from retinue.models.explorer.survey import listed, where
from retinue.models.explorer.synonyms import topics, widen

WINDOWS, FILES, SHOWN, CALLED = 4, 30, 8, 4
BACK = 80
SNIPPET = 2
K1, B = 1.2, 0.6
COMMON = {
    "main",
    "run",
    "init",
    "new",
    "get",
    "set",
    "call",
    "test",
    "start",
    "close",
    "append",
    "__init__",
    "__call__",
}


def find_job(book: KnownAnswers, question: str, note: str = "") -> Report | None:
    words = topics(question)
    tree = listed(book)
    if book.pending:
        return None
    report = Report()
    if not words or tree is None:
        why = (
            "the question names nothing to look for"
            if not words
            else "the files could not be listed"
        )
        report.section(f"# Find\n\nNothing was searched: {why}.")
        report.section(gaps(book, []))
        report.section(footer(book, []))
        return report
    terms = widen(words)
    parts = [_order(tree, area, terms) for area in tree.areas]
    answers = hand_out(book, parts)
    if book.pending or book.resting:
        return None
    for part in parts:
        if part.name not in answers:
            answers[part.name] = look(book, part.order)
    if book.pending:
        return None
    found = [answers[p.name] for p in parts]
    ranked = rank(found, terms, tree)
    elsewhere = _elsewhere(book, words, tree) if not ranked else []
    callers = _callers(book, ranked[:CALLED])
    if book.pending:
        return None
    _write(report, words, terms, ranked, callers, note, elsewhere)
    report.section(gaps(book, found))
    report.section(footer(book, found))
    return report


def _order(tree: FileTree, area: Area, terms: dict[str, float]) -> AreaTask:
    order = {
        "part": "find",
        "name": area.name,
        **where(tree, area),
        "terms": terms,
    }
    words = some([t for t, w in terms.items() if w == 1.0], 5)
    return AreaTask(area.name or "(root)", f"Look for {words} in the area {area.title}.", order)


def _pattern(stems: Sequence[str]) -> str:
    return "|".join(re.escape(s) for s in sorted(stems))


def look(book: KnownAnswers, order: dict[str, Any]) -> Findings:
    """The lines of one area that have the words, and the best places whole."""
    name, place = str(order.get("name", "")), AreaFiles.of(order)
    given = order.get("terms")
    terms = (
        {k: float(v) for k, v in given.items() if isinstance(v, int | float)}
        if isinstance(given, dict)
        else {}
    )
    strong, weak = [t for t, w in terms.items() if w >= 1], [t for t, w in terms.items() if w < 1]
    if not strong:
        return Findings(name, [["note", "nothing to look for"]], whole=False)
    sweep = Sweep(book, _pattern(strong), fold=True)
    place.sweep(sweep)
    wider = Sweep(book, _pattern(weak), fold=True)
    if weak:
        place.sweep(wider, deeper=0)
    if book.pending:
        return Findings(name)
    hits = [h for h in {*sweep.hits, *wider.hits} if place.has(h.path) and language_of(h.path)]
    files: dict[str, list[Hit]] = {}
    for hit in sorted(hits):
        files.setdefault(hit.path, []).append(hit)
    counts = {path: _terms_in(path, lines, terms) for path, lines in files.items()}
    df = Counter(t for c in counts.values() for t in c)
    order_ = sorted(files, key=lambda p: (-_local(counts[p], terms, df), p))
    best = [(p, _best(files[p], terms)) for p in order_[:WINDOWS]]
    windows = [_window(book, p, hit) for p, hit in best if hit is not None]
    if book.pending:
        return Findings(name)
    rows: list[Row] = [["df", dict(df)]]
    rows += [w for w in windows if w]
    rows += [["file", p, dict(counts[p]), len(files[p]), files[p][0].line] for p in order_[:FILES]]
    rows += missed_rows(sweep.missed)
    return Findings(name, rows, sweep.whole)


def _terms_in(path: str, lines: Sequence[Hit], terms: dict[str, float]) -> Counter[str]:
    found: Counter[str] = Counter()
    low_path = path.lower()
    for term in terms:
        found[term] = sum(h.text.lower().count(term) for h in lines) + 2 * (term in low_path)
    for hit in lines:
        language = language_of(hit.path)
        if language is not None:
            named = (
                name_in(language.functions, hit.text) or name_in(language.types, hit.text)
            ).lower()
            for term in terms:
                found[term] += 3 * (term in named)
    return Counter({t: n for t, n in found.items() if n})


def _local(counts: Counter[str], terms: dict[str, float], df: Counter[str]) -> float:
    return sum(terms[t] * math.log1p(n) / math.sqrt(df[t]) for t, n in counts.items())


def _best(lines: Sequence[Hit], terms: dict[str, float]) -> Hit | None:
    """The line that says most: several words, or a definition that has one in its name; imports say
    least."""

    def key(hit: Hit) -> tuple[float, int]:
        low = hit.text.lower()
        language = language_of(hit.path)
        score = sum(w for t, w in terms.items() if t in low)
        if language is not None:
            named = (
                name_in(language.functions, hit.text) or name_in(language.types, hit.text)
            ).lower()
            score += 2 * sum(w for t, w in terms.items() if t in named)
            score -= 0.8 * bool(re.search(language.imports, hit.text))
        score -= 0.3 * bool(re.match(r"\s*(?:#|//|\*|\"\"\")", hit.text))
        return (-score, hit.line)

    return min(lines, key=key, default=None)


def _window(book: KnownAnswers, path: str, hit: Hit) -> Row | None:
    first = max(1, hit.line - BACK)
    got = book.ask("read", path=path, offset=first, limit=BACK + SNIPPET + 1)
    if got is None or got.error:
        return None
    lines = numbered(got.text)
    name, where = enclosing(path, lines, hit.line)
    shown = [[n, text[:200]] for n, text in lines if hit.line - SNIPPET <= n <= hit.line + SNIPPET]
    return ["hit", path, hit.line, name, where, shown]


def enclosing(path: str, lines: Lines, line: int) -> tuple[str, int]:
    """The function or type around a line: the nearest definition above it that is indented less."""
    language = language_of(path)
    by_line = dict(lines)
    text = by_line.get(line)
    if language is None or text is None:
        return "", 0
    depth = len(text) - len(text.lstrip()) if text.strip() else 1 << 10
    for n in range(line, min(by_line, default=line) - 1, -1):
        above = by_line.get(n, "")
        indent = len(above) - len(above.lstrip())
        name = name_in(language.functions, above) or name_in(language.types, above)
        if name and (n == line or indent < depth):
            return name, n
        if (
            above.strip()
            and indent < depth
            and not above.lstrip().startswith((")", "}", "]", "#", "//", "*"))
        ):
            depth = (
                max(indent, 1)
                if indent
                else depth
                if language.key in ("go", "rs", "c", "ts", "js")
                else 1
            )
    return "", 0


@dataclass
class Place_:
    """One place in the report."""

    path: str
    line: int
    score: float
    name: str = ""
    name_line: int = 0
    snippet: list[tuple[int, str]] = field(default_factory=list)
    hits: int = 0


def rank(found: Sequence[Findings], terms: dict[str, float], tree: FileTree) -> list[Place_]:
    """BM25 over the files that were found, with what all areas know together of how rare a word
    is."""
    df: Counter[str] = Counter()
    for one in found:
        for (counts,) in one.get("df", dict):
            df.update({k: v for k, v in counts.items() if isinstance(v, int)})
    n_files = max(1, len(tree.source))
    mean = max(1.0, tree.size(tree.source) / n_files)
    out: list[Place_] = []
    for one in found:
        windows = {row[0]: row for row in one.get("hit", str, int, str, int, list)}
        for path, counts, n, line in one.get("file", str, dict, int, int):
            if path not in tree.files:
                continue
            norm = K1 * (1 - B + B * tree.files[path] / mean)
            score = 0.0
            for term, tf in counts.items():
                if term in terms and isinstance(tf, int):
                    idf = math.log(1 + (n_files - min(df[term], n_files) + 0.5) / (df[term] + 0.5))
                    score += terms[term] * idf * tf * (K1 + 1) / (tf + norm)
            if not any(terms.get(t, 0) >= 1 for t in counts):
                score *= 0.4
            place = Place_(path, line, score, hits=n)
            if path in windows:
                _, place.line, place.name, place.name_line, shown = windows[path]
                place.snippet = [
                    (a, b) for a, b in (x for x in shown if isinstance(x, list) and len(x) == 2)
                ]
            out.append(place)
    return sorted(out, key=lambda p: (-p.score, p.path))


def _callers(book: KnownAnswers, places: Sequence[Place_]) -> dict[str, list[Hit] | None]:
    """Lines that call something of that name; None when they could not all be seen."""
    out: dict[str, list[Hit] | None] = {}
    for place in places:
        language = language_of(place.path)
        if (
            not place.name
            or place.name in COMMON
            or len(place.name) < 4
            or language is None
            or place.name in out
        ):
            continue
        got = search(book, rf"\b{place.name}\(", "", glob=language.glob)
        if got is None or got.error:
            continue
        hits = [h for h in read_hits(got.text) if not name_in(language.functions, h.text)]
        out[place.name] = (
            None if got.cut else [h for h in hits if not re.search(language.imports, h.text)]
        )
    return out


def _elsewhere(book: KnownAnswers, words: Sequence[str], tree: FileTree) -> list[Hit]:
    """Nothing in the source: perhaps in tests, documents or settings."""
    got = search(
        book,
        _pattern(sorted({w for t, w in zip(widen(list(words)), words, strict=False)})),
        "",
        fold=True,
    )
    hits = read_hits(got.text) if got is not None and not got.error else []
    return [h for h in hits if h.path in tree.files][:SHOWN]


def _write(
    report: Report,
    words: Sequence[str],
    terms: dict[str, float],
    ranked: Sequence[Place_],
    callers: dict[str, list[Hit] | None],
    note: str,
    elsewhere: Sequence[Hit],
) -> None:
    wider = [t for t, w in terms.items() if w < 1]
    top = [f"# Where: {one_line(', '.join(words), 80)}", ""]
    if note:
        top += [note, ""]
    exact = [t for t, w in terms.items() if w >= 1]
    top.append(
        f"Searched for {', '.join(f'`{t}`' for t in exact)}"
        + (f"; related: {some(wider, 12)}." if wider else ".")
    )
    if not ranked:
        top += ["", "No source file has any of these words."]
        top += [f"- elsewhere: {at(h.path, h.line)} {one_line(h.text, 100)}" for h in elsewhere]
        report.section("\n".join(top))
        return
    report.section("\n".join(top))
    shown = [p for p in ranked if p.snippet][:SHOWN]
    for n, place in enumerate(shown, 1):
        head = f"## {n}. {at(place.path, place.line)}"
        lines = [head, ""]
        if place.name:
            lines += [
                f"In `{place.name}` {at(place.path, place.name_line)}; {_lines(place.hits)} in "
                "this file.",
                "",
            ]
        else:
            lines += [f"{_lines(place.hits)} in this file.", ""]
        width = len(str(max(a for a, _ in place.snippet)))
        lines += ["```", *(f"{a:>{width}} | {_fenced(b)}" for a, b in place.snippet), "```"]
        who = callers.get(place.name)
        if who:
            told = some([at(h.path, h.line) for h in who], 4)
            lines += ["", f"Lines that call a `{place.name}`: {told}."]
        report.section("\n".join(lines), n, f"place {n}")
    rest = [p for p in ranked if p not in shown][:12]
    if rest:
        told = "\n".join(f"- {at(p.path, p.line)}: {_lines(p.hits)}" for p in rest)
        report.section(f"## Also\n\n{told}", 20, "further files")


def _lines(n: int) -> str:
    return f"{plural(n, 'line')} with these words"


def _fenced(text: str) -> str:
    return text.replace("```", "'''").rstrip()
