"""The calls of a turn: which are run, which are refused, and what closes each.

A call is open until it has a result. Results of joined children may come early; each is counted
once; the turn goes on when the last open call is closed.

Theory of operation. The calls of a reply are numbered; sets of them are integers, one bit a call
(`state.Calls`). `open` has no result yet. Of the open ones, `tools` are being run, `asks` wait for
a person, `woken` are run again because what they waited for has come; what is open and none of
these waits for children, joined ones (a `Fan` in the tree, by the call's number) or those that one
of `waits` names. So `open & ~(tools | asks | woken)` is who waits, and a turn is over when `open`
is zero. `settle` is the one place that turns these bits into a state: tools running is `Working`,
else a question is `Asking`, else something open is `Waiting`, else the next turn."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core import permissions as permits
from retinue.core.capabilities import gate
from retinue.core.effects import Abort, CallTool, ChildOutcome, Compose, JoinedCall, Purpose
from retinue.core.ending import finish, free_slots
from retinue.core.events import CancelAsked, Composed, Ordered
from retinue.core.fan_in import Fan
from retinue.core.messages import Assistant, Call, Result
from retinue.core.notices import NONE, fill, plain_result
from retinue.core.provenance import note_on
from retinue.core.spec import Wait
from retinue.core.state import (
    NEW_CALL,
    NOTHING,
    Asking,
    Calls,
    Kept,
    Question,
    Queued,
    Run,
    Waiting,
    Watch,
    Working,
    is_seated,
)
from retinue.core.step_context import StepContext, seated
from retinue.core.turn import await_mail, go_on, post, sooner
from retinue.core.values import Capabilities, Guard, Mail, Words

ONE_CALL = (0, 0, 0, 1)
GATHERED = 4_096
ALONE = "Not run: {name} ends the run and must be the only call in a reply. Call it again, alone."
BROKEN_OFF = (
    "The wait was broken off by a message. Those you waited for go on; you will be told "
    "when they end."
)
NOT_ASKED = "Not run: a message came before the question was answered."
BEYOND = (
    "Not run: the budget of tool calls was spent. If you read this, there is more of it: "
    "make the call again."
)
ELSEWHERE = (
    "Started {count}: {ids}. Their results stand in the answer to call {call}, with those "
    "of the whole turn."
)
MIXED = "{name} was called beside other calls, and must be the only call in a reply"
NOT_RUN = "Not run: this reply also called {name}, which must be the only call in a reply."


def dispatch(run: Run, ctx: StepContext, said: Assistant, *, cut: bool) -> Run:
    """A reply with calls was taken in: start each call that may run and answer each that may
    not."""
    calls, definition = said.calls, ctx.definition
    is_plain = len(calls) == 1 <= ctx.rules.calls_per_turn and not cut
    refusals = {} if is_plain else _refusals(ctx, calls, cut=cut)
    message = run.length - 1
    tools = asks = 0
    questions: tuple[Question, ...] = ()
    known, guards = definition.tools, definition.guards
    chain = ctx.tree.deciding(run.id)
    is_ruled = any([held.rules or held.mode for _, held in chain])
    ledger = ctx.tree.ledger
    for index, call in enumerate(calls):
        question, reason, is_denied = None, refusals.get(index), False
        # A name that the agent never had goes to the toolbox, which knows what to suggest instead.
        told = call.name in known or ctx.words.denied or call.name in ctx.words.refused
        why = gate(chain, call.name, ctx.now) if reason is None and told else None
        if why is not None:
            reason = _refusal(ctx, ctx.words, ctx.tree.ancestry(run.id), call.name, why)
        if reason is None and (is_ruled or (call.name in guards and guards[call.name].guarded)):
            question, reason = _permission(run, ctx, index, call)
            is_denied = reason is not None
        if reason is None and (lack := ledger.lacks(run.id, ONE_CALL)) is not None:
            run, reason = beyond_budget(run, ctx, lack)
        if reason is not None:
            run = ctx.append(
                run,
                Result(call_id=call.id, name=call.name, text=reason, error=True, denied=is_denied),
            )
            continue
        if question is not None:
            questions += (question,)
            asks |= 1 << index
            continue
        ledger.settle(run.id, NOTHING, ONE_CALL)
        tools |= 1 << index
        start_tool(run, ctx, index, call)
    n = tools.bit_count()
    if n:
        last = calls[tools.bit_length() - 1].name
        run = replace(run, usage=replace(run.usage, calls=run.usage.calls + n), last_tool=last)
    if (
        refusals
        and len(refusals) == len(calls)
        and ctx.order.mixed_submit == "fail"
        and _submitted(ctx, calls)
        and not cut
    ):
        return finish(
            run, ctx, "failed", "sub_agent_error", error=MIXED.format(name=_submitted(ctx, calls))
        )
    at = Calls(
        message=message,
        count=len(calls),
        open=tools | asks,
        tools=tools,
        asks=asks,
        questions=questions,
    )
    return settle(run, ctx, at)


def _refusal(
    ctx: StepContext, words: Words, chain: list[tuple[str, Capabilities]], tool: str, why: str
) -> str:
    """A call that a run may not make, in the words of the tool that started the run. Why it did not
    lend a tool is told only if it could have: what was taken from somebody above, nobody could
    lend."""
    is_withheld = tool in words.refused and gate(chain[1:], tool, ctx.now) is None
    text = words.refused[tool] if is_withheld else words.denied or words.refused.get("", "")
    return (
        fill(text, {"tool": tool, "why": why, "depth": str(ctx.order.level or ctx.spec.depth)})
        if text
        else f"Refused: {why}."
    )


def beyond_budget(run: Run, ctx: StepContext, lack: str) -> tuple[Run, str]:
    """A call that no account covers. Where the limit asks, it is asked before the next turn."""
    account = ctx.tree.ledger.short_of(run.id, ONE_CALL)
    if account is None or account.on_limit == "land":
        return (
            run,
            f"Not run: the budget of tool calls is spent ({lack}). Answer with what you have.",
        )
    return replace(run, lacks_calls=True), BEYOND


def _permission(
    run: Run, ctx: StepContext, index: int, call: Call
) -> tuple[Question | None, str | None]:
    """Whether a call has to be asked about, or why it is denied; neither, when it may be made."""
    ruling = ctx.tree.rule_on(run.id, call)
    if ruling.verdict == "allow":
        return None, None
    if ruling.verdict == "deny":
        return (
            None,
            f"Denied: {ruling.why}. Do it another way, or say in your result what was not done.",
        )
    if ctx.order.questions != "ask":
        why = f"Denied: it needs a permission ({ruling.why}), and nobody is there to give it."
        return None, f"{why} Do it another way, or say in your result what was not done."
    question = Question(
        index=index,
        id=permits.question_id(run.id, run.turn, index, call),
        call_id=call.id,
        text=permits.question_text(call, ctx.definition.guards.get(call.name, Guard())),
        tool=call.name,
        kind="permission",
    )
    announce(run, ctx, question)
    return question, None


def announce(run: Run, ctx: StepContext, question: Question) -> None:
    """The channel that asked for the work hears of the question too."""
    if ctx.order.questions != "deny":
        ctx.say(f"{ctx.order.name} asks: {question.text}", run.turn, "question", question.id)


def start_tool(run: Run, ctx: StepContext, index: int, call: Call, *, again: bool = False) -> None:
    key = f"{run.id}/{run.turn}/{index}"
    ctx.perform(
        CallTool(
            run=run.id, turn=run.turn, index=index, call=call, key=key, at=ctx.now, again=again
        )
    )


def start_woken(run: Run, ctx: StepContext, watch: Watch, *, again: bool = False) -> None:
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
        )
    )


def keep_waiting(run: Run, ctx: StepContext, calls: Calls, event: Ordered, wait: Wait) -> Run:
    """The call stays open and its tool is run again when what it waits for has come."""
    call = Call(id=event.call_id, name=event.name, args=wait.then)
    back = next((w.back for w in calls.waits if w.index == event.index), ())
    until = ctx.now + max(0, wait.timeout_ms)
    watch = Watch(
        index=event.index, call=call, runs=wait.runs, first=wait.first, until=until, back=back
    )
    calls = let_rest(calls, event.index)
    calls = replace(calls, waits=(*calls.waits, watch))
    return settle(replace(run, suspicion=None), ctx, wake(run, ctx, calls))


def let_rest(calls: Calls, index: int) -> Calls:
    """The call's tool has returned. Whether the call has its result is another matter."""
    bit = ~(1 << index)
    waits = tuple(w for w in calls.waits if w.index != index) if calls.waits else ()
    return replace(calls, tools=calls.tools & bit, woken=calls.woken & bit, waits=waits)


