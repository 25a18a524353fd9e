"""What must hold after every step, checked against books of our own. Numbers are those of
docs/guarantees.md."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from retinue.core import capabilities as policy
from retinue.core.account import UNLIMITED, Account
from retinue.core.cache_figures import NO_CACHE, Cached
from retinue.core.changes import Changes
from retinue.core.effects import (
    Abort,
    AskSlot,
    CallModel,
    CallTool,
    Compose,
    Deliver,
    Effect,
    FreeSlot,
    Transmit,
)
from retinue.core.events import (
    Broken,
    CancelAsked,
    ChildEnded,
    LimitChanged,
    LogEntry,
    Ordered,
    Posted,
    Recovered,
    Requested,
)
from retinue.core.ids import digest
from retinue.core.messages import Assistant, Message, Reply, Result
from retinue.core.notices import is_known
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
    is_seated,
    questions_of,
)
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import Delivery, Ending, Mail
from tests.simulation import provenance, script, waits

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation

MARK = re.compile(r"<[^<>]*>")
LIMIT = re.compile(r" asks: .* Add to the limit.*\(question ([0-9a-f]{16}) of run .*\)$")


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
    left: set[tuple[str, int]] = field(default_factory=set)
    accounts: dict[str, Account] = field(default_factory=dict)
    messages: dict[str, dict[int, Message]] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    nanos: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    tool_starts: Counter[str] = field(default_factory=Counter)
    call_keys: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    ended: dict[str, Run] = field(default_factory=dict)
    cancels: dict[str, CancelAsked] = field(default_factory=dict)
    stopping: dict[str, Ending] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    sent: int = 0
    checked: set[tuple[str, int, str]] = field(default_factory=set)
    attempts: Counter[str] = field(default_factory=Counter)
    mail_sent: dict[str, list[str]] = field(default_factory=dict)
    log: list[LogEntry] = field(default_factory=list)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    purged: set[int] = field(default_factory=set)
    alone_by_then: dict[str, list[str]] = field(default_factory=dict)
    announced: set[str] = field(default_factory=set)
    boxes: dict[str, dict[int, Mail]] = field(default_factory=dict)
    raised: dict[str, list[int]] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    lawful: dict[str, Spec] = field(default_factory=dict)

    def mail(self, sim: Simulation, *, steer: bool) -> Posted:
        self.sent += 1
        return Posted(mail=Mail(seq=0, text=f"<mail {self.sent}>", steer=steer))

    def committed(self, changes: Changes) -> None:
        """The transaction is durable: what it says can be held against the machine from now on."""
        for spec in changes.specs:
            if not (spec.id not in self.specs):
                broken(f"I1 {spec.id} was started twice")
            self.specs[spec.id] = spec
            self.paths[spec.id] = spec.path if spec.root.endswith("0") else f"b{spec.path}"
        for conversation, n, message in changes.messages:
            mine = self.messages.setdefault(conversation, {})
            if not (n not in mine):
                broken(f"I14 message {n} of {conversation} was written twice")
            mine[n] = message
        for entry in changes.entries:
            if entry.stale and isinstance(entry.event, (Requested, Recovered)):
                broken(f"refused: {entry.stale}")
        self.log += changes.entries
        self._decided(changes)
        self.deliveries.update(changes.deliveries)
        self.accounts.update({id: replace(account) for id, account in changes.accounts.items()})
        self._deleted(changes)
        self._letters(changes)
        for entry in changes.entries:
            if isinstance(entry.event, ChildEnded) and not entry.stale:
                if not (entry.event.child not in self.told.setdefault(entry.run, set())):
                    broken(f"I3 {entry.run} was told twice that {entry.event.child} ended")
                self.told[entry.run].add(entry.event.child)
        asked = [
            (e.run, e.event)
            for e in changes.entries
            if isinstance(e.event, CancelAsked) and not e.stale
        ]
        self.cancels = {**dict(reversed(asked)), **self.cancels}
        before = set(self.ended)
        for id, run in changes.runs.items():
            if isinstance(run.state, Ended):
                if not (id not in self.ended):
                    broken(f"I1 {id} ended twice")
                self.ended[id] = run
            else:
                if not (id not in self.ended):
                    broken(f"I1 {id} lives after its end")
                if isinstance(run.state, Stopping):
                    self.stopping[id] = run.state.ending
        self._mail(changes)
        for id in self.ended.keys() - before:
            self._truthful(id, self.ended[id])
            self._heard_of(id, changes, before)
            found = provenance.count(self, id, before)
            found = found or provenance.unheard(self, id, self.boxes.pop(id, {}).values(), changes)
            must(not found, found)
        for delivery in changes.deliveries.values():
            members = [
                s
                for s in self.specs.values()
                if s.parent == delivery.run and s.order.group == delivery.group
            ]
            if delivery.group and any(s.id not in self.ended for s in members):
                broken(f"I4 group {delivery.group} was summed up before its last member ended")
        for id, below in self.alone_by_then.items():
            if not (all(b in self.ended for b in below)):
                broken(f"I7 {id} ended before those it answers for: {below}")
        self.alone_by_then.clear()

    def _mail(self, changes: Changes) -> None:
        for (id, seq), mail in changes.posted.items():
            self.boxes.setdefault(id, {})[seq] = mail
        for id, seq in changes.taken:
            del self.boxes[id][seq]

    def _decided(self, changes: Changes) -> None:
        """I10, I30: what limits were raised by; one question for one limit, and one answer to
        it."""
        for entry in changes.entries:
            event = entry.event
            if isinstance(event, LimitChanged) and not entry.stale:
                known = self.raised.setdefault(entry.run, [0, 0, 0, 0])
                if event.then == "ask":  # what was decided before is asked anew
                    self.answered.clear()
                    self.asked.clear()
                self.raised[entry.run] = [a + b for a, b in zip(known, event.add, strict=True)]
                if event.question in self.answered:
                    broken(f"I30 question {event.question} was answered twice")
                self.answered |= {event.question} - {""}
        for delivery in changes.deliveries.values():
            if (
                (asked := LIMIT.search(delivery.text))
                and delivery.state == "pending"
                and not delivery.attempts
            ):
                if asked[1] in self.asked:
                    broken(f"I30 somebody was asked twice about one limit: {delivery.text}")
                self.asked.add(asked[1])

    def _letters(self, changes: Changes) -> None:
        for entry in changes.entries:
            if isinstance(entry.event, Ordered) and entry.event.orders.sends and not entry.stale:
                must(not (why := self._unsent(entry, changes)), why)

    def _unsent(self, entry: LogEntry, changes: Changes) -> str:
        """I3: a letter to another tree is there in the same transaction, or its sender hears why
        not."""
        event = entry.event
        assert isinstance(event, Ordered)
        answers = [
            m
            for _, _, m in changes.messages
            if isinstance(m, Result) and m.call_id == event.call_id
        ]
        if any(m.error for m in answers):
            return ""  # the orders were refused, with everything in them
        posted = [e for e in changes.entries if isinstance(e.event, Posted)]
        for send in event.orders.sends:
            arrived = [e for e in posted if e.run == send.to and e.event.mail.text == send.text]  # type: ignore[union-attr]
            back = [
                e
                for e in posted
                if e.run == entry.run and e.event.mail.text.startswith("Your message was not")
            ]  # type: ignore[union-attr]
            if len(arrived) + bool(back) < 1 or len(arrived) > 1:
                return (
                    f"I3 the letter {send.text} of {entry.run} arrived {len(arrived)} times, "
                    "and it was not told why"
                )
        return ""

    def _heard_of(self, id: str, changes: Changes, before: set[str]) -> None:
        """I3: a result whose parent ended before it is heard by the nearest of its ancestors that
        lives."""
        spec, ending = self.specs[id], self.ended[id].state.ending  # type: ignore[union-attr]
        if (
            spec.parent not in before
            or is_known(ending)
            or (spec.order.join == "none" and not spec.order.news)
        ):
            return
        above = self.specs[spec.parent]
        deaf = self.ended.keys() | self.stopping.keys()
        while above.id in deaf and above.parent:
            above = self.specs[above.parent]
        if above.id in deaf or (
            spec.order.skip_token and ending.text.strip() == spec.order.skip_token
        ):
            return
        got = any(to == above.id and mail.sender == id for (to, _), mail in changes.posted.items())
        read = (m for c, _, m in changes.messages if c == above.conversation)
        if not got and not any(getattr(m, "sender", "") == id for m in read):
            broken(f"I3 the result of {id} reached nobody, though {above.id} could have heard it")

    def _deleted(self, changes: Changes) -> None:
        """I22: what is deleted was not to be kept, has ended, and is not needed for an open call or
        announcement."""
        for id in changes.forgotten:
            spec = self.specs[id]
            if spec.order.retention != "delete" or not spec.parent:
                broken(f"I22 {id} was deleted and should have been kept")
            kin = [s for s in self.specs.values() if s.root == spec.root]
            tree = {s.id for s in kin if f"{s.path}/".startswith(f"{spec.path}/")}
            if any(
                d.run in tree and d.state in ("pending", "sent", "dead")
                for d in self.deliveries.values()
            ):
                broken(f"I22 {id} was deleted before its announcement arrived")
            tree -= self.deleted
            self.deleted |= tree
            self.purged |= {n for n, entry in enumerate(self.log, 1) if entry.run in tree}

    def _truthful(self, id: str, run: Run) -> None:
        """Success has something to show; who may not be outlived is not; who was to be announced
        is."""
        ending = run.state.ending  # type: ignore[union-attr]
        if not (ending.state != "completed" or ending.text.strip()):
            broken(f"I21 {id} succeeded with nothing to show")
        spec = self.specs[id]
        if ending.stop == "quarantined":
            broken(f"I27 {id} was put aside, though it was never tried alone")
        if ending.state == "cancelled":
            asked = self.cancels[id]
            if not ending.by or ending.along != (asked.by if asked.along else ""):
                broken(f"I7 {id} does not say who ended it: {ending.by!r}, with {ending.along!r}")
        if ending.along:
            # Whoever it ends with may still wait to hear what its stopped call has cost.
            above = self.ended.get(ending.along)
            end = self.stopping[ending.along] if above is None else above.state.ending  # type: ignore[union-attr]
            if spec.order.bond == "keep" and end.state not in ("cancelled", "timed_out"):
                broken(f"I7 {id} was cancelled with its parent, which it may outlive ({end.stop})")
            if spec.order.bond == "wait" and end.stop == "done":
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
            run = sim.run_of(effect.run)
            assert run is not None
            state = run.state
            assert isinstance(state, Thinking)
            from tests.simulation.pure import tools_of

            most_in = state.hold[0] - effect.max_output
            path = self.paths[effect.run]
            reply = script.reply(
                sim.seed,
                path,
                run.turn,
                effect.purpose,
                tools_of(sim, effect.run),
                most_in,
                effect.max_output,
            )
            self.replies[(effect.run, effect.attempt)] = reply
            if script.leaves_at_once(sim.seed, path, effect.attempt):
                self.leave(sim, effect)

    def leave(self, sim: Simulation, effect: CallModel) -> None:
        """A model call reaches its provider: from now on it costs something, unless it fails."""
        at = (effect.run, effect.attempt)
        if at not in self.left:
            self.left.add(at)
            if script.failure(sim.seed, self.paths[effect.run], effect.attempt) is None:
                self._meter(sim, effect.run, self.replies[at])

    def _meter(self, sim: Simulation, id: str, reply: Reply) -> None:
        """Money that is really gone, whether or not the answer ever arrives: on the run and on all
        above it."""
        tokens = reply.usage.input + reply.usage.output
        nanos = script.MODEL.cost(reply.usage.input, reply.usage.output)
        while id:
            spec = self.specs[id]
            self.spent[id] += tokens
            self.nanos[id] += nanos
            self.turns[id] += 1
            budget, more = spec.order.budget, self.raised.get(id, (0, 0, 0, 0))
            if not (budget.tokens is None or self.spent[id] <= budget.tokens + more[0]):
                broken(f"I10 {id} spent {self.spent[id]} tokens")
            if not (budget.usd is None or self.nanos[id] <= round(budget.usd * 1e9) + more[1]):
                broken(f"I10 {id} spent too much money")
            if not (budget.turns is None or self.turns[id] <= budget.turns + more[2]):
                broken(f"I10 {id} took {self.turns[id]} turns")
            id = spec.parent


def before_effect(sim: Simulation, effect: Effect) -> None:
    """I6, I7: what is performed was asked for by a committed step of a run that is still at it."""
    books = sim.books
    if isinstance(effect, (Deliver, Transmit, AskSlot, FreeSlot)):
        return
    assert isinstance(effect, (CallModel, CallTool, Compose))
    run = sim.run_of(effect.run)
    if (
        isinstance(effect, CallTool)
        and effect.woken
        and getattr(run and run.state, "calls", None) is None
    ):
        # an answer of an earlier life closed the call in the same batch; looking once more does no
        # harm
        return
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
        said = books.messages[books.specs[effect.run].conversation][_calls_of(run).message]
        assert isinstance(said, Assistant)
        alone = len(said.calls) == 1
        must(
            alone or effect.call.name not in script.SUBMITS,
            "I8 a submission was taken beside other calls",
        )


def _calls_of(run: Run) -> Calls:
    calls = getattr(run.state, "calls", None)
    if not (calls is not None):
        broken(f"I7 a tool of {run.id} is started while it is {type(run.state).__name__}")
    return calls  # type: ignore[no-any-return]


def _permitted(sim: Simulation, effect: CallTool) -> None:
    """I9, by our own reading: nobody from the run up to its root withholds the tool. (What was
    narrowed a moment ago may still be under way.)"""
    id, name = effect.run, effect.call.name
    tree = sim.trees.of(id)
    assert tree is not None
    if name not in tree.shared.definitions[tree.specs[id].order.agent].tools:
        return
    said_yes = (id, effect.turn, effect.index) in sim.said_yes or tree.root in sim.said_yes
    if name == "write" and sim.rules.mode != "bypassPermissions" and not said_yes:
        broken(f"I9 {name} was run by {id} although nobody has permitted it")
    while id in tree.specs:
        held = sim.books.specs[id].capabilities
        inside = held.tools is None or name in held.tools
        if not (inside and name not in held.deny):
            broken(f"I9 {name} was run although {id} withholds it")
        ended = tree.specs[id].capabilities
        now = tree.runs[id].access if id in tree.runs else ended
        fresh = "narrow" in sim.faults or effect.again
        if not (now is None or name not in now.deny or fresh):
            broken(f"I9 {name} was run although {id} was narrowed")
        id = tree.specs[id].parent


def _history(sim: Simulation, run: Run, effect: CallModel) -> None:
    """I8, I3: calls are answered once each; every child that was counted stands in the history
    once."""
    books, spec = sim.books, sim.books.specs[run.id]
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
        unread = any(m.sender == child for m in sim.tree_of(run.id).mail.get(run.id, ()))
        order = books.specs[child].order
        times = 1 if order.news or order.join != "none" else 0
        if text == f"<{books.paths[child]}>" and not unread and marks[text] != times:
            broken(f"I3 the result of {child} is not in the history of {run.id}, or should not be")
    box = sim.tree_of(run.id).mail.get(run.id, ())
    found = provenance.untold(books, run.id, mine.values(), {m.sender for m in box})
    must(not found, found)


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


def set_aside(sim: Simulation, before: dict[str, dict[str, Run]], failed: list[str]) -> None:
    """I31: a tree with a defect of ours is not held any more, and nobody else has changed."""
    for root, runs in before.items():
        tree = sim.trees.by_root.get(root)
        if root in failed:
            must(
                tree is None and not any(id in sim.trees.index.runs for id in runs),
                f"I31 {root} is still held",
            )
        else:
            must(
                tree is not None and tree.runs == runs,
                f"I31 {root} was changed by a defect in {failed}",
            )
    if len(failed) > 1:
        sent = [e for e in sim.trees._own.entries if isinstance(e.event, Broken)]
        must(len(sent) >= len(failed), f"I31 not all of {failed} are on record")


def before_commit(sim: Simulation, changes: Changes) -> None:
    """I31: of a tree that was set aside only its root's row is written, which says why."""
    for id, run in changes.runs.items():
        spec = sim.books.specs.get(id)
        if spec is not None and spec.root in sim.aside:
            must(run.defect and id == spec.root, f"I31 {id} was changed by a step that failed")
    must(
        not any(spec.root in sim.aside for spec in changes.specs),
        "I31 a failed step has started somebody",
    )


