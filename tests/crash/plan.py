"""What the runs of one workload do and how each must end: pure functions of a seed, the same in
every process.

A model is asked again after a crash and must go on where it was, so it reads all it needs from the
conversation. What it says at last names everything it has heard: a result that was lost, repeated
or changed changes the text."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from retinue.core.ids import digest
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.values import JoinMode
from retinue.errors import ModelUnavailable
from retinue.models.base import ModelRequest
from retinue.models.scripted import Line, call

TEXT_CAP = 2_000
WAITS = "Not everybody has reported yet."
YES = "(the user says yes)"

Kind = Literal["text", "data", "error", "asleep", "late", "poison"]
KINDS: tuple[Kind, ...] = ("text", "text", "text", "data", "data", "error", "late")


@dataclass(frozen=True)
class Act:
    """One call of a reply. `children` are those that `hand_out` starts; `target` is whom `call_off`
    ends."""

    tool: str
    children: tuple[Node, ...] = ()
    compose: bool = False
    target: str = ""


@dataclass(frozen=True)
class Node:
    """One run: a reply with calls for each of `steps`, then its end. With `leaves` it ends before
    its background children do; otherwise it stays for them."""

    name: str
    kind: Kind = "text"
    join: JoinMode = "call"
    steps: tuple[tuple[Act, ...], ...] = ()
    fork: bool = False
    announce: bool = False
    lane: bool = False
    flaky: bool = False
    leaves: bool = False

    @property
    def task(self) -> str:
        return f"task {self.name}"

    def children(self) -> Iterator[Node]:
        for act in self.acts():
            yield from act.children

    def acts(self) -> Iterator[Act]:
        for step in self.steps:
            yield from step

    def reporting(self) -> list[Node]:
        """Children whose results it has before it says its last word. (Of what it has ended itself
        it is not told.)"""
        return [
            c
            for c in self.children()
            if (c.join != "none" or not self.leaves) and c.kind != "asleep"
        ]


@dataclass(frozen=True)
class Ending:
    """How a run must end, whatever was killed on the way."""

    state: str
    stop: str
    text: str = ""
    error: str = ""
    token: str = ""
    """Stands in what its parent is told, and nowhere else."""


@dataclass(frozen=True)
class Plan:
    seed: int
    roots: tuple[Node, ...]
    max_deaths: int = 1_000_000

    def everybody(self) -> Iterator[tuple[Node, Node | None]]:
        """Each node with its parent."""
        todo: list[tuple[Node, Node | None]] = [(r, None) for r in self.roots]
        while todo:
            node, parent = todo.pop()
            yield node, parent
            todo.extend((c, node) for c in node.children())

    def key(self, root: Node) -> str:
        return f"{self.seed} {root.name}"


# how things must come out


def answer(tool: str, node: str, step: int, n: int) -> str:
    """What a tool returns. `long` is cut in the conversation and kept whole beside it."""
    text = f"({tool} {node}:{step}.{n})"
    return text * (1 + 2 * TEXT_CAP // len(text)) if tool == "long" else text


def mail(name: str) -> str:
    return f"(mail of {name})"


def ending(node: Node, above: tuple[str, ...] = ()) -> Ending:
    """`above` are the names whose tasks a fork inherits."""
    name = node.name
    match node.kind:
        case "asleep":
            return Ending(
                "cancelled",
                "cancelled",
                error="cancelled by its parent",
                token=f"{name} cancelled (cancel",
            )
        case "late":
            return Ending(
                "timed_out",
                "deadline",
                error="the deadline passed",
                token=f"{name} timed out (deadline)",
            )
        case "poison":
            return Ending("interrupted", "quarantined", token=f"{name} interrupted (quarantined)")
        case "error":
            return Ending("failed", "sub_agent_error", error=_refusal(name), token=_refusal(name))
    text = last_word(node, (*above, name), _to_hear(node, above))
    if node.kind == "data":
        text = msgspec.json.encode(data(text)).decode()
        return Ending("completed", "submitted", text=text, token=text)
    return Ending("completed", "done", text=text, token=text)


def data(text: str) -> dict[str, str]:
    return {"said": text}


def _refusal(name: str) -> str:
    return f"<{name}> cannot be done"


def last_word(node: Node, tasks: Sequence[str], requests: Sequence[str]) -> str:
    return f"<{node.name}> {digest('/'.join(tasks), *sorted(requests))[:12]}"


def _to_hear(node: Node, above: tuple[str, ...]) -> list[str]:
    """Each of these must stand once in the conversation before the last word."""
    out = []
    chain = (*above, node.name)
    for child in node.reporting():
        out.append(ending(child, chain if child.fork else ()).token)
        out += [mail(child.name)] * sum(a.tool == "tell" for a in child.acts())
    for s, step in enumerate(node.steps):
        for n, act in enumerate(step):
            if act.tool in ("pure", "keyed"):
                out.append(answer(act.tool, node.name, s, n))
            elif act.tool == "ask":
                out.append(YES)
    return out


# what a model says


class Script:
    """The model of every run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.nodes = {node.name: node for node, _ in plan.everybody()}

    def __call__(self, request: ModelRequest) -> Line:
        messages = request.messages
        tasks = [(n, m.text.removeprefix("task ")) for n, m in enumerate(messages) if _is_task(m)]
        start, name = tasks[-1]
        node = self.nodes[name]
        if node.flaky and request.attempt == 1:
            return ModelUnavailable("try again", kind="rate_limit")
        mine = messages[start:]
        n_replies = sum(isinstance(m, AssistantMessage) and bool(m.calls) for m in mine)
        if n_replies < len(node.steps):
            return self._calls(request, node, n_replies)
        chain = tuple(t for _, t in tasks)
        hearing = _to_hear(node, chain[:-1])
        texts = [m.text for m in mine if isinstance(m, (ToolMessage, UserMessage))]
        requests = [
            token for token in set(hearing) for text in texts for _ in range(text.count(token))
        ]
        if sorted(requests) != sorted(hearing):
            return WAITS
        text = last_word(node, chain, requests)
        if node.kind == "error":
            return _named(request, [call("submit_error", error=_refusal(name))])
        return (
            _named(request, [call("submit_result", result=data(text))])
            if node.kind == "data"
            else text
        )

    def _calls(self, request: ModelRequest, node: Node, step: int) -> Line:
        calls = [
            call(act.tool, node=node.name, step=step, n=n) for n, act in enumerate(node.steps[step])
        ]
        return _named(request, calls)

    def act(self, node: str, step: int, n: int) -> Act:
        return self.nodes[node].steps[step][n]


