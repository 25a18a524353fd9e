"""Checks of changed definitions: what still calls them, and which callers were not changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retinue.syntax.changes.definition_changes import DefinitionChange
from retinue.syntax.changes.review_facts import ReviewFinding
from retinue.syntax.changes.review_input import ReviewInput
from retinue.syntax.facts import TYPE_KINDS
from retinue.syntax.project.places import Place

_NAMES = re.compile(r"[A-Za-z_]\w*")


def removed_and_called(source: ReviewInput) -> Iterator[ReviewFinding]:
    for change in source.changes:
        if change.change != "removed" or source.n_defined[change.name]:
            continue
        calls = source.calls(change.name)
        if not calls or (change.kind == "method" and _inherits(change, source)):
            continue
        severity = "medium" if change.kind == "method" else "high"
        by_name = " by that name" if change.kind == "method" else ""
        more = f", and {len(calls) - 1} more" if len(calls) > 1 else ""
        yield ReviewFinding(
            severity,
            calls[0],
            f"`{change.title}` was removed from {change.path} and is still called{by_name}"
            f"{more}; no definition of this name is left.",
        )


def _inherits(change: DefinitionChange, source: ReviewInput) -> bool:
    """Whether the class of a removed method extends something outside the tree, which may have
    one."""
    owner = change.owner.rpartition(".")[2]
    bases = {
        base.rpartition(".")[2]
        for facts in source.tree.parsed.values()
        for one in facts.definitions
        if one.kind in TYPE_KINDS and one.name == owner
        for base in one.bases
    }
    return any(not source.n_defined[base] for base in bases)


def properties(source: ReviewInput) -> Iterator[ReviewFinding]:
    """Python: what was an attribute is a property without a setter, and is still assigned."""
    for change in source.changes:
        new = change.new
        if change.change != "added" or new is None or "property" not in new.marks:
            continue
        n_same = sum(c.title == change.title for c in source.changes)
        pattern = re.compile(rf"\.{re.escape(change.name)}\s*=(?!=)")
        for file in source.files if n_same == 1 else ():
            lines = file.new.data.decode("utf-8", "replace").split("\n") if file.new else []
            for n, text in enumerate(lines, start=1):
                if pattern.search(text) and file.new and n in file.new.tokens.lines:
                    yield ReviewFinding(
                        "medium",
                        Place(file.path, n),
                        f"`.{change.name}` is assigned here, and `{change.title}` "
                        f"({Place(change.path, change.line)}) is a property without a setter now.",
                    )
                    break


def signatures(source: ReviewInput) -> Iterator[ReviewFinding]:
    for change in source.changes:
        if change.change != "signature" or not change.is_public or change.kind in TYPE_KINDS:
            continue
        if source.n_defined[change.name] != 1 or _only_adds_defaults(change, source):
            continue
        outside = [place for place in source.calls(change.name) if place.path not in source.paths]
        if outside:
            n_files = len({place.path for place in outside})
            files = "file that calls" if n_files == 1 else "files that call"
            are = "is" if n_files == 1 else "are"
            yield ReviewFinding(
                "medium",
                Place(change.path, change.line),
                f"the signature of `{change.title}` changed, and {n_files} {files} this "
                f"name {are} not in the change (the first: {outside[0]}).",
            )


def _only_adds_defaults(change: DefinitionChange, source: ReviewInput) -> bool:
    """Whether all parameters of before are there, in their order, and new ones have a default."""
    file = next((f for f in source.files if f.path == change.path), None)
    if file is None or not (file.old and file.new and change.old and change.new):
        return False
    before = _parameters(file.old.signature(change.old))
    after = _parameters(file.new.signature(change.new))
    same = after[: len(before)]
    return [_name(p) for p in same] == [_name(p) for p in before] and all(
        "=" in p or p.startswith("*") for p in after[len(before) :]
    )


def _parameters(signature: str) -> list[str]:
    """The parameters between the first parentheses, split at commas that are in no brackets."""
    inside = signature.partition("(")[2]
    parameters, depth, part = [], 0, ""
    for mark in inside:
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
            if depth < 0:
                break
        if mark == "," and depth == 0:
            parameters.append(part.strip())
            part = ""
        else:
            part += mark
    return [p for p in [*parameters, part.strip()] if p]


def _name(parameter: str) -> str:
    match = _NAMES.search(parameter)
    return match[0] if match else parameter


def defaults(source: ReviewInput) -> Iterator[ReviewFinding]:
    for change in source.changes:
        role = next((f.role for f in source.files if f.path == change.path), "")
        if change.change == "value" and change.owner and change.is_public and role == "source":
            yield ReviewFinding(
                "low",
                Place(change.path, change.line),
                f"the default of a public attribute changed: `{change.title}`"
                f"{f', {change.note}' if change.note else ''}.",
            )


def _is_left(change: DefinitionChange, source: ReviewInput) -> bool:
    """Whether another definition has the name that was removed: an overload, say."""
    return any(
        file.path == change.path
        and file.new is not None
        and (change.owner, change.name, 0) in file.new.definitions
        for file in source.files
    )


def changelog(source: ReviewInput) -> Iterator[ReviewFinding]:
    """Public signatures that changed, or were removed, and that the changelog does not name."""
    if source.changelog is None:
        return
    path, text = source.changelog
    for change in source.changes:
        is_source = any(f.path == change.path and f.role == "source" for f in source.files)
        if change.change not in ("signature", "removed") or not is_source or not change.is_public:
            continue
        if change.change == "removed" and _is_left(change, source):
            continue
        if not re.search(rf"\b{re.escape(change.name)}\b", text):
            place = Place(change.path, max(1, change.line))
            what = "signature changed" if change.change == "signature" else "definition was removed"
            yield ReviewFinding(
                "low", place, f"a public {what}, `{change.title}`, and {path} does not name it."
            )
