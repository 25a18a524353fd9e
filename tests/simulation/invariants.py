"""What must hold after every step, checked against books of our own. Numbers are those of docs/guarantees.md."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from retinue.core import machine, policy
from retinue.core.effects import CallModel, CallTool, Compose, Deliver, Effect, Transmit
from retinue.core.events import ChildEnded, Entry, Posted, Recovered, Requested
from retinue.core.orders import Spec
from retinue.core.roster import Changes, Roster
from retinue.core.state import Asking, Calls, Ended, Queued, Run, Stopping, Thinking, Waiting, Working
from retinue.core.text import digest
from retinue.core.values import Assistant, Delivery, Mail, Message, Reply, Result
from tests.simulation import script

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation

MARK = re.compile(r"<[^<>]*>")


def broken(what: str) -> NoReturn:
    from tests.simulation.pure import Violation

    raise Violation(what)


def must(holds: object, what: str) -> None:
    if not holds:
        broken(what)


@dataclass
class Books:
    """What really happened, kept apart from the machine."""

    paths: dict[str, str] = field(default_factory=dict)
    specs: dict[str, Spec] = field(default_factory=dict)
    replies: dict[tuple[str, int], Reply] = field(default_factory=dict)
    messages: dict[str, dict[int, Message]] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    nanos: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    tool_starts: Counter[str] = field(default_factory=Counter)
    call_keys: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    ended: dict[str, Run] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    sent: int = 0
    checked: set[tuple[str, int, str]] = field(default_factory=set)
    attempts: Counter[str] = field(default_factory=Counter)
    mail_sent: dict[str, list[str]] = field(default_factory=dict)
    cursor: int = 0
    log: list[Entry] = field(default_factory=list)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    purged: set[int] = field(default_factory=set)
    alone_by_then: dict[str, list[str]] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)

    def mail(self, sim: Simulation, *, steer: bool) -> Posted:
        self.sent += 1
        return Posted(mail=Mail(seq=0, text=f"<mail {self.sent}>", steer=steer))

    def forget_uncommitted(self) -> None:
        self.cursor = 0

    def committed(self, changes: Changes) -> None:
        """The transaction is durable: what it says can be held against the machine from now on."""
        self.cursor = 0
        for spec in changes.specs:
            if not (spec.id not in self.specs):
                broken(f"I1 {spec.id} was started twice")
            self.specs[spec.id] = spec
            self.paths[spec.id] = spec.path
        for conversation, n, message in changes.messages:
            mine = self.messages.setdefault(conversation, {})
            if not (n not in mine):
                broken(f"I14 message {n} of {conversation} was written twice")
            mine[n] = message
        self.log += changes.entries
        self.deliveries.update(changes.deliveries)
        self._deleted(changes)
        for entry in changes.entries:
            if isinstance(entry.event, ChildEnded) and not entry.stale:
                if not (entry.event.child not in self.told.setdefault(entry.run, set())):
                    broken(f"I3 {entry.run} was told twice that {entry.event.child} ended")
                self.told[entry.run].add(entry.event.child)
        for id, run in changes.runs.items():
            if isinstance(run.state, Ended):
                if not (id not in self.ended):
                    broken(f"I1 {id} ended twice")
                self.ended[id] = run
                self._truthful(id, run)
            else:
                if not (id not in self.ended):
                    broken(f"I1 {id} lives after its end")
        for delivery in changes.deliveries.values():
            members = [s for s in self.specs.values() if s.parent == delivery.run and s.order.group == delivery.group]
            if delivery.group and any(s.id not in self.ended for s in members):
                broken(f"I4 group {delivery.group} was summed up before its last member ended")
        for id, below in self.alone_by_then.items():
            if not (all(b in self.ended for b in below)):
                broken(f"I7 {id} ended before those it answers for: {below}")
        self.alone_by_then.clear()

    def _deleted(self, changes: Changes) -> None:
        """I22: what is deleted was not to be kept, has ended, and is not needed for an open call or announcement."""
        for id in changes.forgotten:
            spec = self.specs[id]
            if spec.order.retention != "delete" or not spec.parent:
                broken(f"I22 {id} was deleted and should have been kept")
            tree = {s.id for s in self.specs.values() if f"{s.path}/".startswith(f"{spec.path}/")}
            if any(d.run in tree and d.state in ("pending", "sent", "dead") for d in self.deliveries.values()):
                broken(f"I22 {id} was deleted before its announcement arrived")
            tree -= self.deleted
            self.deleted |= tree
            self.purged |= {n for n, entry in enumerate(self.log, 1) if entry.run in tree}

    def _truthful(self, id: str, run: Run) -> None:
        """Success has something to show; who may not be outlived is not; who was to be announced is."""
        ending = run.state.ending  # type: ignore[union-attr]
        if not (ending.state != "completed" or ending.text.strip()):
            broken(f"I21 {id} succeeded with nothing to show")
        spec = self.specs[id]
        left, _, why = ending.error.partition("the parent ended: ")
        if ending.state == "cancelled" and not left and why:
            if spec.order.bond == "keep" and why not in ("cancelled", "deadline", "waited_too_long"):
                broken(f"I7 {id} was cancelled with its parent, which it may outlive ({why})")
            if spec.order.bond == "wait" and why == "done":
                broken(f"I7 the parent of {id} was to stay for it")
        all_of_them = ending.state in ("cancelled", "timed_out")
        below = [s for s in self.specs.values() if s.parent == id and s.id not in self.ended]
        self.alone_by_then[id] = [s.id for s in below if all_of_them or s.order.bond != "keep"]
        if spec.order.announce and spec.origin.channel:
            self.announced.add(id)

    def started(self, sim: Simulation, effect: Effect) -> None:
        """Something is really done now."""
        if isinstance(effect, CallTool):
            self.tool_starts[effect.key] += 1
            unsafe = script.RESTART.get(effect.call.name, "unsafe") == "unsafe"
            if unsafe and self.tool_starts[effect.key] != 1:
                broken(f"I5 {effect.call.name} {effect.key} was started twice")
        if isinstance(effect, CallModel):
            run = sim.roster.runs[effect.run]
            state = run.state
            assert isinstance(state, Thinking)
            from tests.simulation.pure import tools_of

            most_in = state.hold[0] - effect.max_output
            path = self.paths[effect.run]
            reply = script.reply(
                sim.seed, path, run.turn, effect.purpose, tools_of(sim, effect.run), most_in, effect.max_output
            )
            self.replies[(effect.run, effect.attempt)] = reply
            if script.failure(sim.seed, path, effect.attempt) is None:
                self._meter(sim, effect.run, reply)

    def _meter(self, sim: Simulation, id: str, reply: Reply) -> None:
        """Money that is really gone, whether or not the answer ever arrives: on the run and on all above it."""
        tokens = reply.usage.input + reply.usage.output
        nanos = script.MODEL.cost(reply.usage.input, reply.usage.output)
        while id:
            spec = self.specs[id]
            self.spent[id] += tokens
            self.nanos[id] += nanos
            self.turns[id] += 1
            budget = spec.order.budget
            if not (budget.tokens is None or self.spent[id] <= budget.tokens):
                broken(f"I10 {id} spent {self.spent[id]} tokens")
            if not (budget.usd is None or self.nanos[id] <= round(budget.usd * 1e9)):
                broken(f"I10 {id} spent too much money")
            if not (budget.turns is None or self.turns[id] <= budget.turns):
                broken(f"I10 {id} took {self.turns[id]} turns")
            id = spec.parent


def before_effect(sim: Simulation, effect: Effect) -> None:
    """I6, I7: what is performed was asked for by a committed step of a run that is still at it."""
    books, roster = sim.books, sim.roster
    if isinstance(effect, (Deliver, Transmit)):
        return
    assert isinstance(effect, (CallModel, CallTool, Compose))
    run = roster.runs.get(effect.run)
    if isinstance(effect, CallTool) and effect.woken and getattr(run and run.state, "calls", None) is None:
        return  # an answer of an earlier life closed the call in the same batch; looking once more does no harm
    if not (run is not None and not isinstance(run.state, (Ended, Stopping))):
        broken(f"I7 {effect} after the end")
    assert run is not None
    if isinstance(effect, CallModel):
        if not (effect.attempt > books.attempts[effect.run]):
            broken(f"I6 attempt {effect.attempt} of {effect.run} again")
        books.attempts[effect.run] = effect.attempt
        _history(sim, run, effect)
    if isinstance(effect, CallTool):
        _permitted(sim, effect)
        said = books.messages[roster.specs[effect.run].conversation][_calls_of(run).message]
        assert isinstance(said, Assistant)
        alone = len(said.calls) == 1
        must(alone or effect.call.name not in script.SUBMITS, "I8 a submission was taken beside other calls")


def _calls_of(run: Run) -> Calls:
    calls = getattr(run.state, "calls", None)
    if not (calls is not None):
        broken(f"I7 a tool of {run.id} is started while it is {type(run.state).__name__}")
    return calls  # type: ignore[no-any-return]


def _permitted(sim: Simulation, effect: CallTool) -> None:
    """I9, by our own reading: nobody from the run up to its root withholds the tool. (What was narrowed a moment ago
    may still be under way.)"""
    id, name = effect.run, effect.call.name
    if name not in sim.roster.definitions[sim.roster.specs[id].order.agent].tools:
        return
    said_yes = (id, effect.turn, effect.index) in sim.said_yes or sim.roster.specs[id].root in sim.said_yes
    if name == "write" and sim.rules.mode != "bypassPermissions" and not said_yes:
        broken(f"I9 {name} was run by {id} although nobody has permitted it")
    while id in sim.roster.specs:
        held = sim.books.specs[id].capabilities
        inside = held.tools is None or name in held.tools
        if not (inside and name not in held.deny):
            broken(f"I9 {name} was run although {id} withholds it")
        ended = sim.roster.specs[id].capabilities
        now = sim.roster.runs[id].access if id in sim.roster.runs else ended
        fresh = "narrow" in sim.faults or effect.again
        if not (now is None or name not in now.deny or fresh):
            broken(f"I9 {name} was run although {id} was narrowed")
        id = sim.roster.specs[id].parent


def _history(sim: Simulation, run: Run, effect: CallModel) -> None:
    """I8, I3: calls are answered once each; every child that was counted stands in the history once."""
    books, spec = sim.books, sim.roster.specs[run.id]
    mine = books.messages.get(spec.conversation, {})
    first = spec.base.length if spec.base else 0
    if sorted(mine) != list(range(first, run.length)):
        broken(f"I8 messages of {run.id} have a gap")
    last = mine.get(run.length - 1)
    if isinstance(last, Assistant):
        broken(f"I8 {run.id} asks the model right after its own reply")
    open_calls: dict[str, int] = {}
    marks: Counter[str] = Counter()
    mails: list[int] = []
    for n in range(first, run.length):
        message = mine[n]
        if isinstance(message, Assistant):
            open_calls = {c.id: 0 for c in message.calls}
        elif isinstance(message, Result):
            if message.call_id not in open_calls:
                broken(f"I8 a result without a call in {run.id}: {message.call_id}")
            open_calls[message.call_id] += 1
            if open_calls[message.call_id] != 1:
                broken(f"I8 two results for {message.call_id} in {run.id}")
            marks.update(set(MARK.findall(message.text)))
        else:
            found = MARK.findall(message.text)
            marks.update(set(found))
            mails += [int(m[6:-1]) for m in found if m.startswith("<mail ")]
    if mails != sorted(set(mails)):
        broken(f"I3 mail of {run.id} came twice or out of order: {mails}")
    if not (max(marks.values(), default=0) <= 1):
        broken(f"I3 a result stands twice in the history of {run.id}: {marks}")
    key = (run.id, run.turn, effect.purpose)
    if effect.purpose not in ("turn", "grace") or key in books.checked:
        return
    books.checked.add(key)
    if run.start > first:
        return
    for child in books.told.get(run.id, ()):
        text = books.ended[child].state.ending.text  # type: ignore[union-attr]
        unread = any(m.sender == child for m in sim.roster.mail.get(run.id, ()))
        order = books.specs[child].order
        times = 1 if order.news or order.join != "none" else 0
        if text == f"<{books.paths[child]}>" and not unread and marks[text] != times:
            broken(f"I3 the result of {child} is not in the history of {run.id}, or should not be")


def after_step(sim: Simulation) -> None:
    """Between the scan of a restart and its last `Recovered` runs have not asked for their lanes yet."""
    roster = sim.roster
    if sim.booting:
        return
    fresh = roster.changes.entries[sim.books.cursor :]
    sim.books.cursor = len(roster.changes.entries)
    for entry in fresh:
        if not (not entry.stale or not isinstance(entry.event, (Requested, Recovered))):
            broken(f"refused: {entry.stale}")
    holds: dict[str, list[int]] = {id: [0, 0, 0, 0] for id in roster.ledger.accounts}
    lanes: Counter[str] = Counter()
    live_children: Counter[str] = Counter()
    for id, run in roster.runs.items():
        spec = roster.specs[id]
        live_children[spec.parent] += 1
        _alive(sim, roster, id, run, spec)
        state = run.state
        if isinstance(state, Thinking):
            _add(roster, holds, id, state.hold)
        if isinstance(state, Thinking) or (isinstance(state, Working) and state.seated):
            lanes.update(lane.name for lane in spec.order.lanes)
        elif isinstance(state, Queued):
            lanes.update(lane.name for lane in spec.order.lanes[: state.lane])
    _ledger(roster, holds)
    for name, lane in roster.lanes.items():
        if lane.held != lanes[name]:
            broken(f"I11 lane {name} counts {lane.held}, {lanes[name]} hold it")
        if not (lane.held <= lane.size):
            broken(f"I11 lane {name} holds more than its size")
        if not (lane.held == lane.size or not lane.waiting):
            broken(f"I15 lane {name} has room and somebody waits")
    must(not roster.tells and not roster.granted, "I18 news was not taken in the same transaction")
    for parent, count in live_children.items():
        if not (not parent or roster.n_live(parent) == count):
            broken(f"I2 {parent} counts {roster.n_live(parent)}, {count} live")
        if not (not parent or count <= sim.rules.limits.children):
            broken(f"I11 {parent} has {count} children")


def after_commit(sim: Simulation) -> None:
    """I15: what a run waits for in the world is really under way."""
    models = {(e.run, e.attempt) for e in sim.flying if isinstance(e, CallModel)}
    tools = {(e.run, e.turn, e.index) for e in sim.flying if isinstance(e, CallTool)}
    composing = {e.run for e in sim.flying if isinstance(e, Compose)}
    for id, run in sim.roster.runs.items():
        state = run.state
        if isinstance(state, Thinking) and state.retry_at is None and (id, state.attempt) not in models:
            broken(f"I15 nobody asks the model for {id}")
        calls = getattr(state, "calls", None)
        for index in range(calls.count if calls is not None else 0):
            if (calls.tools | calls.woken) >> index & 1 and (id, run.turn, index) not in tools:
                broken(f"I15 nobody runs call {index} of {id}")
        fan_in = sim.roster.fans.get(id)
        if fan_in is not None and any(f.composing for f in fan_in.fans.values()) and id not in composing:
            broken(f"I15 nobody composes the results of {id}")


def _add(roster: Roster, holds: dict[str, list[int]], id: str, amounts: tuple[int, int, int, int]) -> None:
    for i, amount in enumerate(amounts):
        for account in roster.ledger.chain(id):
            holds[account.id][i] += amount
            if account.funded[i]:
                break


def _ledger(roster: Roster, holds: dict[str, list[int]]) -> None:
    """I10: an account holds exactly what its runs hold and what its children were granted and have not spent."""
    for account in roster.ledger.accounts.values():
        for i, limit in enumerate(account.limit):
            if account.funded[i] and limit is not None:
                grant = [0, 0, 0, 0]
                grant[i] = limit - account.spent[i]
                _add(roster, holds, account.parent, (grant[0], grant[1], grant[2], grant[3]))
    for id, account in roster.ledger.accounts.items():
        if account.held != holds[id]:
            broken(f"I10 account {id} holds {account.held}, its runs {holds[id]}")
        for i, limit in enumerate(account.limit):
            if not (account.held[i] >= 0 and account.spent[i] >= 0):
                broken(f"I10 account {id} is negative")
            used = account.held[i] + account.spent[i]
            if not (limit is None or used <= limit):
                broken(f"I10 account {id} covers {used} of {limit}")


def _alive(sim: Simulation, roster: Roster, id: str, run: Run, spec: Spec) -> None:
    """I15, I16: it has an owner, a timer, or somebody whose end will wake it."""
    state = run.state
    if isinstance(state, Ended):
        broken(f"I1 {id} has ended and is still on the roster")
    parent = sim.books.specs.get(spec.parent)
    if parent is not None:
        why = policy.exceeds(spec.capabilities, parent.capabilities)
        if why is not None:
            broken(f"I9 {id} has more {why} than its parent")
        if not (spec.depth == parent.depth + 1 <= 3):
            broken(f"I11 {id} is too deep")
        above = roster.runs.get(spec.parent)
        latest = above.deadline if above is not None else None
        if latest is not None and (run.deadline is None or run.deadline > latest):
            broken(f"I16 {id} outlives its parent's deadline")
    order = spec.order
    if order.timeout_ms is not None and run.started_at is not None:
        first = run.started_at if order.clock == "start" else spec.created_at
        if not (run.deadline is not None and run.deadline <= first + order.timeout_ms):
            broken(f"I16 {id} ignores its time limit")
    if isinstance(state, Stopping):
        live = [c for c in roster.children.get(id, ()) if c in roster.runs]
        bound = [c for c in live if state.all or roster.specs[c].order.bond != "keep"]
        if not bound:
            broken(f"I15 {id} stops for nobody")
        if not all(isinstance(roster.runs[c].state, Stopping) for c in bound):
            broken(f"I7 {id} is stopping and its children go on")
        return
    if not (run.wake_at is not None):
        broken(f"I16 {id} waits without a deadline")
    if not (run.deadline is None or run.wake_at <= run.deadline):
        broken(f"I16 {id} sleeps past its deadline")
    if isinstance(state, Queued):
        lane = roster.lanes[spec.order.lanes[state.lane].name]
        if id not in lane:
            broken(f"I15 {id} is queued in no lane")
    if isinstance(state, Waiting) and state.calls is None and roster.has_mail(id):
        live = [c for c in roster.children.get(id, ()) if c in roster.runs]
        if not (state.all and any(roster.specs[c].order.bond == "wait" for c in live)):
            broken(f"I15 {id} sleeps with unread mail")
    calls = getattr(state, "calls", None)
    if calls is not None:
        _calls(roster, id, state, calls)


def _calls(roster: Roster, id: str, state: object, calls: Calls) -> None:
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
        live = [r for r in watch.runs if r in roster.runs]
        if not calls.woken >> watch.index & 1 and (not live or (watch.first and len(live) < len(watch.runs))):
            broken(f"I15 call {watch.index} of {id} waits for what has come")
    if calls.woken & ~sum(1 << w.index for w in calls.waits):
        broken(f"I15 {id} woke a call that did not wait")
    fan_in = roster.fans.get(id)
    out = 0
    for index, fan in (fan_in.fans if fan_in else {}).items():
        if not (calls.open >> index & 1 and not calls.tools >> index & 1):
            broken(f"I2 {id} joins children of a closed call")
        if not (all(c in roster.runs for c in fan.pending)):
            broken(f"I2 {id} waits for a child that is gone")
        if not (fan.pending or fan.composing or fan.join == "turn"):
            broken(f"I15 call {index} of {id} has all its children and stays open")
        out += len(fan.pending) if fan.join == "turn" else 0
    if not (fan_in is None or fan_in.out == out):
        broken(f"I2 {id} counts {fan_in and fan_in.out} out, {out} are")


def at_the_end(sim: Simulation) -> None:
    books, roster = sim.books, sim.roster
    for name in ("runs", "specs", "children", "lingering", "fans", "mail", "lanes", "groups", "granted", "_bonds"):
        if getattr(roster, name):
            broken(f"I19 roster.{name} is not empty at the end: {getattr(roster, name)}")
    if roster.ledger.accounts:
        broken(f"I19 accounts are left at the end: {roster.ledger.accounts}")
    must(set(books.specs) == set(books.ended), "I1 not everybody who was started has ended")
    for key, times in books.received.items():
        if not (times >= 1):
            broken(f"I4 {key} was never received")
    for delivery in books.deliveries.values():
        if delivery.state not in ("acked", "suppressed", "dead"):
            broken(f"I4 delivery {delivery.key} is {delivery.state}")
        must(delivery.state != "acked" or books.received[delivery.key] >= 1, "I4 acked and never received")
        tried = delivery.bounces >= sim.rules.delivery_tries
        must(delivery.state != "dead" or tried, "I4 given up before its time")
        must(delivery.text or delivery.state == "suppressed", f"I4 delivery {delivery.key} says nothing")
    lost = {id for id in books.announced if digest(id, "completion") not in books.deliveries}
    if lost:
        broken(f"I4 never announced: {lost}")
    _summaries(books)
    _fold(sim)


def _summaries(books: Books) -> None:
    """I4: a group that is to be summed up is, once, if its members announce."""
    groups: dict[tuple[str, str], list[Spec]] = {}
    for spec in books.specs.values():
        if spec.order.group_size and spec.origin.channel:
            groups.setdefault((spec.parent, spec.order.group), []).append(spec)
    summed = Counter((d.run, d.group) for d in books.deliveries.values() if d.group)
    if summed != Counter(groups.keys()):
        broken(f"I4 groups {set(groups)} and summaries {summed}")


def _fold(sim: Simulation) -> None:
    """I13, I14: the log has no gap but where a run was deleted, and its fold is the state that was stored."""
    from tests.simulation.pure import now

    books = sim.books
    rows = now(sim.store.entries(0, "", 1_000_000))
    kept = [n for n in range(1, len(books.log) + 1) if n not in books.purged]
    must([seq for seq, _ in rows] == kept, "I13 the log has a gap")
    folded = Roster(sim.rules)
    for entry in books.log:
        machine.fold(folded, entry)
    final = folded.take_changes().runs
    for id, run in books.ended.items():
        if final[id] != run:
            broken(f"I14 the fold of the log gives another end for {id}:\n{final[id]}\n{run}")
    for id in books.deleted:
        must(now(sim.store.row(id)) is None, f"I22 {id} was deleted and is still there")
