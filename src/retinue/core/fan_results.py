"""Turns the results of joined children into the results of the calls that started them."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.copy_merges import is_unmerged
from retinue.core.effects import FormatResults, JoinedCall
from retinue.core.fan_in import Fan
from retinue.core.messages import ToolMessage
from retinue.core.notices import NONE, fill, plain_result
from retinue.core.provenance import note_on
from retinue.core.state import OpenCalls, Run
from retinue.core.step_context import StepContext
from retinue.core.turn import post
from retinue.core.values import Mail

GATHERED = 4_096


ELSEWHERE = (
    "Started {count}: {ids}. Their results are in the answer to call {call}, with those "
    "of the whole turn."
)


def close_turn(run: Run, ctx: StepContext, calls: OpenCalls) -> tuple[Run, OpenCalls]:
    """Calls that are joined by turn are ready together, once no tool can add to them and no child
    is pending."""
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is None or fan_in.out or not fan_in.by_turn:
        return run, calls
    return close_fans(
        run, ctx, calls, sorted(i for i, f in fan_in.fans.items() if f.join == "turn")
    )


def close_fans(
    run: Run, ctx: StepContext, calls: OpenCalls, ready: list[int]
) -> tuple[Run, OpenCalls]:
    """Give each of these calls its result, or have its family compose it."""
    fan_in = ctx.tree.fans[run.id]
    compose = []
    for index in ready:
        fan = fan_in.fans[index]
        if is_unmerged(fan, calls, index):
            continue
        together = fan_in.together(index)
        long = (
            len(fan.ended) > 1 and sum(len(o.ending.text) for o in fan.ended) > ctx.limits.text_cap
        )
        if fan.compose or long or len(together) > 1:
            if not fan.composing and index == together[-1]:
                outcomes, is_plain = fan_in.outcomes(together), not fan.compose
                compose.append(
                    JoinedCall(
                        index=index,
                        call_id=fan.call_id,
                        name=fan.name,
                        outcomes=outcomes,
                        plain=is_plain,
                    )
                )
                fan.composing = True
                fan_in.composing += 1
            continue
        discard_children(ctx, fan_in.drop(index))
        text, error = plain_result(fan.in_order())
        run = ctx.append(
            run, ToolMessage(call_id=fan.call_id, name=fan.name, text=text, error=error)
        )
        run = note_results(gather(run, text), ctx, fan)
        calls = replace(calls, open=calls.open & ~(1 << index))
    drop_empty(run, ctx)
    if compose:
        ctx.perform(FormatResults(run=run.id, turn=run.turn, calls=tuple(compose)))
    return run, calls


def point_to(
    run: Run, ctx: StepContext, calls: OpenCalls, index: int, call_id: str
) -> tuple[Run, OpenCalls]:
    """A call whose results are in the tool result of another says so."""
    fan = ctx.tree.fans[run.id].drop(index)
    discard_children(ctx, fan)
    run = note_results(run, ctx, fan)
    words = ctx.definition.notices.get(fan.name, NONE).elsewhere or ELSEWHERE
    ids = ", ".join(sorted(o.id for o in fan.ended))
    text = fill(words, {"count": str(len(fan.ended)), "ids": ids, "call": call_id})
    run = ctx.append(run, ToolMessage(call_id=fan.call_id, name=fan.name, text=text))
    return run, replace(calls, open=calls.open & ~(1 << index))


def gather(run: Run, text: str) -> Run:
    """The beginning of what children reported: all there is to show if the run can no longer pay
    for a reply of its own."""
    room = GATHERED - len(run.child_texts)
    return (
        run if room <= 0 else replace(run, child_texts=f"{run.child_texts}\n{text[:room]}".strip())
    )


def note_results(run: Run, ctx: StepContext, fan: Fan) -> Run:
    """What the runtime has to say about these results is a message of its own: their words are
    their family's."""
    note = note_on(fan.in_order())
    return post(run, Mail(seq=0, text=note, kind="note"), ctx) if note else run


def discard_children(ctx: StepContext, fan: Fan) -> None:
    for child in fan.discard.values():
        ctx.tree.discard(child.id, child.path)


def drop_empty(run: Run, ctx: StepContext) -> None:
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is not None and not fan_in.fans:
        del ctx.tree.fans[run.id]


def close_recovered(run: Run, ctx: StepContext, calls: OpenCalls) -> tuple[Run, OpenCalls]:
    """After a restart: calls whose children were all back when the process died."""
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is None:
        return run, calls
    return close_fans(
        run,
        ctx,
        calls,
        sorted(i for i, f in fan_in.fans.items() if f.join == "call" and not f.pending),
    )