def wake(run: Run, ctx: StepContext, calls: Calls) -> Calls:
    """Run those tools again whose wait is over."""
    for watch in calls.waits:
        if not calls.woken >> watch.index & 1 and _is_over(watch, ctx):
            calls = replace(calls, woken=calls.woken | 1 << watch.index)
            start_woken(run, ctx, watch)
    return calls


def _is_over(watch: Watch, ctx: StepContext) -> bool:
    live = sum(ctx.tree.is_live(id) for id in watch.runs)
    return watch.until <= ctx.now or not live or (watch.first and live < len(watch.runs))


def remember(run: Run, outcome: ChildOutcome) -> Run:
    """A child that is about to be deleted has ended: whoever waits for it keeps how."""
    match run.state:
        case Working(calls=calls) | Asking(calls=calls) | Waiting(calls=Calls() as calls):
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
        case Working(calls=calls) | Asking(calls=calls) | Waiting(calls=Calls() as calls):
            woken = wake(run, ctx, calls) if calls.waits else calls
            return run if woken is calls else settle(run, ctx, woken)
        case _:
            return run


def _refusals(ctx: StepContext, calls: tuple[Call, ...], *, cut: bool) -> dict[int, str]:
    """Calls that are answered without being run, by their index."""
    if cut:
        text = (
            "Not run: your reply was cut off at its length limit, so the call is incomplete. "
            "Make it shorter."
        )
        return dict.fromkeys(range(len(calls)), text)
    submits, ending = ctx.definition.submits, _submitted(ctx, calls)
    if ending:
        return {
            i: (ALONE if c.name in submits else NOT_RUN).format(name=ending)
            for i, c in enumerate(calls)
        }
    most = ctx.rules.calls_per_turn
    text = f"Not run: at most {most} calls are run in one reply. Make the rest of them in the next."
    return dict.fromkeys(range(most, len(calls)), text) if len(calls) > most else {}


