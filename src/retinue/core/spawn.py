"""Turns requests into children: checks every limit first, then creates all of them, or none.

In one transaction: the child's row, its capabilities, its share of the budget, its task message,
and the parent's call."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core import call_rules, writers
from retinue.core.account import DIMENSIONS, UNFUNDED, UNLIMITED, Limit, limits_of
from retinue.core.budget_shares import shares
from retinue.core.capabilities import allows, covers, for_child, narrow
from retinue.core.events import ActionEvent, RunCreated, StepTaken
from retinue.core.fan_in import FanIn, fan_of
from retinue.core.ids import child_id, step_child_id
from retinue.core.lanes import in_lane_order
from retinue.core.messages import UserMessage
from retinue.core.model_price import UNPRICED
from retinue.core.price_tags import tagged
from retinue.core.spec import DRAWN, ForkPoint, ParentCall, RunRequest, RunSpec
from retinue.core.state import (
    NOTHING,
    Asking,
    OpenCalls,
    Queued,
    Run,
    Waiting,
    Working,
    four,
    n_items,
)
from retinue.core.step_context import StepContext, weight
from retinue.core.tree import Tree
from retinue.core.turn import sooner
from retinue.core.values import NANOS_PER_USD, Definition, Permissions, SpawnLimits
from retinue.errors import Refused
from retinue.formats.money import money


def plan(run: Run, ctx: StepContext, event: ActionEvent) -> list[tuple[RunSpec, Limit]]:
    """The children of one request, or `Refused` naming the limit. Changes nothing."""
    requests = event.actions.spawns
    if not requests:
        return []
    first = n_items(run, event.index)
    _check_limits(run, ctx, requests, first, waits=event.actions.wait is not None)
    grants = _grants(run, ctx, requests)
    out = []
    step, names = (event.step, event.children) if isinstance(event, StepTaken) else ("", ())
    for n, (request, grant) in enumerate(zip(requests, grants, strict=True)):
        slot = ParentCall(
            turn=run.turn,
            index=event.index,
            item=first + n,
            call_id=event.call_id,
            tool=event.name,
            step=step,
        )
        spec = _child_spec(run, ctx, request, slot, event, names[n] if step else "")
        if not ctx.shared.models[spec.model].priced and _is_limited_in_dollars(run, ctx, request):
            raise Refused("price", UNPRICED.format(model=spec.model))
        out.append((spec, grant))
    return out


def _is_limited_in_dollars(run: Run, ctx: StepContext, request: RunRequest) -> bool:
    """Whether the child or a run above it has a limit that would not bind it on a model without a
    price."""
    return request.budget.usd is not None or any(
        a.limit[1] is not None for a in ctx.tree.ledger.chain(run.id)
    )


def _check_limits(
    run: Run, ctx: StepContext, requests: tuple[RunRequest, ...], before: int, *, waits: bool
) -> None:
    permissions, first = ctx.tree.permissions_of(run.id), requests[0]
    if not permissions.may_spawn or (permissions.depth is not None and permissions.depth <= 0):
        raise Refused("depth", f"Runs at depth {ctx.spec.depth} cannot start children.")
    if len(requests) > 1 and any(_joined_like(o) != _joined_like(first) for o in requests):
        raise Refused(
            "mixed", "All children of one call must share the same `join`, `compose` and `results`."
        )
    if waits and first.join != "none":
        raise Refused("mixed", "A call can join its children or use `wait`, not both.")
    if run.breaker is not None and run.breaker.until > ctx.now:
        b = run.breaker
        wait = (b.until - ctx.now + 999) // 1000
        raise Refused(
            "breaker",
            f"The last {b.count} children failed with the same error ({b.signature}). Try "
            f"again in {wait} s.",
        )
    live = ctx.tree.n_live(run.id)
    for limits in (
        (first.limits,) if len(requests) == 1 else dict.fromkeys([o.limits for o in requests])
    ):
        _check_numbers(run, ctx, limits, len(requests), live, before)
    _check_numbers(run, ctx, ctx.limits.spawn_limits, len(requests), live, before)
    if permissions.fanout is not None and live + len(requests) > permissions.fanout:
        raise Refused(
            "children",
            f"Cannot start {len(requests)} more children: {live} are running and the limit "
            f"is {permissions.fanout}.",
        )
    _check_lanes(ctx, requests)
    _check_groups(run, ctx, requests)


def _joined_like(request: RunRequest) -> tuple[str, bool, str, str]:
    return (request.join, request.format_results, request.result_order, request.aggregate)


def _check_lanes(ctx: StepContext, requests: tuple[RunRequest, ...]) -> None:
    counts: dict[str, int] = {}
    for request in requests:
        for lane in request.lanes:
            counts[lane.name] = counts.get(lane.name, 0) + 1
            if lane.on_full == "refuse" and counts[lane.name] > ctx.tree.lanes.room(lane):
                raise Refused(
                    "running",
                    f"lane {lane.name!r} is full (limit {lane.size})",
                )


def _check_numbers(
    run: Run, ctx: StepContext, limits: SpawnLimits, n: int, live: int, before: int
) -> None:
    if limits.depth is not None and ctx.spec.depth >= limits.depth:
        raise Refused(
            "depth",
            f"The depth limit is reached (current depth: {ctx.spec.depth}, limit: {limits.depth}).",
        )
    below = len(ctx.tree.runs) - (ctx.tree.root in ctx.tree.runs)
    if limits.tree is not None and below + n > limits.tree:
        raise Refused(
            "running",
            f"Cannot start {n} more runs: {below} runs of this tree are open and the "
            f"limit is {limits.tree}.",
        )
    if limits.per_call is not None and before + n > limits.per_call:
        raise Refused(
            "per_call", f"Too many children in one call: {before + n} (limit {limits.per_call})."
        )
    if limits.children is not None and live + n > limits.children:
        raise Refused(
            "children",
            f"Cannot start {n} more children: {live} are running and the limit is "
            f"{limits.children}.",
        )
    if limits.total is not None and run.n_children + n > limits.total:
        raise Refused(
            "total",
            f"Cannot start {n} more children: {run.n_children} were started and the limit "
            f"is {limits.total}.",
        )


def _check_groups(run: Run, ctx: StepContext, requests: tuple[RunRequest, ...]) -> None:
    names_by_group: dict[str, set[str]] = {}
    for request in requests:
        if request.limits.groups is None or not request.group:
            continue
        groups = names_by_group.setdefault(
            request.group_kind, set(ctx.tree.groups.get((run.id, request.group_kind), ()))
        )
        if request.group not in groups and len(groups) >= request.limits.groups:
            raise Refused(
                "groups",
                f"Too many groups are running: {len(groups)} (limit {request.limits.groups}).",
            )
        groups.add(request.group)


def _grants(run: Run, ctx: StepContext, requests: tuple[RunRequest, ...]) -> list[Limit]:
    """What each child gets of its own. Amounts without a limit are drawn from the parent's account
    when spent."""
    limits = [limits_of(o.budget) for o in requests]
    policy_name = requests[0].budget_share
    if policy_name and policy_name != DRAWN:
        free = four(ctx.tree.ledger.free(run.id, i) for i in range(4))
        try:
            parts = shares(
                free, policy_name, [o.budget_weight or len(o.task) or 1 for o in requests]
            )
        except ValueError as error:
            raise Refused("share", str(error)) from None
        limits = [_least(a, p) for a, p in zip(limits, parts, strict=True)]
    granted = [
        a
        for a, o in zip(limits, requests, strict=True)
        if o.budget_share != DRAWN and a is not UNLIMITED
    ]
    if not granted:
        return limits
    total = [sum(a[i] or 0 for a in granted) for i in range(4)]
    lack = ctx.tree.ledger.lacks(run.id, (total[0], total[1], total[2], total[3]))
    if lack is not None:
        i = DIMENSIONS.index(lack)
        need, there = (_amount(n, lack) for n in (total[i], ctx.tree.ledger.free(run.id, i) or 0))
        raise Refused(
            "budget", f"Not enough budget: {need} requested, {there} left in the parent's budget"
        )
    return limits


def _amount(n: int, of: str) -> str:
    return money(n / NANOS_PER_USD) if of == "usd" else f"{n:,} {of}"


def _least(a: Limit, b: Limit) -> Limit:
    return four(
        min((limit for limit in pair if limit is not None), default=None)
        for pair in zip(a, b, strict=True)
    )


def _child_spec(
    run: Run, ctx: StepContext, request: RunRequest, slot: ParentCall, event: ActionEvent, name: str
) -> RunSpec:
    shared, parent = ctx.shared, ctx.spec
    at, place = event.asked_at or ctx.now, event.place or parent.request.cwd
    limit = ctx.tree.permissions_of(run.id)
    definition = shared.definitions.get(request.agent)
    if definition is None or (limit.agents is not None and request.agent not in limit.agents):
        names = (
            ", ".join(limit.agents if limit.agents is not None else sorted(shared.definitions))
            or "none"
        )
        raise Refused("agent", f"Unknown agent {request.agent!r}. Agents you can start: {names}.")
    id = (
        step_child_id(at, run.id, slot.turn, slot.call_id, slot.index, name)
        if name
        else child_id(at, run.id, slot.turn, slot.call_id, slot.index, slot.item)
    )
    capabilities = grant_tools(request, definition, limit)
    if request.cwd and not covers(request.cwd, place, limit):
        raise Refused(
            "cwd", f"{request.cwd!r} is outside the parent's directories. Use one inside {place!r}."
        )
    if request.cwd and place and not covers(request.cwd, place, replace(limit, read=())):
        # Where the parent may only read, the child may not write either.
        write = limit.write if limit.write is not None else (place,)
        capabilities = narrow(capabilities, Permissions(write=write))
    model = request.model or definition.model or parent.model
    if model not in shared.models or (
        capabilities.models is not None and model not in capabilities.models
    ):
        names = ", ".join(
            capabilities.models if capabilities.models is not None else sorted(shared.models)
        )
        raise Refused("model", f"Model {model!r} is not allowed. Allowed: {names}")
    return RunSpec(
        id=id,
        request=_settled(writers.placed(ctx, event, request, capabilities), parent.request, place),
        root=parent.root,
        parent=parent.id,
        depth=parent.depth + 1,
        path=f"{parent.path}/{slot.turn}.{slot.index}.{slot.item}",
        created_at=ctx.now,
        parent_call=slot,
        conversation=id,
        base=_base(run, ctx, request),
        resumes=request.history.run,
        permissions=capabilities,
        model=model,
        origin=parent.origin if request.origin is None else request.origin,
        meta={**parent.meta, **request.meta} if request.meta else parent.meta,
    )


def _settled(request: RunRequest, parent: RunRequest, place: str) -> RunRequest:
    """The request as it is stored: what it left to its parent is decided. The results of children
    that are waited for are also read; children of a group that will be summarized are kept for
    it."""
    on_parent_end = request.on_parent_end or parent.children_on_end
    news = request.tell_parent or on_parent_end == "wait"
    retention = "keep" if request.group_size else request.retention
    questions, cwd = request.questions or parent.questions, request.cwd or place
    settled = (on_parent_end, news, retention, questions, cwd)
    if settled != (
        request.on_parent_end,
        request.tell_parent,
        request.retention,
        request.questions,
        request.cwd,
    ):
        request = replace(
            request,
            on_parent_end=on_parent_end,
            tell_parent=news,
            retention=retention,
            questions=questions,
            cwd=cwd,
        )
    return in_lane_order(request, parent)


def check_rules(permissions: Permissions) -> None:
    """Rules are read when they are given, not when they are first needed."""
    for text in permissions.rules:
        try:
            call_rules.read_rule(text)
        except ValueError as error:
            raise Refused("rules", str(error)) from None


def grant_tools(request: RunRequest, definition: Definition, limit: Permissions) -> Permissions:
    """The child's set: what the parent may give, its agent can reach, and the request asks for."""
    child_permissions, reach = request.permissions, definition.reachable_tools
    check_rules(child_permissions)
    if child_permissions.tools is not None and request.on_unknown_tool == "error":
        unknown = sorted(set(child_permissions.tools) - set(reach))
        if unknown:
            raise Refused(
                "tools",
                f"Agent {request.agent!r} has no tool named {', '.join(map(repr, unknown))}.",
            )
        beyond = [t for t in child_permissions.tools if not allows(limit, t)]
        if beyond:
            raise Refused(
                "tools",
                f"The parent cannot give a child these tools: {', '.join(map(repr, beyond))}.",
            )
    permissions = for_child(limit, child_permissions, reach, definition.agents)
    names_sought = (
        definition.tools
        if child_permissions.tools is None
        else tuple({*definition.tools} & {*child_permissions.tools})
    )
    if (names_sought or child_permissions.tools) and not any(
        allows(permissions, t) for t in names_sought
    ):
        names = ", ".join(sorted(names_sought or child_permissions.tools or ()))
        raise Refused(
            "tools",
            f"Agent {request.agent!r} would start with none of its tools ({names}). Add it "
            "to `staff` so that its tools can be passed on.",
        )
    return permissions


