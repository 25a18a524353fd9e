"""Reports about an agent for a client: text for its model, and the same facts as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import one_line
from retinue.mcp.agent_costs import AgentCost, total_cost
from retinue.view import format as view_format

MOST_LABEL = 60
MOST_PROBLEM = 4_000
MOST_STATUS = 200
MOST_TEXT = 60_000
"""Characters of answers in one result; what does not fit can be read as a resource."""
SCHEME = "retinue://"
BAD_ENDS = ("failed", "timed_out", "interrupted", "cancelled")


def task_label(task: str) -> str:
    """What an agent is called: the first words of what it is to do."""
    return one_line(task.strip().partition("\n")[0].rstrip(" .:;,"), MOST_LABEL) or "agent"


def transcript_uri(run: str) -> str:
    return f"{SCHEME}runs/{run}/transcript"


@dataclass(frozen=True)
class AgentReport:
    """One agent at this moment. `doing` is what an open one is at; `n_agents` counts those below
    it. `missing` says which of these its result lacks, in the runtime's words, and `missing_note`
    is what it says to those who read the result."""

    id: str
    state: str
    label: str = ""
    text: str = ""
    error: str = ""
    doing: str = ""
    turns: int = 0
    cost: AgentCost = AgentCost()
    n_agents: int = 0
    created_at: int = 0
    ended_at: int | None = None
    questions: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    missing: str = ""
    missing_note: str = ""

    @property
    def is_ended(self) -> bool:
        return self.state in view_format.ENDS

    @property
    def is_bad(self) -> bool:
        return self.state in BAD_ENDS or (self.state == "incomplete" and not self.text)

    def facts(self, most: int = MOST_TEXT) -> dict[str, Any]:
        """What of it is known, as JSON."""
        text = clip(self.text, most, transcript_uri(self.id)) if self.is_ended else ""
        questions = [
            {"question": q["id"], "kind": q["kind"], "text": q.get("shown") or q["text"]}
            for q in self.questions
        ]
        fields = {
            "text": text,
            "missing": self.missing,
            "error": self.error,
            "doing": self.doing,
            "agents": self.n_agents,
            "questions": questions,
        }
        return {
            "id": self.id,
            "label": self.label,
            "state": view_format.shown_state(self.state),
            "turns": self.turns,
            **self.cost.facts,
            **{name: value for name, value in fields.items() if value},
        }

    def line(self) -> str:
        """Its name, state and cost."""
        state = view_format.state_text(view_format.shown_state(self.state))
        parts = [f"{self.label or 'agent'} {self.id}: {state}", f"turn {self.turns}"]
        if self.n_agents:
            parts.append(f"{self.n_agents} sub-agents")
        if self.cost.words:
            parts.append(self.cost.words)
        if self.doing and not self.is_ended:
            parts.append(self.doing)
        return " · ".join(parts)

    def block(self, most: int) -> str:
        """The line, and under it the answer, the error and what it asks."""
        lines = [self.line()]
        if self.error:
            lines.append(f"Error: {self.error}")
        if self.is_ended and self.text:
            lines.append(clip(self.text, most, transcript_uri(self.id)))
        for q in self.questions:
            how = "text" if q["kind"] == "question" else "allow"
            question_text = q.get("shown") or q["text"]
            lines.append(f"It asks ({q['kind']} {q['id']}; answer with {how}): {question_text}")
        return "\n".join(lines)


def status_words(reports: Sequence[AgentReport]) -> str:
    """What they are doing, in one line: for a status message or a progress notification. What they
    cost is there however much they do."""
    n_ended = sum(report.is_ended for report in reports)
    parts = [f"{n_ended} of {len(reports)} done"] if len(reports) > 1 else []
    open_ones = [report for report in reports if not report.is_ended]
    for report in open_ones[:2]:
        what = report.doing or view_format.state_text(view_format.shown_state(report.state))
        parts.append(f"{report.label}: turn {report.turns}, {what}")
    if not open_ones:
        parts.append("all have ended")
    cost = total_cost(report.cost for report in reports).words
    end = f" · {cost}" if cost else ""
    return one_line(" · ".join(parts), MOST_STATUS - len(end)) + end


def progress_of(reports: Iterable[AgentReport]) -> float:
    """A number that only grows: the turns of everyone, and more for everyone who has ended."""
    return float(sum(report.turns + report.is_ended for report in reports))


def tool_result(reports: Sequence[AgentReport], note: str = "") -> dict[str, Any]:
    """The result of a tool about these agents. It is an error when all of them ended badly. All
    that is said in words is in the structured part as well: some clients show only that."""
    most = MOST_TEXT // max(1, len(reports))
    texts = [report.block(most) for report in reports] or ["You have no agents here."]
    text = "\n\n".join([*texts, *([note] if note else [])])
    # What the runtime says about results is in a part of its own, into which no agent writes.
    notes = [report.missing_note for report in reports if report.missing_note]
    parts = [text, "\n".join(notes)] if notes else [text]
    return {
        "content": [{"type": "text", "text": part} for part in parts],
        "structuredContent": {
            "agents": [report.facts(most) for report in reports],
            **({"note": note} if note else {}),
        },
        "isError": bool(reports) and all(report.is_bad for report in reports),
    }


def problem_result(text: str) -> dict[str, Any]:
    """A result that says what went wrong. Structured as well: some clients insist on it. What the
    client sent may be in it, and be long."""
    text = clip(text, MOST_PROBLEM)
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": {"agents": [], "error": text},
        "isError": True,
    }


def answer_text(outcome: Mapping[str, Any]) -> str:
    """What an agent came to: its words, or its data."""
    text: str = outcome.get("text") or ""
    data = outcome.get("output")
    return text if text or data is None else json.dumps(data, ensure_ascii=False)


def doing_words(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the end of a conversation shows an agent to be at."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            calls = [call.get("name", "") for call in message.get("calls", ())]
            if calls:
                return one_line(f"calls {', '.join(dict.fromkeys(calls))}", 80)
            if message.get("text"):
                return one_line(message["text"], 80)
    return ""
