"""Steps that a tool's function takes while its call is open: children whose results it awaits,
questions, messages. The function is a cache, the record is the truth.

Theory of operation. A step is on record before it takes effect (`step_taking`). A function that
awaits one is *parked*: its run holds no slot. What it waits for are children that joined by `step`
(a `Fan` of its call, which is never made into a result), questions, and runs that one of
`OpenCalls.steps` names. When nothing of it is pending, the bit moves from `parked` to `woken`: the
function continues, without a slot. It may take more steps; when it returns, children that it has
not waited for are cancelled.

After a restart the function is gone, and its call is *lost*. What it waited for comes first. Then
it is run again from its first line, and gets back what is on record: a child's name is made of what
was asked, so that the same question leads to the same child. A tool that may not run twice is not
run again: its call is closed, with what its children have reported."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.calls import settle, start_tool
from retinue.core.effects import AnswerStep, ChildOutcome
from retinue.core.events import CancelAsked, Recovered
from retinue.core.fan_in import Fan
from retinue.core.fan_results import discard_children, drop_empty, gather, note_results
from retinue.core.messages import ToolMessage
from retinue.core.notices import listed
from retinue.core.spec import RunSpec
from retinue.core.state import CallStep, LostCall, OpenCalls, Question, Run, calls_of
from retinue.core.step_context import StepContext

UNKNOWN = (
    "Interrupted by a restart: this call may or may not have taken effect. "
    "Check before you repeat it. (outcome_unknown)"
)
REPORTED = "What its children reported:"
ANSWER = "answer"
"""The name of the answer with which a plain function is run again."""


def fan_of_steps(run: Run, ctx: StepContext, index: int) -> Fan | None:
    """The children that the function of a call has asked for and awaits."""
    fan_in = ctx.tree.fans.get(run.id)
    fan = None if fan_in is None else fan_in.fans.get(index)
    return fan if fan is not None and fan.join == "step" else None


def is_waiting(run: Run, ctx: StepContext, calls: OpenCalls, index: int) -> bool:
    """Whether something that the function of this call waits for has not come."""
    fan = fan_of_steps(run, ctx, index)
    return (
        bool(fan is not None and fan.pending)
        or any(q.index == index for q in calls.questions)
        or any(
            s.index == index and s.run and s.text is None and ctx.tree.is_live(s.run)
            for s in calls.steps
        )
    )


def child_back(run: Run, ctx: StepContext, fan: Fan, child: RunSpec, outcome: ChildOutcome) -> Run:
    """A child of a step has ended. The first failure may end those who were started with it."""
    del fan.pending[outcome.id]
    fan.ended.append(outcome)
    if child.request.fail_fast and outcome.is_failure and child.parent_call is not None:
        for id in fan.pending:
            sibling = ctx.tree.specs[id].parent_call
            if sibling is not None and sibling.step == child.parent_call.step:
                reason = f"{outcome.label} failed"
                ctx.post_event(id, CancelAsked(by=run.id, reason=reason, who="system"))
    return run


def go_on(run: Run, ctx: StepContext) -> Run:
    """Something has come: functions that have waited for it continue, and calls that were lost are
    resumed."""
    calls = calls_of(run)
    if calls is None or not (calls.parked or calls.lost):
        return run
    woken = unpark(run, ctx, calls)
    closed, after = take_up(run, ctx, woken)
    return run if after is calls else settle(closed, ctx, after)


def unpark(run: Run, ctx: StepContext, calls: OpenCalls) -> OpenCalls:
    """Calls with nothing pending are no longer parked."""
    ready = sum(
        1 << i
        for i in range(calls.parked.bit_length())
        if calls.parked >> i & 1 and not is_waiting(run, ctx, calls, i)
    )
    if not ready:
        return calls
    return replace(calls, parked=calls.parked & ~ready, woken=calls.woken | ready)


def take_up(run: Run, ctx: StepContext, calls: OpenCalls) -> tuple[Run, OpenCalls]:
    """Lost calls that wait for nothing are run again, or closed."""
    for lost_call in calls.lost:
        if is_waiting(run, ctx, calls, lost_call.index):
            continue
        calls = replace(calls, lost=tuple(c for c in calls.lost if c.index != lost_call.index))
        if lost_call.restart == "unsafe":
            run, calls = _close_lost(run, ctx, calls, lost_call)
            continue
        calls = replace(calls, woken=calls.woken | 1 << lost_call.index)
        answer = answer_of(calls, lost_call.index)
        start_tool(
            run, ctx, lost_call.index, lost_call.call, again=True, made_at=calls.at, answer=answer
        )
    return run, calls


def _close_lost(
    run: Run, ctx: StepContext, calls: OpenCalls, lost_call: LostCall
) -> tuple[Run, OpenCalls]:
    """A call that is not repeated has no result of its own; its children's are not lost."""
    fan, text = fan_of_steps(run, ctx, lost_call.index), UNKNOWN
    if fan is not None and fan.ended:
        room = max(ctx.limits.text_cap - len(UNKNOWN) - len(REPORTED) - 4, 0)
        text = f"{UNKNOWN}\n\n{REPORTED}\n\n{listed(fan.in_order(), room)}"
        run = gather(run, text)
    run, calls = close_steps(run, ctx, calls, lost_call.index)
    run = ctx.append(
        run, ToolMessage(call_id=lost_call.call.id, name=lost_call.call.name, text=text, error=True)
    )
    bit = ~(1 << lost_call.index)
    items = tuple(i for i in calls.items if i[0] != lost_call.index)
    return run, replace(calls, open=calls.open & bit, tools=calls.tools & bit, items=items)


