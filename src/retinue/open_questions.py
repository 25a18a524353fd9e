"""Questions that wait for a person: what is asked, which run asks, and the event that answers it.
What tools and permissions ask belongs to a call of a run; what a limit asks belongs to the run
whose budget it is (`core.limit_questions`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal

import msgspec

from retinue.core import limit_questions
from retinue.core.account import DIMENSIONS, limits_of
from retinue.core.budget_shares import written
from retinue.core.call_lines import call_lines
from retinue.core.events import Answered, Decided, LimitChanged
from retinue.core.messages import AssistantMessage, Message, ToolCall
from retinue.core.questions import chosen
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import ByDimension, Waiting, calls_of, questions_of
from retinue.core.state_names import names_question
from retinue.core.trees import Trees
from retinue.core.values import NANOS_PER_USD, Budget, ToolRisk
from retinue.errors import NotFound, Refused
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import one_line, reveal, several_lines
from retinue.pricing import PriceTag, children_tag
from retinue.tools.call_preview import CallPreview

Read = Callable[[str, int, int], Awaitable[Sequence[Message]]]
Preview = Callable[[str, ToolCall], Sequence[RunRequest]]
"""About which children a call of an agent would start."""
LookAhead = Callable[[str, int, ToolCall, int], Awaitable[CallPreview | None]]
"""What the call of a run, by its place in the turn, would do now."""
MOST_SAID = 1_000


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question. A `permission` wants a yes or a no to exactly `call`, a `question` wants a
    text. `shown` is the call as a person should see it: every argument, and nothing that hides or
    reorders characters. `price_tag` is what the input of the sub-agents that the call would start
    should cost, where that is known.

    `preview` is what the call would do as things are now, computed by what would do it: the diff of
    an edit, the command with what is enforced. `why` is what the agent said with the call,
    `asked_by` the rule or mode that asks, `holds_up` who waits for the run meanwhile.

    A `budget` question is about a `limit` (`usd`, `tokens`, `turns`, `calls`) of `run`, at which
    those in `waiting` wait: a yes adds what is `suggested`, a no lets the work land. `choices` are
    the answers that a tool suggests; `asked_ms` is when the call was made."""

    id: str
    run: str
    root: str
    label: str
    kind: Literal["question", "permission", "budget"]
    text: str
    tool: str = ""
    turn: int = 0
    index: int = 0
    call: ToolCall = ToolCall(id="", name="")
    risk: str = ""
    shown: str = ""
    price_tag: PriceTag | None = None
    preview: CallPreview | None = None
    why: str = ""
    asked_by: str = ""
    holds_up: tuple[str, ...] = ()
    limit: str = ""
    suggested: Budget = Budget()
    waiting: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    asked_ms: int = 0


async def open_questions(
    trees: Trees,
    read: Read,
    root: str = "",
    preview: Preview | None = None,
    now: int = 0,
    look_ahead: LookAhead | None = None,
) -> list[OpenQuestion]:
    """All open questions, oldest run first; with a `root`, in its tree only. With a `preview` it is
    said what calls that start others would cost, with `look_ahead` what each call would do."""
    runs = sorted(set(trees.index.questions.values()))
    questions = [q for run in runs for q in await _questions_of(trees, read, run, root)]
    if preview is not None:
        questions = [_priced(trees, q, preview, now) for q in questions]
    if look_ahead is not None:
        questions = [await _with_preview(trees, q, look_ahead, now) for q in questions]
    questions += [q for q in about_limits(trees) if root in ("", q.root, q.run)]
    return sorted(questions, key=lambda q: q.run)


def _priced(trees: Trees, q: OpenQuestion, preview: Preview, now: int) -> OpenQuestion:
    spec, run = trees.spec(q.run), trees.run(q.run)
    if spec is None or run is None or q.kind != "permission":
        return q
    requests = preview(spec.request.agent, q.call)
    return (
        msgspec.structs.replace(q, price_tag=children_tag(trees.shared, spec, run, requests, now))
        if requests
        else q
    )


async def _with_preview(trees: Trees, q: OpenQuestion, look: LookAhead, now: int) -> OpenQuestion:
    tree = trees.of(q.run)
    if q.kind != "permission" or tree is None:
        return q
    asked_by = tree.rule_on(q.run, q.call).why
    preview = await look(q.run, q.index, q.call, now)
    return msgspec.structs.replace(q, preview=preview, asked_by=asked_by)


def _waiting_for(trees: Trees, spec: RunSpec) -> tuple[str, ...]:
    """Who waits for a run: those above it that have nothing else to do."""
    out = []
    while (above := trees.spec(spec.parent)) is not None:
        run = trees.run(above.id)
        if run is None or not isinstance(run.state, Waiting):
            break
        out.append(above.request.label or above.request.agent)
        spec = above
    return tuple(out)


def about_limits(trees: Trees) -> Iterator[OpenQuestion]:
    """What all trees ask about their limits."""
    for tree in trees.index.asking.values():
        for question in limit_questions.open_questions(tree):
            request = tree.specs[question.account].request
            i = DIMENSIONS.index(question.lack)
            added = f"A yes adds {written(i, question.suggested[i])}."
            more = ByDimension(*(amount or None for amount in question.suggested))
            usd = None if more.nanos is None else more.nanos / NANOS_PER_USD
            yield OpenQuestion(
                id=question.id,
                run=question.account,
                root=tree.root,
                label=request.label or request.agent,
                kind="budget",
                text=question.text,
                shown=f"{question.text}\n{added}",
                limit=question.lack,
                suggested=Budget(tokens=more.tokens, usd=usd, turns=more.turns, calls=more.calls),
                waiting=question.waiting,
            )


