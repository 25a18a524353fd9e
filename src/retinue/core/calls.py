"""The calls of a turn: which ones run, which are refused, and the result that closes each.

A call is open until it has a result. Results of joined children may come early; each is counted
once; the turn continues when the last open call is closed.

Theory of operation. The calls of a reply are numbered; sets of them are integers, one bit a call
(`state.OpenCalls`). `open` has no result yet. Of the open ones, `tools` are being run, `asks` wait
for a person, `woken` are run again because what they waited for has come; what is open and none of
these waits for children, joined ones (a `Fan` in the tree, by the call's number) or those that one
of `waits` names, or is `parked`: its function awaits a step (`tool_steps`). So
`open & ~(tools | asks | woken)` is who waits, and a turn is over when `open` is zero. `settle` is
the one place that turns these bits into a state: tools running is `Working`, else a question is
`Asking`, else something open is `Waiting`, else the next turn."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.copy_merges import merge_copies, note_unmerged, ready_after, take_merge
from retinue.core.effects import AbortRun, CallTool, ChildOutcome, Purpose
from retinue.core.ending import free_slots
from retinue.core.events import ActionsReturned, CancelAsked, Merged, ResultsFormatted
from retinue.core.fan_in import Fan
from retinue.core.fan_results import (
    close_fans,
    close_turn,
    discard_children,
    drop_empty,
    gather,
    note_results,
    point_to,
)
from retinue.core.messages import ToolCall, ToolMessage
from retinue.core.notices import plain_result
from retinue.core.spec import WaitForRuns
from retinue.core.state import (
    NEW_CALL,
    Asking,
    CallWait,
    Kept,
    OpenCalls,
    Queued,
    Run,
    Waiting,
    Working,
    holds_slots,
)
from retinue.core.step_context import StepContext, holding_slots, idle, weight
from retinue.core.turn import await_mail, go_on, next_turn, sooner

BROKEN_OFF = (
    "The wait was interrupted by a message. The children you waited for keep running; "
    "you will be notified when they end."
)
NOT_ASKED = "Not run: a message arrived before the question was answered."


def start_tool(
    run: Run,
    ctx: StepContext,
    index: int,
    call: ToolCall,
    *,
    again: bool = False,
    made_at: int = 0,
    answer: str | None = None,
) -> None:
    ctx.perform(
        CallTool(
            run=run.id,
            turn=run.turn,
            index=index,
            call=call,
            key=f"{run.id}/{run.turn}/{index}",
            at=ctx.now,
            again=again,
            made_at=made_at or ctx.now,
            answer=answer,
        )
    )


def start_woken(
    run: Run, ctx: StepContext, watch: CallWait, *, again: bool = False, made_at: int = 0
) -> None:
    ctx.perform(
        CallTool(
            run=run.id,
            turn=run.turn,
            index=watch.index,
            call=watch.call,
            key=f"{run.id}/{run.turn}/{watch.index}",
            at=ctx.now,
            again=again,
            woken=True,
            back=watch.back,
            made_at=made_at or ctx.now,
        )
    )


def keep_waiting(
    run: Run, ctx: StepContext, calls: OpenCalls, event: ActionsReturned, wait: WaitForRuns
) -> Run:
    """The call stays open and its tool is run again when what it waits for has come."""
    call = ToolCall(id=event.call_id, name=event.name, arguments_json=wait.then)
    back = next((w.back for w in calls.waits if w.index == event.index), ())
    until = ctx.now + max(0, wait.timeout_ms)
    watch = CallWait(
        index=event.index, call=call, runs=wait.runs, first=wait.first, until=until, back=back
    )
    calls = let_rest(calls, event.index)
    calls = replace(calls, waits=(*calls.waits, watch))
    return settle(replace(run, suspicion=None), ctx, wake(run, ctx, calls))


def let_rest(calls: OpenCalls, index: int) -> OpenCalls:
    """The call's tool has returned. Whether the call has its result is another matter."""
    bit = ~(1 << index)
    waits = tuple(w for w in calls.waits if w.index != index) if calls.waits else ()
    return replace(calls, tools=calls.tools & bit, woken=calls.woken & bit, waits=waits)


def wake(run: Run, ctx: StepContext, calls: OpenCalls) -> OpenCalls:
    """Run those tools again whose wait is over."""
    for watch in calls.waits:
        if not calls.woken >> watch.index & 1 and _is_over(watch, ctx):
            calls = replace(calls, woken=calls.woken | 1 << watch.index)
            start_woken(run, ctx, watch, made_at=calls.at)
    return calls