def _base(run: Run, ctx: StepContext, request: RunRequest) -> ForkPoint | None:
    """The parent's messages up to its last complete turn: a prefix that every provider takes."""
    if request.history.kind not in ("fork", "last"):
        return request.history.base
    length = fork_point(run)
    start = (
        run.start
        if request.history.kind == "fork"
        else max(run.start, length - 2 * request.history.n)
    )
    return ForkPoint(conversation=ctx.spec.conversation, length=length, start=start)


def fork_point(run: Run) -> int:
    """How many messages of a conversation come before its open calls."""
    match run.state:
        case Working(calls=calls) | Asking(calls=calls):
            return calls.message
        case Waiting(calls=OpenCalls() as calls):
            return calls.message
        case _:
            return run.length


def create_run(
    tree: Tree, spec: RunSpec, grant: Limit, now: int, context: int = 0, deadline: int | None = None
) -> Run:
    """The run exists: its row, its account, its first message."""
    request, base = spec.request, spec.base
    funded = UNFUNDED
    if grant is not UNLIMITED and spec.parent and request.budget_share != DRAWN:
        funded = four(amount is not None for amount in grant)
    tree.ledger.open(spec.id, spec.parent, grant, funded, request.budget.on_limit)
    if request.timeout_from == "created" and request.timeout_ms is not None:
        deadline = sooner(deadline, now + request.timeout_ms)
    text = request.task
    if request.history.kind == "summary" and request.history.text:
        text = f"Context from the requester:\n{request.history.text}\n\nTask:\n{text}"
    message, length = UserMessage(text=text), base.length if base else 0
    tree.changes.messages.append((spec.conversation, length, message))
    run = Run(
        id=spec.id,
        state=Queued(),
        length=length + 1,
        start=base.start if base else 0,
        context=context,
        new_bytes=weight(message),
        deadline=deadline,
        wake_at=sooner(deadline, now + tree.shared.limits.wait_ms),
        epoch=tree.shared.epoch,
    )
    tree.register_run(spec, run)
    tree.ledger.stir(tree.ledger.chain(spec.id), 1)
    tree.changes.specs.append(spec)
    tree.changes.runs[spec.id] = run
    tree.post_event(spec.id, RunCreated())
    return run


