"""Questions: those a tool asks, and calls that need a permission. Each names exactly one call; the
first answer closes it.

A permission is given by a person, never by another run. What a tool asks may be answered by the
parent when no person is there, unless the parent is waiting for this very run."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core import call_rules, permissions
from retinue.core.call_dispatch import ONE_CALL, announce, beyond_budget
from retinue.core.calls import close_call, let_rest, settle, start_tool
from retinue.core.capabilities import gate
from retinue.core.children import stale
from retinue.core.events import Answered, Asked, Decided, Granted, MailReceived, StepTaken
from retinue.core.ids import digest
from retinue.core.messages import ToolCall, ToolMessage
from retinue.core.run_mail import cannot_write
from retinue.core.state import NOTHING, OpenCalls, Question, Run, calls_of
from retinue.core.step_context import StepContext
from retinue.core.tool_steps import give_answer
from retinue.core.values import Mail, PermissionGrant, ToolRisk, Usage
from retinue.errors import Refused
from retinue.formats.fair_cut import clip

TEXT = 4_000
NOBODY = (
    "No one is available to answer. Use your best judgement, and state your assumptions "
    "in your result."
)
ASKS = "{label} asks: {text}\n(Answer with a message to {id}{choices}.)"


def chosen(question: Question, text: str) -> str:
    """The answer that a text gives. Where there are choices it is one of them, whatever the case
    of its letters."""
    if not question.choices or text in question.choices:
        return text
    words = text.strip().casefold()
    for choice in question.choices:
        if choice.strip().casefold() == words:
            return choice
    raise Refused(
        "question",
        f"{clip(text, 200)!r} is not one of the choices. Answer with one of: "
        f"{', '.join(question.choices)}",
    )


def ask(run: Run, calls: OpenCalls, event: Asked, ctx: StepContext) -> Run:
    """A tool cannot finish without an answer: from a person, from the parent, or not at all."""
    try:
        check_may_ask(run, ctx)
    except Refused:
        result = ToolMessage(
            call_id=event.call_id, name=event.name, text=NOBODY, error=True, denied=True
        )
        return close_call(run, ctx, calls, event.index, result)
    return settle(run, ctx, put(run, let_rest(calls, event.index), event, ctx))


def check_may_ask(run: Run, ctx: StepContext) -> None:
    """Whether an answer is possible: from a person, or from a parent that does not wait for this
    very run."""
    if not ctx.request.may_ask:
        raise Refused("question", NOBODY)
    if ctx.request.questions == "deny" and (
        _is_waited_for(run, ctx) or cannot_write(ctx.tree, run.id, ctx.spec.parent) is not None
    ):
        raise Refused("question", NOBODY)


def put(run: Run, calls: OpenCalls, event: Asked | StepTaken, ctx: StepContext) -> OpenCalls:
    """The question is open, and is sent to the person or parent that can answer it."""
    text = clip(event.question, TEXT)
    step = event.step if isinstance(event, StepTaken) else ""
    named = (run.id, run.turn, event.index, event.call_id, text, *((step,) if step else ()))
    again = event.again if isinstance(event, Asked) else None
    question = Question(
        index=event.index,
        id=digest(*named)[:16],
        call_id=event.call_id,
        text=text,
        tool=event.name,
        choices=event.choices,
        step=step,
        call=None
        if again is None
        else ToolCall(id=event.call_id, name=event.name, arguments_json=again),
    )
    if ctx.request.questions == "deny":
        _ask_parent(run, question, ctx)
    announce(run, ctx, question)
    return replace(
        calls, asks=calls.asks | 1 << event.index, questions=(*calls.questions, question)
    )


def _ask_parent(run: Run, question: Question, ctx: StepContext, refused: str = "") -> None:
    choices = f", one of: {', '.join(question.choices)}" if question.choices else ""
    words = ASKS.format(label=ctx.request.name, text=question.text, id=run.id, choices=choices)
    mail = Mail(seq=0, text=f"{refused}\n{words}".strip(), sender=run.id)
    ctx.post_event(ctx.spec.parent, MailReceived(mail=mail))


def _is_waited_for(run: Run, ctx: StepContext) -> bool:
    """Whether no run above could read a question before this run has ended."""
    parent = ctx.tree.runs.get(ctx.spec.parent)
    if parent is None or ctx.request.join != "none":
        return True
    calls = calls_of(parent)
    return calls is not None and (
        any(run.id in watch.runs for watch in calls.waits)
        or any(run.id == step.run and step.text is None for step in calls.steps)
    )


def answer(run: Run, calls: OpenCalls, event: Answered, ctx: StepContext) -> Run:
    """The answer to what a tool asked. A permission is not given by a text."""
    mine = [q for q in calls.questions if q.index == event.index]
    if any(q.kind == "permission" for q in mine):
        raise stale(run, event, f"call {event.index} needs a yes or a no, not a text")
    question = next((q for q in mine if event.question in ("", q.id)), None)
    if question is None:
        raise stale(run, event, f"call {event.index} does not ask {event.question}")
    return _give(run, calls, question, event.text, ctx, name="")


def _give(
    run: Run, calls: OpenCalls, question: Question, text: str, ctx: StepContext, *, name: str
) -> Run:
    if question.step or question.call is not None:
        return give_answer(run, ctx, calls, question, text)
    result = ToolMessage(call_id=question.call_id, name=name, text=text)
    return close_call(run, ctx, calls, question.index, result)


def take_parent_answer(run: Run, calls: OpenCalls, mail: Mail, ctx: StepContext) -> Run | None:
    """Mail from the parent answers the oldest question that was put to it; otherwise it is only
    mail. What is not among the choices is only mail too, and the parent is asked again."""
    if (
        ctx.request.questions != "deny"
        or not mail.sender
        or mail.sender != ctx.spec.parent
        or mail.steer
    ):
        return None
    question = next((q for q in calls.questions if q.kind == "question"), None)
    if question is None:
        return None
    try:
        text = chosen(question, mail.text)
    except Refused as error:
        _ask_parent(run, question, ctx, str(error))
        return None
    return _give(run, calls, question, text, ctx, name=question.tool)


def decide(run: Run, calls: OpenCalls, event: Decided, ctx: StepContext) -> Run:
    """A person has decided about a call. What was taken from the run meanwhile stays taken."""
    call, index = event.call, event.index
    id = permissions.question_id(run.id, event.turn, index, call)
    question = next(
        (q for q in calls.questions if q.index == index and q.kind == "permission"), None
    )
    if event.turn != run.turn or question is None or not question.id == event.question == id:
        raise stale(run, event, "no permission is asked for this call, or it was decided before")
    guard = ctx.definition.tool_risks.get(call.name, ToolRisk())
    refusal = None
    if not event.allow:
        refusal = f"Denied by {event.by or 'the user'}." + (
            f" {event.reason}" if event.reason else ""
        )
    elif (why := gate(ctx.tree.ancestry(run.id), call.name, ctx.now)) is not None:
        refusal = f"Refused: {why}."
    elif (ruling := _rule_now(run, ctx, call, guard)).verdict == "deny":
        refusal = f"Denied: {ruling.why}."
    elif (lack := ctx.tree.ledger.lacks(run.id, ONE_CALL)) is not None:
        run, refusal = beyond_budget(run, ctx, lack)
    if refusal is not None:
        result = ToolMessage(call_id=call.id, name=call.name, text=refusal, error=True, denied=True)
        return close_call(run, ctx, calls, index, result)
    subject = permissions.subject_of(call, guard, ctx.request.cwd)
    if event.always and subject is not None:
        root = ctx.spec.root if ctx.tree.is_live(ctx.spec.root) else run.id
        rule = call_rules.rule_for("allow", call.name, subject)
        ctx.post_event(root, Granted(grant=PermissionGrant(rule=rule, cwd=ctx.request.cwd)))
    ctx.tree.ledger.settle(run.id, NOTHING, ONE_CALL)
    start_tool(run, ctx, index, call, made_at=calls.at)
    bit = 1 << index
    questions = tuple(q for q in calls.questions if q.index != index)
    calls = replace(calls, tools=calls.tools | bit, asks=calls.asks & ~bit, questions=questions)
    run = replace(run, usage=run.usage.plus(Usage(calls=1)), last_tool=call.name)
    return settle(run, ctx, calls)


def _rule_now(run: Run, ctx: StepContext, call: ToolCall, guard: ToolRisk) -> permissions.Ruling:
    return permissions.rule_on(
        ctx.tree.ancestry(run.id), call, guard, (), ctx.limits.mode, ctx.tree.cwds(run.id)
    )