def _submitted(ctx: StepContext, calls: tuple[Call, ...]) -> str:
    """The tool by which a run hands in its result among other calls; "" when there is none, or it
    stands alone."""
    submits = ctx.definition.submits
    return (
        next((c.name for c in calls if c.name in submits), "") if len(calls) > 1 and submits else ""
    )


def close_call(run: Run, ctx: StepContext, calls: Calls, index: int, result: Result) -> Run:
    """One call has its result."""
    bit = ~(1 << index)
    calls = replace(
        calls,
        open=calls.open & bit,
        tools=calls.tools & bit,
        woken=calls.woken & bit,
        asks=calls.asks & bit,
        waits=tuple(w for w in calls.waits if w.index != index) if calls.waits else (),
        questions=tuple(q for q in calls.questions if q.index != index) if calls.questions else (),
    )
    run = run if run.suspicion is None else replace(run, suspicion=None)
    return settle(ctx.append(run, result), ctx, calls)


def settle(run: Run, ctx: StepContext, calls: Calls) -> Run:
    """The state that follows from what is still open."""
    if calls.tools:
        return wait_in(run, ctx, Working(calls=calls, seated=is_seated(run)))
    if not calls.woken:
        run, calls = _close_turn(run, ctx, calls)
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
    wake_at = sooner(run.deadline, ctx.now + ctx.rules.wait_ms)
    calls = state.calls
    for watch in calls.waits if calls is not None else ():
        if calls is not None and not calls.woken >> watch.index & 1:
            wake_at = sooner(wake_at, watch.until)
    return replace(run, state=state, wake_at=wake_at)


