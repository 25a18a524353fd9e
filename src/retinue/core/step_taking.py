"""Records a step of a tool's function: everything it asks for, or nothing and the reason."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core import questions, run_mail, spawn
from retinue.core.calls import settle
from retinue.core.events import StepTaken
from retinue.core.state import CallStep, OpenCalls, Run, count_items
from retinue.core.step_context import StepContext
from retinue.core.tool_steps import fan_of_steps, note_step, take_up, unpark
from retinue.errors import InvalidTransition, Refused

MOST_STEPS = 1_000
"""So many steps of one turn are kept in the run's row; children are rows of their own."""


def take_step(run: Run, calls: OpenCalls, event: StepTaken, ctx: StepContext) -> Run:
    """The caller has checked that the call is open for it."""
    earlier = next((s for s in calls.steps if s.index == event.index and s.key == event.step), None)
    if earlier is not None and event.result is None and not event.run:
        raise InvalidTransition(f"Step {event.step} of call {event.index} is on record already.")
    try:
        planned = spawn.plan(run, ctx, event)
        run_mail.check_words(run, ctx, event.actions.sends, event.actions.cancels)
        if event.question:
            questions.check_may_ask(run, ctx)
        if len(calls.steps) >= MOST_STEPS:
            raise Refused("steps", f"The calls of one turn can record {MOST_STEPS} steps.")
    except Refused as refusal:
        raise InvalidTransition(f"Refused ({refusal.limit}): {refusal}", refusal) from None
    if any(_is_there(run, ctx, event.index, spec.id) for spec, _ in planned):
        raise InvalidTransition(f"A child of step {event.step} is on record already.")
    run_mail.speak(run, ctx, event)
    if planned:
        run = spawn.start_children(run, ctx, event, planned)
        calls = count_items(calls, event.index, len(planned))
    if not planned or planned[0][0].request.join == "none":
        step = CallStep(index=event.index, key=event.step, run=event.run, text=_returned(event))
        calls = note_step(calls, step)
    if event.question:
        calls = questions.put(run, calls, event, ctx)
    if event.parks:
        bit = 1 << event.index
        calls = replace(
            calls,
            tools=calls.tools & ~bit,
            woken=calls.woken & ~bit,
            parked=calls.parked | bit,
        )
    run, calls = take_up(replace(run, suspicion=None), ctx, unpark(run, ctx, calls))
    return settle(run, ctx, calls)


def _returned(event: StepTaken) -> str | None:
    """The answer for the step when it is asked for again: a question and a wait are open, what was
    sent is sent."""
    if event.result is not None or event.question or event.run:
        return event.result
    return ""


def _is_there(run: Run, ctx: StepContext, index: int, child: str) -> bool:
    fan = fan_of_steps(run, ctx, index)
    return child in ctx.tree.specs or any(o.id == child for o in (fan.ended if fan else ()))
