"""A story: some trees, a clock that the test moves, and the answers of a world that the test
plays."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from retinue.core.account import Account
from retinue.core.effects import (
    AbortRun,
    AskSlot,
    CallModel,
    CallTool,
    Effect,
    FormatResults,
    FreeSlot,
)
from retinue.core.events import (
    Aborted,
    ActionsReturned,
    Admitted,
    AgentRegistered,
    AnyEvent,
    CancelAsked,
    InterruptedCall,
    LogEntry,
    MailReceived,
    ModelFailed,
    ModelRegistered,
    Opened,
    Recovered,
    Replied,
    Requested,
    ResultsFormatted,
    StepTaken,
    Submitted,
    TextReturned,
    Woke,
)
from retinue.core.messages import (
    AssistantMessage,
    Message,
    ModelReply,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.core.spec import Actions, RunRequest, RunSpec, SendMessage
from retinue.core.state import AnyState, Ended, Run, RunRecord, Stopping, calls_of
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import (
    Definition,
    Delivery,
    Ending,
    Limits,
    Mail,
    ModelInfo,
    Permissions,
    Restart,
    Usage,
)
from retinue.runtime.recover import rebuild, under_way
from retinue.store.base import Snapshot

START = 1_000_000
MODEL = ModelInfo(name="m", window=100_000, max_output=1_000, price_in=1, price_out=5)
TOOLS = ("hire", "look", "note")


class Story:
    """Holds everything that a store would hold, so that a test can look at it and restart from
    it."""

    def __init__(self, rules: Limits | None = None, model: ModelInfo = MODEL) -> None:
        self.trees = Trees(rules or Limits())
        self.now = START
        self.effects: list[Effect] = []
        self.has_slots: list[AskSlot | FreeSlot] = []
        self.aborted: list[AbortRun] = []
        self.keeps_aborts = False
        self.entries: list[LogEntry] = []
        self.rows: dict[str, Run] = {}
        self.specs: dict[str, RunSpec] = {}
        self.accounts: dict[str, Account] = {}
        self.mail: dict[tuple[str, int], Mail] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.said: dict[str, dict[int, Message]] = {}
        self.forgotten: list[str] = []
        self.found: dict[str, Run] = {}
        self.post("", ModelRegistered(model=model))
        self.define("boss", agents=("boss", "hand"))
        self.define("hand", agents=("boss", "hand"))

    def define(self, name: str, tools: tuple[str, ...] = TOOLS, **fields: Any) -> None:
        fields = {"model": "m", "reachable_tools": tools, "agents": (name,), **fields}
        self.post("", AgentRegistered(definition=Definition(name=name, tools=tools, **fields)))

    # the door

    def post(self, run: str, event: AnyEvent) -> str:
        """One event and its consequences; returns why it was refused, or ""."""
        stale = self._take(run, event)
        granted = [seat for e in self.has_slots if (seat := self.trees.seat(e)) is not None]
        self.has_slots.clear()
        for id, ticket in granted:
            self.post(id, Admitted(ticket=ticket))
        aborted, self.aborted = self.aborted, []
        for effect in aborted:
            # As if nobody knew what it has cost; a test that knows says so itself.
            if not self.keeps_aborts:
                self.post(effect.run, Aborted(attempt=effect.attempt))
        return stale

    def _take(self, run: str, event: AnyEvent) -> str:
        self.trees.apply(run, self.now, event)
        assert not self.trees.failed, self.trees.failed
        changes = self.trees.take_changes()
        first = changes.entries[0]
        assert first.event is event
        self.has_slots += [e for e in changes.effects if isinstance(e, AskSlot | FreeSlot)]
        self.aborted += [e for e in changes.effects if isinstance(e, AbortRun) and e.attempt]
        self.entries += changes.entries
        self.effects += changes.effects
        self.rows.update(changes.runs)
        self.specs.update((s.id, s) for s in changes.specs)
        self.accounts.update(copy.deepcopy(changes.accounts))
        self.mail.update(changes.posted)
        self.deliveries.update(changes.deliveries)
        self.forgotten += changes.forgotten
        for key in changes.taken:
            del self.mail[key]
        for conversation, n, message in changes.messages:
            assert n not in self.said.setdefault(conversation, {}), "a message was written twice"
            self.said[conversation][n] = message
        return first.stale

    def later(self, ms: int) -> None:
        self.now += ms

    # what a test says

    def start(
        self, id: str = "root", agent: str = "boss", task: str = "do it", **order: Any
    ) -> str:
        capabilities = order.pop("capabilities", Permissions())
        stale = self.post(
            "",
            Requested(
                id=id, request=RunRequest(agent=agent, task=task, **order), permissions=capabilities
            ),
        )
        assert stale == "", stale
        return id

    def reply(self, id: str, text: str = "", *calls: ToolCall, **fields: Any) -> str:
        """The model answers the last call of this run."""
        spilled = fields.pop("spilled", None)
        usage = fields.pop("usage", Usage(input=10, output=5))
        fields.setdefault("stop", "calls" if calls else "end")
        reply = ModelReply(message=AssistantMessage(text=text, calls=calls), usage=usage, **fields)
        return self.post(id, Replied(attempt=self.asked(id).attempt, reply=reply, spilled=spilled))

    def fail(self, id: str, kind: str = "server_error", message: str = "no", **fields: Any) -> str:
        return self.post(
            id, ModelFailed(attempt=self.asked(id).attempt, kind=kind, message=message, **fields)
        )

    def tool(self, id: str, index: int = 0, text: str = "seen", **fields: Any) -> str:
        return self.post(id, TextReturned(text=text, **self.address(id, index), **fields))

    def order(self, id: str, *spawns: RunRequest, index: int = 0, **orders: Any) -> str:
        return self.post(
            id, ActionsReturned(actions=Actions(spawns=spawns, **orders), **self.address(id, index))
        )

    def step(
        self,
        id: str,
        name: str,
        *spawns: RunRequest,
        index: int = 0,
        parks: bool = True,
        **fields: Any,
    ) -> str:
        """The function of a call takes a step of this name; its children are named after it."""
        orders = {f: fields.pop(f) for f in ("sends", "cancels") if f in fields}
        return self.post(
            id,
            StepTaken(
                step=name,
                actions=Actions(spawns=spawns, **orders),
                children=tuple(f"{name}{n}" for n in range(len(spawns))),
                parks=parks,
                **self.address(id, index),
                **fields,
            ),
        )

    def stepping(self, id: str, name: str, *spawns: RunRequest, **fields: Any) -> list[str]:
        """The same; returns the ids of the children, which the function awaits."""
        before = set(self.specs)
        awaited = [msgspec.structs.replace(s, join="step", tell_parent=False) for s in spawns]
        assert self.step(id, name, *awaited, **fields) == ""
        return [s for s in self.specs if s not in before]

    def submit(self, id: str, text: str = "result", index: int = 0, **fields: Any) -> str:
        return self.post(id, Submitted(text=text, **self.address(id, index), **fields))

    def format_results(self, id: str, text: str = "composed") -> str:
        effect = next(
            e for e in reversed(self.effects) if isinstance(e, FormatResults) and e.run == id
        )
        calls = tuple((c.index, c.call_id, c.name, text) for c in effect.calls)
        return self.post(id, ResultsFormatted(turn=effect.turn, calls=calls))

    def mail_to(self, id: str, text: str, **fields: Any) -> str:
        return self.post(id, MailReceived(mail=Mail(seq=0, text=text, **fields)))

    def cancel(self, id: str, **fields: Any) -> str:
        return self.post(id, CancelAsked(**fields))

    def wake(self, id: str) -> str:
        """Time moves to when the run wanted to be woken."""
        self.now = max(self.now, self.run(id).wake_at or 0)
        return self.post(id, Woke())

    def spawning(self, id: str, *spawns: RunRequest, **orders: Any) -> list[str]:
        """The run calls `hire` and the tool orders these children; returns their ids."""
        self.reply(id, "", call("hire"))
        before = set(self.specs)
        assert self.order(id, *spawns, **orders) == ""
        return [s for s in self.specs if s not in before]

    # what a test looks at

    def address(self, id: str, index: int) -> dict[str, Any]:
        call = self.tool_call(id, index)
        return {
            "turn": call.turn,
            "index": index,
            "call_id": call.call.id,
            "name": call.call.name,
        }

    def tool_call(self, id: str, index: int = 0) -> CallTool:
        return next(
            e
            for e in reversed(self.effects)
            if isinstance(e, CallTool) and (e.run, e.index) == (id, index)
        )

    def asked(self, id: str) -> CallModel:
        return next(e for e in reversed(self.effects) if isinstance(e, CallModel) and e.run == id)

    def n_asked(self, id: str) -> int:
        return sum(1 for e in self.effects if isinstance(e, CallModel) and e.run == id)

    def did(self, kind: type[Effect], id: str) -> int:
        return sum(1 for e in self.effects if isinstance(e, kind) and getattr(e, "run", "") == id)

    def run(self, id: str) -> Run:
        return self.rows[id]

    def state(self, id: str) -> AnyState:
        return self.rows[id].state

    def is_(self, id: str) -> str:
        return type(self.rows[id].state).__name__

    def ending(self, id: str) -> Ending:
        state = self.state(id)
        assert isinstance(state, Ended), f"{id} is {state}"
        return state.ending

    def ended(self, id: str) -> tuple[str, str]:
        ending = self.ending(id)
        return ending.state, ending.stop

    def messages(self, id: str) -> list[Message]:
        """The run's own messages, without what it shares with others."""
        own = self.said.get(self.specs[id].conversation, {})
        return [own[n] for n in sorted(own)]

    def results(self, id: str) -> list[ToolMessage]:
        return [m for m in self.messages(id) if isinstance(m, ToolMessage)]

    def texts(self, id: str) -> str:
        return "\n".join(
            m.text for m in self.messages(id) if isinstance(m, UserMessage | ToolMessage)
        )

    def children(self, id: str) -> list[str]:
        return [s.id for s in self.specs.values() if s.parent == id]

    def stale(self) -> list[LogEntry]:
        return [e for e in self.entries if e.stale]

    def account(self, id: str) -> Account:
        tree = self.trees.of(id)
        assert tree is not None
        return tree.ledger.accounts[id]

    def held(self, lane: str) -> int:
        lanes = [self.trees.lanes.lanes, *(tree.lanes for tree in self.trees.by_root.values())]
        return sum(place.held for one in lanes if (place := one.by_name.get(lane)) is not None)

    def leaks(self) -> dict[str, Any]:
        """Everything that should be gone once all runs have ended."""
        trees = self.trees
        rest: dict[str, Any] = {
            "trees": [t.root for t in trees.by_root.values() if t.specs or not t.deliveries],
            "runs": trees.index.runs, "lanes": trees.lanes.lanes.by_name,
            "holders": trees.lanes.holders,
            "conversations": [
                c for c in trees._writing if not (t := trees.by_root.get(c)) or not t.deliveries
            ],
        }  # fmt: skip
        return {name: list(value) for name, value in rest.items() if value}

    def tree(self, root: str = "root") -> Tree:
        """The tree of a root; an empty one when it is not open any more."""
        return self.trees.by_root.get(root) or Tree(root, self.trees.shared, self.trees.index)

    def unbalanced(self) -> list[str]:
        """Accounts that still hold something, or hold less than nothing, as they were last
        written."""
        return [a.id for a in self.accounts.values() if any(a.held)]

    # a new process

    def snapshot(self) -> Snapshot:
        """What a store would give after a crash; every value goes through its JSON."""
        is_open = {id for id, run in self.rows.items() if not isinstance(run.state, Ended)}
        above = {up for id in is_open for up in self.ancestors(id) if up not in is_open}
        back = {
            id
            for id, run in self.rows.items()
            if id not in is_open
            and (slot := self.specs[id].parent_call)
            and self.specs[id].parent in is_open
            if slot.turn == self.rows[self.specs[id].parent].turn
        }
        return Snapshot(
            open=[self.row(id) for id in self.rows if id in is_open],
            back=[self.row(id) for id in self.rows if id in back],
            above=[self.row(id) for id in self.rows if id in above],
            accounts=[through_json(a) for a in self.accounts.values() if not a.closed or a.below],
            mail=[
                (run, through_json(m))
                for (run, _), m in sorted(self.mail.items())
                if run in is_open
            ],
            deliveries=[
                through_json(d)
                for d in self.deliveries.values()
                if d.state in ("pending", "sent", "dead")
            ],
            definitions=list(self.trees.shared.definitions.values()),
            models=list(self.trees.shared.models.values()),
        )

    def ancestors(self, id: str) -> list[str]:
        parent = self.specs[id].parent
        return [parent, *self.ancestors(parent)] if parent else []

    def row(self, id: str) -> RunRecord:
        return RunRecord(through_json(self.specs[id]), through_json(self.rows[id]))

    def crash(self) -> list[str]:
        """The process dies and another takes the log over; nobody is told yet."""
        snapshot = self.snapshot()
        rules, epoch = self.trees.shared.limits, self.trees.shared.epoch + 1
        self.found = dict(self.rows)
        self.trees = Trees(rules)
        order = rebuild(self.trees, snapshot)
        self.post("", Opened(epoch=epoch, limits=rules))
        return order

    def recover(
        self, id: str, restart: Restart = "unsafe", *, alone: str = "", clean: bool = False
    ) -> str:
        """The new process tells the run that it was found, as it was found."""
        result: tuple[InterruptedCall, ...] = ()
        run = self.found.get(id, self.run(id))
        calls = calls_of(run)
        bits = 0 if calls is None else under_way(calls)
        if calls is not None and bits:
            text = self.said[self.specs[id].conversation][calls.message]
            assert isinstance(text, AssistantMessage)
            result = tuple(
                InterruptedCall(index=i, call=c, restart=restart)
                for i, c in enumerate(text.calls)
                if bits >> i & 1
            )
        at: dict[str, Any] = {
            "epoch": self.trees.shared.epoch,
            "turn": run.turn,
            "attempt": run.attempt,
        }
        return self.post(id, Recovered(**at, calls=result, alone=id == alone, clean=clean))

    def restart(self, restart: Restart = "unsafe", *, alone: str = "", clean: bool = False) -> None:
        for id in self.crash():
            self.recover(id, restart, alone=alone, clean=clean)


def through_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value), type=type(value))


def call(name: str = "look", id: str = "c1", args: str = "{}") -> ToolCall:
    return ToolCall(id=id, name=name, arguments_json=args)


def hand(task: str = "part", **fields: Any) -> RunRequest:
    return RunRequest(agent="hand", task=task, **fields)


def send(to: str, text: str = "hello", **fields: Any) -> SendMessage:
    return SendMessage(to=to, text=text, **fields)


def is_over(state: AnyState) -> bool:
    return isinstance(state, Ended | Stopping)
