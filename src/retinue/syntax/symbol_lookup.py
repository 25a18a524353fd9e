"""Looks a name up exactly: definitions, then what imports, extends and calls it by syntax, then
where the word occurs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from retinue.syntax.facts import CALLABLE_KINDS, TYPE_KINDS, CallSite, DefinitionSite
from retinue.syntax.question_words import last_name
from retinue.syntax.source_languages import call_family
from retinue.syntax.source_tree import PARSED_ROLES, SourceTree, TreeFile
from retinue.syntax.symbol_answers import FoundDefinition, FoundPlace, NameAnswer

MOST_CALLS, MOST_PLACES, MOST_ALL = 30, 20, 2_000
MOST_LINE = 200
ROLE_ORDER = {role: n for n, role in enumerate(("source", "test", "aside", "no grammar"))}
READ = (*PARSED_ROLES, "no grammar")
DECLARED_IN = ("c", "cpp")
Texts = Mapping[str, bytes]


class NameLookup:
    """One name in the files that have its word. `texts` are their bytes."""

    def __init__(self, tree: SourceTree, name: str, texts: Texts, n_parsed: int) -> None:
        self.name, self._tree, self._n_parsed = name, tree, n_parsed
        self._owner, self._word = last_name(name)
        self._texts = texts
        whole = rb"(?<![\w$])" + re.escape(self._word.encode()) + rb"(?![\w$])"
        self._pattern = re.compile(whole)
        self._lines: dict[str, list[bytes]] = {}
        files = sorted(texts, key=lambda p: (ROLE_ORDER.get(tree.files[p].role, 9), p))
        self._files = [tree.files[p] for p in files]

    def answer(self, near: Sequence[FoundDefinition], *, full: bool) -> NameAnswer:
        most = MOST_ALL if full else MOST_PLACES
        every = self._definitions(lambda d: d.name == self._word)
        mine = [d for d in every if self._is_owned(d)]
        imports = self._imports()
        extended = self._extended()
        calls = self._calls({call_family(d.language) for d in mine})
        paths = {p.path for p in (*imports, *calls)} | {d.path for d in every}
        mentions, elsewhere = self._mentions()
        is_value = not calls and any(d.kind in CALLABLE_KINDS for d in mine)
        return NameAnswer(
            name=self.name,
            n_parsed=self._n_parsed,
            definitions=tuple(mine[:most]),
            n_definitions=len(mine),
            shared=tuple(d for d in every if d not in mine)[:most],
            declared=tuple(self._declared(calls)[:5]),
            imports=tuple(imports[:most]),
            n_imports=_by_role(imports),
            extended=tuple(extended[:most]),
            n_extended=_by_role(extended),
            calls=tuple(calls[: MOST_ALL if full else MOST_CALLS]),
            n_calls=_by_role(calls),
            n_call_files=len({c.path for c in calls}),
            named=tuple(self._named(paths)[:most]) if full or is_value else (),
            mentions=mentions,
            elsewhere=elsewhere,
            near=tuple(near) or self._near(),
            at_least=tuple(f.path for f in self._files if f.facts and f.facts.errors),
            languages=tuple(sorted({f.language for f in self._files if f.language})),
        )

    def _is_owned(self, one: FoundDefinition) -> bool:
        if not self._owner:
            return True
        owner = one.title.rpartition(".")[0].replace("::", ".")
        return f".{owner}".endswith(f".{self._owner}") or one.path.removesuffix(".py").replace(
            "/", "."
        ).endswith(self._owner)

    def _definitions(self, condition: Callable[[DefinitionSite], bool]) -> list[FoundDefinition]:
        return [
            found_definition(file, one, self._texts.get(file.path, b""))
            for file in self._files
            for one in (file.facts.definitions if file.facts is not None else ())
            if condition(one)
        ]

    def _near(self) -> tuple[FoundDefinition, ...]:
        """Longer names with the same ending, of types, among the files that have the word."""
        kinds = {d.kind for d in self._definitions(lambda d: d.name == self._word)}
        if not kinds or kinds <= {"function", "method"}:
            return ()
        near = self._definitions(lambda d: d.name.endswith(self._word) and d.name != self._word)
        return tuple(d for d in near if d.kind in kinds and d.role == "source")[:3]

    def _line(self, file: TreeFile, line: int) -> str:
        if file.path not in self._lines:
            self._lines[file.path] = self._texts[file.path].split(b"\n")
        rows = self._lines[file.path]
        raw = rows[line - 1] if 0 < line <= len(rows) else b""
        return raw.decode("utf-8", "replace").strip()

    def _place(self, file: TreeFile, line: int, around: str = "") -> FoundPlace:
        text = self._line(file, line)
        if len(text) > MOST_LINE:
            text = text[:MOST_LINE].rpartition(" ")[0]
        return FoundPlace(file.path, line, text, around, file.role)

    def _imports(self) -> list[FoundPlace]:
        return [
            self._place(file, site.line)
            for file in self._files
            if file.facts is not None
            for site in file.facts.imports
            if self._word in site.names
        ]

    def _extended(self) -> list[FoundPlace]:
        return [
            self._place(file, one.line, one.title)
            for file in self._files
            if file.facts is not None
            for one in file.facts.definitions
            if one.kind in TYPE_KINDS and self._has_base(file, one)
        ]

    def _has_base(self, file: TreeFile, one: DefinitionSite) -> bool:
        """Among its bases, or inside one of them: `Base.of(Name)`."""
        head = self._texts[file.path][one.start : one.body]
        _, _, behind = head.partition(one.name.encode())
        return self._word in one.bases or (
            bool(one.bases) and self._pattern.search(behind) is not None
        )

    def _calls(self, families: Set[str]) -> list[FoundPlace]:
        """In languages in which a definition of the name can be called; in all, if there is
        none."""
        return [
            self._place(file, call.line, around_call(file, call))
            for file in self._files
            if file.facts is not None and (not families or call_family(file.language) in families)
            for call in file.facts.calls
            if call.name == self._word
        ]

    def _declared(self, calls: Sequence[FoundPlace]) -> list[FoundPlace]:
        """Lines of C outside of every definition that have the name and a parenthesis behind."""
        call_lines = {(c.path, c.line) for c in calls}
        out: list[FoundPlace] = []
        for file in self._files:
            if file.language not in DECLARED_IN or file.facts is None:
                continue
            data = self._texts[file.path]
            for match in re.finditer(self._pattern.pattern + rb"\s*\(", data):
                at = match.start()
                line = data.count(b"\n", 0, at) + 1
                is_inside = any(d.start <= at < d.stop for d in file.facts.definitions)
                if not is_inside and (file.path, line) not in call_lines:
                    out.append(self._place(file, line))
        return out

    def _named(self, names: set[str]) -> list[FoundPlace]:
        """The first place in each file that has the word otherwise: as a value, in a comment."""
        out: list[FoundPlace] = []
        for file in self._files:
            if file.role in PARSED_ROLES and file.path not in names:
                match = self._pattern.search(self._texts[file.path])
                if match is not None:
                    line = self._texts[file.path].count(b"\n", 0, match.start()) + 1
                    out.append(self._place(file, line))
        return out

    def _mentions(self) -> tuple[dict[str, int], dict[str, int]]:
        roles = Counter(f.role for f in self._files)
        folders = Counter(
            f"{f.path.split('/')[0]}/" if "/" in f.path else "the top folder"
            for f in self._files
            if f.role == "no grammar"
        )
        return (
            dict(sorted(roles.items())),
            dict(sorted(folders.items(), key=lambda i: (-i[1], i[0]))[:6]),
        )


def found_definition(
    file: TreeFile, one: DefinitionSite, data: bytes = b"", score: float = 0.0
) -> FoundDefinition:
    facts = file.facts
    members: Counter[str] = Counter()
    if facts is not None and one.kind not in ("function", "method"):
        members.update(d.kind for d in facts.definitions if d.owner == one.title)
    return FoundDefinition(
        path=file.path,
        line=one.line,
        end=one.end,
        kind=one.kind,
        title=one.title,
        head=_head(one, data),
        doc=one.doc,
        doc_line=one.doc_line,
        role=file.role,
        language=file.language,
        members=dict(sorted(members.items())),
        bases=one.bases,
        score=score,
    )


def _head(one: DefinitionSite, data: bytes) -> str:
    """The definition up to its body, on one line, from the line of its name."""
    if not data:
        return ""
    raw = data[one.start : max(one.body, one.start)].decode("utf-8", "replace")
    rows = raw.split("\n")
    first = data.count(b"\n", 0, one.start) + 1
    rows = rows[max(0, one.line - first) :] if one.line - first < len(rows) else rows
    text = " ".join(" ".join(rows).split()).rstrip(" {:=")
    return text if len(text) <= MOST_LINE else f"{text[:MOST_LINE].rpartition(' ')[0]} ..."


def around_call(file: TreeFile, call: CallSite) -> str:
    """The function around a call; outside of one the type, or nothing at the level of the file."""
    if file.facts is None:
        return ""
    if (one := file.facts.around(call)) is not None:
        return one.title
    types = [
        d for d in file.facts.definitions if d.kind in TYPE_KINDS and d.line <= call.line <= d.end
    ]
    return max(types, key=lambda d: (d.line, d.start)).title if types else ""


def _by_role(places: Sequence[FoundPlace]) -> dict[str, int]:
    return dict(sorted(Counter(p.role for p in places).items()))
