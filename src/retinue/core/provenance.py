"""Says which sub-agents' work a result is based on; the runtime counts and words it, so that no
model can invent or omit it.

A run counts what its children came back with. A child that returned passes up its own count with
its result, so the count reaches the top through all levels; of a child that did not return, only
that is known. A child that its parent has called off is not missing. The note is next to a child's
text and never in it: in a message of the runtime's own, after the fence of the mail, or in a field
of the outcome or of the delivery. Of what models wrote, only labels are shown, and these are cut
down to one word or put in quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from retinue.core.effects import ChildOutcome
from retinue.core.spec import RunRequest
from retinue.core.values import Ending, Helpers, Lost, Who
from retinue.formats.safe_text import one_line

NAMED = 5
"""How many are named; the others are counted. A run's row stays small whatever its fan-out."""
LEVELS = 6
LABEL = 40
HEAD = "[From the runtime] "
_BY: dict[Who, str] = {"user": " by the user", "limit": " by a limit", "system": " by the runtime"}
_PLAIN = re.compile(r"[\w.:/@+-]+")


def add(so_far: Helpers, label: str, id: str, ending: Ending) -> Helpers:
    """One child more has ended. It is itself counted among those who were started by `total`."""
    if ending.state == "completed":
        return _join(so_far, label, ending.helpers)
    if ending.state == "incomplete":
        so_far = _name(
            so_far, Lost(path=(_short(label),), id=id, state="incomplete", stop=ending.stop)
        )
        return _join(so_far, label, ending.helpers)
    stop = "parent_ended" if ending.along else ending.stop
    return _name(
        so_far, Lost(path=(_short(label),), id=id, state=ending.state, stop=stop, by=ending.by)
    )


def is_dismissed(request: RunRequest, ending: Ending) -> bool:
    """Whether a child is not missing although it did not return: its parent has called it off, or
    it lived for messages until its parent ended."""
    if ending.along:
        return request.stay_open
    return ending.state == "cancelled" and ending.by == "parent"


def total(so_far: Helpers, n_children: int, still_out: Iterable[tuple[str, str]]) -> Helpers:
    """The count at the end of a run: its children too, and those (label and id) who are still at
    work then."""
    for label, id in still_out:
        so_far = _name(so_far, Lost(path=(_short(label),), id=id, state="open"))
    if not n_children:
        return so_far
    return replace(so_far, n_started=so_far.n_started + n_children)


def _name(so_far: Helpers, one: Lost) -> Helpers:
    is_part = one.state == "incomplete"
    return replace(
        so_far,
        n_lost=so_far.n_lost + (not is_part),
        n_partial=so_far.n_partial + is_part,
        lost=(*so_far.lost, one)[:NAMED],
    )


def _join(so_far: Helpers, label: str, theirs: Helpers) -> Helpers:
    """What a child rests on, its parent rests on too."""
    if not theirs.n_started:
        return so_far
    room = NAMED - len(so_far.lost)
    below = tuple(_below(_short(label), one) for one in theirs.lost[: max(0, room)])
    return Helpers(
        n_started=so_far.n_started + theirs.n_started,
        n_lost=so_far.n_lost + theirs.n_lost,
        n_partial=so_far.n_partial + theirs.n_partial,
        lost=(*so_far.lost, *below),
    )


def _below(label: str, one: Lost) -> Lost:
    path = (label, *one.path)
    if len(path) > LEVELS:
        path = (label, "...", *path[2 - LEVELS :])
    return Lost(path=path, id=one.id, state=one.state, stop=one.stop, by=one.by)


def _short(label: str) -> str:
    return one_line(label, LABEL)


def provenance_text(helpers: Helpers) -> str:
    """In one line, "" if all have returned."""
    if helpers.is_whole:
        return ""
    of = f" of {helpers.n_started} sub-agent{'s' if helpers.n_started != 1 else ''}"
    parts = []
    if helpers.n_lost:
        parts.append(f"{helpers.n_lost}{of} never returned")
        of = ""
    if helpers.n_partial:
        parts.append(f"{helpers.n_partial}{of} returned only part of a result")
    named = [f"{' > '.join(map(_quoted, one.path))} ({_how(one)})" for one in helpers.lost]
    more = helpers.n_lost + helpers.n_partial - len(named)
    return f"{' and '.join(parts)}: {', '.join([*named, *([f'and {more} more'] if more else [])])}"


def _how(one: Lost) -> str:
    match one.state:
        case "open":
            return "still running"
        case "cancelled":
            is_along = one.stop == "parent_ended"
            return (
                "stopped when its parent ended" if is_along else f"cancelled{_BY.get(one.by, '')}"
            )
        case "timed_out":
            return "timed out" if one.stop == "deadline" else f"timed out: {one.stop}"
        case "incomplete":
            return f"partial: {one.stop}"
        case _:
            return f"{one.state}: {one.stop}"


def _quoted(label: str) -> str:
    """A label is what a model wrote: it is shown as it is if it is one word, otherwise in quotes
    that it cannot close."""
    return label if _PLAIN.fullmatch(label) else '"' + label.replace('"', "'") + '"'


def note_on(outcomes: Sequence[ChildOutcome]) -> str:
    """What the runtime says about results that are read together, "" when there is nothing to
    say."""
    lacking = [o for o in outcomes if not o.ending.helpers.is_whole]
    lines = [
        f"About the result of {_quoted(_short(o.label))}: {provenance_text(o.ending.helpers)}."
        for o in lacking[:NAMED]
    ]
    if len(lacking) > NAMED:
        lines.append(
            f"The same applies to {len(lacking) - NAMED} more of these {len(outcomes)} results."
        )
    return HEAD + "\n".join(lines) if lines else ""


def note_of(ending: Ending) -> str:
    """The same about one result, where it is plain which."""
    return note_about(provenance_text(ending.helpers))


def note_about(missing: str, result: str = "this result") -> str:
    """The note with this line, which an outcome has as `missing`."""
    return f"{HEAD}About {result}: {missing}." if missing else ""
