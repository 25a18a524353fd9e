"""One writer per directory: whoever writes first holds it until its run ends.

A run and its descendants may write in the same place, for the one waits for the other or has sent it there; two that
do not stand in line would overwrite each other's work.
"""

from __future__ import annotations

from dataclasses import dataclass

from retinue.tools.base import Caller


@dataclass(frozen=True, slots=True)
class Lease:
    directory: str
    run: str
    root: str
    path: str
    label: str


class Writers:
    """The leases of one runtime. Nothing here is durable: after a restart whoever goes on writing takes it again."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}

    def take(self, caller: Caller) -> str:
        """ "" when the caller may write in its directory from now on, otherwise who writes there."""
        spec = caller.spec
        mine = Lease(caller.root, spec.id, spec.root, spec.path, spec.order.label or spec.order.agent)
        for other in self._leases.values():
            if other.run != mine.run and _overlap(other.directory, mine.directory) and not _in_line(other, mine):
                return (
                    f"{other.label} (run {other.run}) is writing in {other.directory}, and two writers would undo each "
                    f"other's work. Wait for its end, or have this done by a child with isolation 'worktree'."
                )
        self._leases.setdefault(mine.run, mine)
        return ""

    def over(self, run: str) -> None:
        self._leases.pop(run, None)


def _overlap(a: str, b: str) -> bool:
    return f"{a.rstrip('/')}/".startswith(f"{b.rstrip('/')}/") or f"{b.rstrip('/')}/".startswith(f"{a.rstrip('/')}/")


def _in_line(a: Lease, b: Lease) -> bool:
    """Whether one of the two runs is an ancestor of the other."""
    return a.root == b.root and (f"{a.path}/".startswith(f"{b.path}/") or f"{b.path}/".startswith(f"{a.path}/"))
