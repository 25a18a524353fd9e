"""What must hold in a tree whenever it is written.

A tree that no step has touched since the last commit is as it was, and is not looked at again. What
only a step can break, the order of those who wait, is looked at after every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.account import UNFUNDED, UNLIMITED
from retinue.core.spec import RunSpec
from retinue.core.state import (
    Asking,
    Ended,
    OpenCalls,
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
from retinue.core.writer_lines import TURN
from tests.simulation import functions, waits
from tests.simulation.violation import broken

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation

Amounts = tuple[int, int, int, int]
NOTHING_HELD = [0, 0, 0, 0]


def after_step(sim: Simulation) -> None:
    if why := sim.order.after(sim):
        broken(why)


def before_commit(sim: Simulation) -> None:
    """Of what is about to be written, or lost."""
    if sim.trees.failed:
        broken(f"a step failed: {sim.trees.failed}")
    questions: dict[str, str] = {}
    for tree in sim.trees.by_root.values():
        if tree.changes.entries:
            _check_tree(sim, tree)
        for run in tree.runs.values():
            for question in questions_of(run):
                questions[question.id] = run.id
    if sim.trees.index.questions != questions:
        broken(f"I32 whoever asks is not found: {sim.trees.index.questions}, {questions}")


def _check_tree(sim: Simulation, tree: Tree) -> None:
    holds: dict[str, list[int]] = {}
    lanes: dict[str, int] = {}
    n_live: dict[str, int] = {}
    asking: dict[tuple[str, str], set[str]] = {}
    for id, run in tree.runs.items():
        spec, state = tree.specs[id], run.state
        n_live[spec.parent] = n_live.get(spec.parent, 0) + 1
        _alive(tree, id, run, spec)
        functions.wanted(sim, tree, id, run)
        if isinstance(state, Thinking):
            _add(tree, holds, id, state.hold)
        elif isinstance(state, Short) and state.asks:
            asking.setdefault((state.account, state.lack), set()).add(id)
        for call in run.broken_off:
            _add(tree, holds, id, call.hold)
        for lane in spec.request.lanes[: _n_held(state, spec)]:
            lanes[lane.name] = lanes.get(lane.name, 0) + 1
    _ledger(tree, holds)
    if why := waits.check(tree):
        broken(why)
    if (asking or tree.asking) and {key: set(ids) for key, ids in tree.asking.items()} != asking:
        broken(f"I30 it is not known who asks about a limit: {tree.asking}, {asking}")
    _lanes(tree, lanes)
    if tree.tells or tree.granted or tree.letters:
        broken("I18 news was not taken in the same transaction")
    n_live.pop("", None)
    for parent, count in n_live.items():
        if tree.n_live(parent) != count:
            broken(f"I2 {parent} counts {tree.n_live(parent)}, {count} live")
        if count > sim.rules.spawn_limits.children:
            broken(f"I11 {parent} has {count} children")


def _n_held(state: object, spec: RunSpec) -> int:
    """In how many of its lanes a run has a slot."""
    if isinstance(state, Thinking) or (isinstance(state, Working) and state.has_slots):
        return len(spec.request.lanes)
    return max(0, state.lane) if isinstance(state, Queued) else 0


def _lanes(tree: Tree, amounts: dict[str, int]) -> None:
    for name, lane in tree.lanes.by_name.items():
        if lane.held != amounts.get(name, 0):
            broken(f"I11 lane {name} counts {lane.held}, {amounts.get(name, 0)} hold it")
        if lane.held > lane.size:
            broken(f"I11 lane {name} holds more than its size")
        if lane.held != lane.size and lane.waiting:
            broken(f"I15 lane {name} has room and somebody waits")


def _add(tree: Tree, holds: dict[str, list[int]], id: str, amounts: Amounts) -> None:
    chain = tree.ledger.chain(id)
    for i, amount in enumerate(amounts):
        for account in chain if amount else ():
            holds.setdefault(account.id, [0, 0, 0, 0])[i] += amount
            if account.funded[i]:
                break


def _ledger(tree: Tree, holds: dict[str, list[int]]) -> None:
    """I10: an account holds exactly what its runs hold and what its children were granted and have
    not spent."""
    accounts = tree.ledger.accounts
    for account in accounts.values():
        for i, limit in enumerate(account.limit if account.funded is not UNFUNDED else ()):
            if account.funded[i] and limit is not None:
                grant = [0, 0, 0, 0]
                grant[i] = limit - account.spent[i]
                _add(tree, holds, account.parent, (grant[0], grant[1], grant[2], grant[3]))
    for id, account in accounts.items():
        amount, spent = list(account.held), list(account.spent)
        if amount != holds.get(id, NOTHING_HELD):
            broken(f"I10 account {id} holds {amount}, its runs {holds.get(id)}")
        if min(amount) < 0 or min(spent) < 0:
            broken(f"I10 account {id} is negative")
        for i, limit in enumerate(account.limit if account.limit is not UNLIMITED else ()):
            if limit is not None and amount[i] + spent[i] > limit:
                broken(f"I10 account {id} covers {amount[i] + spent[i]} of {limit}")


def _alive(tree: Tree, id: str, run: Run, spec: RunSpec) -> None:
    """I15, I16: it has an owner, a timer, or somebody whose end will wake it."""
    state = run.state
    if isinstance(state, Ended):
        broken(f"I1 {id} has ended and is still in its tree")
    above = tree.runs.get(spec.parent)
    latest = above.deadline if above is not None else None
    if latest is not None and (run.deadline is None or run.deadline > latest):
        broken(f"I16 {id} outlives its parent's deadline")
    order = spec.request
    if order.timeout_ms is not None and run.started_at is not None:
        first = run.started_at if order.timeout_from == "start" else spec.created_at
        if run.deadline is None or run.deadline > first + order.timeout_ms:
            broken(f"I16 {id} ignores its time limit")
    if isinstance(state, Stopping):
        _stopping(tree, run, state)
        return
    if run.wake_at is None:
        broken(f"I16 {id} waits without a deadline")
    if run.deadline is not None and run.wake_at > run.deadline:
        broken(f"I16 {id} sleeps past its deadline")
    if isinstance(state, Working | Waiting | Asking):
        if state.calls is not None:
            _calls(tree, id, state, state.calls)
        elif isinstance(state, Waiting) and tree.has_mail(id):
            live = [c for c in tree.children.get(id, ()) if c in tree.runs]
            if not (state.all and any(tree.specs[c].request.on_parent_end == "wait" for c in live)):
                broken(f"I15 {id} sleeps with unread mail")
    elif isinstance(state, Short):
        if id not in tree.ledger.waits:
            broken(f"I15 {id} waits for its budget in no line")
    elif isinstance(state, Queued) and state.lane == TURN:
        if not _writing(tree, id):
            broken(f"I15 {id} waits for its turn to write, and nobody writes")
    elif isinstance(state, Queued):
        lane = order.lanes[state.lane]
        if not lane.is_shared and id not in tree.lanes.by_name[lane.name]:
            broken(f"I15 {id} is queued in no lane")


def _writing(tree: Tree, id: str) -> list[str]:
    """Who of a run's siblings edits the same files now; there is one at most."""
    spec = tree.specs[id]
    results = []
    for other in tree.children.get(spec.parent, ()):
        run, order = tree.runs.get(other), tree.specs[other].request
        is_in_line = order.writers == "turns" and order.cwd == spec.request.cwd
        if run is None or not is_in_line or isinstance(run.state, Ended):
            continue
        if not (isinstance(run.state, Queued) and run.state.lane == TURN):
            results.append(other)
    if len(results) > 1:
        broken(f"I35 {results} edit the same files at a time")
    return results


