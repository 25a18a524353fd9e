"""Deadlines and restarts: what a run does when a deadline passes, or when a new process finds it
open."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.calls import settle, start_tool, start_woken, wake
from retinue.core.copy_merges import forget_merge
from retinue.core.ending import finish
from retinue.core.events import Recovered
from retinue.core.fan_results import close_recovered
from retinue.core.messages import ToolMessage
from retinue.core.state import OpenCalls, Run, Thinking, Waiting
from retinue.core.step_context import StepContext
from retinue.core.suspects import is_guilty, is_in_flight, weigh
from retinue.core.tool_steps import UNKNOWN as UNKNOWN
from retinue.core.tool_steps import answer_of, lose, take_up
from retinue.core.tree import Tree


def again(run: Run, event: Recovered) -> Run:
    """Resumed by a new process. A defect that an earlier one met is tried again."""
    suspicion = weigh(run, event) if is_in_flight(run) else run.suspicion
    restarts = run.restarts + (not event.handed_over)
    return replace(run, restarts=restarts, epoch=event.epoch, suspicion=suspicion, defect="")


def stop_recovery(run: Run, event: Recovered, ctx: StepContext) -> Run | None:
    """Why a run is not continued after a restart: it opted out, it is too old, or it keeps crashing
    the process."""
    if event.handed_over:
        return None
    limits, request = ctx.limits, ctx.request
    if request.on_restart == "fail":
        return finish(
            run, ctx, "interrupted", "restart", error="the process crashed while the run was open"
        )
    if ctx.now - ctx.spec.created_at > limits.max_age_ms:
        return finish(
            run,
            ctx,
            "interrupted",
            "too_old",
            error="the run was too old to continue after a restart",
        )
    if run.restarts >= limits.max_restarts:
        return finish(
            run, ctx, "interrupted", "restarts", error=f"the run was restarted {run.restarts} times"
        )
    if is_in_flight(run) and is_guilty(run, event, limits):
        n = run.suspicion.alone + 1 if run.suspicion is not None else 1
        error = (
            f"the process crashed {n} times in a row right after this run was continued, "
            "and not without it"
        )
        return finish(run, ctx, "interrupted", "quarantined", error=error)
    return None


def recover_calls(run: Run, calls: OpenCalls, event: Recovered, ctx: StepContext) -> Run:
    """Tools that were under way are repeated, looked after, or reported as unknown: by their class,
    never by luck."""
    forget_merge(run, ctx, event.epoch)
    stopped = stop_recovery(run, event, ctx)
    if stopped is not None:
        return stopped
    run = again(run, event)
    for call in event.calls:
        bit = 1 << call.index
        if not calls.tools & bit or event.turn != run.turn:
            continue
        if call.restart == "unsafe":
            result = ToolMessage(
                call_id=call.call.id, name=call.call.name, text=UNKNOWN, error=True
            )
            run = ctx.append(run, result)
            calls = replace(calls, open=calls.open & ~bit, tools=calls.tools & ~bit)
        else:
            answer = answer_of(calls, call.index)
            start_tool(run, ctx, call.index, call.call, again=True, made_at=calls.at, answer=answer)
    for watch in calls.waits:
        if calls.woken >> watch.index & 1:
            start_woken(run, ctx, watch, again=True, made_at=calls.at)
    if event.turn == run.turn:
        run, calls = take_up(run, ctx, lose(calls, event))
    run, calls = close_recovered(run, ctx, calls)
    return settle(run, ctx, wake(run, ctx, calls))


def waiting_for_provider(tree: Tree) -> list[str]:
    """The runs of a tree that wait for their provider."""
    return [
        id
        for id, run in tree.runs.items()
        if isinstance(run.state, Thinking) and run.state.retry_at is not None
    ]


def out_of_time(run: Run, ctx: StepContext) -> Run | None:
    if run.deadline is None or run.deadline > ctx.now:
        return None
    return finish(run, ctx, "timed_out", "deadline", error="the deadline passed")


def waited_too_long(run: Run, ctx: StepContext) -> Run:
    """Every wait has an end. (A timer that comes early, or late for an older wait, changes
    nothing.)"""
    if run.wake_at is None or run.wake_at > ctx.now:
        return run
    if isinstance(run.state, Waiting) and run.state.calls is None and run.last_text:
        return finish(run, ctx, "completed", "idle")
    if ctx.patience(run.state) < ctx.limits.wait_ms:
        what = "its model" if isinstance(run.state, Thinking) else "its tools"
        minutes = f"{ctx.patience(run.state) / 60_000:g}"
        error = f"stalled: nothing was heard of {what} for {minutes} minutes"
        return finish(run, ctx, "timed_out", "stalled", error=error)
    return finish(
        run,
        ctx,
        "timed_out",
        "waited_too_long",
        error="timed out: nothing arrived within the maximum wait",
    )
