"""The parts of a map that can be handed out: one area, the tests, the history. Each gathers its
facts through the tools and gives them as rows; whether a sub-agent does it or the lead itself makes
no difference."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename, dirname
from typing import Any

from retinue.formats.safe_text import one_line
from retinue.models.explorer.child_report import Findings, Row
from retinue.models.explorer.file_kinds import is_foreign, is_made, is_test
from retinue.models.explorer.imports import read_import
from retinue.models.explorer.known_answers import MIDDLE, KnownAnswers
from retinue.models.explorer.languages import BY_KEY, Language, language_name, language_of, name_in
from retinue.models.explorer.manifests import Lines, numbered
from retinue.models.explorer.matches import Hit, Sweep, inside
from retinue.models.explorer.readme import read_readme
from retinue.models.explorer.report_text import sentence, some

INLINE_TESTS = r"^[ \t]*#\[cfg\(test\)\]"
GO_PACKAGE = r"^// Package \w+ "
MOST_TYPES, MOST_IMPORTS, MOST_CHURN, MOST_NAMES = 400, 600, 250, 40
HEAD_LINES = 40
FLAT = "./*"
"""The glob of files that lie directly in a folder; and, where those are too many for one answer,
five for them."""
SLICES = ("./[!a-zA-Z]*", "./[a-dA-D]*", "./[e-lE-L]*", "./[m-rM-R]*", "./[s-zS-Z]*")
COMMITS = 300


@dataclass(frozen=True, slots=True)
class AreaFiles:
    """Which files a part is about; the fields are those of `tree.Area`. `files` are single ones,
    `skip` are none of its."""

    folders: tuple[str, ...]
    alone: tuple[str, ...]
    without: tuple[str, ...]
    apart: tuple[str, ...]
    files: tuple[str, ...]
    skip: tuple[str, ...]

    @classmethod
    def of(cls, order: dict[str, Any]) -> AreaFiles:
        return cls(*(_texts(order.get(k)) for k in cls.__slots__))

    def has(self, path: str) -> bool:
        """Whether a file is source of this place, and no test."""
        if path in self.skip or is_foreign(path) or is_made(path) or is_test(path):
            return False
        near = path in self.files or dirname(path) in self.alone
        return near or inside(path, self.folders, self.without, self.apart)

    def sweep(self, sweep: Sweep, *, deeper: int = 2) -> None:
        sweep.over([*self.folders, *self.files], without=self.without, deeper=deeper)
        left = list(self.alone)
        for globs in ((FLAT,), SLICES):
            missed: list[str] = []
            for glob in globs if left else ():
                flat = Sweep(sweep.book, sweep.pattern, mode=sweep.mode, glob=glob, fold=sweep.fold)
                flat.over(left, deeper=0)
                sweep.texts += flat.texts
                missed += flat.missed
            left = [home for home in left if home in missed or (not home and "." in missed)]
        sweep.missed += left


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def languages_of(order: dict[str, Any]) -> list[Language]:
    return [BY_KEY[k] for k in _texts(order.get("langs")) if k in BY_KEY]


def either(patterns: Sequence[str]) -> str:
    return "|".join(f"(?:{p})" for p in dict.fromkeys(patterns) if p)


def imports_pattern(languages: Sequence[Language], tops: Sequence[str]) -> str:
    """Lines that import something of this tree, as far as a line can tell."""
    out = []
    for language in languages:
        if language.key == "py" and tops:
            names = "|".join(re.escape(t) for t in sorted(tops)[:40])
            out.append(rf"^[ \t]*(?:from[ \t]+(?:\.|(?:{names})\b)|import[ \t]+(?:{names})\b)")
        else:
            out.append(language.imports)
    return either(out)


def area(book: KnownAnswers, order: dict[str, Any]) -> Findings:
    """What one area is, what it defines, and what it imports."""
    name, place = str(order.get("name", "")), AreaFiles.of(order)
    languages, tops = languages_of(order), _texts(order.get("tops"))
    heads = [_head(book, path) for path in _texts(order.get("heads"))[:3]]
    types = either([x.types for x in languages])
    extra = [INLINE_TESTS] if any(x.key == "rs" for x in languages) else []
    extra += [GO_PACKAGE] if any(x.key == "go" for x in languages) else []
    lines = Sweep(book, either([types, imports_pattern(languages, tops), *extra]))
    counts = Sweep(book, either([x.definitions for x in languages]), mode="count")
    if types or languages:
        place.sweep(lines)
        place.sweep(counts)
    if book.pending:
        return Findings(name)
    hits = [h for h in lines.hits if place.has(h.path)]
    rows: list[Row] = _describe([h for h in heads if h is not None], hits)
    defined = {p: n for p, n in counts.counts.items() if place.has(p)}
    rows.append(["defs", sum(defined.values()), counts.whole])
    inline = {h.path for h in hits if re.match(INLINE_TESTS, h.text)}
    rows.append(["inline", len(inline)])
    imported, cut = import_rows(hits)
    rows += [*name_rows(hits), *type_rows(hits), *imported]
    whole = lines.whole and counts.whole and not cut
    rows[1:1] = missed_rows([*lines.missed, *counts.missed])
    return Findings(name, rows, whole)


def missed_rows(missed: Sequence[str]) -> list[Row]:
    """What could not be searched, in one note."""
    places = list(dict.fromkeys(m or "." for m in missed))
    return [["note", f"not fully searched: {some(places, 3)}"]] if places else []


def _head(book: KnownAnswers, path: str) -> tuple[str, Lines] | None:
    got = book.ask("read", path=path, limit=HEAD_LINES)
    return None if got is None or got.error else (path, numbered(got.text))


def _describe(heads: Sequence[tuple[str, Lines]], hits: Sequence[Hit]) -> list[Row]:
    for path, lines in heads:
        found = doc_of(path, lines)
        if found:
            return [["doc", found[0], path, found[1]]]
    for hit in hits:
        if re.match(GO_PACKAGE, hit.text):
            return [["doc", sentence(hit.text[3:]), hit.path, hit.line]]
    return []


def doc_of(path: str, lines: Lines) -> tuple[str, int] | None:
    """What a file says of itself at its top."""
    if basename(path).lower().startswith("readme"):
        _, found = read_readme(path, "\n".join(f"{n}\t{line}" for n, line in lines))
        return (sentence(found[0]), found[2]) if found else None
    language = language_of(path)
    if language is None:
        return None
    if language.key == "py":
        return _docstring(lines)
    return _comment(lines, language.key)


def _docstring(lines: Lines) -> tuple[str, int] | None:
    for i, (n, line) in enumerate(lines):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        found = re.match(r'^[rRuU]?("""|\'\'\'|"|\')(.*)$', bare)
        if found is None:
            return None
        quote, body = found[1], found[2]
        text: list[str] = []
        start = n
        for m, more in [(n, body), *lines[i + 1 :]]:
            part, end, _ = more.partition(quote)
            if not text and not part.strip():
                start = m + 1
            else:
                text.append(part.strip())
            if end or (text and not part.strip()) or len(quote) == 1:
                break
        said = " ".join(t for t in text if t)
        return (sentence(said), start) if len(said) >= 8 else None
    return None


