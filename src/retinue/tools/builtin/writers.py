"""One writer per directory: whoever writes first holds it until its run ends.

A run and its descendants may write in the same place, for the one waits for the other or has sent it there; two that
do not stand in line would overwrite each other's work.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from retinue.tools.base import Caller


@dataclass(frozen=True, slots=True)
class Lease:
    directories: tuple[str, ...]
    run: str
    root: str
    path: str
    label: str


class Writers:
    """The leases of one runtime. Nothing here is durable: after a restart whoever goes on writing takes it again."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}

    def take(self, caller: Caller) -> str:
        """ "" when the caller may write in its directories from now on, otherwise who writes there."""
        spec = caller.spec
        wanted = (caller.root,) if caller.held.write is None else caller.held.write
        places = tuple(os.path.realpath(place) for place in wanted)
        mine = Lease(places, spec.id, spec.root, spec.path, spec.order.label or spec.order.agent)
        for other in self._leases.values():
            shared = _overlap(other.directories, mine.directories)
            if shared and other.run != mine.run and not _in_line(other, mine):
                return (
                    f"{other.label} (run {other.run}) is writing in {shared}, and two writers would undo each other's "
                    f"work. Wait for its end, or have this done by a child with isolation 'worktree'."
                )
        self._leases[mine.run] = mine
        return ""

    def over(self, run: str) -> None:
        self._leases.pop(run, None)


def _overlap(a: tuple[str, ...], b: tuple[str, ...]) -> str:
    """A directory of `a` that is, holds or lies in one of `b`."""
    for mine in a:
        for theirs in b:
            one, two = f"{mine.rstrip('/')}/", f"{theirs.rstrip('/')}/"
            if one.startswith(two) or two.startswith(one):
                return mine
    return ""


def _in_line(a: Lease, b: Lease) -> bool:
    """Whether one of the two runs is an ancestor of the other."""
    return a.root == b.root and (f"{a.path}/".startswith(f"{b.path}/") or f"{b.path}/".startswith(f"{a.path}/"))
