"""All trees of one process: routes events to their trees, and collects the writes of a transaction.

Trees know nothing of each other. What goes between them goes through here: slots of lanes that they
share, and letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec.structs import replace

from retinue.core import machine
from retinue.core.changes import Changes, without_aborted
from retinue.core.effects import AbortRun, AskSlot, FreeSlot
from retinue.core.events import (
    Acked,
    AgentRegistered,
    AnyEvent,
    Bounced,
    Broken,
    CancelAsked,
    Closed,
    Dropped,
    Forgotten,
    LimitChanged,
    LogEntry,
    MailReceived,
    ModelRegistered,
    OfStore,
    OfTree,
    Opened,
    Requested,
    Requeued,
    RunEvent,
    Sent,
    StoreEvent,
    TreeEvent,
)
from retinue.core.lanes import SharedLanes
from retinue.core.run_mail import cannot_reach
from retinue.core.shared import Shared
from retinue.core.spec import RunSpec
from retinue.core.state import Run, holds_slots
from retinue.core.tree import Index, Tree
from retinue.core.values import Limits, Mail
from retinue.errors import InvalidTransition, Refused

UNDELIVERED = "Your message was not delivered: {why}"
MANY = 1 << 30


class Trees:
    """The open trees by their roots. A tree with no open run is not kept."""

    def __init__(self, limits: Limits) -> None:
        self.shared = Shared(limits)
        self.by_root: dict[str, Tree] = {}
        self.index = Index()
        self.lanes = SharedLanes()
        self.failed: list[tuple[str, Exception]] = []
        """Trees in which a step has failed by a defect of ours. They must no longer be used: see
        `set_aside`."""
        self._writing: dict[str, dict[str, None]] = {}
        self._touched: dict[str, Tree] = {}
        self._letters: dict[str, set[str]] = {}
        self.unsettled: list[Tree] = []
        """Trees with news that belongs to the transaction of what was taken before."""
        self._at, self._own = 0, Changes()

    # finding

    def of(self, run: str) -> Tree | None:
        """The tree that a run is in, open, or ended with an open run below it."""
        return self.index.runs.get(run)

    def run(self, id: str) -> Run | None:
        tree = self.index.runs.get(id)
        return None if tree is None else tree.runs.get(id)

    def spec(self, id: str) -> RunSpec | None:
        tree = self.index.runs.get(id)
        return None if tree is None else tree.specs.get(id)

    def first_open(self, id: str) -> list[str]:
        """The run itself while it is open, otherwise the nearest open runs below it; for a root
        also those that earlier roots of its conversation left open."""
        tree = self.index.runs.get(id)
        if tree is None:
            return []
        roots = list(self._writing.get(tree.conversation, ())) if id == tree.root else []
        earlier = roots[: roots.index(id)] if id in roots else []
        children = [child for root in earlier for child in self.by_root[root].below(root)]
        return [*([id] if id in tree.runs else tree.below(id)), *children]

    def up_to(self, root: str, conversation: str) -> list[Tree]:
        """What is open of the tree of this root, and of those before it in its conversation."""
        roots = list(self._writing.get(conversation, ()))
        mine = roots[: roots.index(root) + 1] if root in roots else [*roots, root]
        return [self.by_root[id] for id in mine if id in self.by_root]

    def live(self) -> Iterator[tuple[RunSpec, Run]]:
        for tree in self.by_root.values():
            for id, run in tree.runs.items():
                yield tree.specs[id], run

    @property
    def has_runs(self) -> bool:
        return any(tree.runs for tree in self.by_root.values())

    def open(self, root: str, conversation: str = "") -> Tree:
        """The tree of this root, made if there is none. Roots that continue one conversation are
        kept together."""
        tree = self.by_root.get(root)
        if tree is None:
            tree = self.by_root[root] = self._touched.get(root) or Tree(
                root, self.shared, self.index
            )
        if conversation:
            tree.conversation = conversation
            self._writing.setdefault(conversation, {})[root] = None
            self._follow(conversation)
        return tree

    def _follow(self, conversation: str) -> None:
        """The last root of a conversation gets the notices about runs that earlier roots started,
        while it is open."""
        *earlier, last = self._writing[conversation]
        heir = last if last in self.by_root[last].runs else ""
        self.by_root[last].successor = ""
        for root in earlier:
            self.by_root[root].successor = heir

    def find_successors(self) -> None:
        """After all trees were built again."""
        for conversation in self._writing:
            self._follow(conversation)

    def is_open(self, root: str) -> bool:
        """Whether a run is open in this tree, or continues the conversation that its root began."""
        tree = self.by_root.get(root)
        return (tree is not None and bool(tree.specs)) or root in self._writing

    # events

    def apply(self, run: str, at: int, event: AnyEvent) -> str:
        """One event and what follows from it now; returns why it was refused, or ""."""
        stale = self.begin(run, at, event)
        while self.unsettled:
            self.go_on(MANY)
        return stale

    def begin(self, run: str, at: int, event: AnyEvent) -> str:
        """One event, without the news that it causes: `go_on` takes it, before anything else
        happens."""
        if isinstance(event, OfStore):
            return self._take(at, event)
        if not isinstance(event, OfTree):
            tree = self.index.runs.get(run)
        elif isinstance(event, Requested):
            return self._request(run, at, event)
        else:
            tree = self._home(run, event)
        return self._refuse(run, at, event) if tree is None else self._begin(tree, run, at, event)

    def _request(self, run: str, at: int, event: Requested) -> str:
        try:
            self.refuse_request(event)
        except Refused as refusal:
            return self._refuse(run, at, event, f"refused ({refusal.limit}): {refusal}")
        return self._begin(self.open(event.id), run, at, event)

    def _begin(self, tree: Tree, run: str, at: int, event: TreeEvent | RunEvent) -> str:
        self._at = at
        self._touched[tree.root] = tree
        try:
            stale = machine.take(tree, run, at, event)
        except Exception as error:
            return self._break(tree, error)
        if isinstance(event, Requested) and not stale:
            self.open(tree.root, event.conversation or event.id)
        if tree.has_news:
            self.unsettled.append(tree)
        elif tree.root not in tree.runs:
            self._after(tree)
        return stale

    def _after(self, tree: Tree) -> None:
        """A tree with nothing open is not kept; a root that has ended receives no more mail."""
        if tree.root in tree.runs:
            return
        if tree.is_empty:
            self._close(tree)
        elif len(self._writing.get(tree.conversation, ())) > 1:
            self._follow(tree.conversation)

    @property
    def is_settled(self) -> bool:
        """Whether a transaction would be whole now."""
        return not self.unsettled

    def go_on(self, most: int) -> int:
        """Take the news that the last event has caused, letters to other trees too, in at most so
        many steps. Returns how many there were."""
        n = 0
        while self.unsettled and n < most:
            tree = self.unsettled[-1]
            try:
                n += machine.settle(tree, self._at, most - n)
            except Exception as error:
                self._break(tree, error)
                continue
            if n == most and tree.has_news:
                break
            if tree.letters:
                n += 1
                self._carry(tree, *tree.letters.pop(0))
                continue
            self.unsettled.pop()
            self._after(tree)
        return n

    def _step(self, tree: Tree, run: str, event: TreeEvent | RunEvent) -> str:
        self._touched[tree.root] = tree
        self.unsettled.append(tree)
        try:
            return machine.take(tree, run, self._at, event)
        except Exception as error:
            return self._break(tree, error)

    def _break(self, tree: Tree, error: Exception) -> str:
        """A defect in one tree does not stop another."""
        tree.letters.clear()
        for root in self._entangled(tree.root):
            self.unsettled = [other for other in self.unsettled if other.root != root]
            self.failed.append((root, error))
        return f"internal error: {type(error).__name__}: {error}"

    def _entangled(self, root: str) -> list[str]:
        """A tree and those with which it has exchanged letters that are not written yet: a letter
        is sent and received in one transaction, so all of them are set aside, or none."""
        roots = [root]
        for one in roots:
            roots += [r for r in self._letters.get(one, ()) if r not in roots]
        return roots

    def fold(self, entry: LogEntry) -> None:
        """Replay one row of a log."""
        event = entry.event
        if isinstance(event, OfStore):
            if not entry.stale:
                self._store_step(event)
            return
        if entry.stale and isinstance(event, Requested):
            return
        tree = self._home(entry.run, event)
        if tree is None:
            return
        self._touched[tree.root] = tree
        machine.fold(tree, entry, event)
        if isinstance(event, Requested):
            self.open(tree.root, event.conversation or event.id)
        self._after(tree)

    def _home(self, run: str, event: TreeEvent | RunEvent) -> Tree | None:
        """The tree that an event concerns; a request makes its own."""
        if not isinstance(event, OfTree):
            return self.index.runs.get(run)
        match event:
            case Requested(id=id):
                return self.open(id)
            case Sent() | Acked() | Bounced() | Requeued() | Dropped():
                return self.index.deliveries.get(event.key)
            case Broken():
                return self.by_root.get(run)
            case LimitChanged():
                return self.index.runs.get(run)
            case _:
                assert_never(event)

    def _refuse(self, run: str, at: int, event: TreeEvent | RunEvent, why: str = "") -> str:
        """No tree can take it: it is recorded with the events of the whole store."""
        if isinstance(event, Sent | Acked | Bounced | Requeued | Dropped):
            absent = f"delivery {event.key}, which is not open"
        else:
            absent = f"{run}, which is not live"
        why = why or f"{type(event).__name__} for {absent}"
        self._own.entries.append(LogEntry(run=run, at=at, event=event, stale=why))
        return why

    def _close(self, tree: Tree) -> None:
        self.by_root.pop(tree.root, None)
        roots = self._writing.get(tree.conversation)
        if roots is not None:
            roots.pop(tree.root, None)
            if roots:
                self._follow(tree.conversation)
            else:
                del self._writing[tree.conversation]

    def refuse_request(self, event: Requested) -> None:
        """Raise `Refused` when a root cannot be taken on. Asked before an event is posted, and
        again by the step."""
        machine.refuse_request(self.shared, event)
        if event.id in self.index.runs or event.id in self.by_root:
            raise Refused("id", f"A run with the id {event.id!r} already exists.")
        roots = self._writing.get(event.conversation, ())
        if any(root in self.by_root[root].runs for root in roots if root in self.by_root):
            raise Refused(
                "conversation",
                f"Conversation {event.conversation} has an open run. Wait for it, or fork it.",
            )

    # what concerns the whole store

    def _take(self, at: int, event: StoreEvent) -> str:
        stale = ""
        try:
            self._store_step(event)
        except InvalidTransition as error:
            stale = str(error)
        self._own.entries.append(LogEntry(run="", at=at, event=event, stale=stale))
        return stale

    def _store_step(self, event: StoreEvent) -> None:
        match event:
            case Opened():
                self.shared.epoch, self.shared.limits = event.epoch, event.limits
                self.reseat()
            case Closed():
                pass
            case AgentRegistered(definition=definition):
                self.shared.definitions[definition.name] = definition
                self._own.definitions.append(definition)
            case ModelRegistered(model=model):
                self.shared.models[model.name] = model
                self._own.models.append(model)
            case Forgotten(root=root):
                self._forget(root)
            case _:
                assert_never(event)

    def _forget(self, root: str) -> None:
        tree = self.by_root.get(root)
        if self.is_open(root):
            raise InvalidTransition(f"{root} is still open. Cancel it first.")
        if tree is not None:
            if any(x.state in ("pending", "sent") for x in tree.deliveries.values()):
                raise InvalidTransition(
                    f"{root} still has something to announce. Wait for it, or drop it."
                )
            for key in list(tree.deliveries):
                tree.drop_delivery(key)
            self._close(tree)
        self._own.forgotten.append(root)

    # between trees

    def reseat(self) -> None:
        """After a restart: a run at work holds its slots; a run that waited for one asks again when
        it is notified."""
        self.lanes = SharedLanes()
        for tree in self.by_root.values():
            tree.reseat()
        for spec, run in self.live():
            if spec.request.lanes and holds_slots(run):
                for lane in spec.request.lanes:
                    if lane.is_shared:
                        self.lanes.hold(spec.id, lane)

    def seat(self, effect: AskSlot | FreeSlot) -> tuple[str, int] | None:
        """Perform what concerns a lane that trees share: who is to be admitted because of it, and
        its ticket."""
        if isinstance(effect, FreeSlot):
            return self.lanes.free(effect.run, effect.lane)
        has_slot = self.lanes.ask(effect.run, effect.lane, back=effect.back, ticket=effect.ticket)
        return (effect.run, effect.ticket) if has_slot else None

    def _carry(self, tree: Tree, to: str, event: MailReceived | CancelAsked, sender: str) -> None:
        """A letter is taken by the tree that it is for, in the same transaction; or its sender
        reads why not."""
        other = self.index.runs.get(to)
        why = (
            f"{to!r} is not an open run"
            if other is None
            else cannot_reach(tree, other, to, event, sender)
        )
        if other is None or why is not None:
            mail = Mail(seq=0, text=UNDELIVERED.format(why=why))
            self._step(tree, sender, MailReceived(mail=mail))
            return
        self._letters.setdefault(tree.root, set()).add(other.root)
        self._letters.setdefault(other.root, set()).add(tree.root)
        self._step(other, to, event)

    # writing

    @property
    def has_changes(self) -> bool:
        return bool(self._touched or self._own.entries)

    def root_of(self, run: str, event: AnyEvent) -> str:
        """The root of the tree that an event concerns, "" when there is none."""
        if isinstance(event, Requested):
            return event.id
        tree = None if isinstance(event, OfStore) else self._home(run, event)
        return "" if tree is None else tree.root

    def take_changes(self) -> Changes:
        """Everything since the last call, of all trees. It belongs to the calling function and is
        not changed here."""
        assert not self.unsettled, "half a transaction is not written"
        batch, touched = self._own, self._touched
        self._own, self._touched, self._letters = Changes(), {}, {}
        own = (batch.entries, batch.definitions, batch.models, batch.forgotten, batch.runs)
        if len(touched) == 1 and not any(own):
            batch = next(iter(touched.values())).take_changes(batch)
        else:
            for tree in touched.values():
                tree.hand_over(batch)
        if AbortRun in map(type, batch.effects):
            batch.effects = without_aborted(batch.effects)
        return batch

    def set_aside(self, root: str, at: int, error: str, row: Run | None) -> list[str]:
        """A step of this tree has failed by a defect of ours. What it has changed since its changes
        were taken last is dropped, and the tree is no longer kept: what is recorded does not
        change, nor does what is being written. Its root's row (`row`, as that leaves it) says why.
        Returns the runs that were live in it."""
        tree, touched = self.by_root.get(root), self._touched.pop(root, None)
        self.unsettled = [other for other in self.unsettled if other.root != root]
        if touched is not None:
            # The code that frees its slot is done, whatever happened to its step.
            self._own.effects += [e for e in touched.changes.effects if isinstance(e, FreeSlot)]
        self._own.entries.append(LogEntry(run=root, at=at, event=Broken(error=error), tree=root))
        if row is not None:
            self._own.runs[root] = replace(row, defect=error)
        if tree is None:
            return []
        self._close(tree)
        for key in tree.deliveries:
            self.index.deliveries.pop(key, None)
        for id, spec in tree.specs.items():
            tree.ask_about(tree.runs.get(id), None)
            self.index.runs.pop(id, None)
            self._own.effects += [
                FreeSlot(run=id, lane=lane) for lane in spec.request.lanes if lane.is_shared
            ]
        return list(tree.runs)
