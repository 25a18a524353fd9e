"""The table of `retinue ps`: one line for each run, with the loudest state of its tree. Little is
imported here, because listings have to be quick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from retinue.formats.money import money
from retinue.formats.safe_text import one_line
from retinue.view import format as view_format
from retinue.view.state_marks import MARKS, loudest, mark_name

if TYPE_CHECKING:
    from retinue.host.listing import ListedRun

STATE, MODEL = 15, 26
AGE, AGENTS, NUMBER = 7, 6, 7
WITH_TOKENS, WITH_MODEL = 100, 120
"""From how many columns on there is room for more than what a run is and costs."""


class TableLine(NamedTuple):
    """A line of the table: the mark of a state has a colour, of this role."""

    lead: str
    glyph: str
    word: str
    tail: str
    role: str = ""

    @property
    def text(self) -> str:
        return f"{self.lead}{self.glyph}{self.word}{self.tail}".rstrip()


def mark_of(line: ListedRun) -> str:
    """How a screen marks a listed run."""
    wait = line.provider_wait
    if line.state == "waiting" and wait is not None:
        return wait.state
    return mark_name(line.state, stop=line.stop, is_thinking=line.is_thinking)


def loudest_of(line: ListedRun, open_runs: Iterable[ListedRun]) -> str:
    """The mark of a run that represents its tree; `open_runs` are all that there are."""
    return loudest(mark_of(line), (mark_of(one) for one in open_runs if one.root == line.id))


def cost_cell(line: ListedRun) -> str:
    """What its tree has cost: a dash before anything is spent, and never nothing for unknown."""
    if line.is_offline:
        return "offline"
    if not line.tokens and not line.usd:
        return "\N{EN DASH}"
    return money(line.usd, is_bound=bool(line.usd_estimated), is_short=True)


def run_table(
    lines: Sequence[ListedRun], marks: Mapping[str, str], width: int, now: float
) -> list[TableLine]:
    """Runs in the order that they are given; `marks` has the loudest of each tree."""
    ids = max((len(line.short) for line in lines), default=0)
    heads = ("AGE", "AGENTS", "TOKENS", "COST")
    head = _tail("TASK", "MODEL", heads, width - 1 - max(4, ids) - 2 - STATE, width)
    out = [TableLine(f"{'RUN':<{max(4, ids)}}  ", "", f"{'STATE':<{STATE}}", head)]
    for line in lines:
        mark = MARKS[marks.get(line.id, mark_of(line))]
        lead = f"{line.short:<{max(4, ids)}}  "
        word = f" {mark.word}"
        pad = " " * max(1, STATE - 1 - len(word))
        age = view_format.span((line.ended_at or now) - line.created_at)
        tokens = view_format.tokens(
            line.tokens, is_bound=bool(line.tokens_estimated), is_short=True
        )
        numbers = (
            age,
            str(line.n_agents or 1),
            tokens if line.tokens and not line.is_offline else "",
            cost_cell(line),
        )
        task = f"{line.group}: {line.task}" if line.group else line.task
        task = line.label if line.label != line.agent else task
        room = width - 1 - len(lead) - 1 - len(word) - len(pad)
        tail = pad + _tail(one_line(task, 400), line.model, numbers, room, width)
        out.append(TableLine(lead, mark.glyph, word, tail, mark.role))
    return out


def _tail(task: str, model: str, numbers: tuple[str, str, str, str], room: int, width: int) -> str:
    """Task, model where there is room for it, and the numbers, in so many cells."""
    sizes = (AGE, AGENTS, NUMBER if width >= WITH_TOKENS else 0, NUMBER)
    end = "".join(f" {text:>{size}}" for text, size in zip(numbers, sizes, strict=True) if size)
    if width >= WITH_MODEL:
        end = f" {_cut(one_line(model, 200), MODEL)}{end}"
    return _cut(task, max(8, room - len(end))) + end


def _cut(text: str, width: int) -> str:
    if text.isascii():
        return f"{text:<{width}}" if len(text) <= width else f"{text[: width - 1]}…"
    from retinue.view.cells import cut

    return cut(text, width)
