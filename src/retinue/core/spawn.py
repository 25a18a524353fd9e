"""Orders become children: every limit is asked first, then all of them exist, or none.

In one transaction: the child's row, its capabilities, its share of the budget, its task message,
and the parent's call."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core import call_rules
from retinue.core import capabilities as policy
from retinue.core.account import DIMENSIONS, UNFUNDED, UNLIMITED, Limit, limits_of
from retinue.core.budget_shares import shares
from retinue.core.events import Enlisted, Ordered
from retinue.core.fan_in import FanIn, fan_of
from retinue.core.ids import run_id
from retinue.core.messages import User
from retinue.core.price_tags import tagged
from retinue.core.spec import DRAWN, Base, Order, Slot, Spec
from retinue.core.state import NOTHING, Asking, Calls, Queued, Run, Waiting, Working
from retinue.core.step_context import StepContext, weight
from retinue.core.tree import Tree
from retinue.core.turn import sooner
from retinue.core.values import NANOS_PER_USD, Capabilities, Definition, Limits
from retinue.errors import Refused
from retinue.formats.money import money

UNPRICED = (
    "The price of {model!r} is unknown, so a dollar budget cannot be enforced. Set a "
    "token budget instead, or choose a model with a price."
)


def plan(run: Run, ctx: StepContext, event: Ordered) -> list[tuple[Spec, Limit]]:
    """The children of one order, or `Refused` naming the limit. Changes nothing."""
    orders = event.orders.spawns
    if not orders:
        return []
    _check_limits(run, ctx, orders, waits=event.orders.wait is not None)
    grants = _grants(run, ctx, orders)
    out = []
    for item, (order, grant) in enumerate(zip(orders, grants, strict=True)):
        slot = Slot(
            turn=run.turn, index=event.index, item=item, call_id=event.call_id, tool=event.name
        )
        spec = _child_spec(run, ctx, order, slot, event)
        if not ctx.shared.models[spec.model].priced and _is_limited_in_dollars(run, ctx, order):
            raise Refused("price", UNPRICED.format(model=spec.model))
        out.append((spec, grant))
    return out


def _is_limited_in_dollars(run: Run, ctx: StepContext, order: Order) -> bool:
    """Whether the child or somebody above it has a limit that would not bind it on a model without
    a price."""
    return order.budget.usd is not None or any(
        a.limit[1] is not None for a in ctx.tree.ledger.chain(run.id)
    )


def _check_limits(run: Run, ctx: StepContext, orders: tuple[Order, ...], *, waits: bool) -> None:
    held, first = ctx.tree.held(run.id), orders[0]
    if not held.spawn or (held.depth is not None and held.depth <= 0):
        raise Refused("depth", f"Runs at depth {ctx.spec.depth} cannot start children.")
    if len(orders) > 1 and any(_joined_like(o) != _joined_like(first) for o in orders):
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
        (first.limits,) if len(orders) == 1 else dict.fromkeys([o.limits for o in orders])
    ):
        _check_numbers(run, ctx, limits, len(orders), live)
    _check_numbers(run, ctx, ctx.rules.limits, len(orders), live)
    if held.fanout is not None and live + len(orders) > held.fanout:
        raise Refused(
            "children",
            f"Cannot start {len(orders)} more children: {live} are running and the limit "
            f"is {held.fanout}.",
        )
    _check_lanes(ctx, orders)
    _check_groups(run, ctx, orders)


def _joined_like(order: Order) -> tuple[str, bool, str, str]:
    return (order.join, order.compose, order.results, order.aggregate)


def _check_lanes(ctx: StepContext, orders: tuple[Order, ...]) -> None:
    wanted: dict[str, int] = {}
    for order in orders:
        for lane in order.lanes:
            wanted[lane.name] = wanted.get(lane.name, 0) + 1
            if lane.on_full == "refuse" and wanted[lane.name] > ctx.tree.lanes.room(lane):
                raise Refused(
                    "running",
                    f"lane {lane.name!r} is full (limit {lane.size})",
                )


def _check_numbers(run: Run, ctx: StepContext, limits: Limits, n: int, live: int) -> None:
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
    if limits.per_call is not None and n > limits.per_call:
        raise Refused("per_call", f"Too many children in one call: {n} (limit {limits.per_call}).")
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


def _check_groups(run: Run, ctx: StepContext, orders: tuple[Order, ...]) -> None:
    known: dict[str, set[str]] = {}
    for order in orders:
        if order.limits.groups is None or not order.group:
            continue
        groups = known.setdefault(
            order.group_kind, set(ctx.tree.groups.get((run.id, order.group_kind), ()))
        )
        if order.group not in groups and len(groups) >= order.limits.groups:
            raise Refused(
                "groups",
                f"Too many groups are running: {len(groups)} (limit {order.limits.groups}).",
            )
        groups.add(order.group)


def _grants(run: Run, ctx: StepContext, orders: tuple[Order, ...]) -> list[Limit]:
    """What each child gets of its own. Amounts without a limit are drawn from the parent's account
    when spent."""
    asked = [limits_of(o.budget) for o in orders]
    policy_name = orders[0].share
    if policy_name and policy_name != DRAWN:
        a, b, c, e = (ctx.tree.ledger.free(run.id, i) for i in range(4))
        try:
            parts = shares(
                (a, b, c, e), policy_name, [o.weight or len(o.task) or 1 for o in orders]
            )
        except ValueError as error:
            raise Refused("share", str(error)) from None
        asked = [_least(a, p) for a, p in zip(asked, parts, strict=True)]
    granted = [
        a for a, o in zip(asked, orders, strict=True) if o.share != DRAWN and a is not UNLIMITED
    ]
    if not granted:
        return asked
    total = [sum(a[i] or 0 for a in granted) for i in range(4)]
    lack = ctx.tree.ledger.lacks(run.id, (total[0], total[1], total[2], total[3]))
    if lack is not None:
        i = DIMENSIONS.index(lack)
        wanted, there = (_amount(n, lack) for n in (total[i], ctx.tree.ledger.free(run.id, i) or 0))
        raise Refused(
            "budget", f"Not enough budget: {wanted} requested, {there} left in the parent's budget"
        )
    return asked


def _amount(n: int, of: str) -> str:
    return money(n / NANOS_PER_USD) if of == "usd" else f"{n:,} {of}"


def _least(a: Limit, b: Limit) -> Limit:
    w, x, y, z = (
        q if p is None else p if q is None else min(p, q) for p, q in zip(a, b, strict=True)
    )
    return (w, x, y, z)


def _child_spec(run: Run, ctx: StepContext, order: Order, slot: Slot, event: Ordered) -> Spec:
    shared, parent = ctx.shared, ctx.spec
    at, place = event.asked_at or ctx.now, event.place or parent.order.cwd
    held = ctx.tree.held(run.id)
    definition = shared.definitions.get(order.agent)
    if definition is None or (held.agents is not None and order.agent not in held.agents):
        known = (
            ", ".join(held.agents if held.agents is not None else sorted(shared.definitions))
            or "none"
        )
        raise Refused("agent", f"Unknown agent {order.agent!r}. Agents you can start: {known}.")
    id = run_id(
        at,
        run.id,
        slot.turn,
        slot.call_id,
        slot.index,
        slot.item,
        count=(slot.index << 6) + slot.item,
    )
    capabilities = grant_tools(order, definition, held)
    if order.cwd and not policy.covers(order.cwd, place, held):
        raise Refused(
            "cwd", f"{order.cwd!r} is outside the parent's directories. Use one inside {place!r}."
        )
    if order.cwd and place and not policy.covers(order.cwd, place, replace(held, read=())):
        # Where the parent may only read, the child may not write either.
        write = held.write if held.write is not None else (place,)
        capabilities = policy.narrow(capabilities, Capabilities(write=write))
    model = order.model or definition.model or parent.model
    if model not in shared.models or (
        capabilities.models is not None and model not in capabilities.models
    ):
        known = ", ".join(
            capabilities.models if capabilities.models is not None else sorted(shared.models)
        )
        raise Refused("model", f"Model {model!r} is not allowed. Allowed: {known}")
    return Spec(
        id=id,
        order=_settled(order, parent.order, place),
        root=parent.root,
        parent=parent.id,
        depth=parent.depth + 1,
        path=f"{parent.path}/{slot.turn}.{slot.index}.{slot.item}",
        created_at=ctx.now,
        slot=slot,
        conversation=id,
        base=_base(run, ctx, order),
        resumes=order.context.run,
        capabilities=capabilities,
        model=model,
        origin=parent.origin if order.origin is None else order.origin,
    )


def _settled(order: Order, parent: Order, place: str) -> Order:
    """The order as it is kept: what it left to its parent is decided. Who is waited for is also
    heard; who belongs to a group that will be summed up is kept for it."""
    bond = order.bond or parent.orphans
    news = order.news or bond == "wait"
    retention = "keep" if order.group_size else order.retention
    questions, cwd = order.questions or parent.questions, order.cwd or place
    settled = (bond, news, retention, questions, cwd)
    if settled != (order.bond, order.news, order.retention, order.questions, order.cwd):
        order = replace(
            order, bond=bond, news=news, retention=retention, questions=questions, cwd=cwd
        )
    return in_lane_order(order)


def in_lane_order(order: Order) -> Order:
    """Everybody takes lanes in one order and each once, so that no two runs wait for each other:
    those of the tree first, so that nobody holds up other trees while it waits for its own, and
    narrow ones before wide ones."""
    if len(order.lanes) < 2:
        return order
    by_name = {lane.name: lane for lane in reversed(order.lanes)}
    return replace(
        order,
        lanes=tuple(
            sorted(by_name.values(), key=lambda lane: (lane.is_shared, lane.size, lane.name))
        ),
    )


def check_rules(asked: Capabilities) -> None:
    """Rules are read when they are given, not when they are first needed."""
    for text in asked.rules:
        try:
            call_rules.read_rule(text)
        except ValueError as error:
            raise Refused("rules", str(error)) from None


def grant_tools(order: Order, definition: Definition, held: Capabilities) -> Capabilities:
    """The child's set: what the parent may lend, its agent can reach, and the order asks for."""
    asked, reach = order.access, definition.reach
    check_rules(asked)
    if asked.tools is not None and order.unknown_tool == "error":
        unknown = sorted(set(asked.tools) - set(reach))
        if unknown:
            raise Refused(
                "tools", f"Agent {order.agent!r} has no tool named {', '.join(map(repr, unknown))}."
            )
        beyond = [t for t in asked.tools if not policy.allows(held, t)]
        if beyond:
            raise Refused(
                "tools",
                f"The parent cannot give a child these tools: {', '.join(map(repr, beyond))}.",
            )
    given = policy.lend(held, asked, reach, definition.crew)
    wanted = (
        definition.tools if asked.tools is None else tuple({*definition.tools} & {*asked.tools})
    )
    if (wanted or asked.tools) and not any(policy.allows(given, t) for t in wanted):
        names = ", ".join(sorted(wanted or asked.tools or ()))
        raise Refused(
            "tools",
            f"Agent {order.agent!r} would start with none of its tools ({names}). Add it "
            "to `staff` so that its tools can be passed on.",
        )
    return given


