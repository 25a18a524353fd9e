"""Answers of `symbols` that need git: the history of a tree, and a review of a change. What the run
may not read is omitted from both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from retinue.syntax.changes.change_set import ChangedFile, ChangeSet, CommitHistory
from retinue.tools.builtin.git_reading import Reader, read_changes, read_history

if TYPE_CHECKING:
    from retinue.syntax.changes.review_facts import ReviewFacts
    from retinue.syntax.syntax_engine import SyntaxEngine
    from retinue.syntax.tree_files import OpenTree

QUESTIONS = ("history", "changes")
MOST_BYTES = 2_000_000
ALL_CHANGED = 400


@dataclass(frozen=True, slots=True)
class GitPlace:
    """The directory that is asked about, the directories that the run may read, and what of the
    files is not there for it."""

    root: str
    given: tuple[str, ...]
    hides: Callable[[str], bool]
    read: Reader


async def ask_git(question: str, text: str, place: GitPlace) -> CommitHistory | ChangeSet:
    """What git says, before it is known which files are source."""
    if question == "history":
        history = await read_history(place.root, place.given)
        changes = {path: n for path, n in history.changes.items() if not place.hides(path)}
        return CommitHistory(
            history.n_commits, history.first, history.last, changes, history.problem
        )
    change = await read_changes(place.root, place.given, text, place.read)
    files = tuple(file for file in change.files if _is_shown(place, file))
    problem = change.problem
    if change.files and not files:
        problem = "this run may not read the files that changed"
    return ChangeSet(change.title, files, change.n_commits, change.is_on_disk, problem)


def _is_shown(place: GitPlace, file: ChangedFile) -> bool:
    return not place.hides(file.path) and not place.hides(file.old_path or file.path)


def reader(files: OpenTree) -> Reader:
    def read(path: str) -> bytes | None:
        try:
            data = files.read(path, MOST_BYTES)
        except (OSError, ValueError):
            return None
        return data if len(data) <= MOST_BYTES else None

    return read


def history_answer(
    engine: SyntaxEngine, files: OpenTree, history: CommitHistory, stop: Event
) -> CommitHistory:
    """Of the history what is about source, the files first that were changed most often."""
    if history.problem:
        return history
    inventory_files = engine.inventory(files, stop=stop).files
    source = [
        (p, n)
        for p, n in history.changes.items()
        if p in inventory_files and inventory_files[p].role == "source"
    ]
    source.sort(key=lambda row: (-row[1], row[0]))
    return CommitHistory(history.n_commits, history.first, history.last, dict(source[:ALL_CHANGED]))


def review_answer(
    engine: SyntaxEngine, files: OpenTree, change_set: ChangeSet, stop: Event
) -> ReviewFacts:
    from retinue.syntax.changes.review import review
    from retinue.syntax.changes.versions import parsed_versions
    from retinue.syntax.source_tree import SourceTree

    if change_set.problem or not change_set.files:
        return review(SourceTree({}), change_set, {})
    tree = engine.read_tree(files, stop)
    return review(tree, change_set, parsed_versions(change_set, stop))
