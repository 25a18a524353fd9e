"""What the simulated models and tools do: a pure function of the seed and of where in the tree they
are.

Being pure, the same run says the same thing after a crash, so that what is recorded can be compared
with what was said."""

from __future__ import annotations

import random

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.spec import Actions, History, Lane, Retry, RunRequest, SendMessage, WaitForRuns
from retinue.core.values import (
    Budget,
    Definition,
    Limits,
    ModelInfo,
    Permissions,
    SpawnLimits,
    ToolRisk,
    Usage,
)

FAULTS = (
    "crash",
    "duplicate",
    "late",
    "cancel",
    "mail",
    "steer",
    "narrow",
    "slow",
    "bounce",
    "generous",
    "defect",
)
ROOTS = ("00000000-0000-7000-8000-000000000000", "00000000-0000-7000-8000-000000000001")
TOOLS = ("ask", "hand_out", "post", "read", "watch", "write")
RESTART = {
    "ask": "pure",
    "hand_out": "keyed",
    "post": "keyed",
    "read": "pure",
    "survey": "keyed",
    "watch": "pure",
    "write": "unsafe",
}
STEP_TOOLS = ("errand", "survey")
"""Whose functions await children and answers; only some schedules have them."""
SUBMITS = ("submit_error", "submit_result")
MODEL = ModelInfo(
    name="sim",
    window=4_000,
    max_output=300,
    price_in=3,
    price_out=7,
    price_cache_read=1,
    cache_tokens=8,
    shared_tokens=8,
)
UNPRICED = ModelInfo(name="sim", window=4_000, max_output=300, cache_tokens=8, shared_tokens=8)
"""The same, of whose price a later process knows nothing."""
GUARDS = {"write": ToolRisk(risk="write", guarded=True, changes_files=True)}
DEFINITIONS = (
    Definition(
        name="lead",
        model="sim",
        tools=(*TOOLS, *STEP_TOOLS),
        reachable_tools=tuple(sorted((*TOOLS, *STEP_TOOLS, *SUBMITS))),
        agents=("lead", "worker"),
        prompt_bytes=40,
        tool_risks=GUARDS,
    ),
    Definition(
        name="worker",
        model="sim",
        tools=tuple(sorted((*TOOLS, *STEP_TOOLS, *SUBMITS))),
        submit_tools=SUBMITS,
        reachable_tools=tuple(sorted((*TOOLS, *SUBMITS))),
        agents=("worker",),
        prompt_bytes=40,
        tool_risks=GUARDS,
    ),
)


_ORDERS, _LEAF = random.Random(), random.Random()
"""Made once: to make one costs as much as to seed it. The second is for draws within which nothing
else is drawn."""


def _draws(text: str) -> random.Random:
    _LEAF.seed(text)
    return _LEAF


def rules(seed: int) -> Limits:
    r = _draws(f"{seed} rules")
    return Limits(
        spawn_limits=SpawnLimits(depth=3, children=3, per_call=5),
        min_output=8,
        final_output=32,
        asking_output=40,
        breaker_after=3,
        breaker_ms=500,
        max_deaths=r.choice((3, 1_000)),
        wait_ms=3_600_000,
        mail_per_sender=3,
        calls_per_turn=4,
        mode=r.choice(
            ("bypassPermissions", "bypassPermissions", "bypassPermissions", "manual", "dontAsk")
        ),
    )


def root_order(seed: int) -> RunRequest:
    r = _ORDERS
    r.seed(f"{seed} root")
    budget = Budget()
    if r.random() < 0.4:
        budget = Budget(
            tokens=r.choice((None, 0, 3_000, 10_000, 40_000)),
            usd=r.choice((None, None, 0.000_02, 0.001)),
            turns=r.choice((None, None, 3, 12)),
            calls=r.choice((None, None, 3, 8)),
            on_limit=_draws(f"{seed} on_limit").choice(("land", "ask", "ask", "stop")),
        )
    return RunRequest(
        agent="lead",
        task="root task",
        budget=budget,
        timeout_ms=r.choice((None, None, None, 60_000)),
        children_on_end=r.choice(("cancel", "keep", "wait")),
        max_turns=r.choice((None, None, None, 3)),
        grace_turns=r.choice((0, 1)),
        report=r.choice(("text", "text", "summary", "announce")),
        retry=Retry(attempts=3, base_ms=100, cap_ms=400, then=r.choice(("wait", "fail"))),
        lanes=_lanes(r, "main"),
        questions=r.choice(("", "ask", "ask", "deny")),
    )


def leaves_at_once(seed: int, path: str, attempt: int) -> bool:
    """Whether a model call leaves when it is begun; others wait for their provider first."""
    return _draws(f"{seed} {path} {attempt} leaves").random() < 0.6