def _is_over(watch: CallWait, ctx: StepContext) -> bool:
    live = sum(ctx.tree.is_live(id) for id in watch.runs)
    return watch.until <= ctx.now or not live or (watch.first and live < len(watch.runs))


def remember(run: Run, outcome: ChildOutcome) -> Run:
    """A child that is about to be deleted has ended: the calls that wait for it keep its
    outcome."""
    match run.state:
        case Working(calls=calls) | Asking(calls=calls) | Waiting(calls=OpenCalls() as calls):
            waits = tuple(
                replace(w, back=(*w.back, outcome)) if outcome.id in w.runs else w
                for w in calls.waits
            )
            return replace(run, state=replace(run.state, calls=replace(calls, waits=waits)))
        case _:
            return run


def stir(run: Run, ctx: StepContext) -> Run:
    """A child has ended, or a time has come: a call may have waited for it."""
    match run.state:
        case Working(calls=calls) | Asking(calls=calls) | Waiting(calls=OpenCalls() as calls):
            woken = wake(run, ctx, calls) if calls.waits else calls
            return run if woken is calls else settle(run, ctx, woken)
        case _:
            return run


def close_call(
    run: Run, ctx: StepContext, calls: OpenCalls, index: int, result: ToolMessage
) -> Run:
    """One call has its result. After the last call of a turn comes the next turn: immediately, if
    no slot has to be waited for and nothing else belongs to this turn."""
    bit = ~(1 << index)
    is_last = not (calls.open & bit or calls.pause or run.id in ctx.tree.fans)
    if is_last and (not ctx.request.lanes or holds_slots(run)):
        ctx.write(run, result)
        length, fresh = run.length + 1, run.new_bytes + weight(result)
        idle_run = replace(
            run, state=idle(run, ctx.now), length=length, new_bytes=fresh, suspicion=None
        )
        return next_turn(idle_run, ctx)
    calls = replace(
        calls,
        open=calls.open & bit,
        tools=calls.tools & bit,
        woken=calls.woken & bit,
        asks=calls.asks & bit,
        waits=tuple(w for w in calls.waits if w.index != index) if calls.waits else (),
        questions=tuple(q for q in calls.questions if q.index != index) if calls.questions else (),
        items=tuple(i for i in calls.items if i[0] != index) if calls.items else (),
        steps=tuple(s for s in calls.steps if s.index != index) if calls.steps else (),
    )
    run = run if run.suspicion is None else replace(run, suspicion=None)
    return settle(ctx.append(run, result), ctx, calls)


def settle(run: Run, ctx: StepContext, calls: OpenCalls) -> Run:
    """The state that follows from what is still open."""
    if calls.tools:
        return wait_in(run, ctx, Working(calls=calls, has_slots=holds_slots(run)))
    merge_copies(run, ctx, calls)
    if not calls.woken and not calls.parked and not calls.lost:
        run, calls = close_turn(run, ctx, calls)
    if calls.asks:
        return wait_in(run, ctx, Asking(calls=calls))
    if calls.open:
        return wait_in(run, ctx, Waiting(calls=calls))
    if calls.pause and not ctx.tree.has_mail(run.id) and ctx.has_children(run):
        free_slots(run, ctx)
        return await_mail(run, ctx)
    return resume(run, ctx)


def wait_in(run: Run, ctx: StepContext, state: Working | Waiting | Asking) -> Run:
    """Every wait has a deadline. Only a run at work holds slots."""
    if not isinstance(state, Working):
        free_slots(run, ctx)
    wake_at = sooner(run.deadline, ctx.now + ctx.patience(state))
    calls = state.calls
    for watch in calls.waits if calls is not None else ():
        if calls is not None and not calls.woken >> watch.index & 1:
            wake_at = sooner(wake_at, watch.until)
    return replace(run, state=state, wake_at=wake_at)


def resume(
    run: Run, ctx: StepContext, purpose: Purpose = "turn", *, progress: Kept = NEW_CALL
) -> Run:
    """Take the next turn, or make another call, once there is a slot for it in every lane."""
    lanes = ctx.request.lanes
    if lanes and not holds_slots(run):
        n_lanes = ctx.tree.enter(run.id, lanes, 0, back=True)
        if n_lanes < len(lanes):
            return queue(run, ctx, n_lanes, back=True, purpose=purpose, progress=progress)
    return go_on(holding_slots(run, ctx.now), ctx, purpose, progress=progress)


