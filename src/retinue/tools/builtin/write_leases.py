"""One writer per directory: whoever writes first holds it until its run ends.

A run and its descendants may write in the same place, for the one waits for the other or has sent
it there; two that do not stand in line would overwrite each other's work. A directory is known by
what was opened, not by its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from retinue.errors import NotFound, Refused
from retinue.sandbox.paths import real_path
from retinue.tools.base import Caller


@dataclass(frozen=True, slots=True)
class WriteLease:
    """`directories` are descriptors: a directory that is moved meanwhile is still the same."""

    directories: tuple[int, ...]
    run: str
    root: str
    path: str
    label: str

    def close(self) -> None:
        for fd in self.directories:
            os.close(fd)


class WriteLeases:
    """The leases of one runtime. Nothing here is durable: after a restart whoever goes on writing
    takes it again."""

    def __init__(self) -> None:
        self._leases: dict[str, WriteLease] = {}

    def take(self, caller: Caller) -> str:
        """ "" when the caller may write in its directories from now on, otherwise who writes
        there."""
        spec = caller.spec
        try:
            opened = _opened(caller)
        except Refused as error:
            return str(error)
        mine = WriteLease(
            opened, spec.id, spec.root, spec.path, spec.order.label or spec.order.agent
        )
        others = [o for o in self._leases.values() if o.run != mine.run and not _in_line(o, mine)]
        wanted = [real_path(fd) for fd in mine.directories] if others else []
        for other in others:
            if shared := _overlap([real_path(fd) for fd in other.directories], wanted):
                mine.close()
                return (
                    f"{other.label} (run {other.run}) is already writing in {shared}. "
                    "Only one run may write there at a time. Wait until it ends, or give "
                    "this task to a child with isolation 'worktree'."
                )
        self.over(mine.run)
        self._leases[mine.run] = mine
        return ""

    def over(self, run: str) -> None:
        if (lease := self._leases.pop(run, None)) is not None:
            lease.close()

    def close(self) -> None:
        for run in list(self._leases):
            self.over(run)


def _opened(caller: Caller) -> tuple[int, ...]:
    with caller.opening() as (mine, holding):
        found: list[int] = []
        try:
            for path in (mine.root,) if mine.held.write is None else mine.held.write:
                with suppress(NotFound):  # nobody writes there
                    found.append(holding.open(path))
        except BaseException:
            for fd in found:
                os.close(fd)
            raise
        return tuple(found)


def _overlap(a: Sequence[str], b: Sequence[str]) -> str:
    """A directory of `a` that is, holds or lies in one of `b`."""
    for mine in a:
        for theirs in b:
            one, two = f"{mine.rstrip('/')}/", f"{theirs.rstrip('/')}/"
            if one.startswith(two) or two.startswith(one):
                return mine
    return ""


def _in_line(a: WriteLease, b: WriteLease) -> bool:
    """Whether one of the two runs is an ancestor of the other."""
    return a.root == b.root and (
        f"{a.path}/".startswith(f"{b.path}/") or f"{b.path}/".startswith(f"{a.path}/")
    )
