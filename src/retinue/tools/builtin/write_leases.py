"""One writer per directory: the first run that writes has the lease until the run ends.

A run and its descendants may write in the same place, because one waits for the other or has sent
it there; two unrelated runs would overwrite each other's work. A directory is known by what was
opened, not by its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from retinue.errors import NotFound, Refused
from retinue.sandbox.paths import real_path
from retinue.tools.base import Context


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
    """The leases of one runtime. Nothing here is durable: after a restart a run that continues
    writing takes the lease again."""

    def __init__(self) -> None:
        self._leases: dict[str, WriteLease] = {}

    def take(self, context: Context) -> str:
        """ "" if the calling run may write in its directories from now on, otherwise which run
        writes there."""
        return self._try(context, keep=True)

    def refusal(self, context: Context) -> str:
        """The same answer, without taking anything."""
        return self._try(context, keep=False)

    def _try(self, context: Context, *, keep: bool) -> str:
        spec = context.spec
        try:
            opened = _opened(context)
        except Refused as error:
            return str(error)
        mine = WriteLease(
            opened, spec.id, spec.root, spec.path, spec.request.label or spec.request.agent
        )
        others = [o for o in self._leases.values() if o.run != mine.run and not _in_line(o, mine)]
        paths = [real_path(fd) for fd in mine.directories] if others else []
        for other in others:
            if shared := _overlap([real_path(fd) for fd in other.directories], paths):
                mine.close()
                return (
                    f"{other.label} (run {other.run}) is already writing in {shared}. "
                    "Only one run may write there at a time. Wait until it ends, or give "
                    "this task to a child with isolation 'worktree'."
                )
        if keep:
            self.over(mine.run)
            self._leases[mine.run] = mine
        else:
            mine.close()
        return ""

    def over(self, run: str) -> None:
        if (lease := self._leases.pop(run, None)) is not None:
            lease.close()

    def close(self) -> None:
        for run in list(self._leases):
            self.over(run)


def _opened(context: Context) -> tuple[int, ...]:
    with context.opening() as (mine, holding):
        fds: list[int] = []
        try:
            for path in (mine.root,) if mine.permissions.write is None else mine.permissions.write:
                with suppress(NotFound):  # no one writes there
                    fds.append(holding.open(path))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return tuple(fds)


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
