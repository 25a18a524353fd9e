"""What a cluster looks like at a moment: its workers, what each drives, and what waits."""

from __future__ import annotations

import msgspec


class WorkerLine(msgspec.Struct, frozen=True):
    """`lease_seconds`: what is left of its lease; below 0 its trees are free to be taken."""

    id: str
    name: str
    version: str
    is_draining: bool
    lease_seconds: float
    trees: int

    @property
    def state(self) -> str:
        if self.lease_seconds <= 0:
            return "silent"
        return "draining" if self.is_draining else "up"


class LaneLine(msgspec.Struct, frozen=True):
    name: str
    size: int
    held: int
    waiting: int


class NeedLine(msgspec.Struct, frozen=True):
    """So many `trees` wait for a worker with this label or directory; so many `workers` offer the
    label (of directories that is not known)."""

    name: str
    trees: int
    workers: int


class AccountLine(msgspec.Struct, frozen=True):
    """An account at a provider: calls under way, and how long it is left alone."""

    name: str
    calls: int
    paused_seconds: float
    why: str


class ClusterStatus(msgspec.Struct, frozen=True):
    """`without_owner`: trees whose worker is gone. `due`: trees whose time has come and that no
    worker has; `late_seconds` is how long the first of them waits, and `stuck` counts those that
    wait for more than half a minute. `too_new`: trees that a newer version has driven, so that
    workers of older ones leave them alone. `events` wait to be taken in, the first of them for
    `oldest_seconds`."""

    workers: tuple[WorkerLine, ...]
    lanes: tuple[LaneLine, ...]
    open_trees: int
    driven: int
    without_owner: int
    due: int
    late_seconds: float
    stuck: int
    too_new: int
    inbox: int
    oldest_seconds: float
    needs: tuple[NeedLine, ...] = ()
    accounts: tuple[AccountLine, ...] = ()