def _stopping(tree: Tree, run: Run, state: Stopping) -> None:
    live = [c for c in tree.children.get(run.id, ()) if c in tree.runs]
    children = [c for c in live if state.all or tree.specs[c].request.on_parent_end != "keep"]
    if not children and not run.broken_off:
        broken(f"I15 {run.id} stops for nobody")
    if not all(isinstance(tree.runs[c].state, Stopping) for c in children):
        broken(f"I7 {run.id} is stopping and its children go on")


def _calls(tree: Tree, id: str, state: object, calls: OpenCalls) -> None:
    if not calls.open:
        broken(f"I15 {id} waits for no call")
    if (calls.tools | calls.asks) & ~calls.open:
        broken(f"I15 {id} runs closed calls")
    if sum(1 << q.index for q in calls.questions) != calls.asks:
        broken(f"I15 {id} has questions that nobody asks, or asks none that it waits for")
    if type(state) is not _expected(calls):
        broken(f"I15 {id} is {type(state).__name__} with {calls}")
    functions.parked(tree, id, state, calls)
    if calls.waits or calls.woken:
        _watches(tree, id, calls)
    fan_in = tree.fans.get(id)
    if fan_in is None:
        return
    n_out = 0
    for index, fan in fan_in.fans.items():
        if not calls.open >> index & 1 or calls.tools >> index & 1:
            broken(f"I2 {id} joins children of a closed call")
        if not all(c in tree.runs for c in fan.pending):
            broken(f"I2 {id} waits for a child that is gone")
        is_merged_later = bool(fan.copies) and (
            fan_in.is_merging
            or any(f.pending for f in fan_in.fans.values())
            or bool(calls.tools | calls.woken | calls.parked | calls.asks or calls.lost)
        )
        is_later = fan.join in ("turn", "step") or is_merged_later
        if not (fan.pending or fan.composing or is_later):
            broken(f"I15 call {index} of {id} has all its children and stays open")
        n_out += len(fan.pending) if fan.join == "turn" else 0
    if fan_in.out != n_out:
        broken(f"I2 {id} counts {fan_in.out} out, {n_out} are")


def _expected(calls: OpenCalls) -> type:
    if calls.tools:
        return Working
    return Asking if calls.asks else Waiting


def _watches(tree: Tree, id: str, calls: OpenCalls) -> None:
    for watch in calls.waits:
        if not calls.open >> watch.index & 1 or (calls.tools | calls.asks) >> watch.index & 1:
            broken(f"I15 {id} watches from a call that is not waiting")
        live = [r for r in watch.runs if r in tree.runs]
        if not calls.woken >> watch.index & 1 and (
            not live or (watch.first and len(live) < len(watch.runs))
        ):
            broken(f"I15 call {watch.index} of {id} waits for what has come")
    if len({w.index for w in calls.waits}) != len(calls.waits):
        broken(f"I15 a call of {id} waits twice: {calls.waits}")
    steps = {*(i for i, _ in calls.items), *(s.index for s in calls.steps)}
    waited = steps | {w.index for w in calls.waits}
    if calls.woken & ~sum(1 << index for index in waited):
        broken(f"I15 {id} woke a call that did not wait")
