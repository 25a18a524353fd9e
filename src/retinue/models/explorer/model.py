"""The explorer as a model: from a request to a reply. It holds nothing but facts about itself; all
else is in the request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, Literal

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import ModelInfo, Usage
from retinue.models.base import ModelRequest
from retinue.models.explorer.child_report import ROOM, encode
from retinue.models.explorer.delegation import assignment_in
from retinue.models.explorer.find_job import NO_TOOL, find_job
from retinue.models.explorer.intent import JOBS, Intent, read_intent
from retinue.models.explorer.known_answers import Assignment, KnownAnswers, assignment
from retinue.models.explorer.map_job import TOOL, WORK, map_job
from retinue.models.explorer.report import Report, empty_report
from retinue.models.explorer.report_text import plural
from retinue.models.explorer.review_job import review_job

NAME = "offline/explorer"
BYTES_PER_TOKEN = 4
MOST_CALLS, MOST_CALLS_OF_PART = 400, 60
CALLS_A_TURN = 32
RESULT, ERROR = "submit_result", "submit_error"
SKIP = re.compile(r"[Rr]eply with exactly (\w+)")


class ExplorerModel:
    """Usage is estimated: four bytes are a token, and the whole conversation is sent again in every
    turn."""

    exact = says_progress = True
    settings_format = "explorer"

    def __init__(self, name: str = NAME) -> None:
        self.info = ModelInfo(
            name=name, window=50_000_000, max_output=32_768, price_in=0, price_out=0
        )

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        request.progress.wait()
        await asyncio.sleep(0)
        message = answer(request)
        if message.text:
            emit(message.text)
        stop: Literal["calls", "end"] = "calls" if message.calls else "end"
        return ModelReply(
            message=message, usage=measure(request, message), stop=stop, model=request.model
        )


def measure(request: ModelRequest, message: AssistantMessage) -> Usage:
    n_in = len(request.instructions) + sum(len(m.text) for m in request.messages)
    n_in += sum(
        len(c.arguments_json)
        for m in request.messages
        if isinstance(m, AssistantMessage)
        for c in m.calls
    )
    n_out = len(message.text) + sum(len(c.arguments_json) + len(c.name) for c in message.calls)
    return Usage(
        input=max(1, n_in // BYTES_PER_TOKEN),
        output=min(n_out // BYTES_PER_TOKEN + 1, max(1, request.max_output)),
    )


def answer(request: ModelRequest) -> AssistantMessage:
    """What to say next: a pure function of the request."""
    work = assignment(request.messages)
    room = max(256, request.max_output * BYTES_PER_TOKEN)
    area_task = assignment_in(work.task)
    if request.purpose == "announce" and area_task is not None:
        return AssistantMessage(text=_announcement(request))
    if not work.task and work.summary:
        return _end(request, _recalled(work), ok=True)
    closing = request.purpose != "turn"
    limit = MOST_CALLS if area_task is None else MOST_CALLS_OF_PART
    answers = KnownAnswers(work, request.tools, request.declared, closing=closing, limit=limit)
    if area_task is not None:
        text, ok = _part(
            answers,
            area_task,
            min(room, ROOM if not isinstance(area_task.get("room"), int) else area_task["room"]),
        )
    else:
        report = _job(answers, read_intent(work.task))
        text, ok = (report.text(room), True) if report is not None else ("", True)
    if answers.pending:
        return _calls(request, answers)
    if answers.resting:
        return AssistantMessage(text=answers.resting)
    if request.purpose == "compact":
        return AssistantMessage(text=f"Task: {work.task}\n\n{text}")
    return _end(request, text, ok=ok)


def _job(answers: KnownAnswers, intent: Intent) -> Report | None:
    note = ""
    if intent.unknown:
        note = (
            f"Note: unknown job `{intent.unknown}`. Known: {', '.join(JOBS)}. This is "
            f"`{intent.job}`."
        )
    elif not intent.sure:
        note = (
            "Note: without an LLM only three jobs can be done: map, find, review. The task names "
            "none of them, so this is the map."
        )
    if not answers.can(TOOL) and not answers.n_calls:
        return empty_report("Nothing to report", NO_TOOL, [])
    match intent.job:
        case "map":
            return map_job(answers, note, full=intent.full)
        case "find":
            return find_job(answers, intent.text, note, full=intent.full)
        case "review":
            return review_job(answers, intent.text, note, full=intent.full)


def _part(answers: KnownAnswers, area_task: dict[str, Any], room: int) -> tuple[str, bool]:
    """The findings of a sub-agent as a text; false when there is nothing in them."""
    name = str(area_task.get("name", ""))
    work = WORK.get(str(area_task.get("part")))
    if work is None:
        return f"Unknown part {area_task.get('part')!r}.", False
    findings = work(answers, area_task)
    if answers.pending:
        return "", True
    rows = [
        *([["note", "a limit was reached before the end"]] if answers.starved else []),
        *findings.rows,
    ]
    whole = findings.whole and not answers.starved
    heading = findings.said or f"{name}: {plural(len(rows), 'finding')}."
    solid = any(row[0] != "note" for row in rows) or findings.whole
    text = encode(name, heading, rows, calls=answers.n_calls, whole=whole, room=room)
    return text, solid or bool(rows)


def _calls(request: ModelRequest, answers: KnownAnswers) -> AssistantMessage:
    calls = answers.pending[:CALLS_A_TURN]
    return AssistantMessage(
        calls=tuple(
            ToolCall(
                id=f"x{len(request.messages)}_{n}",
                name=name,
                arguments_json=json.dumps(args, ensure_ascii=False),
            )
            for n, (name, args) in enumerate(calls)
        )
    )


def _end(request: ModelRequest, text: str, *, ok: bool) -> AssistantMessage:
    """Hand it in where there is a tool for it, alone; twice refused, or without one, it is said."""
    tools = {t.name: t for t in request.tools}
    tried = sum(
        c.name in (RESULT, ERROR)
        for m in request.messages
        if isinstance(m, AssistantMessage)
        for c in m.calls
    )
    text = text or "Nothing was found."
    if request.purpose in ("turn", "grace") and tried < 2:
        args = json.dumps({"result": text}, ensure_ascii=False)
        if ok and RESULT in tools and _takes_text(tools[RESULT].parameters) and not tried:
            return AssistantMessage(
                calls=(ToolCall(id=f"s{len(request.messages)}", name=RESULT, arguments_json=args),)
            )
        if ERROR in tools:
            why = (
                text
                if not ok
                else "The offline explorer can only submit a text, and it was not "
                f"accepted:\n{text}"
            )
            args = json.dumps({"error": why}, ensure_ascii=False)
            return AssistantMessage(
                calls=(ToolCall(id=f"s{len(request.messages)}", name=ERROR, arguments_json=args),)
            )
    return AssistantMessage(text=text)


def _takes_text(parameters: dict[str, Any]) -> bool:
    kind = parameters.get("properties", {}).get("result", {}).get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _announcement(request: ModelRequest) -> str:
    """The agent that delegated a part reads its findings; no one else needs them."""
    prompt = request.messages[-1].text if request.messages else ""
    token = SKIP.search(prompt)
    return token[1] if token else "Done; the findings were submitted."


def _recalled(work: Assignment) -> str:
    """After a compaction only the summary is left. It contains the report as it was then."""
    _, _, text = work.summary.partition("\n\n")
    return text or work.summary
