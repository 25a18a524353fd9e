"""What must hold in a tree after every step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from retinue.core import capabilities as policy
from retinue.core.account import UNLIMITED
from retinue.core.spec import Spec
from retinue.core.state import (
    Asking,
    Calls,
    Ended,
    Queued,
    Run,
    Short,
    Stopping,
    Thinking,
    Waiting,
    Working,
    questions_of,
)
from retinue.core.tree import Tree
from tests.simulation import waits
from tests.simulation.violation import broken, must

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation


def after_step(sim: Simulation) -> None:
    """Between the scan of a restart and its last `Recovered` runs have not asked for their lanes
    yet."""
    if sim.booting:
        return
    must(not sim.trees.failed, f"a step failed: {sim.trees.failed}")
    must(not (why := sim.order.after(sim)), why)
    asked = {q.id: run.id for _, run in sim.trees.live() for q in questions_of(run)}
    must(
        sim.trees.index.questions == asked,
        f"I32 whoever asks is not found: {sim.trees.index.questions}, {asked}",
    )
    for tree in sim.trees.by_root.values():
        _check_tree(sim, tree)


def _check_tree(sim: Simulation, tree: Tree) -> None:
    holds: dict[str, list[int]] = {id: [0, 0, 0, 0] for id in tree.ledger.accounts}
    lanes: Counter[str] = Counter()
    live_children: Counter[str] = Counter()
    for id, run in tree.runs.items():
        spec = tree.specs[id]
        live_children[spec.parent] += 1
        _alive(sim, tree, id, run, spec)
        state = run.state
        if isinstance(state, Thinking):
            _add(tree, holds, id, state.hold)
        for lost in run.broken_off:
            _add(tree, holds, id, lost.hold)
        if not spec.order.lanes:
            pass
        elif isinstance(state, Thinking) or (isinstance(state, Working) and state.seated):
            lanes.update(lane.name for lane in spec.order.lanes)
        elif isinstance(state, Queued):
            lanes.update(lane.name for lane in spec.order.lanes[: state.lane])
    _ledger(tree, holds)
    must(not (why := waits.check(tree)), why)
    asking: dict[tuple[str, str], set[str]] = {}
    for id, run in tree.runs.items():
        if isinstance(run.state, Short) and run.state.asks:
            asking.setdefault((run.state.account, run.state.lack), set()).add(id)
    if {key: set(ids) for key, ids in tree.asking.items()} != asking:
        broken(f"I30 it is not known who asks about a limit: {tree.asking}, {asking}")
    for name, lane in tree.lanes.by_name.items():
        if lane.held != lanes[name]:
            broken(f"I11 lane {name} counts {lane.held}, {lanes[name]} hold it")
        if not (lane.held <= lane.size):
            broken(f"I11 lane {name} holds more than its size")
        if not (lane.held == lane.size or not lane.waiting):
            broken(f"I15 lane {name} has room and somebody waits")
    must(
        not tree.tells and not tree.granted and not tree.letters,
        "I18 news was not taken in the same transaction",
    )
    for parent, count in live_children.items():
        if not (not parent or tree.n_live(parent) == count):
            broken(f"I2 {parent} counts {tree.n_live(parent)}, {count} live")
        if not (not parent or count <= sim.rules.limits.children):
            broken(f"I11 {parent} has {count} children")


def _add(
    tree: Tree, holds: dict[str, list[int]], id: str, amounts: tuple[int, int, int, int]
) -> None:
    for i, amount in enumerate(amounts):
        for account in tree.ledger.chain(id) if amount else ():
            holds[account.id][i] += amount
            if account.funded[i]:
                break


def _ledger(tree: Tree, holds: dict[str, list[int]]) -> None:
    """I10: an account holds exactly what its runs hold and what its children were granted and have
    not spent."""
    for account in tree.ledger.accounts.values():
        for i, limit in enumerate(account.limit if True in account.funded else ()):
            if account.funded[i] and limit is not None:
                grant = [0, 0, 0, 0]
                grant[i] = limit - account.spent[i]
                _add(tree, holds, account.parent, (grant[0], grant[1], grant[2], grant[3]))
    for id, account in tree.ledger.accounts.items():
        if account.held != holds[id]:
            broken(f"I10 account {id} holds {account.held}, its runs {holds[id]}")
        if not (min(account.held) >= 0 and min(account.spent) >= 0):
            broken(f"I10 account {id} is negative")
        for i, limit in enumerate(account.limit if account.limit != UNLIMITED else ()):
            used = account.held[i] + account.spent[i]
            if not (limit is None or used <= limit):
                broken(f"I10 account {id} covers {used} of {limit}")


def _alive(sim: Simulation, tree: Tree, id: str, run: Run, spec: Spec) -> None:
    """I15, I16: it has an owner, a timer, or somebody whose end will wake it."""
    state = run.state
    if isinstance(state, Ended):
        broken(f"I1 {id} has ended and is still in its tree")
    parent = sim.books.specs.get(spec.parent)
    if parent is not None:
        if sim.books.lawful.get(id) is not spec:  # neither of the two ever changes
            why = policy.exceeds(spec.capabilities, parent.capabilities)
            if why is not None:
                broken(f"I9 {id} has more {why} than its parent")
            sim.books.lawful[id] = spec
        if not (spec.depth == parent.depth + 1 <= 3):
            broken(f"I11 {id} is too deep")
        above = tree.runs.get(spec.parent)
        latest = above.deadline if above is not None else None
        if latest is not None and (run.deadline is None or run.deadline > latest):
            broken(f"I16 {id} outlives its parent's deadline")
    order = spec.order
    if order.timeout_ms is not None and run.started_at is not None:
        first = run.started_at if order.clock == "start" else spec.created_at
        if not (run.deadline is not None and run.deadline <= first + order.timeout_ms):
            broken(f"I16 {id} ignores its time limit")
    if isinstance(state, Stopping):
        live = [c for c in tree.children.get(id, ()) if c in tree.runs]
        bound = [c for c in live if state.all or tree.specs[c].order.bond != "keep"]
        if not bound and not run.broken_off:
            broken(f"I15 {id} stops for nobody")
        if not all(isinstance(tree.runs[c].state, Stopping) for c in bound):
            broken(f"I7 {id} is stopping and its children go on")
        return
    if not (run.wake_at is not None):
        broken(f"I16 {id} waits without a deadline")
    if not (run.deadline is None or run.wake_at <= run.deadline):
        broken(f"I16 {id} sleeps past its deadline")
    if isinstance(state, Short) and id not in tree.ledger.waits:
        broken(f"I15 {id} waits for its budget in no line")
    if isinstance(state, Queued):
        lane = spec.order.lanes[state.lane]
        if not lane.is_shared and id not in tree.lanes.by_name[lane.name]:
            broken(f"I15 {id} is queued in no lane")
    if isinstance(state, Waiting) and state.calls is None and tree.has_mail(id):
        live = [c for c in tree.children.get(id, ()) if c in tree.runs]
        if not (state.all and any(tree.specs[c].order.bond == "wait" for c in live)):
            broken(f"I15 {id} sleeps with unread mail")
    calls = getattr(state, "calls", None)
    if calls is not None:
        _calls(tree, id, state, calls)


def _calls(tree: Tree, id: str, state: object, calls: Calls) -> None:
    if not (calls.open):
        broken(f"I15 {id} waits for no call")
    if not (calls.tools & ~calls.open == 0 and calls.asks & ~calls.open == 0):
        broken(f"I15 {id} runs closed calls")
    if sum(1 << q.index for q in calls.questions) != calls.asks:
        broken(f"I15 {id} has questions that nobody asks, or asks none that it waits for")
    expected = Working if calls.tools else Asking if calls.asks else Waiting
    if type(state) is not expected:
        broken(f"I15 {id} is {type(state).__name__} with {calls}")
    for watch in calls.waits:
        if not calls.open >> watch.index & 1 or (calls.tools | calls.asks) >> watch.index & 1:
            broken(f"I15 {id} watches from a call that is not waiting")
        live = [r for r in watch.runs if r in tree.runs]
        if not calls.woken >> watch.index & 1 and (
            not live or (watch.first and len(live) < len(watch.runs))
        ):
            broken(f"I15 call {watch.index} of {id} waits for what has come")
    if calls.woken & ~sum(1 << w.index for w in calls.waits):
        broken(f"I15 {id} woke a call that did not wait")
    fan_in = tree.fans.get(id)
    out = 0
    for index, fan in (fan_in.fans if fan_in else {}).items():
        if not (calls.open >> index & 1 and not calls.tools >> index & 1):
            broken(f"I2 {id} joins children of a closed call")
        if not (all(c in tree.runs for c in fan.pending)):
            broken(f"I2 {id} waits for a child that is gone")
        if not (fan.pending or fan.composing or fan.join == "turn"):
            broken(f"I15 call {index} of {id} has all its children and stays open")
        out += len(fan.pending) if fan.join == "turn" else 0
    if not (fan_in is None or fan_in.out == out):
        broken(f"I2 {id} counts {fan_in and fan_in.out} out, {out} are")