def resume(run: Run, ctx: StepContext, purpose: Purpose = "turn", *, kept: Kept = NEW_CALL) -> Run:
    """Take the next turn, or make another call, once there is a slot for it in every lane."""
    lanes = ctx.order.lanes
    if lanes and not is_seated(run):
        held = ctx.tree.enter(run.id, lanes, 0, back=True)
        if held < len(lanes):
            return queue(run, ctx, held, back=True, purpose=purpose, kept=kept)
    return go_on(seated(run, ctx.now), ctx, purpose, kept=kept)


def queue(
    run: Run,
    ctx: StepContext,
    lane: int,
    *,
    back: bool,
    purpose: Purpose = "turn",
    kept: Kept = NEW_CALL,
) -> Run:
    """The run waits for a slot in this lane and holds one in each before it."""
    ctx.tree.tickets += 1
    if ctx.order.lanes[lane].is_shared:
        ctx.tree.ask(run.id, ctx.order.lanes[lane], back=back, ticket=ctx.tree.tickets)
    wake_at = sooner(run.deadline, ctx.now + ctx.rules.wait_ms)
    state = Queued(lane=lane, back=back, ticket=ctx.tree.tickets, purpose=purpose, kept=kept)
    return replace(run, state=state, wake_at=wake_at)


def child_joined(
    run: Run, ctx: StepContext, calls: Calls, index: int, outcome: ChildOutcome
) -> Run:
    """A joined child is back. The caller has checked that it was still out."""
    fan_in = ctx.tree.fans[run.id]
    fan = fan_in.fans[index]
    del fan.pending[outcome.id]
    fan.ended.append(outcome)
    if fan.fail_fast and outcome.is_failure:
        for sibling in fan.pending:
            ctx.tell(
                sibling, CancelAsked(by=run.id, reason=f"{outcome.label} failed", who="system")
            )
    if fan.join == "turn":
        fan_in.out -= 1
        return run if fan_in.out or calls.tools or calls.woken else settle(run, ctx, calls)
    if fan.pending:
        return run
    run, calls = _close_fans(run, ctx, calls, [index])
    if calls.tools:
        return replace(run, state=Working(calls=calls, seated=is_seated(run)))
    return settle(run, ctx, calls)


def _close_turn(run: Run, ctx: StepContext, calls: Calls) -> tuple[Run, Calls]:
    """Calls that are joined by turn are ready together, once no tool can add to them and nobody is
    out."""
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is None or fan_in.out or not fan_in.by_turn:
        return run, calls
    return _close_fans(
        run, ctx, calls, sorted(i for i, f in fan_in.fans.items() if f.join == "turn")
    )


