"""Answers the question `changes`: what a change did to each definition, and what the checks
found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from posixpath import basename

from retinue.syntax.changes.change_set import ChangedFile, ChangeSet
from retinue.syntax.changes.checks import CHECKS, NOT_IN_CHANGELOG
from retinue.syntax.changes.code_tokens import CodeTokens
from retinue.syntax.changes.definition_changes import (
    DefinitionChange,
    Version,
    added_lines,
    compare,
)
from retinue.syntax.changes.review_facts import (
    SEVERITIES,
    ChangeRow,
    ReviewFacts,
    RoleCount,
    UnreadFile,
)
from retinue.syntax.changes.review_input import ReviewedFile, ReviewInput
from retinue.syntax.facts import FileFacts
from retinue.syntax.project.places import Place
from retinue.syntax.roles import content_role, folder_role, place_role
from retinue.syntax.source_languages import language_of
from retinue.syntax.source_tree import SourceTree

LOCKS = re.compile(
    r"(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|uv\.lock|poetry\.lock|"
    r"Pipfile\.lock|Cargo\.lock|go\.sum|composer\.lock|Gemfile\.lock|.*\.lock)$"
)
CHANGELOG = re.compile(r"^(?:CHANGE|NEWS|HISTORY)", re.IGNORECASE)
MOST_BYTES = 2_000_000
OTHER = "other"
ORDER = ("added", "removed", "signature", "body", "value", "comments")
ROLE_ORDER = ("source", "test", "aside", OTHER)
Parsed = dict[tuple[str, str], tuple[FileFacts, CodeTokens]]
"""The facts and tokens of both versions of each file, by path and `old` or `new`."""


def to_parse(changes: ChangeSet) -> list[tuple[tuple[str, str], str, bytes]]:
    """What has to be parsed for a review: path and version, language and bytes."""
    return [
        ((file.path, which), language, data)
        for file in changes.files
        if (language := language_of(file.path)) and not unread(file)
        for which, data in (("old", file.old), ("new", file.new))
        if data is not None
    ]


def unread(file: ChangedFile) -> str:
    """Why a file is not read, or ""."""
    if file.unread:
        return file.unread
    if LOCKS.fullmatch(basename(file.path)):
        return "a lock file"
    data = file.new if file.new is not None else file.old
    if data is None:
        return "too large, or it cannot be read"
    if len(data) > MOST_BYTES:
        return "too large"
    role = content_role(file.path, data) or folder_role(file.path, frozenset())
    return {"": "", "copy": ""}.get(role, role)


def review(tree: SourceTree, changes: ChangeSet, parsed: Parsed) -> ReviewFacts:
    if changes.problem or not changes.files:
        problem = changes.problem or f"nothing changed in {changes.title}"
        return ReviewFacts(title=changes.title, problem=problem)
    files = [_file(tree, file, parsed) for file in changes.files if not unread(file)]
    definition_changes = [c for file in files for c in compare(file.path, file.old, file.new)]
    source = ReviewInput(tree, files, definition_changes, _changelog(tree, files))
    findings, checked = [], []
    for clean, check in CHECKS:
        rows = list(check(source))
        findings += rows
        if not rows and not (clean == NOT_IN_CHANGELOG and source.changelog is None):
            checked.append(clean)
    findings.sort(key=lambda f: (SEVERITIES.index(f.severity), f.place, f.text))
    return ReviewFacts(
        title=changes.title,
        n_commits=changes.n_commits,
        roles=tuple(_roles(changes.files)),
        changes=tuple(_rows(definition_changes, files)),
        findings=tuple(findings),
        checked=tuple(checked),
        notes=tuple(_notes(changes, files)),
        unread=tuple(
            UnreadFile(file.path, why, file.n_added, file.n_removed)
            for file in changes.files
            if (why := unread(file))
        ),
    )


def _file(tree: SourceTree, file: ChangedFile, parsed: Parsed) -> ReviewedFile:
    language = language_of(file.path)

    def version(which: str, data: bytes | None) -> Version | None:
        version_known = parsed.get((file.path, which))
        return (
            Version(language, data, *version_known)
            if version_known is not None and data is not None
            else None
        )

    return ReviewedFile(
        file.path,
        _role(file.path),
        version("old", file.old),
        version("new", file.new),
        tuple(added_lines(file.old, file.new)),
    )


def _role(path: str) -> str:
    return place_role(path) if language_of(path) else OTHER


def _roles(files: Sequence[ChangedFile]) -> list[RoleCount]:
    counts: dict[str, list[ChangedFile]] = {}
    for file in files:
        counts.setdefault(_role(file.path), []).append(file)
    return [
        RoleCount(
            role,
            len(counts[role]),
            sum(file.n_added for file in counts[role]),
            sum(file.n_removed for file in counts[role]),
        )
        for role in ROLE_ORDER
        if role in counts
    ]


def _rows(changes: Sequence[DefinitionChange], files: Sequence[ReviewedFile]) -> list[ChangeRow]:
    """Definitions of one owner with the same change in one row, source before tests."""
    roles = {file.path: file.role for file in files}
    groups: dict[tuple[int, int, str, str, str], list[DefinitionChange]] = {}
    for one in changes:
        key = (
            ROLE_ORDER.index(roles.get(one.path, OTHER)),
            ORDER.index(one.change),
            one.path,
            one.owner if one.owner else "",
            one.note,
        )
        groups.setdefault(key, []).append(one)
    rows = []
    for (_, _, path, owner, note), group in sorted(groups.items(), key=lambda item: item[0]):
        names = [group[0].title, *(f".{c.name}" if owner else c.name for c in group[1:])]
        line = group[0].line
        place = Place(path, line) if line else None
        rows.append(ChangeRow(group[0].change, tuple(names), path, place, note))
    return rows


def _changelog(tree: SourceTree, files: Iterable[ReviewedFile]) -> tuple[str, str] | None:
    """The changelog at the root, and what is new in it."""
    path = next((p for p in sorted(tree.texts) if "/" not in p and CHANGELOG.match(p)), "")
    if not path:
        return None
    new = next((file.added for file in files if file.path == path), ())
    return path, "\n".join(text for _, text in new)


def _notes(changes: ChangeSet, files: Sequence[ReviewedFile]) -> list[str]:
    notes = []
    roles = {file.role for file in files}
    if "source" in roles and "test" in roles:
        notes.append("Source and tests changed together.")
    elif "source" in roles:
        notes.append("Source changed, and no test file did.")
    if not changes.is_on_disk:
        notes.append("Callers were looked up in the files as they are now, not as of this range.")
    return notes