def _lanes(r: random.Random, group: str) -> tuple[Lane, ...]:
    out = []
    if r.random() < 0.3:
        out.append(Lane(name=f"group {group}", size=1 + len(group) % 2, scope="tree"))
    if r.random() < 0.5:
        out.append(Lane(name="all", size=2, on_full="queue"))
    return tuple(out)


def _child(r: random.Random, n: int, path: str, join: str) -> RunRequest:
    beside = _draws(f"{path} {n} beside")
    is_creation, is_mixed = beside.random() < 0.25, beside.random() < 0.15
    return RunRequest(
        agent=r.choice(("worker", "worker", "lead")),
        task=f"task {n}",
        join=join,  # type: ignore[arg-type]
        report=r.choice(("text", "text", "submit", "summary")),
        history=r.choice((History(), History(), History(kind="fork"), History(kind="last", n=1))),
        permissions=r.choice((Permissions(), Permissions(), Permissions(deny=("write",)))),
        budget=_then(
            path,
            n,
            budget := r.choice(
                (Budget(), Budget(), Budget(tokens=2_000), Budget(turns=2, calls=1))
            ),
        ),
        budget_share="drawn" if budget != Budget() and n % 2 else "",
        timeout_ms=r.choice((None, None, None, 5_000)),
        timeout_from=r.choice(("start", "created")),
        lanes=_lanes(r, path),
        children_on_end=r.choice(("cancel", "keep", "wait")),
        on_parent_end=r.choice(("", "", "cancel", "keep", "wait")),
        tell_parent=r.random() < 0.8,
        max_turns=r.choice((None, None, 1, 2)),
        grace_turns=r.choice((0, 1)),
        result_order=(r.choice(("input", "completion")), "creation")[is_creation],
        mixed_submit="fail" if is_mixed else "ask",
        on_restart="fail" if r.random() < 0.08 else "resume",
        format_results=False,
        retention="delete" if r.random() < 0.15 else "keep",
        retry=Retry(attempts=2, base_ms=100, cap_ms=200, then=r.choice(("wait", "fail"))),
        announce=r.random() < 0.3,
        stay_open=join == "none" and r.random() < 0.2,
    )


def _then(path: str, n: int, budget: Budget) -> Budget:
    """A child's own limit may ask, too."""
    on_limit = _draws(f"{path} {n} on_limit").choice(("land", "land", "ask", "stop"))
    return Budget(tokens=budget.tokens, turns=budget.turns, calls=budget.calls, on_limit=on_limit)


def orders(seed: int, path: str, turn: int, index: int) -> Actions:
    """What `hand_out` orders when this call of this run is carried out."""
    r = _ORDERS
    r.seed(f"{seed} {path} {turn} {index} orders")
    join = r.choice(("call", "call", "turn", "none"))
    n = r.choice((1, 1, 2, 3)) if path.count("/") == 0 else r.choice((1, 2))
    spawns = [_child(r, i, f"{path} {turn} {index}", join) for i in range(n)]
    share = r.choice(("", "", "", "equal", "remaining", "proportional", "fixed:400"))
    compose, group = r.random() < 0.4, r.choice(("", f"g{turn}{index}"))
    limits = r.choice((SpawnLimits(), SpawnLimits(groups=1), SpawnLimits(children=2)))
    fields = {
        "budget_share": share,
        "format_results": compose,
        "group": group,
        "limits": limits,
        "result_order": spawns[0].result_order,
    }
    # One in three turns of a run tells all that is joined by turn together.
    fields["aggregate"] = _draws(f"{seed} {path} {turn} aggregate").choice(("call", "call", "turn"))
    if group and r.random() < 0.5:
        fields |= {"group_size": n, "announce": True}
    return Actions(
        spawns=tuple(_with(o, fields) for o in spawns),
        posts=("under way",) if r.random() < 0.2 else (),
        pause=r.random() < 0.2,
        answer="started" if r.random() < 0.5 else None,
    )


def letters(
    seed: int, run: str, turn: int, index: int, roots: tuple[str, ...]
) -> tuple[SendMessage, ...]:
    """What a root writes to the other one, which may have ended, or never have been there."""
    r = _draws(f"{seed} {run} {turn} {index} letters")
    n = r.choice((0, 0, 1, 2))
    return tuple(
        SendMessage(to=to, text=f"<letter {run[-1]} {turn} {index} {k}>")
        for to in roots
        if to != run
        for k in range(n)
    )


def watch(seed: int, path: str, turn: int, index: int, children: tuple[str, ...]) -> Actions:
    """What `watch` orders: to be called again when its caller's children have ended, or one, or the
    time is over."""
    r = _draws(f"{seed} {path} {turn} {index} watch")
    return Actions(
        wait=WaitForRuns(
            runs=children, timeout_ms=r.choice((0, 300, 20_000)), first=r.random() < 0.5
        )
    )


