"""Merges what writers changed in their worktrees into their parent's files.

Theory of operation. When all joined children of a turn are back and no tool of it is running,
their changes are merged, in the order of the calls and of the tasks of each, by one effect. The
bits `OpenCalls.merged` say for which calls that is done, and only then do they get their
results. After a restart it is asked for again where they do not, under the same key: what was
done is not done twice."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.effects import Merge
from retinue.core.events import Merged
from retinue.core.fan_in import Fan, FanIn
from retinue.core.merges import WriterCopy, branch_name, merge_note
from retinue.core.spec import RunSpec
from retinue.core.state import OpenCalls, Run
from retinue.core.step_context import StepContext
from retinue.core.turn import post
from retinue.core.values import Mail

UNMERGED = (
    "The changes of {label} are not merged, because you went on without waiting for it. They are "
    "on branch {branch}, if there are any."
)


def is_unmerged(fan: Fan, calls: OpenCalls, index: int) -> bool:
    """Whether the results of a call have to wait until its children's changes are merged."""
    return bool(fan.copies) and not calls.merged >> index & 1


def merge_copies(run: Run, ctx: StepContext, calls: OpenCalls) -> None:
    """Have the changes of the turn's writers merged, once all of them are back and nothing that
    could change files is running."""
    fan_in = ctx.tree.fans.get(run.id)
    busy = calls.tools | calls.woken | calls.parked | calls.asks
    if fan_in is None or fan_in.is_merging or busy or calls.lost:
        return
    waiting = {i: f for i, f in sorted(fan_in.fans.items()) if is_unmerged(f, calls, i)}
    if not waiting or any(fan.pending for fan in fan_in.fans.values()):
        return
    copies = tuple(copy for fan in waiting.values() for copy in _copies(run, ctx, fan))
    key = f"{run.id}.{run.turn}-{next(iter(waiting))}"
    ctx.perform(Merge(run=run.id, turn=run.turn, indices=tuple(waiting), copies=copies, key=key))
    fan_in.is_merging, fan_in.merging_since = True, ctx.tree.shared.epoch
    fan_in.composing += 1


def forget_merge(run: Run, ctx: StepContext, epoch: int) -> None:
    """A merge that an earlier process had started is no longer under way."""
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is not None and fan_in.is_merging and fan_in.merging_since < epoch:
        fan_in.is_merging = False
        fan_in.composing -= 1


def _copies(run: Run, ctx: StepContext, fan: Fan) -> list[WriterCopy]:
    cwd, bounds = ctx.tree.specs[run.id].request.cwd, ctx.tree.bounds(run.id)
    ended = sorted((o for o in fan.ended if o.id in fan.copies), key=lambda o: o.item)
    return [
        WriterCopy(
            run=one.id,
            label=one.label,
            base=fan.copies[one.id].request.copy_of,
            place=fan.copies[one.id].request.cwd,
            is_wanted=one.ending.state == "completed",
            sent=cwd,
            bounds=bounds,
        )
        for one in ended
    ]


def take_merge(
    run: Run, ctx: StepContext, calls: OpenCalls, event: Merged
) -> tuple[Run, OpenCalls]:
    """The result of the merge is known: the run reads it, and its calls can be closed."""
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is not None and fan_in.is_merging and event.turn == run.turn:
        fan_in.is_merging = False
        fan_in.composing -= 1
        bits = sum(1 << index for index in event.indices)
        calls = replace(calls, merged=calls.merged | bits)
    return note_merge(run, ctx, event), calls


def note_merge(run: Run, ctx: StepContext, event: Merged) -> Run:
    note = merge_note(event.merges)
    return post(run, Mail(seq=0, text=note, kind="note"), ctx) if note else run


def ready_after(fan_in: FanIn, event: Merged) -> list[int]:
    """The calls that waited for the merge and for nothing else."""
    fans = ((index, fan_in.fans.get(index)) for index in event.indices)
    return [i for i, fan in fans if fan is not None and fan.join == "call" and not fan.pending]


def note_unmerged(run: Run, ctx: StepContext, fan: Fan) -> Run:
    """The run continues without waiting for its writers: the changes of those that have returned
    stay on their branches."""
    back = [unmerged_note(fan.copies[o.id]) for o in fan.ended if o.id in fan.copies]
    return post(run, Mail(seq=0, text="\n".join(back), kind="note"), ctx) if back else run


def unmerged_note(spec: RunSpec) -> str:
    """The note about a writer whose parent has not waited for it."""
    if not spec.request.copy_of:
        return ""
    label = spec.request.label or spec.request.agent
    return UNMERGED.format(label=spec.request.name, branch=branch_name(label, spec.id))