def after_commit(sim: Simulation) -> None:
    """I15: what a run waits for in the world is really under way."""
    from tests.simulation.pure import now

    models = {(e.run, e.attempt) for e in sim.flying if isinstance(e, CallModel)}
    tools = {(e.run, e.turn, e.index) for e in sim.flying if isinstance(e, CallTool)}
    composing = {e.run for e in sim.flying if isinstance(e, Compose)}
    _shared_lanes(sim)
    for root, has_row in sim.aside.items():
        must(
            not has_row or now(sim.store.row(root)).run.defect,
            f"I31 the row of {root} does not say why it was set aside",
        )
    stopped = {(e.run, e.attempt) for e in sim.flying if isinstance(e, Abort)}
    for spec, run in sim.trees.live():
        id, state = spec.id, run.state
        if any((id, lost.attempt) not in stopped for lost in run.broken_off):
            broken(f"I15 nobody says what a stopped call of {id} has cost")
        if (
            isinstance(state, Thinking)
            and state.retry_at is None
            and (id, state.attempt) not in models
        ):
            broken(f"I15 nobody asks the model for {id}")
        calls = getattr(state, "calls", None)
        for index in range(calls.count if calls is not None else 0):
            if (calls.tools | calls.woken) >> index & 1 and (id, run.turn, index) not in tools:
                broken(f"I15 nobody runs call {index} of {id}")
        fan_in = None if isinstance(state, Stopping) else sim.tree_of(id).fans.get(id)
        if (
            fan_in is not None
            and any(f.composing for f in fan_in.fans.values())
            and id not in composing
        ):
            broken(f"I15 nobody composes the results of {id}")


