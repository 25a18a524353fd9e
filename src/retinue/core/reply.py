"""A reply, or the lack of one, is taken in: it is paid for, written down, and decides what the run
does next."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core.call_dispatch import dispatch
from retinue.core.ending import break_off, charged, finish, free_slots, guess, within
from retinue.core.events import ModelFailed, Replied
from retinue.core.ids import digest
from retinue.core.messages import Reply, User
from retinue.core.price_tags import reckon, warm_until
from retinue.core.state import NOTHING, REFUSALS, Run, Thinking
from retinue.core.step_context import StepContext, idle, seated, weight
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
CUT = "The start of this conversation was too long and is not shown. Its first task:\n"
MOST_OF_TASK = 8_000


def abandon(run: Run, state: Thinking, ctx: StepContext) -> Run:
    """Break off a model call."""
    return seated(break_off(run, state, ctx), ctx.now)


def take_reply(run: Run, state: Thinking, event: Replied, ctx: StepContext) -> Run:
    reply, said = event.reply, event.reply.message
    used = _counted(run, ctx, reply)
    ctx.tree.ledger.settle(run.id, state.hold, (used.tokens, used.nanos, 1, 0), guess(used, ctx))
    if state.expected or used.cache_read or used.cache_write:
        run = reckon(run, ctx, used, state.expected)
    spilled = run.spilled
    if event.spilled is not None:
        sha, n = event.spilled
        spilled = (Artifact(path=sha, bytes=n, sha256=sha),)
    elif said.text:
        spilled = ()
    ctx.write(run, said)
    run = replace(
        run,
        state=idle(run, ctx.now),
        length=run.length + 1,
        context=used.input + used.output + used.estimated,
        fresh=0,
        turn=run.turn + 1,
        usage=run.usage.plus(used),
        said=run.said if state.purpose == "announce" else said.text or run.said,
        gathered="" if said.text else run.gathered,
        empty=run.empty if not said.text.strip() and not said.calls else 0,
        spilled=spilled,
        model_used=reply.model or ctx.spec.model,
        suspicion=None,
        prompt=used.input,
        warm_until=warm_until(ctx, used),
    )
    if reply.stop == "refusal":
        return finish(run, ctx, "failed", "refused", error=said.text or "the model refused")
    if state.purpose == "compact":
        return next_turn(relist_children(run, ctx, said.text or run.said), ctx)
    if said.calls:
        return _take_calls(run, state, event, ctx)
    if not said.text.strip():
        return _take_silence(run, state, ctx)
    return _take_text(run, state, event, ctx)


def _counted(run: Run, ctx: StepContext, reply: Reply) -> Usage:
    """What the provider counted; what it did not count is booked at its bound, as an estimate."""
    told = reply.usage
    counts = (told.input, told.output, told.cache_read, told.cache_write, told.estimated)
    if min(counts) < 0 or max(counts) > MOST_TOKENS:
        a, b, c, e, f = (min(max(0, count), MOST_TOKENS) for count in counts)
        counts = (a, b, c, e, f)
    prompt, output, read, write, estimated = counts
    if not prompt + output + estimated:
        bound, said = prompt_bound(run, ctx), weight(reply.message)
        nanos = max(0, told.nanos) or ctx.model.cost(bound, said)
        used = Usage(cache_read=read, cache_write=write, estimated=bound + said, turns=1)
        return replace(used, nanos=nanos, nanos_estimated=nanos)
    used = Usage(
        input=prompt,
        output=output,
        cache_read=read,
        cache_write=write,
        estimated=estimated,
        nanos=told.nanos,
        nanos_estimated=max(0, told.nanos_estimated),
        turns=1,
    )
    return charged(ctx.model, used)


def _take_calls(run: Run, state: Thinking, event: Replied, ctx: StepContext) -> Run:
    said = event.reply.message
    cut = event.reply.stop == "length"
    match state.purpose:
        case "turn":
            return dispatch(run, ctx, said, cut=cut)
        case "grace":
            if len(said.calls) == 1 and said.calls[0].name in ctx.definition.submits and not cut:
                return dispatch(run, ctx, said, cut=False)
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
    if run.empty >= ctx.rules.empty_replies or state.purpose == "final":
        return finish(run, ctx, "failed", "empty", error="the model returned no text")
    run = replace(run, empty=run.empty + 1)
    return think(
        ctx.append(run, User(text="Your reply was empty. Answer now.", kind="nudge")),
        ctx,
        state.purpose,
    )


def _take_text(run: Run, state: Thinking, event: Replied, ctx: StepContext) -> Run:
    """The run has nothing more to do, unless news waits, its report is a turn of its own, or it
    must stay."""
    order, text = ctx.order, event.reply.message.text
    if event.reply.stop == "length":
        return finish(run, ctx, "incomplete", "length", text=text)
    if state.purpose == "final":
        return finish(run, ctx, "incomplete", "budget", text=text, error=why_no_more(run, ctx))
    if state.purpose == "grace":
        return finish(run, ctx, "incomplete", "turn_limit", text=text)
    if state.purpose == "summary":
        return finish(run, ctx, "completed", "done", text=text)
    if state.purpose == "announce":
        return finish(run, ctx, "completed", "done", text=text, data=run.said)
    if ctx.tree.has_mail(run.id):
        return next_turn(run, ctx)
    if order.must_submit:
        return _remind(run, ctx)
    if ctx.stays(run):
        return _rest(run, ctx, all=True)
    if order.report in ("summary", "announce"):
        prompt = order.report_prompt or (SUMMARY if order.report == "summary" else ANNOUNCE)
        run = ctx.append(run, User(text=prompt, kind="nudge"))
        return think(run, ctx, "summary" if order.report == "summary" else "announce")
    if order.host:
        return _rest(run, ctx)
    return finish(run, ctx, "completed", "done", text=text)


def _remind(run: Run, ctx: StepContext) -> Run:
    """A text is not the typed result that was asked for: the run is reminded, then it has not done
    its task."""
    if run.reminded >= ctx.rules.empty_replies:
        return finish(
            run,
            ctx,
            "incomplete",
            "not_submitted",
            error="the agent ended without submitting a result",
        )
    run = replace(run, reminded=run.reminded + 1)
    names = " or ".join(ctx.definition.submits)
    return next_turn(
        ctx.append(run, User(text=f"Submit your result by calling {names}.", kind="nudge")), ctx
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
            at, why = wait
            until = (
                ctx.now + ctx.rules.wait_ms if state.patient_until is None else state.patient_until
            )
            kind = event.kind if why else ""
            again = replace(state, tries=tries, retry_at=at, waits_for=why, waits_kind=kind)
            if why:
                # Nobody knows how long its provider keeps it: what the call may cost is held anew
                # when it is made.
                ctx.tree.ledger.release(run.id, again.hold)
                again = replace(again, hold=NOTHING)
            again = replace(again, patient_until=until if why else None)
            return replace(run, state=again, wake_at=sooner(run.deadline, at))
    ctx.tree.ledger.release(run.id, state.hold)
    run = seated(run, ctx.now)
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
            run, User(text=f"{COMPACT}\n\n{CUT}{clip(ctx.order.task, MOST_OF_TASK)}", kind="nudge")
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
    tokens, nanos, turns, calls = state.hold
    used = within(charged(ctx.model, usage), state.hold)
    part = (min(tokens, used.tokens), used.nanos, 0, 0)
    ctx.tree.ledger.settle(run.id, part, part, guess(used, ctx))
    run = reckon(replace(run, usage=run.usage.plus(used)), ctx, used, state.expected)
    return run, replace(state, hold=(tokens - part[0], nanos - part[1], turns, calls))


def _before_next_try(
    run: Run, state: Thinking, event: ModelFailed, ctx: StepContext, tries: int
) -> tuple[int, str] | None:
    """When it is tried again, and what is waited for if that is long; None when it is not tried
    again.

    An account that is refused is not cured by asking: there the patience begins at once. It ends
    with the longest wait. A key that is refused stays so until another is brought, which wakes the
    run; whoever has it from others (it comes with a time to wait) asks again itself. What was
    refused without a reason is not waited for."""
    retry = ctx.order.retry
    if tries < retry.attempts and event.kind not in REFUSALS:
        ceiling = min(retry.cap_ms, retry.base_ms << min(tries - 1, 20))
        why = ""
    else:
        until = ctx.now + ctx.rules.wait_ms if state.patient_until is None else state.patient_until
        if retry.then == "fail" or event.kind == "forbidden" or ctx.now >= until:
            return None
        ceiling = retry.cap_ms
        why = f"{event.kind}: {event.message}"[:300]
        if event.kind == "auth" and not event.after_ms:
            return until, why
    jitter = int(digest(run.id, run.attempt, "jitter")[:8], 16) % (ceiling + 1)
    return ctx.now + max(event.after_ms, 0) + (ceiling if why else 0) + jitter, why
