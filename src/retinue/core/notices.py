"""Describes an end in text: by the templates of the tool that started the run, or in plain words.
They contain what the runtime saw, never what a model claims about itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from retinue.core.answer_fit import fit_here
from retinue.core.answer_layout import LayoutPage, LayoutPart, Long
from retinue.core.effects import ChildOutcome
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Run
from retinue.core.values import Definition, Ending, NoticeTexts
from retinue.formats.fair_cut import boundary, clip, cut, missing, missing_in
from retinue.formats.money import bound
from retinue.formats.safe_text import one_line

BRIEF = 200
ERROR, LINE = 4_000, 500
"""The characters of an error that are shown; fewer where it must fit on one line."""
ANY = 1 << 30
NONE = NoticeTexts()


def of_parent(definition: Definition | None, child: RunSpec) -> NoticeTexts:
    """The words of the tool that started a child; `definition` is its parent's."""
    if definition is None or child.parent_call is None or not definition.notices:
        return NONE
    return definition.notices.get(child.parent_call.tool, NONE)


def skipped(request: RunRequest, ending: Ending) -> bool:
    """Whether a run that was to tell its result has said that there is nothing to tell."""
    is_asked = request.report == "announce" or (
        request.report == "text" and ending.state == "completed"
    )
    return (
        bool(request.skip_token) and is_asked and ending.text.strip() in request.skip_token.split()
    )


def is_known(ending: Ending) -> bool:
    """Whether the parent of a run has ended it, or ended with it: then no run needs a notice."""
    return bool(ending.along) or (ending.state == "cancelled" and ending.by == "parent")


def child_notice(
    templates: dict[str, str], spec: RunSpec, run: Run, ending: Ending, cap: int, n_ended: int = 0
) -> str:
    """A child's end in the words that its parent's tool has for it, at most `cap` long."""
    names = (f"{ending.state}/{ending.stop}", ending.state, "")
    template = next((templates[name] for name in names if name in templates), None)
    if template is None:
        return describe(spec.request.name, ending, cap)
    fields = notice_fields(spec, run, ending, n_ended)
    if "{text}" not in template:  # then the error has the room
        room = max(0, cap - len(fill(template, {**fields, "error": ""})))
        fields["error"] = cut(ending.error or ending.stop, room, f"run {spec.id}")
    frame = len(fill(template, {**fields, "text": ""}))
    where = _where(ending) or f"run {spec.id}"
    fields["text"] = cut(
        fields["text"], max(0, cap - frame), where, note=_note(ending, fields["text"])
    )
    return clip(fill(template, fields), cap)


def _where(ending: Ending) -> str:
    """Where the whole of what a run said was kept before it was cut."""
    return f"artifact {ending.artifacts[-1].path}" if ending.artifacts else ""


def _note(ending: Ending, text: str) -> Callable[[int, int, str], str]:
    """The note at a cut of `text`, which ends with the run's own text: the note also counts what
    that text omitted."""
    return missing_in(text) if ending.is_cut else missing


def notice_fields(spec: RunSpec, run: Run, ending: Ending, n_ended: int = 0) -> dict[str, str]:
    """Everything that a template may name."""
    request, usage = spec.request, run.usage
    text, error = ending.text or "(no output)", ending.error or ending.stop
    started = spec.created_at if run.started_at is None else run.started_at
    return {
        "id": spec.id,
        "label": request.name,
        "agent": request.agent,
        "task": clip(request.task, 2_000),
        "state": ending.state,
        "stop": ending.stop,
        "text": text,
        "brief": text if len(text) <= BRIEF else f"{text[: boundary(text, BRIEF)]}...",
        "error": cut(error, ERROR, f"run {spec.id}"),
        "why": one_line(error, LINE),
        "seconds": f"{max(0, ending.at - started) / 1000:.1f}",
        "input": str(usage.input),
        "output": str(usage.output),
        "tokens": bound(str(usage.tokens), is_bound=bool(usage.estimated)),
        "cost": bound(f"{usage.usd:.4f}", is_bound=not usage.cost_is_known),
        "model": run.model_used or spec.model,
        "calls": str(usage.calls),
        "nothing": f"(no output; it made {usage.calls} tool calls)"
        if usage.calls
        else "(no output)",
        "group": request.group,
        "done": str(n_ended),
        "size": str(request.group_size),
    }


@lru_cache(maxsize=256)
def _pieces(template: str) -> tuple[str, ...]:
    return tuple(re.split(r"\{(\w+)\}", template))


def fill(template: str, fields: dict[str, str]) -> str:
    """Names in braces are replaced once: braces in what replaces them stay as they are."""
    pieces = _pieces(template)
    return "".join(fields.get(p, f"{{{p}}}") if n % 2 else p for n, p in enumerate(pieces))


def describe(name: str, ending: Ending, cap: int) -> str:
    """A child's end in plain words. The state is the runtime's, never the model's."""
    if ending.state == "completed":
        return cut(ending.text, cap, _where(ending), note=_note(ending, ending.text))
    head = f"{name} {ending.state.replace('_', ' ')} ({ending.stop})"
    if ending.error:
        head += f": {ending.error}"
    text = f"{head}\nText so far: {ending.text}" if ending.text else head
    return cut(text, cap, _where(ending), note=_note(ending, text))


def plain_result(outcomes: tuple[ChildOutcome, ...]) -> tuple[str, bool]:
    """What a parent reads when no family has words of its own."""
    if len(outcomes) == 1:
        (one,) = outcomes
        return describe(shown(one.label), one.ending, ANY), one.ending.state not in (
            "completed",
            "incomplete",
        )
    return listed(outcomes), False


def plain_page(outcomes: tuple[ChildOutcome, ...], *, is_kept: bool = False) -> LayoutPage:
    """The ends of several children in plain words, each under its name and state. `kept`: what is
    cut is not put away, for it is kept with the child's own run."""
    parts = []
    for one in outcomes:
        name, ending = shown(one.label), one.ending
        where = _where(ending) or (f"run {one.id}" if is_kept else "")
        text = describe(name, ending, ANY)
        parts.append(
            LayoutPart(
                f"## {name} ({ending.state})",
                Long(text, where, note=_note(ending, text)),
                ending.state,
            )
        )
    return LayoutPage("", tuple(parts))


def listed(outcomes: tuple[ChildOutcome, ...], room: int = ANY) -> str:
    return fit_here(plain_page(outcomes, is_kept=True), room)


def shown(label: str) -> str:
    """A label that is safe inside a line of other text."""
    return one_line(label, 200)
