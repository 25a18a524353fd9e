"""What a run waits for when its turn ends before the run does: calls of the client's tools, in the
form of both APIs, and questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.host.client_tools import open_calls
from retinue.open_questions import OpenQuestion
from retinue.tree_record import RunRecord


class CallsWaiting:
    """`calls` are the open ones by the ids that the client gets; `words` are the questions that it
    shows to its user."""

    def __init__(self, row: RunRecord, questions: Sequence[OpenQuestion]) -> None:
        by_id = {q.id: q for q in questions}
        waiting = open_calls(row)
        self.calls = {id: by_id[q].call for id, q in waiting.items() if q in by_id}
        theirs = set(waiting.values())
        self.words = [q.text for q in questions if q.id not in theirs]

    def chat_calls(self) -> list[dict[str, Any]]:
        return [
            {
                "id": id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_json},
            }
            for id, call in self.calls.items()
        ]