def _is_task(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.kind == "task"


def _named(request: ModelRequest, calls: list[ToolCall]) -> list[ToolCall]:
    """The attempt is in the id: a call that was run before its reply was on record is found out
    after a crash."""
    return [msgspec.structs.replace(c, id=f"a{request.attempt}c{n}") for n, c in enumerate(calls)]


# who there is


def make(seed: int) -> Plan:
    """One tree that has something of everything, sometimes a second one, and a run that asks its
    user."""
    r = random.Random(f"{seed} plan")
    roots = [_rich(r, "r0")]
    if r.random() < 0.3:
        roots.append(_branch(r, "r1", 0))
    asker = Node("q0", steps=((Act("ask"), Act("unsafe")), (Act("pure"),)), announce=True)
    return Plan(seed, (*roots, asker))


def poison() -> Plan:
    """One child kills the process whenever it runs; its siblings and its parent have work to do."""
    killer = Node("r0.0", kind="poison", steps=((Act("poison"),),))
    siblings = tuple(
        Node(f"r0.{n}", steps=((Act("pure"),), (Act("keyed"), Act("unsafe")))) for n in (1, 2, 3)
    )
    return Plan(
        0,
        (Node("r0", steps=((Act("hand_out", (killer, *siblings)),), (Act("pure"),))),),
        max_deaths=3,
    )


def hold() -> Plan:
    """It cannot end before its user answers."""
    return Plan(0, (Node("q0", steps=((Act("ask"),), (Act("pure"), Act("unsafe")))),))


def _rich(r: random.Random, name: str) -> Node:
    """All three joins, a fork, a nested level, background work that is announced, one child that is
    called off."""
    names = (f"{name}.{n}" for n in range(100))
    joined = [_leaf(r, next(names), "call"), _branch(r, next(names), 1)]
    sleeper = Node(next(names), kind="asleep", join="none", steps=((Act("sleep"),),))
    behind = [
        replace(_leaf(r, next(names), "none"), announce=True),
        replace(_branch(r, next(names), 1, join="none"), announce=True, leaves=True),
        sleeper,
    ]
    by_turn = [replace(_leaf(r, next(names), "turn"), fork=True), _leaf(r, next(names), "turn")]
    steps = [
        (_tool(r), Act("hand_out", tuple(joined), compose=r.random() < 0.5), Act("unsafe")),
        (Act("hand_out", tuple(behind)), _tool(r)),
        (
            Act("hand_out", (by_turn[0],)),
            Act("long"),
            Act("hand_out", (by_turn[1],), compose=r.random() < 0.5),
        ),
    ]
    r.shuffle(steps)
    steps.append((Act("call_off", target=sleeper.name), _tool(r)))
    return Node(name, steps=tuple(steps), announce=True, flaky=r.random() < 0.5)


def _branch(r: random.Random, name: str, depth: int, join: JoinMode = "call") -> Node:
    """A run with children of its own; one of those it leaves behind goes on after its end."""
    names = (f"{name}.{n}" for n in range(100))
    below: JoinMode = r.choice(("call", "turn"))
    children = [_leaf(r, next(names), below) for _ in range(r.choice((1, 2)))]
    first = [_tool(r), Act("hand_out", tuple(children), compose=r.random() < 0.3)]
    leaves = r.random() < 0.5
    if r.random() < 0.6:
        first.append(Act("hand_out", (replace(_leaf(r, next(names), "none"), announce=True),)))
    r.shuffle(first)
    steps = (tuple(first), (_tool(r),)) if r.random() < 0.5 else (tuple(first),)
    return Node(name, join=join, steps=steps, fork=depth > 0 and r.random() < 0.4, leaves=leaves)


def _leaf(r: random.Random, name: str, join: JoinMode) -> Node:
    kind = r.choice(KINDS)
    if kind == "late":
        return Node(name, kind=kind, join=join, steps=((Act("sleep"),),))
    steps = [tuple(_tool(r) for _ in range(r.choice((1, 1, 2)))) for _ in range(r.choice((1, 2)))]
    if join != "none" and r.random() < 0.4:
        steps.append((Act("tell"),))
    return Node(
        name,
        kind=kind,
        join=join,
        steps=tuple(steps),
        fork=r.random() < 0.25,
        lane=r.random() < 0.6,
        flaky=r.random() < 0.2,
    )


def _tool(r: random.Random) -> Act:
    return Act(r.choice(("pure", "keyed", "unsafe", "unsafe")))