_MARKS = {"sh": r"^#+\s?(.*)$", "rb": r"^#+\s?(.*)$"}
_LICENSE = re.compile(
    r"copyright|licen[sc]e|spdx|eslint|@ts-|prettier|shellcheck|vim:|coding[:=]|^!|all rights", re.I
)


def _comment(lines: Lines, key: str) -> tuple[str, int] | None:
    """The first comment that is no licence: inner doc comments in Rust, what stands before the
    package in Go."""
    text: list[str] = []
    start = 0
    for n, line in lines:
        bare = line.strip()
        if bare.startswith("#!"):
            continue
        mark = re.match(_MARKS.get(key, r"^(?://!|///?|/\*\*?|\*/?)\s?(.*?)(?:\*/)?$"), bare)
        is_doc = mark is not None and (key != "rs" or bare.startswith(("//!", "/*!", "*")))
        if mark is not None and is_doc:
            body = mark[1].strip(" *!")
            if not body and text:
                break
            if body and not _LICENSE.search(body):
                text.append(body)
                start = start or n
            elif body:
                text, start = [], 0
        elif text or (bare and key == "rs" and not bare.startswith(("//", "#![", "use "))):
            break
        elif bare and not bare.startswith(("//", "/*", "*", "#", "'use", '"use')):
            return None
    said = " ".join(text)
    return (sentence(said), start) if len(said) >= 8 else None


def type_rows(hits: Sequence[Hit]) -> list[Row]:
    """Types by file; where there are any that are meant for others, only those."""
    out: dict[bool, dict[str, list[list[Any]]]] = {False: {}, True: {}}
    for hit in hits:
        language = language_of(hit.path)
        name = name_in(language.types, hit.text) if language else ""
        if language is None or not name:
            continue
        shy = name.startswith("_")
        shy = shy or (language.key == "rs" and not hit.text.startswith("pub"))
        shy = shy or (language.key == "go" and name[:1].islower())
        shy = shy or (language.key == "ts" and not hit.text.startswith("export"))
        out[shy].setdefault(hit.path, []).append([name, hit.line])
    rows: list[Row] = []
    n = 0
    for path, types in (out[False] or out[True]).items():
        rows.append(["types", path, types])
        n += len(types)
        if n >= MOST_TYPES:
            break
    return rows


