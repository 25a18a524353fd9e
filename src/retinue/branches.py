"""The branches that runs in worktrees have left: lists them, shows their changes, and
merges them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from retinue.core.merges import BranchMerge, WriterCopy, branch_name
from retinue.core.spec import RunSpec
from retinue.core.state import Ended, ending_of
from retinue.errors import Refused, RetinueError
from retinue.run_info import RunBranch
from retinue.sandbox.branch_diff import BranchDiff
from retinue.sandbox.writer_merges import BY_PERSON, diffs, foreseen
from retinue.steps import Steps
from retinue.tools.checked_verbs import checks_arguments
from retinue.tree_record import RunRecord


@checks_arguments
class Branches(Steps):
    """The part of `Retinue` that deals with branches of runs."""

    async def branches(self, run: str) -> Sequence[RunBranch]:
        """The copies of a run and of all runs below it, oldest first."""
        rows = [r for r in (await self.tree_record(run)).rows if r.spec.request.isolation]
        listing = []
        for row in rows:
            there = await self._on_branch(row.spec)
            is_open = not isinstance(row.run.state, Ended)
            state: Literal["open", "kept", "gone"] = "gone" if there is None else "kept"
            ending = ending_of(row.run)
            listing.append(
                RunBranch(
                    run=row.spec.id,
                    label=row.spec.request.name,
                    branch=_branch(row.spec),
                    place=self._source(row.spec),
                    state="open" if is_open else state,
                    work=None if ending is None else ending.work,
                )
            )
        return await self._with_merges(listing, {row.spec.id: row.spec for row in rows})

    async def _with_merges(
        self, listing: Sequence[RunBranch], specs: Mapping[str, RunSpec]
    ) -> Sequence[RunBranch]:
        merges: dict[str, BranchMerge] = {}
        branches = [one for one in listing if one.state == "kept"]
        for place in dict.fromkeys(one.place for one in branches):
            copies = [self._copy(specs[one.run]) for one in branches if one.place == place]
            with contextlib.suppress(RetinueError, OSError):  # then nothing is foreseen
                merges |= await foreseen(place, copies)
        return [msgspec.structs.replace(one, merge=merges.get(one.run)) for one in listing]

    async def diff(self, run: str) -> bytes:
        """What a run has changed in its copy, as a diff: until now, or until its end."""
        row = await self._isolated(run)
        spec, ending = row.spec, ending_of(row.run)
        if ending is None:
            work = await self._builtin.worktrees.changes(spec.id, spec.request.task)
        else:
            work = await self._on_branch(spec)
        if work is not None:
            return self._engine.redactor.clean_bytes(work.diff)
        if ending is not None and ending.work is not None:
            return await self._store.get_artifact(ending.work.diff, 0, None)
        return b""

    async def merge(self, run: str) -> BranchMerge:
        """Merge what an ended run has left on its branch into the files of the directory for which
        it worked. With a conflict nothing is changed."""
        row = await self._isolated(run)
        if not isinstance(row.run.state, Ended):
            raise Refused("merge", f"Run {run} is still open. Wait for it, or cancel it.")
        spec, key = row.spec, f"{run}.{BY_PERSON}"
        (merged,) = await self._builtin.merge(key, (self._copy(spec),))
        self._builtin.merges.forget(key)
        return merged

    async def _isolated(self, run: str) -> RunRecord:
        row = await self._row(run)
        if not row.spec.request.isolation:
            where = self._source(row.spec)
            raise Refused("copy", f"Run {run} had no copy of its own: it worked in {where} itself.")
        return row

    async def _on_branch(self, spec: RunSpec) -> BranchDiff | None:
        try:
            branches = await diffs(self._source(spec), {spec.id: self._copy(spec)})
        except RetinueError:  # the repository has gone
            return None
        return branches.get(spec.id)

    def _copy(self, spec: RunSpec) -> WriterCopy:
        label = spec.request.label or spec.request.agent
        place = self._source(spec)
        return WriterCopy(run=spec.id, label=label, base=spec.request.copy_of, place=place)

    def _source(self, spec: RunSpec) -> str:
        return spec.request.cwd or self._engine.home


def _branch(spec: RunSpec) -> str:
    return branch_name(spec.request.label or spec.request.agent, spec.id)