def _shared_lanes(sim: Simulation) -> None:
    """I11, I15: a slot is held by who is at work, or is about to hear of it; who waits is in the
    queue."""
    shared, told = sim.trees.lanes, {id for id, _ in sim.admissions}
    held: Counter[str] = Counter()
    for spec, run in sim.trees.live():
        state = run.state
        if not spec.order.lanes and not isinstance(state, Queued):
            continue
        n = (
            len(spec.order.lanes)
            if is_seated(run)
            else state.lane
            if isinstance(state, Queued)
            else 0
        )
        held.update(lane.name for lane in spec.order.lanes[:n] if lane.is_shared)
        if isinstance(state, Queued) and spec.order.lanes[state.lane].is_shared:
            held[spec.order.lanes[state.lane].name] += spec.id in told
            if spec.id not in told and not shared.lanes.waits(
                spec.id, spec.order.lanes[state.lane]
            ):
                broken(f"I15 {spec.id} waits for a lane that does not know of it")
    for name, lane in shared.lanes.by_name.items():
        must(lane.held == held[name], f"I11 lane {name} counts {lane.held}, {held[name]} hold it")
        # Whoever is taken up again after a defect goes on at once, though its slot was given to
        # somebody else.
        must(lane.held <= lane.size or sim.had_defect, f"I11 lane {name} holds more than its size")
        must(
            lane.held >= lane.size or not lane.waiting,
            f"I15 lane {name} has room and somebody waits",
        )
    must(
        set(held) - {n for n, k in held.items() if not k} <= set(shared.lanes.by_name),
        "I11 a lane is not known",
    )


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