def _close_fans(run: Run, ctx: StepContext, calls: Calls, ready: list[int]) -> tuple[Run, Calls]:
    """Give each of these calls its result, or have its family compose it."""
    fan_in = ctx.tree.fans[run.id]
    compose = []
    for index in ready:
        fan = fan_in.fans[index]
        together = fan_in.together(index)
        long = (
            len(fan.ended) > 1 and sum(len(o.ending.text) for o in fan.ended) > ctx.rules.text_cap
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
        _discard(ctx, fan_in.drop(index))
        text, error = plain_result(fan.in_order())
        run = ctx.append(run, Result(call_id=fan.call_id, name=fan.name, text=text, error=error))
        run = _note(_gather(run, text), ctx, fan)
        calls = replace(calls, open=calls.open & ~(1 << index))
    _drop_empty(run, ctx)
    if compose:
        ctx.perform(Compose(run=run.id, turn=run.turn, calls=tuple(compose)))
    return run, calls


def close_composed(run: Run, ctx: StepContext, calls: Calls, event: Composed) -> Run:
    """A family has put its children's outcomes into words."""
    fan_in = ctx.tree.fans.get(run.id)
    for index, call_id, name, text in event.calls:
        if fan_in is not None and index in fan_in.fans:
            for other in fan_in.together(index)[:-1]:
                run, calls = _point_to(run, ctx, calls, other, call_id)
            fan = fan_in.drop(index)
            _discard(ctx, fan)
            run = _note(run, ctx, fan)
        run = ctx.append(run, Result(call_id=call_id, name=name, text=text, error=event.error))
        run = _gather(run, text)
        calls = replace(calls, open=calls.open & ~(1 << index))
    _drop_empty(run, ctx)
    return settle(run, ctx, calls)


def _point_to(
    run: Run, ctx: StepContext, calls: Calls, index: int, call_id: str
) -> tuple[Run, Calls]:
    """A call whose results stand in the answer of another says so."""
    fan = ctx.tree.fans[run.id].drop(index)
    _discard(ctx, fan)
    run = _note(run, ctx, fan)
    words = ctx.definition.words.get(fan.name, NONE).elsewhere or ELSEWHERE
    ids = ", ".join(sorted(o.id for o in fan.ended))
    text = fill(words, {"count": str(len(fan.ended)), "ids": ids, "call": call_id})
    run = ctx.append(run, Result(call_id=fan.call_id, name=fan.name, text=text))
    return run, replace(calls, open=calls.open & ~(1 << index))


def _gather(run: Run, text: str) -> Run:
    """The beginning of what children reported: all there is to show if no reply of its own can be
    paid any more."""
    room = GATHERED - len(run.gathered)
    return run if room <= 0 else replace(run, gathered=f"{run.gathered}\n{text[:room]}".strip())


def _note(run: Run, ctx: StepContext, fan: Fan) -> Run:
    """What the runtime has to say about these results is a message of its own: their words are
    their family's."""
    note = note_on(fan.in_order())
    return post(run, Mail(seq=0, text=note, kind="note"), ctx) if note else run


def _discard(ctx: StepContext, fan: Fan) -> None:
    for child in fan.discard.values():
        ctx.tree.discard(child.id, child.path)


def _drop_empty(run: Run, ctx: StepContext) -> None:
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is not None and not fan_in.fans:
        del ctx.tree.fans[run.id]


def close_recovered(run: Run, ctx: StepContext, calls: Calls) -> tuple[Run, Calls]:
    """After a restart: calls whose children were all back when the process died."""
    fan_in = ctx.tree.fans.get(run.id)
    if fan_in is None:
        return run, calls
    return _close_fans(
        run,
        ctx,
        calls,
        sorted(i for i, f in fan_in.fans.items() if f.join == "call" and not f.pending),
    )


def detach(run: Run, ctx: StepContext, calls: Calls) -> Run:
    """A steering message cuts the turn short: tools are stopped, joined children go on and report
    as news."""
    fan_in = ctx.tree.fans.pop(run.id, None)
    ctx.perform(Abort(run=run.id))
    for watch in calls.waits:
        run = ctx.append(run, Result(call_id=watch.call.id, name=watch.call.name, text=BROKEN_OFF))
    for asked in calls.questions:
        run = ctx.append(
            run, Result(call_id=asked.call_id, name=asked.tool, text=NOT_ASKED, error=True)
        )
    for fan in fan_in.in_order() if fan_in else ():
        _discard(ctx, fan)
        run = _note(run, ctx, fan)
        text = plain_result(fan.in_order())[0] if fan.ended else ""
        if fan.pending:
            text = (
                f"Still running, you will be told when they end: "
                f"{', '.join(sorted(fan.pending))}\n{text}"
            )
        run = ctx.append(run, Result(call_id=fan.call_id, name=fan.name, text=text.strip()))
    return resume(run, ctx)
