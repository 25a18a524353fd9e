"""How an end is put into words: by the templates of the tool that started the run, or plainly. What stands in them is
what the runtime saw, never what a model said of itself.
"""

from __future__ import annotations

import re
from functools import lru_cache

from retinue.core.effects import ChildOutcome
from retinue.core.money import bound
from retinue.core.orders import Order, Spec
from retinue.core.state import Run
from retinue.core.text import clip
from retinue.core.values import Definition, Ending, Words

BRIEF = 200
NONE = Words()


def of_parent(definition: Definition | None, child: Spec) -> Words:
    """The words of the tool that started a child; `definition` is its parent's."""
    if definition is None or child.slot is None or not definition.words:
        return NONE
    return definition.words.get(child.slot.tool, NONE)


def skipped(order: Order, ending: Ending) -> bool:
    """Whether a run that was to tell its result has said that there is nothing to tell."""
    is_asked = order.report == "announce" or (order.report == "text" and ending.state == "completed")
    return bool(order.skip_token) and is_asked and ending.text.strip() in order.skip_token.split()


def is_known(ending: Ending) -> bool:
    """Whether whoever started a run has ended it, or ended with it: then nobody has to be told."""
    return bool(ending.along) or (ending.state == "cancelled" and ending.by == "parent")


def tell(templates: dict[str, str], spec: Spec, run: Run, ending: Ending, cap: int, done: int = 0) -> str:
    """A child's end in the words that its parent's tool has for it, at most `cap` long."""
    names = (f"{ending.state}/{ending.stop}", ending.state, "")
    template = next((templates[name] for name in names if name in templates), None)
    if template is None:
        return describe(spec.order.label or spec.order.agent, ending, cap)
    return clip(fill(template, facts(spec, run, ending, done)), cap)


def facts(spec: Spec, run: Run, ending: Ending, done: int = 0) -> dict[str, str]:
    """Everything that a template may name."""
    order, usage = spec.order, run.usage
    text = ending.text or "(no output)"
    started = spec.created_at if run.started_at is None else run.started_at
    return {
        "id": spec.id,
        "label": order.label or order.agent,
        "agent": order.agent,
        "task": clip(order.task, 2_000),
        "state": ending.state,
        "stop": ending.stop,
        "text": text,
        "brief": text if len(text) <= BRIEF else f"{text[:BRIEF]}...",
        "error": ending.error or ending.stop,
        "seconds": f"{max(0, ending.at - started) / 1000:.1f}",
        "input": str(usage.input),
        "output": str(usage.output),
        "tokens": bound(str(usage.tokens), is_bound=bool(usage.estimated)),
        "cost": bound(f"{usage.usd:.4f}", is_bound=not usage.cost_is_known),
        "model": run.model_used or spec.model,
        "calls": str(usage.calls),
        "group": order.group,
        "done": str(done),
        "size": str(order.group_size),
    }


@lru_cache(maxsize=256)
def _pieces(template: str) -> tuple[str, ...]:
    return tuple(re.split(r"\{(\w+)\}", template))


def fill(template: str, known: dict[str, str]) -> str:
    """Names in braces are replaced once: braces in what replaces them stay as they are."""
    pieces = _pieces(template)
    return "".join(known.get(p, f"{{{p}}}") if n % 2 else p for n, p in enumerate(pieces))


def describe(name: str, ending: Ending, cap: int) -> str:
    """A child's end in plain words. The state is the runtime's, never the model's."""
    if ending.state == "completed":
        return clip(ending.text, cap)
    head = f"{name} {ending.state.replace('_', ' ')} ({ending.stop})"
    if ending.error:
        head += f": {ending.error}"
    return clip(f"{head}\nText so far: {ending.text}" if ending.text else head, cap)


def plain_result(outcomes: tuple[ChildOutcome, ...]) -> tuple[str, bool]:
    """What a parent reads when no family has words of its own."""
    if len(outcomes) == 1:
        (one,) = outcomes
        return describe(one.label, one.ending, 1 << 30), one.ending.state not in ("completed", "incomplete")
    return listed(outcomes), False


def listed(outcomes: tuple[ChildOutcome, ...]) -> str:
    return "\n\n".join(f"## {o.label} ({o.ending.state})\n{describe(o.label, o.ending, 1 << 30)}" for o in outcomes)