def at_the_end(sim: Simulation) -> None:
    books, trees = sim.books, sim.trees
    for tree in trees.by_root.values():
        must(
            tree.deliveries and not tree.specs,
            f"I19 the tree of {tree.root} is kept and has nothing open",
        )
        for name in (
            "asking",
            "runs",
            "children",
            "lingering",
            "fans",
            "mail",
            "groups",
            "granted",
            "asked",
            "_bonds",
        ):
            if getattr(tree, name):
                broken(f"I19 tree.{name} is not empty at the end: {getattr(tree, name)}")
        must(not tree.ledger.accounts, f"I19 accounts are left at the end: {tree.ledger.accounts}")
        must(not tree.lanes.by_name, f"I19 lanes are left at the end: {tree.lanes.by_name}")
    must(not trees.index.asking, "I19 a tree that has ended asks about a limit")
    must(
        not trees.index.runs and not trees.lanes.holders and not trees.lanes.lanes.by_name,
        "I19 something is left",
    )
    must(set(books.specs) == set(books.ended), "I1 not everybody who was started has ended")
    for key, times in books.received.items():
        if not (times >= 1):
            broken(f"I4 {key} was never received")
    for delivery in books.deliveries.values():
        if delivery.state not in ("acked", "suppressed", "dead"):
            broken(f"I4 delivery {delivery.key} is {delivery.state}")
        must(
            delivery.state != "acked" or books.received[delivery.key] >= 1,
            "I4 acked and never received",
        )
        tried = delivery.bounces >= sim.rules.delivery_tries
        must(delivery.state != "dead" or tried, "I4 given up before its time")
        must(
            delivery.text or delivery.state == "suppressed",
            f"I4 delivery {delivery.key} says nothing",
        )
    lost = {id for id in books.announced if digest(id, "completion") not in books.deliveries}
    if lost:
        broken(f"I4 never announced: {lost}")
    _known(books)
    n_left = Counter(run for run, _ in books.left)
    for id, run in books.ended.items():
        if run.usage.turns > n_left[id]:
            broken(
                f"I10 {id} has paid for {run.usage.turns} model calls, and {n_left[id]} have left"
            )
    _summaries(books)
    _fold(sim)