def _with(order: RunRequest, fields: dict[str, object]) -> RunRequest:
    import msgspec

    return msgspec.structs.replace(order, **fields)


def reply(
    seed: int,
    path: str,
    turn: int,
    purpose: str,
    tools: tuple[str, ...],
    most_in: int,
    most_out: int,
) -> ModelReply:
    """What the model says at this point of this run, and what it costs."""
    r = _draws(f"{seed} {path} {turn} {purpose}")
    usage = Usage(
        input=(n := r.randint(0, most_in)),
        output=r.randint(0, most_out),
        cache_read=r.choice((0, n // 2)),
    )
    if purpose == "compact":
        return ModelReply(message=AssistantMessage(text="compacted"), usage=usage)
    final = ModelReply(message=AssistantMessage(text=f"<{path}>"), usage=usage, stop="end")
    if purpose in ("final", "summary", "announce"):
        return final
    x = r.random()
    if x < 0.03:
        return ModelReply(message=AssistantMessage(), usage=usage)
    if x < 0.04:
        return ModelReply(message=AssistantMessage(text="no"), usage=usage, stop="refusal")
    if x < 0.05:
        return ModelReply(message=AssistantMessage(text="cut"), usage=usage, stop="length")
    depth = path.count("/")
    eager = turn == 0 and depth == 0
    if turn >= 5 or (not eager and x < 0.3):
        if "submit_result" in tools and r.random() < 0.6:
            mixed = r.random() < 0.2
            submit = ToolCall(
                id=f"t{turn}i0", name="submit_result", arguments_json=f'{{"result": "<{path}>"}}'
            )
            calls = [submit, *([_call("read", turn, 1)] if mixed else [])]
            return ModelReply(
                message=AssistantMessage(calls=tuple(calls)), usage=usage, stop="calls"
            )
        return final
    usual = ("read", "write", "post", "read", "ask", "nothing", "watch")
    names = [r.choice(usual) for _ in range(r.choice((0, 1, 2)))]
    rates = (0, 0, 0, 1) if depth < 2 else (0,)
    names += ["hand_out"] * r.choice((1, 2) if eager else rates)
    r.shuffle(names)
    if has_steps(seed) and depth < 2:
        names = _stepping(names, _draws(f"{seed} {path} {turn} stepping"))
    if not names:
        return final
    calls = tuple(_call(n, turn, i) for i, n in enumerate(names))
    return ModelReply(
        message=AssistantMessage(text=r.choice(("", f"<{path}~{turn}>")), calls=calls),
        usage=usage,
        stop="calls",
    )


def loses_price(seed: int) -> bool:
    """Whether processes after the first do not know what the model costs."""
    return seed % 16 == 9


def has_steps(seed: int) -> bool:
    """Whether the tools of a schedule await children: one in sixteen do, and often."""
    return seed % 16 == 3


def _stepping(names: list[str], r: random.Random) -> list[str]:
    return [r.choice((n, "survey", "survey", "errand")) for n in names]


def stages(seed: int, path: str, turn: int, index: int) -> list[tuple[str, tuple[RunRequest, ...]]]:
    """The steps of a function, in order: children that it awaits, one in the background, a
    question."""
    r = _ORDERS
    r.seed(f"{seed} {path} {turn} {index} stages")
    out: list[tuple[str, tuple[RunRequest, ...]]] = []
    for n in range(r.choice((1, 2, 2, 3))):
        kind = r.choice(("await", "await", "await", "spawn", "ask"))
        join, count = ("none", 1) if kind == "spawn" else ("step", r.choice((1, 1, 2)))
        where = f"{path} {turn} {index} {n}"
        children = [_child(r, i, where, join) for i in range(count if kind != "ask" else 0)]
        silent = {"tell_parent": False, "fail_fast": r.random() < 0.2, "stay_open": False}
        plain = {"result_order": "input", **(silent if join == "step" else {})}
        out.append((kind, tuple(_with(order, plain) for order in children)))
    return out


def _call(name: str, turn: int, index: int) -> ToolCall:
    return ToolCall(id=f"t{turn}i{index}", name=name)


def failure(seed: int, path: str, attempt: int) -> tuple[str, bool, int] | None:
    """Whether this attempt fails: its kind, whether to try again, and not before when."""
    r = _draws(f"{seed} {path} {attempt} failure")
    x = r.random()
    if x < 0.08:
        return ("rate_limit", True, r.choice((0, 50)))
    if x < 0.09:
        return ("auth", False, 0)
    return ("context_exhausted", False, 0) if x < 0.10 else None