def name_rows(hits: Sequence[Hit]) -> list[Row]:
    """Names with a capital on import lines, by where they come from. Only for choosing what to show
    first; nothing is claimed with it."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for hit in hits:
        language = language_of(hit.path)
        if language is None or not re.search(language.imports, hit.text):
            continue
        names = set(re.findall(r"\b[A-Z]\w+\b", hit.text))
        for item in read_import(language.key, hit.path, hit.text):
            for ref in (item.ref, *(item.names if item.lang == "rs" else ())):
                found.setdefault((item.lang, ref), Counter()).update(names)
    ordered = sorted(found.items(), key=lambda kv: (-sum(kv[1].values()), kv[0]))[:MOST_NAMES]
    best = [(key, sorted(c.items(), key=lambda kv: (-kv[1], kv[0]))[:12]) for key, c in ordered]
    return [["names", lang, ref, dict(top)] for (lang, ref), top in best if top]


def import_rows(hits: Sequence[Hit]) -> tuple[list[Row], bool]:
    """Equal imports are counted together, with the first line that has them. The flag: some were
    left out."""
    found: dict[tuple[str, str, tuple[str, ...]], list[Hit]] = {}
    for hit in hits:
        language = language_of(hit.path)
        if language is None or not re.search(language.imports, hit.text):
            continue
        for item in read_import(language.key, hit.path, hit.text):
            found.setdefault((item.lang, item.ref, item.names), []).append(hit)
    ordered = sorted(found.items(), key=lambda kv: (-len(kv[1]), kv[0]))
    rows = [
        ["imp", lang, ref, list(names), len(where), where[0].path, where[0].line]
        for (lang, ref, names), where in ordered[:MOST_IMPORTS]
    ]
    return rows, len(ordered) > MOST_IMPORTS


def tests(book: KnownAnswers, order: dict[str, Any]) -> Findings:
    """How many test cases there are, and what the tests import."""
    place, languages = AreaFiles.of(order), languages_of(order)
    cases = either([x.tests for x in languages])
    sweep = Sweep(book, either([cases, imports_pattern(languages, _texts(order.get("tops")))]))
    sweep.over([*place.folders, *place.files], without=place.without)
    globs = _texts(order.get("globs"))
    for glob in globs:
        more = Sweep(book, sweep.pattern, glob=glob)
        more.over([""], deeper=0)
        sweep.texts += more.texts
        sweep.missed += more.missed
    if book.pending:
        return Findings("tests")
    hits = [
        h
        for h in sweep.hits
        if is_test(h.path) and not any(h.path.startswith(f"{w}/") for w in place.without)
    ]
    found = Counter[str]()
    for hit in hits:
        language = language_of(hit.path)
        if language is not None and language.tests and re.search(language.tests, hit.text):
            found[hit.path] += 1
    rows: list[Row] = [["cases", sum(found.values())]]
    rows += [
        ["case_of", path, n]
        for path, n in sorted(found.items(), key=lambda kv: (-kv[1], kv[0]))[:5]
    ]
    rows += missed_rows(sweep.missed)
    return Findings("tests", [*rows, *_covered(hits)], sweep.whole)


def _covered(hits: Sequence[Hit]) -> list[Row]:
    """What tests import, each thing once."""
    found: dict[tuple[str, str], set[str]] = {}
    for hit in hits:
        language = language_of(hit.path)
        if language is not None and re.search(language.imports, hit.text):
            for item in read_import(language.key, hit.path, hit.text):
                names = () if item.lang == "rs" else item.names
                for ref in (item.ref, *(item.names if item.lang == "rs" else ())):
                    found.setdefault((item.lang, ref), set()).update(names or ("*",))
    return [["covers", lang, ref, sorted(names)] for (lang, ref), names in sorted(found.items())]


_COMMIT = re.compile(r"^@(\w{4,40})(?: (\S+))?$")


def history(book: KnownAnswers, order: dict[str, Any]) -> Findings:
    """In how many of the last commits each source file was changed."""
    args = [
        "log",
        "-n",
        str(COMMITS),
        "--no-merges",
        "--name-only",
        "--format=@%h %ad",
        "--date=short",
    ]
    got = book.first(("git", {"args": [*args, "--relative"]}), ("git", {"args": args}))
    got = book.whole(got)
    if book.pending:
        return Findings("history")
    if got is None or got.error:
        why = (
            "git is not one of the tools"
            if "git" not in book.declared
            else reason(got.text if got else "")
        )
        return Findings("history", [["note", f"no history: {why}"]], whole=False)
    commits: list[tuple[str, str]] = []
    changed: Counter[str] = Counter()
    of_commit: set[str] = set()
    for line in MIDDLE.split(got.text, maxsplit=1)[0].splitlines():
        mark = _COMMIT.match(line)
        if mark:
            changed.update(of_commit)
            of_commit = set()
            commits.append((mark[1], mark[2] or ""))
        elif line.strip() and language_name(line.strip()):
            of_commit.add(line.strip())
    if got.cut and commits:
        commits.pop()
    else:
        changed.update(of_commit)
    if not commits:
        return Findings("history", [["note", "no history: git has no commits here"]], whole=False)
    rows: list[Row] = [
        ["commits", len(commits), commits[0][0], commits[0][1], commits[-1][0], commits[-1][1]]
    ]
    most = sorted(changed.items(), key=lambda kv: (-kv[1], kv[0]))[:MOST_CHURN]
    return Findings("history", [*rows, *(["churn", p, n] for p, n in most)], whole=True)


def reason(text: str) -> str:
    """The line in which git says what is wrong, or else the last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return one_line((fatal or lines)[-1], 120) if lines else "git did not respond"
