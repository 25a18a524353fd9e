"""Takes in a reply or a failure of a model: pays its cost, records it, and decides what the run
does next."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from msgspec.structs import replace

from retinue.core.call_dispatch import dispatch
from retinue.core.effects import Purpose
from retinue.core.ending import break_off, finish, free_slots, guess, within
from retinue.core.events import ModelFailed, Replied
from retinue.core.ids import digest
from retinue.core.messages import ModelReply, UserMessage
from retinue.core.model_price import charged
from retinue.core.price_tags import reckon, warm_until
from retinue.core.state import NOTHING, REFUSALS, ByDimension, Run, Thinking
from retinue.core.step_context import StepContext, holding_slots, idle, weight
from retinue.core.turn import (
    ANNOUNCE,
    COMPACT,
    SUMMARY,
    await_mail,
    next_turn,
    prompt_bound,
    relist_children,
    sooner,
    think,
    why_no_more,
)
from retinue.core.values import MOST_TOKENS, Artifact, Usage
from retinue.formats.fair_cut import clip

TOO_LONG = ("context_exhausted", "too_large")
"""What is too large for a provider's gate is cured like what is too long for its model."""
GO_ON = (
    "Your reply reached its length limit and was cut. Continue exactly where it stops, without "
    "repeating anything."
)
CUT = "The start of this conversation was too long and is not shown. Its first task:\n"
MOST_OF_TASK = 8_000


def abandon(run: Run, state: Thinking, ctx: StepContext) -> Run:
    """Cancel a model call."""
    return holding_slots(break_off(run, state, ctx), ctx.now)


def take_reply(run: Run, state: Thinking, event: Replied, ctx: StepContext) -> Run:
    reply, message = event.reply, event.reply.message
    used = _counted(run, ctx, reply)
    ctx.tree.ledger.settle(run.id, state.hold, (used.tokens, used.nanos, 1, 0), guess(used, ctx))
    if state.expected or used.cache_read or used.cache_write:
        run = reckon(run, ctx, used, state.expected)
    spilled = run.artifacts
    if event.spilled is not None:
        sha, n = event.spilled
        spilled = (Artifact(path=sha, size=n, sha256=sha),)
    elif message.text:
        spilled = ()
    ctx.write(run, message)
    run = replace(
        run,
        state=idle(run, ctx.now),
        length=run.length + 1,
        context=used.input + used.output + used.estimated,
        new_bytes=0,
        turn=run.turn + 1,
        usage=run.usage.plus(used),
        last_text=_last_text(run, state, message.text),
        child_texts="" if message.text else run.child_texts,
        empty=run.empty if not message.text.strip() and not message.calls else 0,
        artifacts=spilled,
        model_used=reply.model or ctx.spec.model,
        suspicion=None,
        prompt=used.input,
        warm_until=warm_until(ctx, used),
    )
    if reply.stop == "refusal":
        return finish(run, ctx, "failed", "refused", error=message.text or "the model refused")
    if state.purpose == "compact":
        return next_turn(relist_children(run, ctx, message.text or run.last_text), ctx)
    if message.calls:
        return _take_calls(replace(run, n_cut=0) if run.n_cut else run, state, event, ctx)
    if not message.text.strip():
        return _take_silence(run, state, ctx)
    return _take_text(run, state, event, ctx)


def _last_text(run: Run, state: Thinking, text: str) -> str:
    """What the run has said last. A reply that was cut is put together with what followed it."""
    if state.purpose == "announce":
        return run.last_text
    return run.last_text + text if run.n_cut else text or run.last_text


def _counted(run: Run, ctx: StepContext, reply: ModelReply) -> Usage:
    """What the provider counted; what it did not count is booked at its bound, as an estimate."""
    usage = reply.usage
    prompt, output = _within_bounds(usage.input), _within_bounds(usage.output)
    cache_read, cache_write = _within_bounds(usage.cache_read), _within_bounds(usage.cache_write)
    estimated = _within_bounds(usage.estimated)
    if not prompt + output + estimated:
        bound, n_out = prompt_bound(run, ctx), weight(reply.message)
        nanos = max(0, usage.nanos) or ctx.model.cost(bound, n_out)
        used = Usage(
            cache_read=cache_read, cache_write=cache_write, estimated=bound + n_out, turns=1
        )
        return replace(used, nanos=nanos, nanos_estimated=nanos)
    used = Usage(
        input=prompt,
        output=output,
        cache_read=cache_read,
        cache_write=cache_write,
        estimated=estimated,
        nanos=usage.nanos,
        nanos_estimated=max(0, usage.nanos_estimated),
        turns=1,
    )
    return used if reply.is_priced else charged(ctx.model, used)


