"""Queues of children that change files in the same directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from retinue.core.spec import RunSpec
from retinue.core.state import Ended, Queued, Run

TURN = -1
"""The number of the lane, before all others, in which a writer waits for its turn."""


@dataclass(slots=True)
class _Line:
    writing: str = ""
    waiting: dict[str, None] = field(default_factory=dict)


class WriterLines:
    """One line for each parent and directory. Nothing here is stored: the states of runs say who
    waits."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}

    def is_busy(self, parent: str, place: str) -> bool:
        """Whether a child of this run changes files there, or waits for it."""
        return (parent, place) in self._lines

    def stand(self, spec: RunSpec) -> bool:
        """The run has its turn, or queues for it."""
        if spec.request.writers != "turns" or not spec.parent:
            return True
        line = self._lines.setdefault((spec.parent, spec.request.cwd), _Line())
        if line.writing in ("", spec.id):
            line.writing = spec.id
            line.waiting.pop(spec.id, None)
            return True
        line.waiting[spec.id] = None
        return False

    def leave(self, spec: RunSpec) -> str:
        """The run has ended. Whose turn it is now, if that has changed: the oldest's."""
        key = (spec.parent, spec.request.cwd)
        line = self._lines.get(key)
        if line is None:
            return ""
        line.waiting.pop(spec.id, None)
        if line.writing != spec.id:
            return ""
        line.writing = min(line.waiting, default="")
        line.waiting.pop(line.writing, None)
        if not line.writing:
            del self._lines[key]
        return line.writing

    def find(self, spec: RunSpec, run: Run) -> None:
        """A run that an earlier process has left."""
        if spec.request.writers != "turns" or not spec.parent or isinstance(run.state, Ended):
            return
        line = self._lines.setdefault((spec.parent, spec.request.cwd), _Line())
        if isinstance(run.state, Queued) and run.state.lane == TURN:
            line.waiting[spec.id] = None
        else:
            line.writing = spec.id