def _known(books: Books) -> None:
    """I10: what is only a bound is told apart, in a run and in the account of each above it."""
    below: dict[str, tuple[int, int]] = {}
    for spec in sorted(books.specs.values(), key=lambda s: s.depth, reverse=True):
        usage = books.ended[spec.id].usage
        if usage.estimated and not usage.nanos_estimated:
            broken(f"I10 {spec.id} does not say how much of its cost is a bound")
        own = below.get(spec.id, (0, 0))
        total = (own[0] + usage.estimated, own[1] + usage.nanos_estimated)
        account = books.accounts[spec.id]
        if account.guess[:2] != total:
            broken(f"I10 account {spec.id} knows of bounds of {account.guess}, its runs of {total}")
        above = below.get(spec.parent, (0, 0))
        below[spec.parent] = (above[0] + total[0], above[1] + total[1])


def _summaries(books: Books) -> None:
    """I4: a group that is to be summed up is, once, if its members announce and did not end with
    their parent."""
    groups: dict[tuple[str, str], list[Spec]] = {}
    for spec in books.specs.values():
        if spec.order.group_size and spec.origin.channel:
            groups.setdefault((spec.parent, spec.order.group), []).append(spec)
    summed = Counter((d.run, d.group) for d in books.deliveries.values() if d.group)
    killed = {
        key
        for key, specs in groups.items()
        if any(books.ended[s.id].state.ending.along for s in specs)
    }  # type: ignore[union-attr]
    if Counter({k: n for k, n in summed.items() if k not in killed}) != Counter(
        groups.keys() - killed
    ):
        broken(f"I4 groups {set(groups)} and summaries {summed}")


