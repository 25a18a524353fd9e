"""Steps as public events, without a runtime: rows of a log in, events out."""

from __future__ import annotations

from collections import Counter

import pytest

from retinue import events as ev
from retinue.core.shared import Shared
from retinue.core.state import Ended
from retinue.event_translation import PER_STEP, Translator, last_of, step_of
from retinue.runtime.bus import Step
from retinue.runtime.text_pieces import TextPiece
from tests.contracts.world import World
from tests.simulation.pure import Simulation


def steps_of(world: World) -> list[Step]:
    return [Step(seq, entry) for seq, entry in enumerate(world.take().entries, 1)]


def test_a_family_from_its_request_to_its_end() -> None:
    world = World()
    root, children = world.family("a", "b")
    for child in children:
        world.say(child, f"{child} is done")
    world.say(root)
    steps = steps_of(world)
    translator = Translator(World().trees.shared)
    texts = [event for step in steps for event in translator.take(step)]
    started = [event.run for event in texts if isinstance(event, ev.RunStarted)]
    ended = [(event.run, event.text) for event in texts if isinstance(event, ev.RunEnded)]
    assert started == [root, *children]
    assert ended == [(child, f"{child} is done") for child in children] + [(root, "Done.")]
    assert [e.waiting_for for e in texts if isinstance(e, ev.RunWaiting)] == ["children"]
    assert [event.seq for event in texts] == sorted({event.seq for event in texts})
    assert {step_of(event.seq) for event in texts} <= {step.seq for step in steps}
    again = Translator(World().trees.shared)
    assert [event for step in steps for event in again.take(step)] == texts
    assert not translator._families, "nothing is kept of a tree that is over"


def test_a_tree_is_taken_from_its_first_step_on_and_text_has_the_place_of_its_run() -> None:
    world = World()
    root, (child,) = world.family("a")
    *steps, final = steps_of(world)
    assert Translator(world.trees.shared).lacks(final)
    translator = Translator(World().trees.shared)
    for step in [*steps, final]:
        assert not translator.lacks(step)
        translator.take(step)
    (delta,) = translator.preview(TextPiece(child, 1, "Wor"), 7, 1_000)
    assert isinstance(delta, ev.TextDelta)
    assert (delta.run, delta.root, delta.depth, delta.seq) == (child, root, 1, 7)
    assert (delta.attempt, delta.text, delta.at.timestamp()) == (1, "Wor", 1.0)
    assert translator.preview(TextPiece("nobody", 1, "Wor"), 7, 1_000) == []


def test_every_position_belongs_to_one_step() -> None:
    assert step_of(3 * PER_STEP) == step_of(last_of(3)) == 3 < step_of(last_of(3) + 1)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_each_run_starts_and_ends_once_and_answers_have_questions(
    seed: int,
) -> None:
    """Schedules of the simulator: crashes, restarts, cancels, limits, questions."""
    simulation = Simulation(seed)
    simulation.run()
    translator, events = Translator(Shared(simulation.rules)), list[ev.Event]()
    for seq, entry in enumerate(simulation.books.log, 1):
        events += translator.take(Step(seq, entry))
    started = [event.run for event in events if isinstance(event, ev.RunStarted)]
    ended = {str(event.run): event for event in events if isinstance(event, ev.RunEnded)}
    assert len(started) == len(set(started)) and set(ended) == set(simulation.books.ended)
    assert len(ended) == sum(isinstance(event, ev.RunEnded) for event in events)
    for id, run in simulation.books.ended.items():
        assert isinstance(run.state, Ended)
        assert (ended[id].state, ended[id].text) == (run.state.ending.state, run.state.ending.text)
        assert ended[id].usage == run.usage
    counts = Counter(e.question.id for e in events if isinstance(e, ev.QuestionAsked))
    answered = Counter(e.question_id for e in events if isinstance(e, ev.QuestionAnswered))
    assert answered <= counts
    assert len({event.seq for event in events}) == len(events)