def start_children(
    run: Run, ctx: StepContext, event: ActionEvent, planned: list[tuple[RunSpec, Limit]]
) -> Run:
    """Take the planned children on. Joined ones are counted from here."""
    tree = ctx.tree
    first = planned[0][0].request
    fan_in = tree.fans.get(run.id)
    known_fan = fan_in.fans.get(event.index) if fan_in and first.join == "step" else None
    # A call has more children with each step, and one fan for all of them.
    fan = known_fan if known_fan is not None else fan_of(first, event.call_id, event.name)
    for spec, grant in planned:
        spec = tagged(spec, run, ctx)
        if spec.request.budget_share != DRAWN and grant is not UNLIMITED:
            hold = tuple(g or 0 for g in grant)
            tree.ledger.hold(run.id, (hold[0], hold[1], hold[2], hold[3]) if any(hold) else NOTHING)
        tokens = (
            spec.request.history.tokens
            if spec.request.history.kind == "run"
            else run.context + run.new_bytes
        )
        context = tokens if spec.base is not None else 0
        create_run(tree, spec, grant, ctx.now, context, run.deadline)
        fan.pending[spec.id] = None
        if spec.request.copy_of:
            fan.copies[spec.id] = spec
    if first.join != "none" and fan is not known_fan:
        fan_in = tree.fans.setdefault(run.id, FanIn())
        fan_in.add(event.index, fan)
        fan_in.out += len(planned) if first.join == "turn" else 0
    return replace(run, n_children=run.n_children + len(planned))
