"""Decides which calls of a reply run, which need a permission first, and why the others do
not run."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.calls import settle, start_tool
from retinue.core.capabilities import gate
from retinue.core.ending import finish
from retinue.core.events import Replied
from retinue.core.messages import ToolCall, ToolMessage
from retinue.core.notices import fill
from retinue.core.permissions import question_id, question_text
from retinue.core.state import NOTHING, OpenCalls, Question, Run
from retinue.core.step_context import StepContext
from retinue.core.values import NoticeTexts, Permissions, ToolRisk

ONE_CALL = (0, 0, 0, 1)
ALONE = (
    "Not run: {name} ends the run, so it must be the only call in a reply. Call it again "
    "on its own."
)
BEYOND = (
    "Not run: the budget for tool calls was spent. There is more of it now: make the call again."
)
INSTEAD = "Try another approach, or state in your result what you could not do."
MIXED = "{name} was called together with other calls, and must be the only call in a reply"
NOT_RUN = "Not run: this reply also called {name}, which must be the only call in a reply."


def dispatch(run: Run, ctx: StepContext, event: Replied, *, cut: bool) -> Run:
    """A reply with calls was taken in: start each that may run and answer each that may not."""
    calls, definition = event.reply.message.calls, ctx.definition
    is_plain = len(calls) == 1 <= ctx.limits.calls_per_turn and not cut
    refusals = {} if is_plain else _refusals(ctx, calls, cut=cut)
    message, tools, asks = run.length - 1, 0, 0
    by_hook = dict(event.refused) if event.refused else {}
    questions: tuple[Question, ...] = ()
    tool_table, guards = definition.tools, definition.tool_risks
    chain = ctx.tree.deciding(run.id)
    is_ruled = any([permissions.rules or permissions.mode for _, permissions in chain])
    ledger = ctx.tree.ledger
    is_limited = bool(ledger.draws(run.id))
    for index, call in enumerate(calls):
        question, reason, is_denied = None, refusals.get(index), False
        # A name that the agent never had goes to the toolbox, which knows what to suggest instead.
        is_shown = call.name in tool_table or ctx.words.denied or call.name in ctx.words.refused
        why = gate(chain, call.name, ctx.now) if reason is None and is_shown else None
        if why is not None:
            reason = _refusal(ctx, ctx.words, ctx.tree.ancestry(run.id), call.name, why)
        if reason is None and index in by_hook:
            reason, is_denied = f"Refused: {by_hook[index]}", True
        is_asked = bool(event.asks >> index & 1)
        is_guarded = is_asked or (call.name in guards and guards[call.name].guarded)
        if reason is None and (is_ruled or is_guarded):
            question, reason = _permission(run, ctx, index, call, asks=is_asked)
            is_denied = reason is not None
        if is_limited and reason is None and (lack := ledger.lacks(run.id, ONE_CALL)) is not None:
            run, reason = beyond_budget(run, ctx, lack)
        if reason is not None:
            run = _answer(run, ctx, call, reason, is_denied=is_denied)
            continue
        if question is not None:
            questions += (question,)
            asks |= 1 << index
            continue
        if is_limited:
            ledger.settle(run.id, NOTHING, ONE_CALL)
        tools |= 1 << index
        start_tool(run, ctx, index, call)
    if n := tools.bit_count():
        if not is_limited:
            ledger.settle(run.id, NOTHING, (0, 0, 0, n))
        last = calls[tools.bit_length() - 1].name
        run = replace(run, usage=replace(run.usage, calls=run.usage.calls + n), last_tool=last)
    if refusals and len(refusals) == len(calls) and not cut and ctx.request.mixed_submit == "fail":
        name = _submitted(ctx, calls)
        if name:
            return finish(run, ctx, "failed", "sub_agent_error", error=MIXED.format(name=name))
    at = OpenCalls(
        message=message,
        count=len(calls),
        open=tools | asks,
        tools=tools,
        asks=asks,
        questions=questions,
        at=ctx.now,
    )
    return settle(run, ctx, at)


def _answer(run: Run, ctx: StepContext, call: ToolCall, reason: str, *, is_denied: bool) -> Run:
    return ctx.append(
        run,
        ToolMessage(call_id=call.id, name=call.name, text=reason, error=True, denied=is_denied),
    )


def _refusal(
    ctx: StepContext, words: NoticeTexts, chain: list[tuple[str, Permissions]], tool: str, why: str
) -> str:
    """A call that a run may not make, in the words of the tool that started the run. The reason why
    the parent did not give a tool is shown only if the parent could have given it: a tool that was
    taken from a run above cannot be given by any parent."""
    is_withheld = tool in words.refused and gate(chain[1:], tool, ctx.now) is None
    text = words.refused[tool] if is_withheld else words.denied or words.refused.get("", "")
    return (
        fill(text, {"tool": tool, "why": why, "depth": str(ctx.request.level or ctx.spec.depth)})
        if text
        else f"Refused: {why}."
    )


def beyond_budget(run: Run, ctx: StepContext, lack: str) -> tuple[Run, str]:
    """A call that no account covers. Where the limit asks, it is asked before the next turn."""
    account = ctx.tree.ledger.short_of(run.id, ONE_CALL)
    if account is None or account.on_limit == "land":
        return (
            run,
            f"Not run: the budget for tool calls is spent ({lack}). Answer with what you have.",
        )
    return replace(run, lacks_calls=True), BEYOND


def _permission(
    run: Run, ctx: StepContext, index: int, call: ToolCall, *, asks: bool
) -> tuple[Question | None, str | None]:
    """Whether a call has to be asked about, or why it is denied; neither, when it may be made."""
    ruling = ctx.tree.rule_on(run.id, call, asks=asks)
    if ruling.verdict == "allow":
        return None, None
    if ruling.verdict == "deny":
        return None, f"Denied: {ruling.why}. {INSTEAD}"
    if ctx.request.questions != "ask":
        why = f"this call needs permission ({ruling.why}) and no one is available to approve it"
        return None, f"Denied: {why}. {INSTEAD}"
    question = Question(
        index=index,
        id=question_id(run.id, run.turn, index, call),
        call_id=call.id,
        text=question_text(call, ctx.definition.tool_risks.get(call.name, ToolRisk())),
        tool=call.name,
        kind="permission",
    )
    announce(run, ctx, question)
    return question, None


def announce(run: Run, ctx: StepContext, question: Question) -> None:
    """The question is also sent to the channel that asked for the work."""
    if ctx.request.questions != "deny":
        ctx.say(f"{ctx.request.name} asks: {question.text}", run.turn, "question", question.id)


def _refusals(ctx: StepContext, calls: tuple[ToolCall, ...], *, cut: bool) -> dict[int, str]:
    """Calls that are answered without being run, by their index."""
    if cut:
        text = (
            "Not run: your reply was truncated at its length limit, so the call is "
            "incomplete. Make it shorter."
        )
        return dict.fromkeys(range(len(calls)), text)
    submits, ending = ctx.definition.submit_tools, _submitted(ctx, calls)
    if ending:
        return {
            i: (ALONE if c.name in submits else NOT_RUN).format(name=ending)
            for i, c in enumerate(calls)
        }
    most = ctx.limits.calls_per_turn
    text = (
        f"Not run: at most {most} calls run in one reply. Make the remaining calls in "
        "your next reply."
    )
    return dict.fromkeys(range(most, len(calls)), text) if len(calls) > most else {}


def _submitted(ctx: StepContext, calls: tuple[ToolCall, ...]) -> str:
    """The submit tool that a run calls next to other tools; "" if there is none, or if it is the
    only call."""
    submits = ctx.definition.submit_tools
    return (
        next((c.name for c in calls if c.name in submits), "") if len(calls) > 1 and submits else ""
    )
