"""The entry point to a tree: takes an event, changes the tree, and leaves writes and effects in
`tree.changes`.

`take` takes one event; `settle` then takes the news that it caused, each as a step of its own in
the same transaction, and as many together as the calling function allows. Folding a log is calling
`fold` for each of its rows: the news is in the log, so it is not taken again."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core import limit_questions, spawn
from retinue.core.account import limits_of
from retinue.core.capabilities import narrow
from retinue.core.delivery import step_delivery
from retinue.core.effects import ScheduleDelivery, SendDelivery
from retinue.core.ending import pass_on, send_on
from retinue.core.events import (
    Acked,
    Afforded,
    Bounced,
    Broken,
    ChildEnded,
    Dropped,
    LimitChanged,
    LogEntry,
    MailReceived,
    OfTree,
    Requested,
    Requeued,
    RunEvent,
    Sent,
    TreeEvent,
)
from retinue.core.lanes import in_lane_order
from retinue.core.model_price import UNPRICED
from retinue.core.run import step
from retinue.core.shared import Shared
from retinue.core.spec import RunSpec
from retinue.core.state import MOVING, QUIET, Ended, has_questions
from retinue.core.step_context import StepContext
from retinue.core.tree import Tree
from retinue.core.turn import post
from retinue.core.values import Delivery, Origin, Permissions
from retinue.errors import InvalidTransition, Refused, WhyStale


def settle(tree: Tree, at: int, most: int) -> int:
    """Take the news for other runs until there is none: all of it belongs to this transaction. Runs
    that wait for amounts that others had reserved are notified too, one at a time, because each
    takes from what came back. Returns how many steps were taken; with `most` of them there may be
    more."""
    for n in range(most):
        if not tree.tells:
            due = tree.ledger.due()
            if due is None:
                return n
            tree.post_event(due, Afforded())
        run, event = tree.tells.popleft()
        take(tree, run, at, event)
    return most


def fold(tree: Tree, entry: LogEntry, event: TreeEvent | RunEvent) -> None:
    """Replay one row of a tree's log."""
    if entry.stale:
        _come_too_late(tree, entry.run, entry.at, event)
    else:
        take(tree, entry.run, entry.at, event)
    tree.tells.clear()
    tree.letters.clear()
    while tree.ledger.due() is not None:
        pass  # the log says which runs were notified


def take(tree: Tree, run: str, at: int, event: TreeEvent | RunEvent) -> str:
    """One step. Returns why the event was refused (a `WhyStale`), or ""; what is refused is on
    record as stale."""
    why = stale = ""
    try:
        if isinstance(event, OfTree):
            _tree_step(tree, run, at, event)
        else:
            _run_step(tree, run, at, event)
    except InvalidTransition as error:
        why, stale = WhyStale(error), str(error)
        why.refusal = error.refusal
        _come_too_late(tree, run, at, event)
    tree.changes.entries.append(LogEntry(run=run, at=at, event=event, tree=tree.root, stale=stale))
    return why


def _come_too_late(tree: Tree, id: str, at: int, event: TreeEvent | RunEvent) -> None:
    """A child whose parent ended first is no longer counted by any run: it leaves by itself. Its
    end is passed on. So is news for a run that has ended since it was sent."""
    if isinstance(event, MailReceived) and event.mail.kind == "news" and id in tree.specs:
        send_on(StepContext(tree, tree.specs[id], at), event.mail)
    if (
        not isinstance(event, ChildEnded)
        or event.child not in tree.runs
        or tree.is_live(event.child)
    ):
        return
    spec, run = tree.specs[event.child], tree.runs[event.child]
    if not tree.is_live(spec.parent) and isinstance(run.state, Ended):
        pass_on(run, StepContext(tree, spec, at), run.state.ending)
        tree.dismiss(event.child)