def lose(calls: OpenCalls, event: Recovered) -> OpenCalls:
    """Whose function was parked, or went on after a step, when the process died."""
    known_bits = sum(1 << w.index for w in calls.waits)
    bits_of_lost = (
        calls.parked | (calls.woken & ~known_bits) | sum(1 << c.index for c in calls.lost)
    )
    lost_calls = tuple(
        LostCall(index=c.index, call=c.call, restart=c.restart)
        for c in event.calls
        if bits_of_lost >> c.index & 1
    )
    if not lost_calls:
        return calls
    bits = ~sum(1 << c.index for c in lost_calls)
    return replace(calls, parked=calls.parked & bits, woken=calls.woken & bits, lost=lost_calls)


def close_steps(run: Run, ctx: StepContext, calls: OpenCalls, index: int) -> tuple[Run, OpenCalls]:
    """The function has returned: children it has not waited for are cancelled, and its open
    questions are withdrawn."""
    bit = 1 << index
    fan = fan_of_steps(run, ctx, index)
    if fan is not None:
        for id in fan.pending:
            reason = f"{fan.name} returned without waiting for it"
            ctx.post_event(id, CancelAsked(by=run.id, reason=reason, who="parent"))
        ctx.tree.fans[run.id].drop(index)
        drop_empty(run, ctx)
        discard_children(ctx, fan)
        run = note_results(run, ctx, fan)
    if not (calls.steps or calls.questions or (calls.parked | calls.woken) & bit):
        return run, calls
    return run, replace(
        calls,
        tools=calls.tools | bit,
        parked=calls.parked & ~bit,
        woken=calls.woken & ~bit,
        asks=calls.asks & ~bit,
        steps=tuple(s for s in calls.steps if s.index != index),
        questions=tuple(q for q in calls.questions if q.index != index),
    )


def note_step(calls: OpenCalls, step: CallStep) -> OpenCalls:
    """The step is on record, in the place of what was known of it."""
    others = tuple(s for s in calls.steps if (s.index, s.key) != (step.index, step.key))
    return replace(calls, steps=(*others, step))


def answer_of(calls: OpenCalls, index: int) -> str | None:
    """What was answered to the question after which a plain function is run again."""
    steps = (s for s in calls.steps if s.index == index and s.key == ANSWER)
    return next((s.text for s in steps), None)


def give_answer(run: Run, ctx: StepContext, calls: OpenCalls, question: Question, text: str) -> Run:
    """The answer is the value of the step that has asked, or the function is run again with it."""
    index, bit = question.index, 1 << question.index
    questions = tuple(q for q in calls.questions if q.id != question.id)
    is_asked = any(q.index == index for q in questions)
    calls = replace(calls, questions=questions, asks=calls.asks if is_asked else calls.asks & ~bit)
    calls = note_step(calls, CallStep(index=index, key=question.step or ANSWER, text=text))
    if question.call is not None:
        start_tool(run, ctx, index, question.call, made_at=calls.at, answer=text)
        return settle(run, ctx, replace(calls, tools=calls.tools | bit))
    if not any(c.index == index for c in calls.lost):
        ctx.perform(
            AnswerStep(run=run.id, turn=run.turn, index=index, step=question.step, text=text)
        )
    run, calls = take_up(run, ctx, unpark(run, ctx, calls))
    return settle(run, ctx, calls)
