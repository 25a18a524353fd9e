"""Any order of events, late, early, twice or never: what must hold holds after each of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core import capabilities
from retinue.core.effects import CallModel
from retinue.core.events import Answered, Asked, ChildEnded, LogEntry, PermissionsRestricted, Woke
from retinue.core.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from retinue.core.spec import History, Lane
from retinue.core.state import Asking, Ended, Queued, Run, Thinking, Waiting, Working
from retinue.core.step_context import OVERHEAD, weight
from retinue.core.tree import Tree
from retinue.core.trees import Trees
from retinue.core.values import Budget, Limits, Permissions, Usage
from tests.core.driver import MODEL, Story, call, hand, through_json

LANES = ((), (), (Lane(name="one", size=1),), (Lane(name="one", size=1), Lane(name="two", size=2)))


class World:
    """A random world around a story: it answers what is under way, in any order, and disturbs
    it."""

    def __init__(self, seed: int, crashes: bool = True) -> None:
        self.rng = random.Random(seed)
        self.crashes = crashes
        self.story = Story(
            Limits(
                min_output=20, final_output=20, max_deaths=50, breaker_after=3, mail_per_sender=3
            )
        )
        for n in range(self.rng.randrange(1, 4)):
            self.story.start(f"r{n}", **self.options())

    def options(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "lanes": rng.choice(LANES),
            "children_on_end": rng.choice(["cancel", "keep", "wait"]),
            "stay_open": rng.random() < 0.2,
            "max_turns": rng.choice([None, None, None, None, 0, 1, 3]),
            "grace_turns": rng.choice([0, 1]),
            "timeout_ms": rng.choice([None, None, None, None, 50, 500]),
            "timeout_from": rng.choice(["start", "created"]),
            "report": rng.choice(["text", "text", "summary"]),
            "budget": Budget(
                tokens=rng.choice([None] * 4 + [0, 3_000, 90_000]),
                turns=rng.choice([None] * 5 + [1, 4]),
            ),
            "on_restart": rng.choice(["resume", "resume", "resume", "fail"]),
        }

    def child(self, join: str, compose: bool) -> Any:
        rng = self.rng
        options = self.options()
        if options["budget"].tokens == 90_000:
            options["budget"] = Budget()
        kind = rng.choice(["none", "fork", "last"])
        return hand(
            "t" * rng.randrange(1, 40),
            join=join,
            format_results=compose,
            budget_share=rng.choice(["", "equal"]),
            history=History(kind=kind, n=1),
            **options,
        )

    def step(self) -> None:
        story, rng = self.story, self.rng
        story.later(rng.choice([0, 0, 0, 1, 5, 30]))
        live = [id for id, run in story.rows.items() if not isinstance(run.state, Ended)]
        if not live:
            story.start(f"r{len(story.rows)}", **self.options())
            return
        id = rng.choice(live)
        dice = rng.random()
        if dice < 0.02:
            story.cancel(id)
        elif dice < 0.07:
            story.mail_to(id, "psst", steer=rng.random() < 0.5)
        elif dice < 0.11:
            story.post(id, Woke())
        elif dice < 0.14:
            story.post(id, ChildEnded(child=rng.choice(list(story.rows))))
        elif dice < 0.16:
            story.post(id, PermissionsRestricted(permissions=Permissions(deny=("note",))))
        elif dice < 0.18 and self.crashes:
            self.crash()
        else:
            self.answer(id, story.run(id))

    def crash(self) -> None:
        """The process dies; before each run is told by the next one, something else may reach
        it."""
        story, rng = self.story, self.rng
        for id in story.crash():
            story.later(rng.choice([0, 0, 5, 50]))
            other = rng.choice(list(story.rows))
            match rng.randrange(12):
                case 0:
                    story.post(other, Woke())
                case 1:
                    story.cancel(other)
                case 2:
                    story.mail_to(other, "psst", steer=rng.random() < 0.5)
            story.recover(id, rng.choice(["pure", "unsafe"]))

    def answer(self, id: str, run: Run) -> None:
        story, rng = self.story, self.rng
        match run.state:
            case Thinking(retry_at=None):
                self.reply(id)
            case Thinking():
                story.wake(id)
            case Working(calls=calls) | Asking(calls=calls) | Waiting(calls=calls) if (
                calls is not None
            ):
                tools = [i for i in range(calls.count) if calls.tools >> i & 1]
                asks = [i for i in range(calls.count) if calls.asks >> i & 1]
                if tools:
                    self.tool(id, rng.choice(tools))
                elif asks:
                    story.post(
                        id, Answered(turn=run.turn, index=rng.choice(asks), call_id="x", text="yes")
                    )
                elif (fan_in := story.tree().fans.get(id)) and any(
                    f.composing for f in fan_in.fans.values()
                ):
                    story.format_results(id)

    def reply(self, id: str) -> None:
        story, rng = self.story, self.rng
        state = story.state(id)
        assert isinstance(state, Thinking)
        usage = Usage(
            input=rng.randrange(0, state.hold[0] - state.max_output + 1),
            output=rng.randrange(0, 20),
        )
        dice = rng.random()
        if dice < 0.1:
            story.fail(id, "server_error", retry=rng.random() < 0.7)
        elif dice < 0.15:
            story.reply(id, "", usage=usage)
        elif dice < 0.75:
            names = [
                rng.choice(["look", "hire", "hire", "note", "fly"])
                for _ in range(rng.randrange(1, 4))
            ]
            story.reply(id, "on it", *(call(n, f"c{i}") for i, n in enumerate(names)), usage=usage)
        else:
            story.reply(id, "done", usage=usage)

    def tool(self, id: str, index: int) -> None:
        story, rng = self.story, self.rng
        if rng.random() < 0.1:
            story.post(id, Asked(question="?", **story.address(id, index)))
        elif story.tool_call(id, index).call.name == "hire":
            join = rng.choice(["call", "turn", "none"])
            tree = story.tree()
            children = [c for c in tree.children.get(id, ()) if c in tree.runs]
            cancels = tuple(c for c in children if rng.random() < 0.1)
            compose = rng.random() < 0.3
            spawns = (
                [self.child(join, compose) for _ in range(rng.randrange(0, 4))]
                if len(story.rows) < 60
                else []
            )
            story.order(id, *spawns, index=index, cancels=cancels, pause=rng.random() < 0.2)
        else:
            story.tool(id, index)

    def finish(self) -> None:
        story = self.story
        for id in [id for id, run in story.rows.items() if not isinstance(run.state, Ended)]:
            story.cancel(id)


def check(story: Story) -> None:
    trees = story.trees
    slots: dict[str, int] = {}
    for spec, run in trees.live():
        assert not isinstance(run.state, Ended), f"{run.id} has ended and is still in its tree"
        assert run == story.rows[run.id]
        lanes = spec.request.lanes
        at_work = isinstance(run.state, Thinking | Working)
        n = run.state.lane if isinstance(run.state, Queued) else len(lanes) * at_work
        for lane in lanes[:n]:
            slots[lane.name] = slots.get(lane.name, 0) + 1
        assert run.wake_at is not None or type(run.state).__name__ == "Stopping"
    assert {name: story.held(name) for name in slots} == slots
    everywhere = [trees.lanes.lanes, *(tree.lanes for tree in trees.by_root.values())]
    assert sum(lane.held for lanes in everywhere for lane in lanes.by_name.values()) == sum(
        slots.values()
    )
    for tree in trees.by_root.values():
        check_tree(tree)


def check_tree(tree: Tree) -> None:
    assert not tree.tells
    for account in tree.ledger.accounts.values():
        for i, limit in enumerate(account.limit):
            assert account.held[i] >= 0
            assert limit is None or account.spent[i] + account.held[i] <= limit, (account.id, i)
    for id, fan_in in tree.fans.items():
        assert id in tree.runs
        for fan in fan_in.fans.values():
            assert all(tree.is_live(c) for c in fan.pending)
        out = sum(len(f.pending) for f in fan_in.fans.values() if f.join == "turn")
        assert fan_in.out == out
        assert fan_in.by_turn == sum(f.join == "turn" for f in fan_in.fans.values())


def n_ends(story: Story) -> dict[str, int]:
    """How often each run's results stand in its parent's history or mailbox."""
    counted: dict[str, int] = {}
    for entry in story.entries:
        if isinstance(entry.event, ChildEnded) and not entry.stale:
            counted[entry.event.child] = counted.get(entry.event.child, 0) + 1
    return counted


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_whatever_happens_the_books_balance_and_nothing_is_left(seed: int, n: int) -> None:
    world = World(seed)
    for _ in range(n):
        world.step()
        check(world.story)
    world.finish()
    assert all(isinstance(run.state, Ended) for run in world.story.rows.values())
    assert world.story.leaks() == {}
    assert world.story.unbalanced() == []
    assert all(times == 1 for times in n_ends(world.story).values())


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 80))
def test_folding_the_log_gives_the_state(seed: int, n: int) -> None:
    world = World(seed)
    for _ in range(n):
        world.step()
    story = world.story
    folded = Trees(
        Limits(min_output=20, final_output=20, max_deaths=50, breaker_after=3, mail_per_sender=3)
    )
    rows: dict[str, Run] = {}
    messages: dict[tuple[str, int], Message] = {}
    for entry in story.entries:
        folded.fold(through_json(entry))
        changes = folded.take_changes()
        rows.update(changes.runs)
        messages.update({(c, i): m for c, i, m in changes.messages})
    assert rows == story.rows
    assert messages == {(c, i): m for c, own in story.said.items() for i, m in own.items()}
    assert {r: t.ledger.accounts for r, t in folded.by_root.items()} == {
        r: t.ledger.accounts for r, t in story.trees.by_root.items()
    }


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=40),
    st.integers(1, 8),
    st.sampled_from(["call", "turn", "none"]),
    st.booleans(),
)
def test_pending_and_ended_are_always_all(
    order: list[int], n: int, join: Any, detached: bool
) -> None:
    """Conservation: children end in any order, their ends are told again, and each is counted
    once."""
    story = Story()
    story.start(children_on_end="wait")
    children = story.spawning("root", *(hand(f"t{i}", join=join) for i in range(n)))
    back: set[str] = set()
    if detached and join != "none":
        story.mail_to("root", "hurry", steer=True)
    for i in order:
        child = children[i % n]
        if story.is_(child) == "Ended":
            before = story.run("root")
            assert story.post("root", ChildEnded(child=child)) != ""
            assert story.run("root") == before
        else:
            story.reply(child, f"<{child}>")
            back.add(child)
        fan_in = story.tree().fans.get("root")
        if fan_in is not None:
            (fan,) = fan_in.fans.values()
            assert {o.id for o in fan.ended} == back
            assert set(fan.pending) == set(children) - back
        assert len(n_ends(story)) == len(back)
        assert {c for c in children if story.is_(c) != "Ended"} == set(children) - back
    for child in set(children) - back:
        story.reply(child, f"<{child}>")
    for _ in range(3):
        if story.is_("root") == "Thinking":
            story.reply("root", "ok")
    assert story.ended("root") == ("completed", "done")
    for child in children:
        assert story.texts("root").count(f"<{child}>") == 1
    assert story.leaks() == {}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 80))
def test_what_grows_never_shrinks_and_what_ended_never_changes(seed: int, n: int) -> None:
    world = World(seed)
    story = world.story
    before: dict[str, Run] = {}
    for _ in range(n):
        world.step()
        for id, old in before.items():
            new = story.run(id)
            if isinstance(old.state, Ended):
                assert new == old
            for field in (
                "version",
                "attempt",
                "turn",
                "length",
                "start",
                "n_children",
                "mail_seq",
                "restarts",
            ):
                assert getattr(new, field) >= getattr(old, field)
            assert new.usage.tokens >= old.usage.tokens
            assert new.usage.nanos >= old.usage.nanos
            if old.deadline is not None and not isinstance(new.state, Ended):
                assert new.deadline is not None
                assert new.deadline <= old.deadline
        before = dict(story.rows)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 80))
def test_no_child_ever_has_more_than_its_parent_had(seed: int, n: int) -> None:
    world = World(seed)
    for _ in range(n):
        world.step()
    specs = world.story.specs
    for spec in specs.values():
        if spec.parent:
            assert capabilities.exceeds(spec.permissions, specs[spec.parent].permissions) is None
            assert spec.depth == specs[spec.parent].depth + 1


TEXT = st.text(max_size=200)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TEXT, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_the_weight_of_a_message_is_at_least_its_bytes(
    a: str, b: str, calls: list[tuple[str, str]]
) -> None:
    result = tuple(
        ToolCall(id=f"c{i}", name=n, arguments_json=args) for i, (n, args) in enumerate(calls)
    )
    for message, texts in (
        (UserMessage(text=a), [a]),
        (ToolMessage(call_id="c", text=a), [a]),
        (
            AssistantMessage(text=a, opaque=b, calls=result),
            [a, b, *(t for pair in calls for t in pair)],
        ),
    ):
        n_bytes = sum(len(t.encode("utf-8", "replace")) for t in texts)
        assert weight(message) >= n_bytes + OVERHEAD


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.text(max_size=300), st.text(max_size=300), st.integers(0, 400)), max_size=6
    )
)
def test_a_hold_covers_every_byte_that_the_provider_has_not_counted(
    turns: list[tuple[str, str, int]],
) -> None:
    story = Story()
    story.define("boss", prompt_bytes=700)
    story.start(task="begin")
    n_known, fresh = 700, len("begin")
    for text, record, extra in turns:
        state = story.state("root")
        assert isinstance(state, Thinking)
        assert state.hold[0] >= n_known + fresh + MODEL.max_output
        n_known = (
            n_known + fresh + len(text.encode("utf-8", "replace")) - min(extra, n_known + fresh)
        )
        story.reply("root", text, call(), usage=Usage(input=n_known, output=len(text)))
        story.tool("root", text=record)
        n_known, fresh = n_known + len(text), len(record.encode("utf-8", "replace"))
    assert story.did(CallModel, "root") == len(turns) + 1


@pytest.mark.parametrize("seed", range(20))
def test_the_same_events_give_the_same_log(seed: int) -> None:
    def log() -> list[LogEntry]:
        world = World(seed)
        for _ in range(60):
            world.step()
        return world.story.entries

    assert log() == log()
