"""What must hold of the conversation with which a model is called. Each message is read once, when
it is new."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retinue.core.effects import CallModel
from retinue.core.messages import AssistantMessage, Message, ToolMessage
from retinue.core.state import Run
from tests.simulation import provenance
from tests.simulation.violation import broken

if TYPE_CHECKING:
    from tests.simulation.pure import Simulation

MARK = re.compile(r"<[^<>]*>")


@dataclass(slots=True)
class Reading:
    """How far the conversation of a run was read, and what is known from it: its last calls and
    whether each is answered, all marks, and the last mail."""

    n: int
    calls: dict[str, bool] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    mail: int = 0

    def read(self, id: str, message: Message) -> None:
        """I8: calls are answered once each. I3: nothing that was sent stands there twice."""
        self.n += 1
        if isinstance(message, AssistantMessage):
            self.calls = {call.id: False for call in message.calls}
            return
        if isinstance(message, ToolMessage):
            is_answered = self.calls.get(message.call_id)
            if is_answered is None:
                broken(f"I8 a result without a call in {id}: {message.call_id}")
            if is_answered:
                broken(f"I8 two results for {message.call_id} in {id}")
            self.calls[message.call_id] = True
        marks = dict.fromkeys(MARK.findall(message.text)) if "<" in message.text else {}
        for mark in marks:
            if mark in self.marks:
                broken(f"I3 {mark} stands twice in the history of {id}")
            self.marks.add(mark)
            if mark.startswith("<mail ") and not isinstance(message, ToolMessage):
                number = int(mark[6:-1])
                if number <= self.mail:
                    broken(f"I3 mail {number} of {id} came after mail {self.mail}")
                self.mail = number


def check(sim: Simulation, run: Run, effect: CallModel) -> None:
    """I8, I3: no message is missing; every child that was counted stands in the history once."""
    books, spec = sim.books, sim.books.specs[run.id]
    mine = books.messages.get(spec.conversation, {})
    first = spec.base.length if spec.base else 0
    reading = books.readings.get(run.id)
    if reading is None:
        reading = books.readings[run.id] = Reading(first)
    if len(mine) != run.length - first or any(n not in mine for n in range(reading.n, run.length)):
        broken(f"I8 messages of {run.id} have a gap")
    if isinstance(mine.get(run.length - 1), AssistantMessage):
        broken(f"I8 {run.id} asks the model right after its own reply")
    for n in range(reading.n, run.length):
        reading.read(run.id, mine[n])
    key = (run.id, run.turn, effect.purpose)
    if effect.purpose not in ("turn", "grace") or key in books.checked:
        return
    books.checked.add(key)
    if run.start == first and run.id in books.told:
        _children(sim, run, reading)


def _children(sim: Simulation, run: Run, reading: Reading) -> None:
    books = sim.books
    unread = {m.sender for m in sim.tree_of(run.id).mail.get(run.id, ())}
    for child in books.told[run.id]:
        text = provenance.end_of(books, child).text
        order = books.specs[child].request
        is_due = order.tell_parent or order.join != "none"
        if order.join == "step" and run.id in sim.hurried:
            continue  # its function did not wait for it
        is_there = text in reading.marks
        if text == f"<{books.paths[child]}>" and child not in unread and is_there != is_due:
            broken(f"I3 the result of {child} is not in the history of {run.id}, or should not be")
    mine = books.messages[books.specs[run.id].conversation].values()
    if why := provenance.untold(books, run.id, mine, unread):
        broken(why)