def _run_step(tree: Tree, id: str, at: int, event: RunEvent) -> None:
    run, spec = tree.runs.get(id), tree.specs.get(id)
    if run is None or spec is None:
        raise InvalidTransition(f"{type(event).__name__} for {id}, which is not live")
    before = run.state
    was = type(before)
    was_moving = was in MOVING or tree.is_moving(run)
    chain = tree.ledger.chain(id)
    after = step(run, event, StepContext(tree, spec, at))
    after = replace(after, version=run.version + 1)
    now = after.state
    kind = type(now)
    if was_moving != (kind in MOVING or tree.is_moving(after)):
        tree.ledger.stir(chain, -1 if was_moving else 1)
    tree.runs[id] = tree.changes.runs[id] = after
    if (was not in QUIET and has_questions(before)) or (kind not in QUIET and has_questions(now)):
        tree.ask_about(run, after)
    if kind is Ended and not tree.is_live(spec.parent):
        tree.dismiss(id)


def _tree_step(tree: Tree, run: str, at: int, event: TreeEvent) -> None:
    match event:
        case Requested():
            _request(tree, at, event)
        case Broken():
            pass  # a later process takes the tree up as it was before
        case LimitChanged():
            limit_questions.change(tree, run, event)
        case Sent() | Acked() | Bounced() | Requeued() | Dropped():
            _deliver(tree, at, event)
        case _:
            assert_never(event)


def refuse_request(shared: Shared, event: Requested) -> None:
    """Raise `Refused` when a root cannot be taken on, whatever else is open."""
    request = event.request
    definition = shared.definitions.get(request.agent)
    if definition is None:
        names = ", ".join(sorted(shared.definitions)) or "none"
        raise Refused("agent", f"Unknown agent {request.agent!r}. Known: {names}")
    model = request.model or definition.model
    if model not in shared.models:
        raise Refused(
            "model",
            f"Unknown model {model!r}. Known: {', '.join(sorted(shared.models)) or 'none'}",
        )
    if request.budget.usd is not None and not shared.models[model].priced:
        raise Refused("price", UNPRICED.format(model=model))
    spawn.check_rules(request.permissions)
    if not event.id:
        raise Refused("id", "A run needs an id.")


def _request(tree: Tree, at: int, event: Requested) -> None:
    definition = tree.shared.definitions[event.request.agent]
    limit = Permissions(tools=definition.reachable_tools, agents=definition.agents)
    capabilities = narrow(narrow(event.permissions, limit), event.request.permissions)
    spec = RunSpec(
        id=event.id,
        request=in_lane_order(event.request),
        root=event.id,
        created_at=at,
        conversation=event.conversation or event.id,
        base=event.base,
        resumes=event.resumes,
        permissions=capabilities,
        model=event.request.model or definition.model,
        origin=event.request.origin or Origin(),
        tag=event.tag,
        meta=event.request.meta,
    )
    run = spawn.create_run(tree, spec, limits_of(event.request.budget), at, context=event.context)
    ctx = StepContext(tree, spec, at)
    for mail in event.news:
        run = tree.runs[run.id] = tree.changes.runs[run.id] = post(run, mail, ctx)


def _deliver(tree: Tree, at: int, event: Sent | Acked | Bounced | Requeued | Dropped) -> None:
    delivery = tree.deliveries.get(event.key)
    if delivery is None:
        raise InvalidTransition(
            f"{type(event).__name__} for delivery {event.key}, which is not open"
        )
    delivery = step_delivery(delivery, event, at, tree.shared.limits)
    tree.changes.deliveries[event.key] = delivery
    tree.keep_delivery(delivery)
    if delivery.state == "pending":
        tree.changes.effects.append(ScheduleDelivery(key=event.key, at=delivery.next_at))
    if delivery.state == "sent":
        tree.changes.effects.append(SendDelivery(key=event.key))
    if delivery.state == "acked" or isinstance(event, Dropped):
        tree.drop_delivery(event.key)
    if delivery.discard and delivery.state in ("acked", "suppressed"):
        _discard_announced(tree, delivery)


def _discard_announced(tree: Tree, delivery: Delivery) -> None:
    """The announcement is over; if the run's parent is still to join it, the join deletes it."""
    fan_in = tree.fans.get(delivery.discard)
    waits = fan_in is not None and any(delivery.run in fan.discard for fan in fan_in.fans.values())
    if delivery.run not in tree.specs and not waits:
        tree.discard(delivery.run, delivery.path)
