"""The functions of tools that take steps, as the runtime runs them: each waits until its step is on
record and what it awaits has come; a crash forgets all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retinue.core.effects import AnswerStep, CallTool
from retinue.core.events import AnyEvent, StepTaken, TextReturned
from retinue.core.ids import moment, step_child_id
from retinue.core.messages import ToolMessage
from retinue.core.spec import Actions
from retinue.core.state import Run, Stopping, Waiting, Working, calls_of
from retinue.core.tool_steps import UNKNOWN
from retinue.core.tree import Tree
from tests.simulation import script
from tests.simulation.violation import broken

if TYPE_CHECKING:
    from retinue.core.changes import Changes
    from retinue.core.state import OpenCalls
    from tests.simulation.books import Books
    from tests.simulation.pure import Simulation


@dataclass
class Function:
    """One that is under way, and the stage that it has come to."""

    effect: CallTool
    stage: int = 0
    is_answered: bool = False
    asks: str = ""


Key = tuple[str, int, int]


def begin(sim: Simulation, effect: CallTool) -> AnyEvent:
    """The function is run from its first line."""
    sim.functions[effect.run, effect.turn, effect.index] = Function(effect)
    return _next(sim, sim.functions[effect.run, effect.turn, effect.index])


def ready(sim: Simulation) -> list[Key]:
    """Those that can go on: what they await is on record, or they are in a hurry."""
    return [key for key, function in sim.functions.items() if _is_ready(sim, key, function)]


def go_on(sim: Simulation, key: Key) -> None:
    function = sim.functions[key]
    event = _next(sim, function)
    sim.heard.append((key[0], event))
    why = sim.take(key[0], event)
    if isinstance(event, TextReturned):
        sim.functions.pop(key, None)
    elif why:
        function.stage += 1  # a limit said no: it goes on without


def answered(sim: Simulation, effect: AnswerStep) -> None:
    function = sim.functions.get((effect.run, effect.turn, effect.index))
    if function is not None and effect.step == f"q{function.stage}":
        function.is_answered = True


def _is_ready(sim: Simulation, key: Key, function: Function) -> bool:
    run, turn, index = key
    result = sim.run_of(run)
    calls = calls_of(result)
    if result is None or calls is None or result.turn != turn or not calls.open >> index & 1:
        return False
    plan = _plan(sim, function)
    if not (calls.woken | calls.tools) >> index & 1:
        is_hasty = sim.random.random() < 0.01
        sim.hurried |= {run} if is_hasty else set()
        return is_hasty
    awaited = [
        _child(function, n, k)
        for n, (kind, requests) in enumerate(plan[: function.stage + 1])
        for k in range(len(requests) if kind == "await" else 0)
    ]
    if any(id in sim.books.specs and id not in sim.books.ended for id in awaited):
        return False
    if function.stage >= len(plan):
        return True
    kind, _ = plan[function.stage]
    step = next((s for s in calls.steps if (s.index, s.key) == (index, f"q{function.stage}")), None)
    return kind != "ask" or step is None or function.is_answered


def _next(sim: Simulation, function: Function) -> AnyEvent:
    """What it does next. What is on record is not asked for again."""
    e, plan = function.effect, _plan(sim, function)
    where: dict[str, Any] = {
        "turn": e.turn,
        "index": e.index,
        "call_id": e.call.id,
        "name": e.call.name,
    }
    calls = calls_of(sim.run_of(e.run))
    while function.stage < len(plan):
        n, (kind, requests) = function.stage, plan[function.stage]
        is_known = calls is not None and any(
            s.index == e.index and s.key == f"q{n}" and s.text is not None for s in calls.steps
        )
        new = [k for k in range(len(requests)) if _child(function, n, k) not in sim.books.specs]
        if kind == "ask" and not is_known:
            function.asks = f"q{n}"
            return StepTaken(**where, step=f"q{n}", question=f"{e.key} {n}?", parks=True)
        if kind != "ask" and new:
            spawns = tuple(requests[k] for k in new)
            return StepTaken(
                **where,
                step=f"s{n}",
                actions=Actions(spawns=spawns),
                children=tuple(f"s{n}.{k}" for k in new),
                parks=kind == "await",
                asked_at=moment(e.made_at, e.turn, e.index),
            )
        function.stage, function.is_answered = n + 1, False
    return TextReturned(**where, text=" ".join(_results(sim, function)) or "done")


def _plan(sim: Simulation, function: Function) -> list[Any]:
    e = function.effect
    return script.stages(sim.seed, sim.books.paths[e.run], e.turn, e.index)


def _child(function: Function, n: int, k: int) -> str:
    e = function.effect
    at = moment(e.made_at, e.turn, e.index)
    return step_child_id(at, e.run, e.turn, e.call.id, e.index, f"s{n}.{k}")


def _results(sim: Simulation, function: Function) -> list[str]:
    out = []
    for n, (kind, requests) in enumerate(_plan(sim, function)):
        for k in range(len(requests) if kind == "await" else 0):
            ended = sim.books.ended.get(_child(function, n, k))
            if ended is not None:
                out.append(ended.state.ending.text)  # type: ignore[union-attr]
    return out


# what must hold


def before_run(sim: Simulation, effect: CallTool) -> None:
    """I36: a function is run again when nothing that it has asked for is out any more."""
    tree = sim.trees.of(effect.run)
    if tree is None or not effect.again or effect.call.name not in script.STEP_TOOLS:
        return
    out = [id for id in tree.children.get(effect.run, ()) if _awaited_by(tree, id, effect)]
    if out:
        broken(f"I36 {effect.key} is run again while {out} work for it")


def _awaited_by(tree: Tree, id: str, effect: CallTool) -> bool:
    spec = tree.specs[id]
    slot = spec.parent_call
    return (
        id in tree.runs
        and spec.request.join == "step"
        and slot is not None
        and (slot.turn, slot.index) == (effect.turn, effect.index)
    )


def wanted(sim: Simulation, tree: Tree, id: str, run: Run) -> None:
    """I36: nobody works for a function that has returned."""
    spec = tree.specs[id]
    parent, slot = tree.runs.get(spec.parent), spec.parent_call
    if spec.request.join != "step" or parent is None or slot is None:
        return
    if isinstance(run.state, Stopping) or isinstance(parent.state, Stopping):
        return
    calls = calls_of(parent)
    is_open = calls is not None and parent.turn == slot.turn and calls.open >> slot.index & 1
    if not is_open and parent.id not in sim.steered:
        broken(f"I36 {id} goes on, and no function waits for it")


def parked(tree: Tree, id: str, state: object, calls: OpenCalls) -> None:
    """I15: a function is parked only as long as something is out."""
    if (calls.parked | calls.woken) & calls.tools or calls.parked & calls.woken:
        broken(f"I15 a call of {id} is parked and at work: {calls}")
    fan_in = tree.fans.get(id)
    bits = [i for i in range(calls.parked.bit_length()) if calls.parked >> i & 1]
    for index in (*bits, *(c.index for c in calls.lost)):
        fan = fan_in.fans.get(index) if fan_in is not None else None
        is_asked = any(q.index == index for q in calls.questions)
        if not (fan is not None and fan.pending) and not is_asked:
            broken(f"I15 call {index} of {id} waits for what has come")
    steps = {q.step for q in calls.questions}
    if any(s.key.startswith("q") and s.text is None and s.key not in steps for s in calls.steps):
        broken(f"I36 a function of {id} has asked, and the answer is not on record: {calls}")
    if bits and not isinstance(state, Working | Waiting) and not calls.asks:
        broken(f"I15 {id} is {type(state).__name__} and its function waits")


def told(sim: Simulation) -> None:
    """I36: whoever has asked hears the answer."""
    for (run, turn, index), function in sim.functions.items():
        result = sim.run_of(run)
        calls = calls_of(result)
        if result is None or calls is None or result.turn != turn or function.is_answered:
            continue
        step = f"q{function.stage}"
        if function.asks == step and any(
            (s.index, s.key) == (index, step) and s.text is not None for s in calls.steps
        ):
            broken(f"I36 the function of {function.effect.key} was answered and does not know")


def committed(books: Books, changes: Changes) -> None:
    """I36: nothing is asked twice, and what children have reported to a call that is not repeated
    stands in its result."""
    for entry in changes.entries:
        event = entry.event
        if isinstance(event, StepTaken) and event.question and not entry.stale:
            key = (entry.run, event.turn, event.index, event.step)
            if key in books.questions:
                broken(f"I36 {key} was asked twice")
            books.questions.add(key)
    for conversation, _, message in changes.messages:
        if isinstance(message, ToolMessage) and message.text.startswith(UNKNOWN):
            _reported(books, changes, conversation, message)


def _reported(books: Books, changes: Changes, conversation: str, message: ToolMessage) -> None:
    run = next((s for s in books.specs.values() if s.conversation == conversation), None)
    for spec in books.children.get(run.id, ()) if run is not None else ():
        slot = spec.parent_call
        if spec.request.join != "step" or slot is None or slot.call_id != message.call_id:
            continue
        ended = changes.runs.get(spec.id) or books.ended.get(spec.id)
        ending = getattr(ended and ended.state, "ending", None)
        if ending is not None and ending.state == "completed" and ending.text not in message.text:
            broken(f"I36 what {spec.id} reported to {message.call_id} is lost")