async def _questions_of(trees: Trees, read: Read, id: str, root: str = "") -> list[OpenQuestion]:
    spec, calls = trees.spec(id), calls_of(trees.run(id))
    if spec is None or calls is None or root not in ("", spec.root, id):
        return []
    messages = await read(spec.conversation, calls.message, calls.message + 1)
    if not messages:  # its message is not recorded yet, so no question is open yet
        return []
    message = messages[0]
    assert isinstance(message, AssistantMessage)
    return about_calls(trees, id, message)


def about_calls(trees: Trees, id: str, message: AssistantMessage) -> list[OpenQuestion]:
    """What a run asks about the calls of its last message."""
    spec, run = trees.spec(id), trees.run(id)
    calls = calls_of(run)
    if spec is None or run is None or calls is None:
        return []
    definition = trees.shared.definitions.get(spec.request.agent)
    guards = definition.tool_risks if definition is not None else {}
    return [
        OpenQuestion(
            id=q.id,
            run=id,
            root=spec.root,
            label=spec.request.label or spec.request.agent,
            kind=q.kind,
            tool=q.tool,
            text=reveal(q.text) if q.kind == "permission" else several_lines(q.text),
            turn=run.turn,
            index=q.index,
            call=message.calls[q.index],
            risk=guards.get(message.calls[q.index].name, ToolRisk()).risk,
            shown=call_lines(
                message.calls[q.index], guards.get(message.calls[q.index].name, ToolRisk())
            ),
            why=clip(several_lines(message.text).strip(), MOST_SAID),
            holds_up=_waiting_for(trees, spec),
            choices=q.choices,
            asked_ms=calls.at,
        )
        for q in calls.questions
    ]


async def find_question(trees: Trees, read: Read, name: str) -> OpenQuestion:
    """Find an open question by its id or the start of it. A run id is not accepted, because the
    run's question may have changed."""
    id = _named(trees, name)
    if id in trees.index.questions:
        questions = await _questions_of(trees, read, trees.index.questions[id])
    else:
        questions = list(about_limits(trees))
    for question in questions if id else ():
        if question.id == id:
            return question
    why = f"No open question {name!r}. It may already have been answered."
    raise NotFound(why, "question", name)


def _named(trees: Trees, name: str) -> str:
    """The whole id of an open question, "" when there is none of this name."""
    questions = trees.index.questions
    if name in questions:
        return name
    everything = {
        *questions,
        *(
            q.id
            for tree in trees.index.asking.values()
            for q in limit_questions.open_questions(tree)
        ),
    }
    matches = sorted(id for id in everything if names_question(name, id))
    if len(matches) > 1:
        raise Refused(
            "question",
            f"{name!r} matches several questions: {', '.join(matches)}. Use more of the id.",
        )
    return matches[0] if matches else ""


def decision(
    q: OpenQuestion, allow: bool, by: str, reason: str, always: bool
) -> Decided | LimitChanged:
    if q.kind == "budget":
        if always:
            raise Refused(
                "question",
                f"{q.label} asks about its limit. Add to the limit, or allow or deny the question.",
            )
        add = [amount or 0 for amount in limits_of(q.suggested)] if allow else [0, 0, 0, 0]
        amounts = (add[0], add[1], add[2], add[3])
        return LimitChanged(
            add=amounts, then="" if allow else "land", question=q.id, by=by, reason=reason
        )
    if q.kind != "permission":
        raise Refused("question", f"{q.label} expects a text answer: {clip(q.text, 200)}")
    return Decided(
        question=q.id,
        turn=q.turn,
        index=q.index,
        call=q.call,
        allow=allow,
        by=by,
        reason=reason,
        always=always,
    )


def answer_to(trees: Trees, name: str, text: str, by: str = "") -> tuple[str, Answered]:
    """The event that answers a question, and the run that asks it. A run names its question as long
    as it has one."""
    if id := _named(trees, name):
        if id not in trees.index.questions:
            raise Refused(
                "question", "This question is about a limit. Add to the limit, or use `decide()`."
            )
        run = trees.run(trees.index.questions[id])
        question = next((q for q in questions_of(run) if q.id == id), None)
    else:
        run, question = trees.run(name), None
        everything = questions_of(run)
        if len(everything) > 1:
            raise Refused("question", several(name, [(q.id, q.text) for q in everything]))
        question = everything[0] if everything else None
    if run is None or question is None:
        raise Refused(
            "question", f"{name} has no open question. It may already have been answered."
        )
    if question.kind == "permission":
        raise Refused(
            "question",
            f"Run {run.id} is waiting for permission to call {question.tool}. Use `decide()` "
            "to allow or deny it.",
        )
    return run.id, Answered(
        turn=run.turn,
        index=question.index,
        call_id=question.call_id,
        text=chosen(question, text),
        question=question.id if question.step else "",
        by=by,
    )


def several(run: str, questions: Sequence[tuple[str, str]]) -> str:
    """The error for a run that has several open questions."""
    listed = "; ".join(f"{id} ({one_line(text, 80)})" for id, text in questions)
    return f"Run {run} has {len(questions)} open questions. Answer one by its id: {listed}"