def queue(
    run: Run,
    ctx: StepContext,
    lane: int,
    *,
    back: bool,
    purpose: Purpose = "turn",
    progress: Kept = NEW_CALL,
) -> Run:
    """The run waits for a slot in this lane and holds one in each before it."""
    ctx.tree.tickets += 1
    if ctx.request.lanes[lane].is_shared:
        ctx.tree.ask(run.id, ctx.request.lanes[lane], back=back, ticket=ctx.tree.tickets)
    wake_at = sooner(run.deadline, ctx.now + ctx.limits.wait_ms)
    state = Queued(lane=lane, back=back, ticket=ctx.tree.tickets, purpose=purpose, kept=progress)
    return replace(run, state=state, wake_at=wake_at)


def child_joined(
    run: Run, ctx: StepContext, calls: OpenCalls, index: int, outcome: ChildOutcome
) -> Run:
    """A joined child is back. The calling function has checked that the child was still pending."""
    fan_in = ctx.tree.fans[run.id]
    fan = fan_in.fans[index]
    del fan.pending[outcome.id]
    fan.ended.append(outcome)
    if fan.fail_fast and outcome.is_failure:
        for sibling in fan.pending:
            ctx.post_event(
                sibling, CancelAsked(by=run.id, reason=f"{outcome.label} failed", who="system")
            )
    if fan.join == "turn":
        fan_in.out -= 1
        busy = calls.tools or calls.woken or calls.parked or calls.lost
        return run if fan_in.out or busy else settle(run, ctx, calls)
    if fan.pending:
        return run
    run, calls = close_fans(run, ctx, calls, [index])
    if calls.tools:
        return replace(run, state=Working(calls=calls, has_slots=holds_slots(run)))
    return settle(run, ctx, calls)


def close_composed(run: Run, ctx: StepContext, calls: OpenCalls, event: ResultsFormatted) -> Run:
    """A family has put its children's outcomes into words."""
    fan_in = ctx.tree.fans.get(run.id)
    for index, call_id, name, text in event.calls:
        if fan_in is not None and index in fan_in.fans:
            for other in fan_in.together(index)[:-1]:
                run, calls = point_to(run, ctx, calls, other, call_id)
            fan = fan_in.drop(index)
            discard_children(ctx, fan)
            run = note_results(run, ctx, fan)
        run = ctx.append(run, ToolMessage(call_id=call_id, name=name, text=text, error=event.error))
        run = gather(run, text)
        calls = replace(calls, open=calls.open & ~(1 << index))
    drop_empty(run, ctx)
    return settle(run, ctx, calls)


def close_merged(run: Run, ctx: StepContext, calls: OpenCalls, event: Merged) -> Run:
    """The changes of writers are merged: what waited only for that has its result."""
    run, calls = take_merge(run, ctx, calls, event)
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is None or event.turn != run.turn:
        return replace(run, state=replace(run.state, calls=calls))
    run, calls = close_fans(run, ctx, calls, ready_after(fan_in, event))
    return settle(run, ctx, calls)


def detach(run: Run, ctx: StepContext, calls: OpenCalls) -> Run:
    """A steering message cuts the turn short: tools are stopped, joined children continue and
    report by mail."""
    fan_in = ctx.tree.fans.pop(run.id, None)
    ctx.perform(AbortRun(run=run.id))
    for watch in calls.waits:
        run = ctx.append(
            run, ToolMessage(call_id=watch.call.id, name=watch.call.name, text=BROKEN_OFF)
        )
    fans = fan_in.fans if fan_in is not None else {}
    asking = {q.index: q for q in calls.questions}
    for index, question in asking.items():
        # The function that asks may have had children before.
        reported = f"\n\n{_so_far(fans[index])}" if index in fans else ""
        text = NOT_ASKED + reported
        run = ctx.append(
            run, ToolMessage(call_id=question.call_id, name=question.tool, text=text, error=True)
        )
    for index, fan in sorted(fans.items()):
        discard_children(ctx, fan)
        run = note_results(run, ctx, fan)
        if fan_in is not None and not fan_in.is_merging:
            run = note_unmerged(run, ctx, fan)
        if index not in asking:
            run = ctx.append(
                run, ToolMessage(call_id=fan.call_id, name=fan.name, text=_so_far(fan))
            )
    return resume(run, ctx)


def _so_far(fan: Fan) -> str:
    """What children of a call have reported, and which of them still work."""
    text = plain_result(fan.in_order())[0] if fan.ended else ""
    if fan.pending:
        text = (
            "Still running, you will be notified when they end: "
            f"{', '.join(sorted(fan.pending))}\n{text}"
        )
    return text.strip()
