"""The one door: an event goes in, the roster changes, and what must be written and done is left in `roster.changes`.

`apply` takes one event; `settle` takes the news that it caused, each as a step of its own in the same transaction.
Folding a log is calling `fold` for each of its rows: the news is in the log, so it is not taken again.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core import ledger, outbox, policy, spawn
from retinue.core.desk import Desk
from retinue.core.effects import Deliver, Transmit
from retinue.core.events import (
    Acked,
    AnyEvent,
    Bounced,
    ChildEnded,
    Closed,
    Described,
    Dropped,
    Entry,
    Forgotten,
    Opened,
    Registered,
    Requested,
    Requeued,
    RosterEvent,
    RunEvent,
    Sent,
)
from retinue.core.orders import Spec
from retinue.core.roster import Roster
from retinue.core.run import step
from retinue.core.state import Ended
from retinue.core.values import Capabilities, Delivery, Origin
from retinue.errors import InvalidTransition, Refused


def apply(roster: Roster, run: str, at: int, event: AnyEvent) -> None:
    """One event, and everything that follows from it now. An event that is refused is recorded as stale."""
    _take(roster, run, at, event)
    settle(roster, at)


def settle(roster: Roster, at: int) -> None:
    """Take the news for other runs until there is none: all of it belongs to this transaction."""
    while roster.tells:
        run, event = roster.tells.popleft()
        _take(roster, run, at, event)


def fold(roster: Roster, entry: Entry) -> None:
    """Replay one row of a log."""
    if entry.stale:
        _come_too_late(roster, entry.event)
    else:
        _take(roster, entry.run, entry.at, entry.event)
    roster.tells.clear()


def _take(roster: Roster, run: str, at: int, event: AnyEvent) -> None:
    stale = ""
    try:
        if isinstance(event, RosterEvent):
            _roster_step(roster, at, event)
        else:
            _run_step(roster, run, at, event)
    except InvalidTransition as error:
        stale = str(error)
        _come_too_late(roster, event)
    roster.changes.entries.append(Entry(run=run, at=at, event=event, stale=stale))


def _come_too_late(roster: Roster, event: AnyEvent) -> None:
    """A child whose parent ended first has nobody left to count it: it leaves by itself. Its end is on record."""
    if not isinstance(event, ChildEnded) or event.child not in roster.runs or roster.is_live(event.child):
        return
    if not roster.is_live(roster.specs[event.child].parent):
        roster.dismiss(event.child)


def _run_step(roster: Roster, id: str, at: int, event: RunEvent) -> None:
    run, spec = roster.runs.get(id), roster.specs.get(id)
    if run is None or spec is None:
        raise InvalidTransition(f"{type(event).__name__} for {id}, which is not live")
    after = step(run, event, Desk(roster, spec, at))
    after = replace(after, version=run.version + 1)
    roster.runs[id] = roster.changes.runs[id] = after
    if isinstance(after.state, Ended) and not roster.is_live(spec.parent):
        roster.dismiss(id)


def _roster_step(roster: Roster, at: int, event: RosterEvent) -> None:
    match event:
        case Opened():
            roster.epoch, roster.rules = event.epoch, event.rules
            roster.reseat()
        case Closed():
            pass
        case Registered(definition=definition):
            roster.definitions[definition.name] = definition
            roster.changes.definitions.append(definition)
        case Described(model=model):
            roster.models[model.name] = model
            roster.changes.models.append(model)
        case Requested():
            _request(roster, at, event)
        case Forgotten(root=root):
            if any(root in (s.root, s.conversation) for s in roster.specs.values()):
                raise InvalidTransition(f"{root} is still open; cancel it first")
            if any(x.root == root and x.state in ("pending", "sent") for x in roster.deliveries.values()):
                raise InvalidTransition(f"{root} still has something to announce; wait for it, or drop it")
            for key in [k for k, x in roster.deliveries.items() if x.root == root]:
                del roster.deliveries[key]
            roster.changes.forgotten.append(root)
        case Sent() | Acked() | Bounced() | Requeued() | Dropped():
            _deliver(roster, at, event)
        case _:
            assert_never(event)


def refuse_request(roster: Roster, event: Requested) -> None:
    """Raise `Refused` when a root cannot be taken on. Asked by the engine before it posts, and again by the step."""
    order = event.order
    definition = roster.definitions.get(order.agent)
    if definition is None:
        known = ", ".join(sorted(roster.definitions)) or "none"
        raise Refused("agent", f"no agent {order.agent!r} is known; known: {known}")
    model = order.model or definition.model
    if model not in roster.models:
        raise Refused("model", f"no model {model!r} is known; known: {', '.join(sorted(roster.models)) or 'none'}")
    if order.budget.usd is not None and not roster.models[model].priced:
        raise Refused("price", f"the price of {model!r} is unknown, so a budget in dollars cannot be kept")
    spawn.check_rules(order.access)
    if not event.id or event.id in roster.specs:
        raise Refused("id", f"a run with the id {event.id!r} exists already" if event.id else "a run needs an id")
    if event.conversation and any(roster.specs[id].conversation == event.conversation for id in roster.runs):
        raise Refused("conversation", f"a live run is already writing in conversation {event.conversation}")


def _request(roster: Roster, at: int, event: Requested) -> None:
    try:
        refuse_request(roster, event)
        definition = roster.definitions[event.order.agent]
        limit = Capabilities(tools=definition.reach, agents=definition.crew)
        capabilities = policy.narrow(policy.narrow(event.capabilities, limit), event.order.access)
    except Refused as refusal:
        raise InvalidTransition(f"refused ({refusal.limit}): {refusal}") from None
    spec = Spec(
        id=event.id,
        order=spawn.in_lane_order(event.order),
        root=event.id,
        created_at=at,
        conversation=event.conversation or event.id,
        base=event.base,
        resumes=event.resumes,
        capabilities=capabilities,
        model=event.order.model or definition.model,
        origin=event.order.origin or Origin(),
    )
    spawn.enlist(roster, spec, ledger.limits_of(event.order.budget), at, context=event.context)


def _deliver(roster: Roster, at: int, event: Sent | Acked | Bounced | Requeued | Dropped) -> None:
    delivery = roster.deliveries.get(event.key)
    if delivery is None:
        raise InvalidTransition(f"{type(event).__name__} for delivery {event.key}, which is not open")
    delivery = outbox.step(delivery, event, at, roster.rules)
    roster.changes.deliveries[event.key] = delivery
    roster.deliveries[event.key] = delivery
    if delivery.state == "pending":
        roster.changes.effects.append(Deliver(key=event.key, at=delivery.next_at))
    if delivery.state == "sent":
        roster.changes.effects.append(Transmit(key=event.key))
    if delivery.state == "acked" or isinstance(event, Dropped):
        del roster.deliveries[event.key]
    if delivery.discard and delivery.state in ("acked", "suppressed"):
        _discard_announced(roster, delivery)


def _discard_announced(roster: Roster, delivery: Delivery) -> None:
    """The announcement is over; if the run's parent is still to join it, the join deletes it."""
    fan_in = roster.fans.get(delivery.discard)
    waits = fan_in is not None and any(delivery.run == s.id for f in fan_in.fans.values() for s in f.discard)
    if delivery.run not in roster.specs and not waits:
        roster.discard(delivery.run, delivery.root, delivery.path)