def _within_bounds(count: int) -> int:
    return min(max(0, count), MOST_TOKENS)


def _take_calls(run: Run, state: Thinking, event: Replied, ctx: StepContext) -> Run:
    message = event.reply.message
    cut = event.reply.stop == "length"
    match state.purpose:
        case "turn":
            return dispatch(run, ctx, event, cut=cut)
        case "grace":
            if (
                len(message.calls) == 1
                and message.calls[0].name in ctx.definition.submit_tools
                and not cut
            ):
                return dispatch(run, ctx, event, cut=False)
            return finish(run, ctx, "incomplete", "turn_limit")
        case "final":
            return finish(run, ctx, "incomplete", "budget", error=why_no_more(run, ctx))
        case "summary" | "announce":
            return finish(run, ctx, "incomplete", "no_report")
        case "compact":
            raise AssertionError("a compaction is taken before its calls are read")
        case _:
            assert_never(state.purpose)


def _take_silence(run: Run, state: Thinking, ctx: StepContext) -> Run:
    """Nothing said, nothing called: ask again, then admit that there is no output."""
    if run.empty >= ctx.limits.empty_replies or state.purpose == "final":
        return finish(run, ctx, "failed", "empty", error="the model returned no text")
    run = replace(run, empty=run.empty + 1)
    return think(
        ctx.append(run, UserMessage(text="Your reply was empty. Answer now.", kind="nudge")),
        ctx,
        state.purpose,
    )


def _take_text(run: Run, state: Thinking, event: Replied, ctx: StepContext) -> Run:
    """The run has nothing more to do, unless news waits, its report is a turn of its own, or it
    must stay."""
    request, text = ctx.request, event.reply.message.text
    if run.n_cut and state.purpose != "announce":
        text = run.last_text
    if event.reply.stop == "length":
        if state.purpose == "turn" and run.n_cut < ctx.limits.cut_replies:
            run = replace(run, n_cut=run.n_cut + 1)
            return next_turn(ctx.append(run, UserMessage(text=GO_ON, kind="nudge")), ctx)
        return finish(run, ctx, "incomplete", "length", text=text)
    run = replace(run, n_cut=0) if run.n_cut else run
    if state.purpose == "final":
        return finish(run, ctx, "incomplete", "budget", text=text, error=why_no_more(run, ctx))
    if state.purpose == "grace":
        return finish(run, ctx, "incomplete", "turn_limit", text=text)
    if state.purpose == "summary":
        return finish(run, ctx, "completed", "done", text=text)
    if state.purpose == "announce":
        return finish(run, ctx, "completed", "done", text=text, data=run.last_text)
    if ctx.tree.has_mail(run.id):
        return next_turn(run, ctx)
    if request.must_submit:
        return _remind(run, ctx)
    if ctx.stays(run):
        return _rest(run, ctx, all=True)
    return wrap_up(run, ctx, text, think)


def wrap_up(
    run: Run, ctx: StepContext, text: str, call: Callable[[Run, StepContext, Purpose], Run]
) -> Run:
    """The run has said its last word, and no child is left that it waits for: it reports, stays
    open, or is done. `call` makes the call for a report."""
    request = ctx.request
    if request.report in ("summary", "announce"):
        prompt = request.report_prompt or (SUMMARY if request.report == "summary" else ANNOUNCE)
        run = ctx.append(run, UserMessage(text=prompt, kind="nudge"))
        return call(run, ctx, "summary" if request.report == "summary" else "announce")
    if request.stay_open:
        return _rest(run, ctx)
    return finish(run, ctx, "completed", "done", text=text)


def _remind(run: Run, ctx: StepContext) -> Run:
    """A text is not the typed result that was asked for: the run is reminded, then it has not done
    its task."""
    if run.reminded >= ctx.limits.empty_replies:
        return finish(
            run,
            ctx,
            "incomplete",
            "not_submitted",
            error="the agent ended without submitting a result",
        )
    run = replace(run, reminded=run.reminded + 1)
    names = " or ".join(ctx.definition.submit_tools)
    return next_turn(
        ctx.append(run, UserMessage(text=f"Submit your result by calling {names}.", kind="nudge")),
        ctx,
    )


