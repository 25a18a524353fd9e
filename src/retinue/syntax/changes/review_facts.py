"""The content of a review, as JSON values."""

from __future__ import annotations

from msgspec import Struct

from retinue.syntax.project.places import Place

SEVERITIES = ("high", "medium", "low", "info")


class ReviewFinding(Struct, frozen=True):
    severity: str
    place: Place
    text: str


class ChangeRow(Struct, frozen=True):
    """Definitions of one owner that were changed in the same way. `place` is None for what is gone
    with its file."""

    change: str
    names: tuple[str, ...]
    path: str
    place: Place | None = None
    note: str = ""


class RoleCount(Struct, frozen=True):
    role: str
    n_files: int
    n_added: int
    n_removed: int


class UnreadFile(Struct, frozen=True):
    path: str
    why: str
    n_added: int
    n_removed: int


class ReviewFacts(Struct, frozen=True):
    """`problem`: why nothing was reviewed. `checked` are the checks that found nothing, `notes`
    what else is to be said."""

    title: str = ""
    problem: str = ""
    n_commits: int = 0
    roles: tuple[RoleCount, ...] = ()
    changes: tuple[ChangeRow, ...] = ()
    findings: tuple[ReviewFinding, ...] = ()
    checked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[UnreadFile, ...] = ()