def _fold(sim: Simulation) -> None:
    """I13, I14: the log has no gap but where a run was deleted, and its fold is the state that was
    stored. I29: what caches gave to a tree is what they gave to its runs."""
    from tests.simulation.pure import now

    books = sim.books
    rows = now(sim.store.entries(0, "", 1_000_000))
    kept = [n for n in range(1, len(books.log) + 1) if n not in books.purged]
    must([seq for seq, _ in rows] == kept, "I13 the log has a gap")
    trees: dict[str, list[int]] = {}
    for seq, entry in enumerate(books.log, 1):
        trees.setdefault(entry.tree, []).append(seq)
    for tree, seqs in trees.items():
        numbers = [n for n, seq in enumerate(seqs, 1) if seq not in books.purged]
        told = now(sim.store.entries(0, "", 1_000_000, tree=tree))
        must([n for n, _ in told] == numbers, f"I13 the log of tree {tree} has a gap")
    folded = Trees(sim.rules)
    for entry in books.log:
        folded.fold(entry)
    final = folded.take_changes().runs
    for id, run in books.ended.items():
        if final[id] != run:
            broken(f"I14 the fold of the log gives another end for {id}:\n{final[id]}\n{run}")
    given: dict[str, Cached] = {}
    for id, run in books.ended.items():
        root = books.specs[id].root
        given[root] = given.get(root, NO_CACHE).plus(run.cache)
    for root, cached in given.items():
        account = now(sim.store.account(root))
        must(
            account is None or account.cache == cached,
            f"I29 {root} is told of {account}, its runs of {cached}",
        )
    for id in books.deleted:
        must(now(sim.store.row(id)) is None, f"I22 {id} was deleted and is still there")