def _rest(run: Run, ctx: StepContext, *, all: bool = False) -> Run:
    free_slots(run, ctx)
    return await_mail(run, ctx, all=all)


def take_failure(run: Run, state: Thinking, event: ModelFailed, ctx: StepContext) -> Run:
    run, state = _pay_for_failure(run, state, event, ctx)
    tries = state.tries + 1
    if event.retry:
        wait = _before_next_try(run, state, event, ctx, tries)
        if wait is not None:
            at, is_patient = wait
            until = (
                ctx.now + ctx.limits.wait_ms if state.patient_until is None else state.patient_until
            )
            again = replace(
                state,
                tries=tries,
                retry_at=at,
                waits_for=f"{event.kind}: {event.message}"[:300],
                waits_kind=event.kind,
                trouble=event.trouble,
                patient_until=until if is_patient else None,
            )
            if is_patient:
                # It is unknown how long the provider keeps it waiting: the cost of the call is
                # reserved again when it is made.
                ctx.tree.ledger.release(run.id, again.hold)
                again = replace(again, hold=NOTHING)
            return replace(run, state=again, wake_at=sooner(run.deadline, at))
    ctx.tree.ledger.release(run.id, state.hold)
    run = holding_slots(run, ctx.now)
    if event.kind not in TOO_LONG:
        is_tried = event.retry and event.kind not in REFUSALS
        error = f"Failed after {tries} attempts: {event.message}" if is_tried else event.message
        return finish(run, ctx, "failed", event.kind, error=error)
    if state.purpose not in ("turn", "compact") or run.length - run.start <= 4:
        return finish(run, ctx, "failed", "context_exhausted", error=event.message)
    # What was too long stays too long: only the younger half is shown to be summed up, and if need
    # be half of that.
    run = replace(
        run, start=run.start + (run.length - run.start) // 2, context=0, prompt=0, warm_until=0
    )
    if state.purpose == "turn":
        run = ctx.append(
            run,
            UserMessage(
                text=f"{COMPACT}\n\n{CUT}{clip(ctx.request.task, MOST_OF_TASK)}", kind="nudge"
            ),
        )
    return think(run, ctx, "compact")


def _pay_for_failure(
    run: Run, state: Thinking, event: ModelFailed, ctx: StepContext
) -> tuple[Run, Thinking]:
    """An answer that broke off has cost something. It is taken from what the call holds; the next
    try holds it anew."""
    usage = event.usage
    if usage is None or not usage.tokens:
        return run, state
    hold = ByDimension(*state.hold)
    used = within(charged(ctx.model, usage), state.hold)
    part = (min(hold.tokens, used.tokens), used.nanos, 0, 0)
    ctx.tree.ledger.settle(run.id, part, part, guess(used, ctx))
    run = reckon(replace(run, usage=run.usage.plus(used)), ctx, used, state.expected)
    rest = (hold.tokens - part[0], hold.nanos - part[1], hold.turns, hold.calls)
    return run, replace(state, hold=rest)


def _before_next_try(
    run: Run, state: Thinking, event: ModelFailed, ctx: StepContext, tries: int
) -> tuple[int, bool] | None:
    """When it is tried again, and whether it waits patiently by now; None when it is not tried
    again.

    Asking again does not help an account that is refused: the long wait begins immediately. It ends
    with the longest wait. A key that is refused stays so until another is brought, which wakes the
    run; a run that knows it from others (it comes with a time to wait) tries again itself. What was
    refused without a reason is not waited for."""
    retry = ctx.request.retry
    if tries < retry.attempts and event.kind not in REFUSALS:
        ceiling = min(retry.cap_ms, retry.base_ms << min(tries - 1, 20))
        is_patient = False
    else:
        until = ctx.now + ctx.limits.wait_ms if state.patient_until is None else state.patient_until
        if retry.then == "fail" or event.kind == "forbidden" or ctx.now >= until:
            return None
        ceiling = retry.cap_ms
        is_patient = True
        if event.kind == "auth" and not event.after_ms:
            return until, is_patient
    jitter = int(digest(run.id, run.attempt, "jitter")[:8], 16) % (ceiling + 1)
    wait = max(event.after_ms, 0) + (ceiling if is_patient else 0) + jitter
    return ctx.now + wait, is_patient
