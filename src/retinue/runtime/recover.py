"""Recovery after a restart: builds the trees from the open runs, and gives each run an event that
says so.

One scan, no effect of its own: what happens to a run is decided by the core when it takes
`Recovered`."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from retinue.core.children import child_outcome
from retinue.core.events import InterruptedCall
from retinue.core.fan_in import FanIn, fan_of
from retinue.core.messages import AssistantMessage, Message
from retinue.core.spec import RunSpec
from retinue.core.state import Ended, OpenCalls, Queued, Run, RunRecord, Short, calls_of
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import Restart
from retinue.store.base import Snapshot


def rebuild(trees: Trees, snapshot: Snapshot) -> list[str]:
    """Put everything that is open where there was nothing; returns the open runs in the order in
    which they get their events."""
    for definition in snapshot.definitions:
        trees.shared.definitions[definition.name] = definition
    for model in snapshot.models:
        trees.shared.models[model.name] = model
    for row in snapshot.above:
        _tree_of(trees, row).linger(row.spec, row.run)
    for row in snapshot.open:
        _tree_of(trees, row).register_run(row.spec, row.run)
    trees.find_successors()
    for account in snapshot.accounts:
        if (tree := trees.of(account.id)) is not None:
            tree.ledger.accounts[account.id] = account
    for row in snapshot.back:
        _hang(_tree_of(trees, row), row, pending=False)
    for row in snapshot.open:
        _hang(_tree_of(trees, row), row, pending=True)
    for run, mail in snapshot.mail:
        if (tree := trees.of(run)) is not None:
            tree.mail.setdefault(run, deque()).append(mail)
    for delivery in snapshot.deliveries:
        trees.open(delivery.root).keep_delivery(delivery)
    return [row.spec.id for row in sorted(snapshot.open, key=_order_of_recovery)]


def _tree_of(trees: Trees, row: RunRecord) -> Tree:
    return trees.open(row.spec.root, "" if row.spec.parent else row.spec.conversation)


def _hang(tree: Tree, row: RunRecord, *, pending: bool) -> None:
    """A child that its parent's open call is waiting for, out or back."""
    spec, slot = row.spec, row.spec.parent_call
    parent = tree.runs.get(spec.parent)
    if slot is None or parent is None or spec.request.join == "none" or slot.turn != parent.turn:
        return
    calls = calls_of(parent)
    if calls is None or not calls.open >> slot.index & 1 or calls.tools >> slot.index & 1:
        return
    fan_in = tree.fans.setdefault(parent.id, FanIn())
    fan = fan_in.fans.get(slot.index)
    if fan is None:
        fan = fan_of(spec.request, slot.call_id, slot.tool)
        fan_in.add(slot.index, fan)
    if not pending and spec.request.retention == "delete":
        fan.discard[spec.id] = spec
    if spec.request.copy_of:
        fan.copies[spec.id] = spec
    if pending:
        fan.pending[spec.id] = None
        fan_in.out += spec.request.join == "turn"
    else:
        assert isinstance(row.run.state, Ended)
        fan.ended.append(child_outcome(spec, row.run, row.run.state.ending))


def _order_of_recovery(row: RunRecord) -> tuple[int, int, str]:
    """Those who hold slots first, then those who wait for budget, then those who come back to a
    lane, then those who never had a turn."""
    state = row.run.state
    if isinstance(state, Short):
        return (1, state.kept.ticket, row.spec.id)
    if isinstance(state, Queued):
        return (2 if state.back else 3, state.ticket, row.spec.id)
    return (0, 0, row.spec.id)


def under_way(calls: OpenCalls) -> int:
    """The calls whose tool was at work, or awaited a step. (One that is looked at again after a
    wait is known by that.)"""
    waits = sum(1 << w.index for w in calls.waits)
    lost_bits = sum(1 << c.index for c in calls.lost)
    return calls.tools | calls.parked | (calls.woken & ~waits) | lost_bits


async def open_calls(
    spec: RunSpec,
    run: Run,
    read: Callable[[str, int, int], Awaitable[list[Message]]],
    restart: Callable[[str, str], Restart],
) -> tuple[InterruptedCall, ...]:
    """The tool calls that were under way when the process died, as the model wrote them."""
    calls = calls_of(run)
    if calls is None or not (bits := under_way(calls)):
        return ()
    (message,) = await read(spec.conversation, calls.message, calls.message + 1)
    assert isinstance(message, AssistantMessage)
    return tuple(
        InterruptedCall(index=i, call=call, restart=restart(spec.request.agent, call.name))
        for i, call in enumerate(message.calls)
        if bits >> i & 1
    )
