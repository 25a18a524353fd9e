"""A change as values: each file before and after, and its new lines. History, too."""

from __future__ import annotations

from msgspec import Struct


class ChangedFile(Struct, frozen=True):
    """`old` and `new` are its bytes, None where there is no such file. `added` are the new lines
    with their numbers. `unread` says why it was not read, if it was not."""

    path: str
    old_path: str = ""
    old: bytes | None = None
    new: bytes | None = None
    n_added: int = 0
    n_removed: int = 0
    unread: str = ""


class ChangeSet(Struct, frozen=True):
    """`title` says what was compared; `is_on_disk`: what is new are the files as they lie there
    now. `problem` says why there is nothing to compare."""

    title: str = ""
    files: tuple[ChangedFile, ...] = ()
    n_commits: int = 0
    is_on_disk: bool = True
    problem: str = ""


class CommitHistory(Struct, frozen=True):
    """The last commits that are no merges: how many, their dates, and how many of them changed each
    file. `problem` says why there is none."""

    n_commits: int = 0
    first: str = ""
    last: str = ""
    changes: dict[str, int] = {}
    problem: str = ""
