"""Two versions of a file, definition by definition: added, removed, another signature, another
body, another value, or other comments only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from retinue.syntax.changes.code_tokens import CodeTokens, Span
from retinue.syntax.facts import TYPE_KINDS, DefinitionSite, FileFacts

Change = Literal["added", "removed", "signature", "body", "value", "comments"]
LONGEST = 60
Key = tuple[str, str, int]
Sites = dict[Key, DefinitionSite]


@dataclass(frozen=True)
class Version:
    """One version of a file: its bytes and what they say."""

    language: str
    data: bytes
    facts: FileFacts
    tokens: CodeTokens

    @cached_property
    def definitions(self) -> Sites:
        """By owner, name and how often both came before. Local ones belong to what is around."""
        counts: Counter[tuple[str, str]] = Counter()
        sites = {}
        for one in self.facts.definitions:
            if "local" not in one.marks and "declared" not in one.marks:
                key = (one.owner, one.name)
                sites[*key, counts[key]] = one
                counts[key] += 1
        return sites

    def head(self, one: DefinitionSite) -> list[bytes]:
        return self.tokens.between((one.start, one.body))

    def body(self, one: DefinitionSite) -> list[bytes]:
        """What follows the head, without the definitions in it and the values that it sets."""
        return self.tokens.between((one.body, one.stop), self._inside(one))

    def raw(self, one: DefinitionSite) -> bytes:
        inside = sorted(self._inside(one))
        pieces, at = b"", one.start
        for start, stop in inside:
            pieces += self.data[at:start]
            at = max(at, stop)
        return pieces + self.data[at : one.stop]

    def _inside(self, one: DefinitionSite) -> list[Span]:
        if one.kind not in TYPE_KINDS | {"module", "namespace"}:
            return []
        others = [
            (d.start, d.stop)
            for d in self.definitions.values()
            if d is not one and one.start <= d.start and d.stop <= one.stop
        ]
        title = f"{one.owner}.{one.name}" if one.owner else one.name
        return others + [(v.start, v.stop) for v in self.tokens.values if v.owner == title]

    def signature(self, one: DefinitionSite) -> str:
        return " ".join(self.data[one.start : one.body].decode("utf-8", "replace").split())


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """`line` is in the new version; of what was removed it is the line of its owner, or 0."""

    change: Change
    kind: str
    owner: str
    name: str
    path: str
    line: int
    note: str = ""
    old: DefinitionSite | None = field(default=None, compare=False)
    new: DefinitionSite | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.title.split("."))


def compare(path: str, old: Version | None, new: Version | None) -> list[DefinitionChange]:
    """What a change did to the definitions of one file."""
    before = old.definitions if old is not None else {}
    after = new.definitions if new is not None else {}
    if old is not None and new is not None:
        after = _paired(old, new)
    owners = {one.title: one.line for one in after.values()}
    changes = [
        DefinitionChange("added", one.kind, one.owner, one.name, path, one.line, new=one)
        for key, one in after.items()
        if key not in before and not _is_inside_new(one, before, after)
    ]
    changes += [
        DefinitionChange(
            "removed", one.kind, one.owner, one.name, path, owners.get(one.owner, 0), old=one
        )
        for key, one in before.items()
        if key not in after and not _is_inside_new(one, after, before)
    ]
    if old is not None and new is not None:
        for key, one in after.items():
            if key in before and (changed := _changed(path, (old, before[key]), (new, one))):
                changes.append(changed)
        changes += _values(path, old, new)
    return sorted(changes, key=lambda change: (change.line, change.title))


def _paired(old: Version, new: Version) -> Sites:
    """The definitions of the new version, each under the key of the old one that it continues. Of
    several with one name, such as overloads, those that are the same belong together; the others
    follow in order."""
    groups: dict[tuple[str, str], list[Key]] = {}
    for key in old.definitions:
        groups.setdefault(key[:2], []).append(key)
    later: dict[tuple[str, str], list[DefinitionSite]] = {}
    for key, one in new.definitions.items():
        later.setdefault(key[:2], []).append(one)
    out: dict[int, Key] = {}
    for name, sites in later.items():
        free = list(groups.get(name, ()))
        if len(sites) > 1 or len(free) > 1:
            for look in (Version.raw, Version.head):
                for one in [site for site in sites if site.start not in out]:
                    same = (k for k in free if look(old, old.definitions[k]) == look(new, one))
                    if (match := next(same, None)) is not None:
                        free.remove(match)
                        out[one.start] = match
        n_old = len(groups.get(name, ()))
        rest = [*free, *((*name, n) for n in range(n_old, n_old + len(sites)))]
        for one in sites:
            if one.start not in out:
                out[one.start] = rest.pop(0)
    return {out[one.start]: one for one in new.definitions.values()}


def _is_inside_new(one: DefinitionSite, other: Sites, own: Sites) -> bool:
    """Whether its owner is new (or gone) as well, which says enough."""
    titles = {d.title for d in other.values()}
    known_titles = {d.title for d in own.values()}
    return bool(one.owner) and one.owner in known_titles and one.owner not in titles


def _changed(
    path: str, before: tuple[Version, DefinitionSite], after: tuple[Version, DefinitionSite]
) -> DefinitionChange | None:
    (old, was), (new, one) = before, after
    if old.raw(was) == new.raw(one):
        return None
    change: Change = "comments"
    note = ""
    if old.head(was) != new.head(one):
        change = "signature"
        a, b = old.signature(was), new.signature(one)
        note = f"`{a}` is now `{b}`" if len(a) <= LONGEST and len(b) <= LONGEST else ""
    elif old.body(was) != new.body(one):
        change = "body"
    elif old.raw(was).split() == new.raw(one).split():
        return None
    return DefinitionChange(change, one.kind, one.owner, one.name, path, one.line, note, was, one)


def _values(path: str, old: Version, new: Version) -> Iterator[DefinitionChange]:
    """Names of a module or class that are set to something else."""
    values = {(value.owner, value.name): value for value in old.tokens.values}
    for value in new.tokens.values:
        before = values.get((value.owner, value.name))
        if before is None or before.text == value.text:
            continue
        is_short = max(len(before.text), len(value.text)) <= LONGEST
        note = f"`{before.text}` is now `{value.text}`" if is_short else ""
        yield DefinitionChange("value", "value", value.owner, value.name, path, value.line, note)


def added_lines(old: bytes | None, new: bytes | None) -> list[tuple[int, str]]:
    """The lines of a version that the one before did not have, with their numbers."""
    from difflib import SequenceMatcher

    a = (old or b"").decode("utf-8", "replace").split("\n")
    b = (new or b"").decode("utf-8", "replace").split("\n")
    first = 0
    while first < min(len(a), len(b)) and a[first] == b[first]:
        first += 1
    last = 0
    while last < min(len(a), len(b)) - first and a[-1 - last] == b[-1 - last]:
        last += 1
    middle = SequenceMatcher(None, _part(a, first, last), _part(b, first, last), autojunk=False)
    return [
        (first + n + 1, b[first + n])
        for tag, _, _, start, stop in middle.get_opcodes()
        if tag in ("insert", "replace")
        for n in range(start, stop)
    ]


def _part(lines: Sequence[str], first: int, last: int) -> Sequence[str]:
    return lines[first : len(lines) - last]
