"""The context of one step: the run's spec, the time, its tree; it collects messages, effects and
news."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.effects import Effect, ScheduleDelivery
from retinue.core.events import RunEvent
from retinue.core.ids import digest
from retinue.core.messages import AssistantMessage, Message
from retinue.core.notices import of_parent
from retinue.core.shared import Shared
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import NOTHING, AnyState, Run, Thinking, Working
from retinue.core.tree import Tree
from retinue.core.values import Definition, Delivery, Limits, ModelInfo, NoticeTexts, Permissions
from retinue.formats.fair_cut import clip

NO_WORDS = NoticeTexts()
OVERHEAD = 24
"""Bytes that a provider may add around one message: counted as tokens, so that a bound stays a
bound."""
IMAGE = 8_192
"""More tokens than any provider counts for one picture."""


class StepContext:
    """One for each step."""

    __slots__ = ("limits", "model", "now", "request", "shared", "spec", "tree")

    def __init__(self, tree: Tree, spec: RunSpec, now: int) -> None:
        self.tree, self.spec, self.now = tree, spec, now
        self.request: RunRequest = spec.request
        shared = tree.shared
        self.shared: Shared = shared
        self.limits: Limits = shared.limits
        self.model: ModelInfo = shared.models[spec.model]

    @property
    def definition(self) -> Definition:
        return self.tree.shared.definitions[self.spec.request.agent]

    @property
    def most_output(self) -> int:
        """The longest reply that is asked for: what the run has set, else what its model can write,
        but no more than is usual: providers and budgets hold it in advance."""
        most, own = self.model.max_output, self.request.settings.max_output
        if own is not None:
            return min(own, most)
        is_limited = bool(self.tree.ledger.draws(self.spec.id))
        return min(most, self.limits.budget_output if is_limited else self.limits.usual_output)

    @property
    def words(self) -> NoticeTexts:
        """How the tool that started this run speaks of it."""
        parent = self.tree.specs.get(self.spec.parent)
        return (
            of_parent(self.tree.shared.definitions.get(parent.request.agent), self.spec)
            if parent
            else NO_WORDS
        )

    def access(self, run: Run) -> Permissions:
        """The run's own permissions; `tree.permissions_of` also asks all runs above it."""
        return run.permissions if run.permissions is not None else self.spec.permissions

    def append(self, run: Run, message: Message) -> Run:
        """Add a message to the run's conversation, in this transaction."""
        self.write(run, message)
        return replace(run, length=run.length + 1, new_bytes=run.new_bytes + weight(message))

    def write(self, run: Run, message: Message) -> None:
        """The same, for code that counts the message in the run's row itself."""
        self.tree.changes.messages.append((self.spec.conversation, run.length, message))

    def perform(self, effect: Effect) -> None:
        self.tree.changes.effects.append(effect)

    def dispatch(self, delivery: Delivery) -> None:
        """Put an announcement into the outbox, in this transaction."""
        self.tree.changes.deliveries[delivery.key] = delivery
        if delivery.state == "pending":
            self.tree.keep_delivery(delivery)
            self.perform(ScheduleDelivery(key=delivery.key, at=delivery.next_at))

    def say(self, text: str, *what: object, note: str = "") -> None:
        """Tell the channel that asked for the work, if there is one. `what` names the message
        within the run."""
        spec = self.spec
        if spec.origin.channel:
            self.dispatch(
                Delivery(
                    key=digest(spec.id, *what),
                    run=spec.id,
                    root=spec.root,
                    path=spec.path,
                    origin=spec.origin,
                    text=clip(text, self.limits.mail_cap),
                    note=note,
                    next_at=self.now,
                )
            )

    def patience(self, state: AnyState) -> int:
        """How long the run may be in this state without news, in milliseconds: its own limit counts
        while a model or a tool is at work."""
        is_at_work = isinstance(state, Working) or (
            isinstance(state, Thinking) and state.retry_at is None
        )
        silence, longest = self.request.silence_ms, self.limits.wait_ms
        return longest if silence is None or not is_at_work else min(silence, longest)

    def post_event(self, id: str, event: RunEvent) -> None:
        self.tree.post_event(id, event)

    def has_children(self, run: Run) -> bool:
        return self.tree.n_live(run.id) > 0

    def children(self, run: Run) -> list[str]:
        """Live children, oldest first. (An ended child that still has children of its own is not
        live.)"""
        runs = self.tree.runs
        return [c for c in self.tree.children.get(run.id, ()) if c in runs]

    def bound(self, run: Run) -> list[str]:
        """Live children that may not outlive the run."""
        if not self.holds_back(run, all=False):
            return []
        specs = self.tree.specs
        return [c for c in self.children(run) if specs[c].request.on_parent_end != "keep"]

    def holds_back(self, run: Run, *, all: bool) -> bool:
        """Whether a child is live that must end before the run may; with `all`, any child must."""
        return self.tree.n_live(run.id) > (0 if all else self.tree.n_children_with("keep", run.id))

    def stays(self, run: Run) -> bool:
        """Whether a child is live that the run waits for before it is done."""
        return self.tree.n_children_with("wait", run.id) > 0


def holding_slots(run: Run, now: int) -> Run:
    """Between two acts of one turn: the run holds its slots, and nothing of it is under way or held
    in the ledger."""
    return replace(run, state=idle(run, now))


def idle(run: Run, now: int) -> Thinking:
    """The state of a run between two acts."""
    return Thinking(attempt=run.attempt, purpose="turn", hold=NOTHING, max_output=0, retry_at=now)


def size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def weight(message: Message) -> int:
    """An upper bound of a message's tokens: its bytes, and what a provider wraps around it."""
    match message:
        case AssistantMessage():
            calls = sum(size(c.arguments_json) + size(c.name) + OVERHEAD for c in message.calls)
            return size(message.text) + size(message.opaque) + calls + OVERHEAD
        case _:
            return size(message.text) + OVERHEAD + IMAGE * len(message.images)
