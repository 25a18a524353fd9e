"""Many runs under one limit: a random tree of runs with fixed real costs, played against the pure
core in any order.

The same tree is played twice. The first time its limits are out of reach: that tells what everybody
really costs, and how large the bounds of single calls are. Then limits are set from that, and it is
played again, in another order."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from retinue.core.account import Account
from retinue.core.effects import AbortRun, CallModel, CallTool, Effect
from retinue.core.events import (
    Aborted,
    ActionsReturned,
    AgentRegistered,
    AnyEvent,
    CancelAsked,
    ModelFailed,
    ModelRegistered,
    Replied,
    Requested,
    Woke,
)
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.spec import Actions, Retry, RunRequest, RunSpec
from retinue.core.state import Ended, Run, Short, Thinking
from retinue.core.trees import Trees
from retinue.core.values import Budget, Definition, Limits, ModelInfo, Permissions, Usage

ROOT = "root"
FAR = (9 * 10**15, 8 * 10**12, 10**10, 10**8)
"""Limits that nobody reaches, by depth."""
AMOUNTS = ("tokens", "usd", "turns")


class Violation(AssertionError):
    """A promise about budgets does not hold."""


@dataclass
class Turn:
    """What one turn really is: the part of the unread prompt that becomes tokens, the reply, and
    what fails before."""

    part: float
    output: int
    breaks: list[tuple[int, int] | None]
    """Attempts that fail: with what a broken stream has cost (prompt and reply, in percent), or for
    nothing."""


@dataclass
class Node:
    """One run of the tree. Its children are started by its turn `spawns_at`. `owns` are the
    amounts, by index, of which it has a limit of its own: granted, or `drawn` from its parent's as
    it is spent."""

    name: str
    model: str
    task: int
    turns: list[Turn]
    spawns_at: int = -1
    children: list[Node] = field(default_factory=list)
    owns: tuple[int, ...] = ()
    drawn: bool = False
    limit: dict[int, int] = field(default_factory=dict)

    def all(self) -> list[Node]:
        return [self, *(below for child in self.children for below in child.all())]


@dataclass
class Case:
    root: Node
    models: list[ModelInfo]
    rules: Limits


def make(
    seed: int, n_children: int, *, depth: int = 2, grants: str = "alike", fails: float = 0.2
) -> Case:
    """`grants`: "none", "alike" (all of the same amounts), or "mixed"."""
    r = random.Random(f"{seed} case")
    models = []
    for n in range(r.choice((1, 2, 3))):
        price_in = r.choice((0, 1, 3, 40))
        models.append(
            ModelInfo(
                name=f"m{n}",
                window=10**9,
                max_output=r.choice((50, 400, 3_000)),
                price_in=price_in,
                price_out=r.choice((0, 1, 5, 90)),
                price_cache_write=r.choice((None, price_in + price_in // 4)),
                preamble=r.choice((0, 30)),
            )
        )
    delays = r.choice(((0.01,), (0.01, 0.1), (0.01, 0.1, 0.5, 1.0)))
    some = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    kinds = {"none": ((),), "alike": ((), r.choice(some)), "mixed": ((), (), *some)}[grants]

    def node(name: str, level: int, width: int, owns: tuple[int, ...], above: set[int]) -> Node:
        n_turns = r.choice((1, 1, 2, 3))
        model = r.choice(models)
        turns = []
        for _ in range(n_turns):
            breaks = [
                r.choice((None, (100, 0), (100, 50), (30, 10)))
                for _ in range(2)
                if r.random() < fails
            ]
            output = int(model.max_output * r.choice(delays))
            turns.append(Turn(r.choice((0.1, 0.3, 1.0)), output, breaks))
        result = Node(name, model.name, r.choice((10, 200, 2_000)), turns, owns=owns)
        if width and n_turns == 1:
            result.turns.append(replace(turns[0], breaks=[]))
        if width:
            result.spawns_at = r.randrange(len(result.turns) - 1)
            for i in range(width):
                # What is granted is taken at once: it is only sure to be there in an account of the
                # parent's own.
                kind, is_drawn = r.choice(kinds), False
                if grants == "mixed":
                    kind = tuple(k for k in kind if k in owns or k not in above)
                elif not all(k in owns or k not in above for k in kind):
                    kind = ()
                if r.random() < 0.3:
                    kind, is_drawn = r.choice(some), True
                below = 0 if level >= depth or r.random() < 0.7 else r.randint(1, 4)
                child = node(
                    f"{name}.{i}", level + 1, below, () if is_drawn else kind, above | set(kind)
                )
                child.owns, child.drawn = kind, is_drawn
                result.children.append(child)
        return result

    owns = r.choice(some)
    root = node("0", 0, n_children, owns, set(owns))
    return Case(
        root, models, Limits(min_output=8, final_output=r.choice((8, 64)), mode="bypassPermissions")
    )


class Play:
    """One schedule of a case."""

    def __init__(self, case: Case, seed: int, *, cancels: float = 0.0) -> None:
        self.case, self.random, self.cancels = case, random.Random(seed), cancels
        self.trees, self.at = Trees(case.rules), 1_000_000
        self.nodes: dict[str, Node] = {ROOT: case.root}
        self.specs: dict[str, RunSpec] = {}
        self.rows: dict[str, Run] = {}
        self.accounts: dict[str, Account] = {}
        self.flying: list[Effect] = []
        self.sleeping: dict[str, int] = {}
        self.tried: Counter[tuple[str, int]] = Counter()
        self.real: dict[str, list[int]] = {}
        self.most_held: dict[str, list[int]] = {}
        self.most_kept: dict[str, list[int]] = {}
        self.early: dict[str, list[int]] = {}
        self.waiting: dict[str, tuple[int, str]] = {}
        self.waited: set[str] = set()
        self.asks = self.steps = 0
        self.asked: dict[str, int] = {}
        self.info = {m.name: m for m in case.models}
        for model in case.models:
            self.take("", ModelRegistered(model=model))
        crew = Definition(
            name="hand",
            model="m0",
            tools=("hire",),
            reachable_tools=("hire",),
            agents=("hand",),
            prompt_bytes=20,
        )
        self.take("", AgentRegistered(definition=crew))
        self.take(
            "", Requested(id=ROOT, request=self.order(case.root), permissions=Permissions(depth=9))
        )

    def order(self, node: Node) -> RunRequest:
        tokens, nanos, turns = (node.limit.get(i) for i in range(3))
        budget = Budget(tokens=tokens, usd=None if nanos is None else nanos / 1e9, turns=turns)
        retry = Retry(attempts=4, base_ms=10, cap_ms=50, then="fail")
        return RunRequest(
            agent="hand",
            task="x" * node.task,
            label=node.name,
            model=node.model,
            budget=budget,
            retry=retry,
            budget_share="drawn" if node.drawn else "",
        )

    # steps

    def take(self, run: str, event: AnyEvent) -> None:
        self.steps += 1
        before = self.rows.get(run)
        state = before.state if before is not None else None
        self.retried = run if isinstance(state, Thinking) and isinstance(event, Woke) else ""
        self.trees.apply(run, self.at, event)
        if self.trees.failed:
            raise Violation(f"a step failed: {self.trees.failed}") from self.trees.failed[0][1]
        changes = self.trees.take_changes()
        for spec in changes.specs:
            self.specs[spec.id] = spec
            if spec.parent and spec.parent_call is not None:
                self.nodes[spec.id] = self.nodes[spec.parent].children[spec.parent_call.item]
        self.rows.update(changes.runs)
        self.accounts.update(changes.accounts)
        for account in changes.accounts.values():
            self.check(account)
        for id, run_ in changes.runs.items():
            if not isinstance(run_.state, Short):
                self.waiting.pop(id, None)
            elif id in self.waiting and self.waiting[id][1] != run_.state.account:
                del self.waiting[
                    id
                ]  # it waits somewhere else now, since a moment that cannot be seen from here
        for effect in changes.effects:
            self.perform(effect)
        for id, run_ in changes.runs.items():
            self.watch(id, run_)

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, AbortRun):
            self.flying = [e for e in self.flying if getattr(e, "run", "") != effect.run]
            if effect.attempt:
                self.flying.append(effect)
            return
        if isinstance(effect, CallModel) and effect.run != self.retried:
            self.started(effect.run, effect.purpose)
        self.flying.append(effect)

    def watch(self, id: str, run: Run) -> None:
        state = run.state
        self.sleeping.pop(id, None)
        if isinstance(state, Thinking) and state.retry_at is not None:
            self.sleeping[id] = state.retry_at
        if isinstance(state, Short):
            self.waited.add(id)
            if id not in self.asked:
                self.asks += 1
                self.asked[id] = self.asks
            self.waiting[id] = (self.asked[id], state.account)
        else:
            self.waiting.pop(id, None)
        if isinstance(state, Thinking):
            most = self.most_held.setdefault(id, [0, 0, 0])
            for i in range(3):
                most[i] = max(most[i], state.hold[i])

    def started(self, id: str, purpose: str) -> None:
        """A call has begun: whoever asked before it and waits at one of its accounts was
        overtaken."""
        mine = self.asked.pop(id, None)
        self.waiting.pop(id, None)
        if mine is None:
            self.asks += 1
            mine = self.asks
        if not self.waiting:
            return
        draws = self.draws(id)
        for other, (since, account) in self.waiting.items():
            is_last = id == account and purpose != "turn"
            if (
                since < mine
                and account in draws
                and not is_last
                and not self.has_grant(id, account)
            ):
                raise Violation(
                    f"{self.nodes[id].name} goes before {self.nodes[other].name}, which came first"
                )

    def has_grant(self, id: str, account: str) -> bool:
        """Whether a run is below a grant that was taken from this account, or from one above it."""
        while id != account:
            node, id = self.nodes[id], self.specs[id].parent
            up = id
            while node.limit and not node.drawn and up:
                if node.limit.keys() & self.nodes[up].limit.keys():
                    return True
                up = self.specs[up].parent
        return False

    def draws(self, id: str) -> set[str]:
        """The accounts that a call of this run is held in."""
        state = self.rows[id].state
        out, open_ = set(), {i for i in range(3) if isinstance(state, Thinking) and state.hold[i]}
        while id and open_:
            own = set(self.nodes[id].limit) & open_
            if own:
                out.add(id)
                open_ -= set() if self.nodes[id].drawn else own
            id = self.specs[id].parent
        return out

    def check(self, account: Account) -> None:
        for i, limit in enumerate(account.limit):
            if account.held[i] < 0 or account.spent[i] < 0:
                raise Violation(
                    f"{self.nodes[account.id].name} holds or spent less than nothing: {account}"
                )
            if limit is not None and account.spent[i] + account.held[i] > limit:
                raise Violation(
                    f"{self.nodes[account.id].name} covers more than its limit: {account}"
                )
        most = self.most_kept.setdefault(account.id, [0, 0, 0])
        for i in range(3):
            most[i] = max(most[i], account.reserve[i])

    # the world

    def pay(self, id: str, prompt: int, output: int, turns: int = 1) -> Usage:
        """What is really gone, on the run and on all above it."""
        cost = (prompt + output, self.info[self.nodes[id].model].cost(prompt, output), turns)
        usage = Usage(input=prompt, output=output, nanos=cost[1])
        while id:
            real = self.real.setdefault(id, [0, 0, 0])
            for i in range(3):
                real[i] += cost[i]
                limit = self.nodes[id].limit.get(i)
                if limit is not None and real[i] > limit:
                    raise Violation(
                        f"{self.nodes[id].name} really spent {real[i]} of {limit} {AMOUNTS[i]}"
                    )
            id = self.specs[id].parent
        return usage

    def model(self, call: CallModel) -> AnyEvent:
        run, node = self.rows[call.run], self.nodes[call.run]
        state = run.state
        assert isinstance(state, Thinking)
        turn = node.turns[min(run.turn, len(node.turns) - 1)]
        prompt = min(run.context + int(run.new_bytes * turn.part), state.hold[0] - call.max_output)
        output = min(turn.output, call.max_output)
        key = (call.run, run.turn)
        n = self.tried[key]
        self.tried[key] += 1
        if n < len(turn.breaks):
            fault = turn.breaks[n]
            usage = None
            if fault is not None:
                usage = self.pay(call.run, prompt * fault[0] // 100, output * fault[1] // 100, 0)
            return ModelFailed(
                attempt=call.attempt, kind="server_error", message="no", retry=True, usage=usage
            )
        usage = self.pay(call.run, prompt, output)
        if call.purpose == "turn" and run.turn == node.spawns_at:
            self.early[call.run] = list(self.real[call.run])
            message, stop = AssistantMessage(calls=(ToolCall(id="c", name="hire"),)), "calls"
        elif call.purpose == "turn" and run.turn < len(node.turns) - 1:
            message, stop = AssistantMessage(calls=(ToolCall(id="c", name="nothing"),)), "calls"
        else:
            message, stop = AssistantMessage(text="done"), "end"
        if turn.output > call.max_output:
            stop = "length"
        return Replied(
            attempt=call.attempt, reply=ModelReply(message=message, usage=usage, stop=stop)
        )  # type: ignore[arg-type]

    def stopped(self, effect: AbortRun) -> AnyEvent:
        """A call that was stopped: it never left, or it has cost a part, or nobody knows, and then
        it may be all."""
        hold = next(b.hold for b in self.rows[effect.run].broken_off if b.attempt == effect.attempt)
        how = self.random.choice(("unsent", "known", "unknown"))
        if how == "unsent":
            return Aborted(attempt=effect.attempt, sent=False)
        info = self.info[self.nodes[effect.run].model]
        most = min(hold[0], hold[1] // info.cost(1, 0) if info.cost(1, 0) else hold[0])
        usage = self.pay(effect.run, self.random.randint(0, most), 0)
        return Aborted(attempt=effect.attempt, usage=usage if how == "known" else None)

    def tool(self, call: CallTool) -> AnyEvent:
        where = {
            "turn": call.turn,
            "index": call.index,
            "call_id": call.call.id,
            "name": call.call.name,
        }
        spawns = (
            tuple(self.order(c) for c in self.nodes[call.run].children)
            if call.call.name == "hire"
            else ()
        )
        return ActionsReturned(**where, actions=Actions(spawns=spawns))  # type: ignore[arg-type]

    # the schedule

    def run(self, most: int = 1_000_000) -> Play:
        r = self.random
        for _ in range(most):
            if self.cancels and r.random() < self.cancels and self.rows:
                live = [spec.id for spec, _ in self.trees.live()]
                if live:
                    self.take(r.choice(live), CancelAsked(reason="test"))
                    continue
            n = len(self.flying)
            if n + len(self.sleeping) == 0:
                break
            k = r.randrange(n + len(self.sleeping))
            if k >= n:
                id = list(self.sleeping)[k - n]
                self.at = max(self.at, self.sleeping.pop(id))
                self.take(id, Woke())
                continue
            effect = self.flying[k]
            self.flying[k] = self.flying[-1]
            self.flying.pop()
            if isinstance(effect, CallModel):
                self.take(effect.run, self.model(effect))
            elif isinstance(effect, CallTool):
                self.take(effect.run, self.tool(effect))
            elif isinstance(effect, AbortRun):
                self.take(effect.run, self.stopped(effect))
        self.check_end()
        return self

    def check_end(self) -> None:
        stuck = {self.nodes[s.id].name: run.state for s, run in self.trees.live()}
        if stuck:
            raise Violation(f"nothing is under way, and these wait: {stuck}")
        amount = {self.nodes[a.id].name: a.held for a in self.accounts.values() if any(a.held)}
        if amount:
            raise Violation(f"something is held at the end: {amount}")
        if self.trees.by_root or self.trees.index.runs:
            raise Violation("a tree is left")

    def endings(self) -> dict[str, tuple[str, str]]:
        out: dict[str, tuple[str, str]] = {}
        for id, run in self.rows.items():
            assert isinstance(run.state, Ended)
            out[self.nodes[id].name] = (run.state.ending.state, run.state.ending.stop)
        return out

    def shortened(self) -> list[str]:
        return [self.nodes[id].name for id, run in self.rows.items() if run.told_short]


def with_far_limits(case: Case) -> None:
    for node in case.root.all():
        node.limit = dict.fromkeys(node.owns, FAR[node.name.count(".")])


def set_limits(case: Case, play: Play) -> None:
    """Every limit is what its run and everybody below it really cost, the bound of one call, and
    its owner's last turn; or what it has to give away at once."""
    ids = {play.nodes[id].name: id for id in play.rows}

    def held(node: Node, i: int) -> int:
        """The largest bound of a call that draws from this account."""
        own = play.most_held.get(ids[node.name], [0, 0, 0])[i]
        return max(
            [
                own,
                *(held(child, i) for child in node.children if child.drawn or i not in child.owns),
            ]
        )

    def set_(node: Node) -> None:
        id = ids[node.name]
        for child in node.children:
            set_(child)
        node.limit = {}
        for i in node.owns:
            n_given = sum(child.limit.get(i, 0) for child in node.children if not child.drawn)
            early = play.early.get(id, [0, 0, 0])[i]
            most = play.most_kept[id][i]
            node.limit[i] = max(play.real[id][i] + held(node, i) + most, early + most + n_given)

    set_(case.root)
