"""Questions that wait for a person: what is asked, by whom, and the event that answers it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from retinue.core.events import Answered, Decided
from retinue.core.roster import Roster
from retinue.core.state import Question, calls_of
from retinue.core.text import clip
from retinue.core.values import Assistant, Call, Guard, Message
from retinue.errors import NotFound, Refused

_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SHORTEST = 6
Read = Callable[[str, int, int], Awaitable[Sequence[Message]]]


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One question. A `permission` wants a yes or a no to exactly `call`, a `question` wants a text. `shown` is the
    call as a person should see it: every argument, and nothing that hides or reorders characters."""

    id: str
    run: str
    root: str
    label: str
    kind: Literal["question", "permission"]
    tool: str
    text: str
    turn: int
    index: int
    call: Call
    risk: str
    shown: str


async def open_questions(roster: Roster, read: Read, root: str = "") -> list[OpenQuestion]:
    """Everything that somebody asks, oldest run first; with a `root`, in its tree only."""
    out = []
    for id, run in sorted(roster.runs.items()):
        spec, calls = roster.specs.get(id), calls_of(run)
        if spec is None or calls is None or not calls.questions or root not in ("", spec.root, id):
            continue
        said = (await read(spec.conversation, calls.message, calls.message + 1))[0]
        assert isinstance(said, Assistant)
        definition = roster.definitions.get(spec.order.agent)
        guards = definition.guards if definition is not None else {}
        for q in calls.questions:
            call = said.calls[q.index]
            out.append(
                OpenQuestion(
                    id=q.id,
                    run=id,
                    root=spec.root,
                    label=spec.order.label or spec.order.agent,
                    kind=q.kind,
                    tool=q.tool,
                    text=plain(q.text),
                    turn=run.turn,
                    index=q.index,
                    call=call,
                    risk=guards.get(call.name, Guard()).risk,
                    shown=canonical(call),
                )
            )
    return out


async def find_question(roster: Roster, read: Read, name: str) -> OpenQuestion:
    """The question of this id, or of an id that begins so. A run is no name for one: what it asks may have changed."""
    everything = await open_questions(roster, read)
    found = [q for q in everything if q.id.startswith(name)] if len(name) >= SHORTEST else []
    if not found:
        raise NotFound(f"nothing is asked by the name {name!r}; it may have been answered by somebody else")
    if len(found) > 1:
        raise Refused("question", f"{name!r} is not enough: it may be {', '.join(q.id for q in found)}")
    return found[0]


def decision(q: OpenQuestion, allow: bool, by: str, reason: str, always: bool) -> Decided:
    if q.kind != "permission":
        raise Refused("question", f"{q.label} asks for a text: {clip(q.text, 200)}")
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


def oldest_answer(roster: Roster, id: str, text: str) -> Answered:
    """The event that answers the oldest open question of a run."""
    run = roster.runs.get(id)
    calls = calls_of(run)
    asked: Question | None = min(calls.questions, key=lambda q: q.index) if calls and calls.questions else None
    if run is None or asked is None:
        raise Refused("question", f"run {id} is not asking anything")
    if asked.kind == "permission":
        raise Refused("question", f"run {id} needs a yes or a no to {asked.tool}: decide about it")
    return Answered(turn=run.turn, index=asked.index, call_id=asked.call_id, text=text)


def canonical(call: Call) -> str:
    """A call as it will be made: its name and every argument, one a line."""
    try:
        args = msgspec.json.decode(call.args)
    except (msgspec.DecodeError, RecursionError):
        return f"{plain(call.name)} {plain(call.args)}"
    if not isinstance(args, dict):
        return f"{plain(call.name)} {plain(call.args)}"
    lines = [
        f"  {plain(str(k))}: {plain(v if isinstance(v, str) else msgspec.json.encode(v).decode())}"
        for k, v in args.items()
    ]
    return "\n".join([plain(call.name), *lines])


def plain(text: str) -> str:
    """What is written is what is seen: marks that hide, reorder or erase characters are spelled out."""
    text = "".join(f"<U+{ord(c):04X}>" if unicodedata.category(c) == "Cf" else c for c in text)
    return _HIDDEN.sub(lambda m: f"<U+{ord(m[0]):04X}>", text)