def _base(run: Run, ctx: StepContext, order: Order) -> Base | None:
    """The parent's messages up to its last complete turn: a prefix that every provider takes."""
    if order.context.kind not in ("fork", "last"):
        return order.context.base
    length = fork_point(run)
    start = (
        run.start if order.context.kind == "fork" else max(run.start, length - 2 * order.context.n)
    )
    return Base(conversation=ctx.spec.conversation, length=length, start=start)


def fork_point(run: Run) -> int:
    """How many messages of a conversation stand before its open calls."""
    match run.state:
        case Working(calls=calls) | Asking(calls=calls):
            return calls.message
        case Waiting(calls=Calls() as calls):
            return calls.message
        case _:
            return run.length


def enlist(
    tree: Tree, spec: Spec, grant: Limit, now: int, context: int = 0, deadline: int | None = None
) -> Run:
    """The run exists: its row, its account, its first message."""
    order, base = spec.order, spec.base
    funded = UNFUNDED
    if grant is not UNLIMITED and spec.parent and order.share != DRAWN:
        a, b, c, e = (g is not None for g in grant)
        funded = (a, b, c, e)
    tree.ledger.open(spec.id, spec.parent, grant, funded, order.budget.on_limit)
    if order.clock == "created" and order.timeout_ms is not None:
        deadline = sooner(deadline, now + order.timeout_ms)
    text = order.task
    if order.context.kind == "summary" and order.context.text:
        text = f"Context from the requester:\n{order.context.text}\n\nTask:\n{text}"
    message, length = User(text=text), base.length if base else 0
    tree.changes.messages.append((spec.conversation, length, message))
    run = Run(
        id=spec.id,
        state=Queued(),
        length=length + 1,
        start=base.start if base else 0,
        context=context,
        fresh=weight(message),
        deadline=deadline,
        wake_at=sooner(deadline, now + tree.shared.rules.wait_ms),
        epoch=tree.shared.epoch,
    )
    tree.enlist(spec, run)
    tree.ledger.stir(tree.ledger.chain(spec.id), 1)
    tree.changes.specs.append(spec)
    tree.changes.runs[spec.id] = run
    tree.tell(spec.id, Enlisted())
    return run


def hire(run: Run, ctx: StepContext, event: Ordered, planned: list[tuple[Spec, Limit]]) -> Run:
    """Take the planned children on. Joined ones are counted from here."""
    tree = ctx.tree
    first = planned[0][0].order
    fan = fan_of(first, event.call_id, event.name)
    for spec, grant in planned:
        spec = tagged(spec, run, ctx)
        if spec.order.share != DRAWN and grant is not UNLIMITED:
            hold = tuple(g or 0 for g in grant)
            tree.ledger.hold(run.id, (hold[0], hold[1], hold[2], hold[3]) if any(hold) else NOTHING)
        known = (
            spec.order.context.tokens
            if spec.order.context.kind == "run"
            else run.context + run.fresh
        )
        context = known if spec.base is not None else 0
        enlist(tree, spec, grant, ctx.now, context, run.deadline)
        fan.pending[spec.id] = None
    if first.join != "none":
        fan_in = tree.fans.setdefault(run.id, FanIn())
        fan_in.add(event.index, fan)
        fan_in.out += len(planned) if first.join == "turn" else 0
    return replace(run, n_children=run.n_children + len(planned))
