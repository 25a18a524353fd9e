"""`view(steps) -> rows`: what a person sees of a tree of runs, as a pure fold over what a host
tells.

Terminal and dashboard show the same rows. Nothing here knows the time, a terminal or a tool: `now`
is an argument, and the text about a call comes from code that knows the tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from retinue.core.events import (
    ActionsReturned,
    Answered,
    Asked,
    CancelAsked,
    ChildEnded,
    Decided,
    LogEntry,
    Merged,
    ModelFailed,
    ModelRegistered,
    Recovered,
    Replied,
    ResultsFormatted,
    StepTaken,
    Submitted,
    TextReturned,
    Woke,
)
from retinue.core.messages import ToolCall
from retinue.core.spec import RunSpec
from retinue.core.state import (
    Asking,
    Ended,
    Question,
    Run,
    Short,
    Stopping,
    Thinking,
    Waiting,
    Working,
    holds_slots,
)
from retinue.core.state_names import ENDS
from retinue.core.values import NANOS_PER_USD, ModelInfo
from retinue.formats.safe_text import one_line
from retinue.host.provider_waits import of_held, of_run
from retinue.runtime.held_calls import HeldCall
from retinue.view import states
from retinue.view.call_wants import wants
from retinue.view.fan_out_costs import FanOuts
from retinue.view.merge_lines import conflict_cell
from retinue.view.row_words import row_words
from retinue.view.run_node import TAIL, RunNode, mark_of, provider_wait, state_of, walk
from retinue.view.run_row import RunRow

FREE = ("offline/", "local/")
"""Models of these families cost nothing; for the others a price of zero means that it is
unknown."""


def plain_call(call: ToolCall) -> str:
    return call.name


class TreeView:
    """Takes what a host tells, in order, each in a time that does not grow with the tree; gives
    rows when asked.

    Rows come after their parent in the order in which they were first seen, and stay there.
    """

    def __init__(self, describe: Callable[[ToolCall], str] = plain_call) -> None:
        self._describe = describe
        self.nodes: dict[str, RunNode] = {}
        self.tops: list[RunNode] = []
        self.counts: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self._lanes: Counter[str] = Counter()
        self._models: dict[str, ModelInfo] = {}
        self._order: list[str] | None = None
        self.fan_outs = FanOuts()
        self.version = 0

    def take(self, step: RunSpec | LogEntry | Run) -> None:
        """A run that starts, a step, or a new state of a run."""
        self.version += 1
        if isinstance(step, LogEntry):
            self._step(step)
        elif isinstance(step, Run):
            if (node := self.nodes.get(step.id)) is not None:
                self._stand(node, step)
        else:
            self._begin(step)

    def add_text(self, run: str, attempt: int, text: str, at: int) -> None:
        """Text as a model writes it."""
        node = self.nodes.get(run)
        if node is None or node.state in ENDS:
            return
        self.version += 1
        if attempt != node.attempt:
            node.attempt, node.writing = attempt, ""
        node.writing = (node.writing + text)[-TAIL:]
        node.last_at = max(node.last_at, at)
        node.wait = node.held = None
        self._settle(node)

    def hold(self, calls: Iterable[HeldCall]) -> None:
        """Which calls wait now because their provider is left alone; all others do not."""
        calls_by_run = {call.run: call for call in calls}
        for id, node in self.nodes.items():
            call = calls_by_run.get(id)
            wait = None if call is None else of_held(call, node.spec.model)
            if wait != node.held:
                self.version += 1
                node.held = wait
                self._settle(node)

    def order(self) -> list[str]:
        """The ids of all rows from top to bottom."""
        if self._order is None:
            self._order = [node.spec.id for top in self.tops for node in walk(top)]
        return self._order

    def rows(self, now: int) -> list[RunRow]:
        return [self.row(id, now) for id in self.order()]

    def row(self, id: str, now: int) -> RunRow:
        """One row; its cost does not grow with the tree."""
        node = self.nodes[id]
        spec, run, state = node.spec, node.run, node.state
        is_over = node.is_over
        needs = state == "needs_input"
        ended = run.state.ending if run is not None and isinstance(run.state, Ended) else None
        last = node.last_at if is_over else now
        if ended is not None and ended.at:
            last = ended.at
        began = node.started_at or spec.created_at
        info = self._models.get(spec.model)
        sure_tree = not node.n_unpriced
        wait = provider_wait(node) if state == "waiting" else None
        return RunRow(
            id=id,
            short=states.short_id(id),
            root=spec.root,
            parent=spec.parent if spec.parent in self.nodes else "",
            depth=spec.depth,
            label=states.label(spec),
            agent=one_line(states.agent_label(spec.request.agent), 200),
            model=one_line(
                run.model_used if run is not None and run.model_used else spec.model, 200
            ),
            state=state,
            mark=node.mark,
            now=one_line(row_words(node, now, self.nodes, self._lanes)),
            task=one_line(spec.request.task, 400),
            started_at=began or None,
            elapsed_ms=max(0, last - began) if began else 0,
            turn=run.turn if run is not None else 0,
            max_turns=spec.request.max_turns,
            context=run.context + run.new_bytes if run is not None else 0,
            window=info.window if info is not None else 0,
            tokens=node.tokens,
            tree_tokens=node.tree_tokens,
            usd=None if node.is_unpriced else node.nanos / NANOS_PER_USD,
            tree_usd=node.tree_nanos / NANOS_PER_USD if sure_tree else None,
            estimated=node.guess[0],
            tree_estimated=node.tree_guess[0],
            tree_usd_estimated=node.tree_guess[1] / NANOS_PER_USD,
            silent_ms=max(0, now - node.last_at) if state == "running" and node.last_at else 0,
            idle_ms=max(0, now - node.last_at) if not is_over and node.last_at else 0,
            needs_you=needs,
            is_over=is_over,
            error=one_line(states.failure(ended, node.started_at))
            if ended and ended.state != "completed"
            else "",
            n_children=len(node.children),
            n_over=node.n_over,
            is_last=node.parent is None or node.parent.children[-1] is node,
            is_writing=bool(node.writing.strip()),
            questions=tuple(node.questions.values()) if needs else (),
            wait=wait,
        )

    def _begin(self, spec: RunSpec) -> None:
        if spec.id in self.nodes:
            return
        node = self.nodes[spec.id] = RunNode(spec, last_at=spec.created_at)
        node.parent = self.nodes.get(spec.parent)
        if node.parent is not None:
            node.parent.children.append(node)
        else:
            self.tops.append(node)
        self.counts["queued"] += 1
        self.marks["queued"] += 1
        self.fan_outs.add(spec)
        self._order = None

    def _step(self, entry: LogEntry) -> None:
        if entry.stale:
            return
        event = entry.event
        if isinstance(event, ModelRegistered):
            self._models[event.model.name] = event.model
        node = self.nodes.get(entry.run)
        if node is None:
            return
        node.last_at = max(node.last_at, entry.at)
        match event:
            case Replied():
                calls = event.reply.message.calls
                node.calls = {i: self._describe(call) for i, call in enumerate(calls)}
                node.wanted = {i: wants(call) for i, call in enumerate(calls)}
                node.said = states.heading(event.reply.message.text)
                node.replied, node.is_taken_up = event.attempt, False
                node.end_call(event, 0)
            case ModelFailed():
                node.end_call(event, node.tries + 1)
            case TextReturned() | ActionsReturned() | Submitted():
                node.last_call = node.calls.pop(event.index, "") or node.last_call
                node.drop_question(event)
            case ResultsFormatted():
                for index, *_ in event.calls:
                    node.calls.pop(index, None)
            case Asked() | StepTaken() if event.question and not node.is_past(event):
                question = Question(
                    index=event.index,
                    id="",
                    call_id=event.call_id,
                    text=event.question,
                    tool=event.name,
                )
                node.questions.setdefault(event.call_id, question)
            case Answered() | Decided():
                node.drop_question(event)
            case Merged():
                for merge in event.merges:
                    if merge.state == "conflict" and (writer := self.nodes.get(merge.run)):
                        writer.conflict = conflict_cell(merge)
            case CancelAsked():
                node.is_cancelling = True
            case Recovered():
                node.writing, node.is_taken_up = "", True
            case Woke() if node.wait is not None and (
                node.wait.retry_at is None or entry.at >= node.wait.retry_at
            ):
                node.wait = None
            case ChildEnded():
                child = self.nodes.get(event.child)
                if child is not None and child.state not in ENDS:
                    child.is_gone = True
                    self._settle(child)
            case _:
                pass
        self._settle(node)

    def _stand(self, node: RunNode, run: Run) -> None:
        node.run = run
        state = run.state
        node.started_at = run.started_at or node.started_at
        if isinstance(state, (Asking, Waiting, Working)) and state.calls is not None:
            node.questions = {q.call_id: q for q in state.calls.questions}
        elif isinstance(state, (Ended, Thinking, Stopping)):
            node.questions = {}
        self._ask_at(node, state.account if isinstance(state, Short) and state.asks else "")
        if isinstance(state, Thinking):
            node.wait, node.tries = of_run(run, node.spec), state.tries
            node.is_cancelling = False
        if isinstance(state, Ended):
            node.calls, node.writing = {}, ""
        self._spend(node, run)
        self._settle(node)

    def _ask_at(self, node: RunNode, account: str) -> None:
        """A run waits at the limit of another, or of its own: that is where a person is asked."""
        id = node.spec.id
        for owner in (self.nodes.get(node.asks_at), self.nodes.get(account)):
            if owner is not None and owner.spec.id != account:
                owner.asked_of.pop(id, None)
            elif owner is not None and node.run is not None and isinstance(node.run.state, Short):
                owner.asked_of[id] = node.run.state.asks
            if owner is not None and owner is not node:
                self._settle(owner)
        node.asks_at = account

    def _spend(self, node: RunNode, run: Run) -> None:
        tokens, nanos = run.usage.tokens - node.tokens, run.usage.nanos - node.nanos
        info = self._models.get(node.spec.model)
        is_free = node.spec.model.startswith(FREE) or (info is not None and info.priced)
        unpriced = bool(run.usage.tokens) and not run.usage.nanos and not is_free
        change = int(unpriced) - int(node.is_unpriced)
        node.is_unpriced = unpriced
        node.tokens, node.nanos = run.usage.tokens, run.usage.nanos
        before, node.guess = node.guess, (run.usage.estimated, run.usage.nanos_estimated)
        more = (node.guess[0] - before[0], node.guess[1] - before[1])
        if not (tokens or nanos or change or any(more)):
            return
        above: RunNode | None = node
        while above is not None:
            above.tree_tokens += tokens
            above.tree_nanos += nanos
            above.tree_guess = (above.tree_guess[0] + more[0], above.tree_guess[1] + more[1])
            above.n_unpriced += change
            above = above.parent

    def _settle(self, node: RunNode) -> None:
        """Bring what is counted in line with what is known of a run."""
        before, after = node.state, state_of(node)
        if (name := mark_of(node, after)) != node.mark:
            self.marks[node.mark] -= 1
            self.marks[name] += 1
            node.mark = name
        if before != after:
            self.counts[before] -= 1
            self.counts[after] += 1
            node.state = after
            if node.parent is not None and (before in ENDS) != (after in ENDS):
                node.parent.n_over += 1 if after in ENDS else -1
        seats = (
            tuple(lane.name for lane in node.spec.request.lanes)
            if node.run and holds_slots(node.run)
            else ()
        )
        if seats != node.seats:
            self._lanes.subtract(node.seats)
            self._lanes.update(seats)
            node.seats = seats


def view(
    steps: Iterable[RunSpec | LogEntry | Run],
    now: int,
    describe: Callable[[ToolCall], str] = plain_call,
) -> list[RunRow]:
    """The rows of a tree, from all its items."""
    tree_view = TreeView(describe)
    for item in steps:
        tree_view.take(item)
    return tree_view.rows(now)
