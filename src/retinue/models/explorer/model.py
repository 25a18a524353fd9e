"""The model itself: from a request to a reply. It holds nothing but facts about itself; all else is
in the request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, Literal

from retinue.core.messages import Assistant, Call, Reply
from retinue.core.values import ModelInfo, Usage
from retinue.models.base import Request
from retinue.models.explorer.child_report import ROOM, encode
from retinue.models.explorer.compare_job import compare_job, side
from retinue.models.explorer.delegation import order_in
from retinue.models.explorer.find_job import find_job, look
from retinue.models.explorer.intent import JOBS, Intent, read_intent
from retinue.models.explorer.known_answers import Assignment, KnownAnswers, assignment
from retinue.models.explorer.map_job import WORK, map_job
from retinue.models.explorer.report import FOOTER, Report
from retinue.models.explorer.report_text import plural
from retinue.models.explorer.review_job import judge, review_job

NAME = "offline/explorer"
BYTES_PER_TOKEN = 4
MOST_CALLS, MOST_CALLS_OF_PART = 400, 60
CALLS_A_TURN = 32
RESULT, ERROR = "submit_result", "submit_error"
SKIP = re.compile(r"[Rr]eply with exactly (\w+)")
PARTS = {**WORK, "find": look, "review": judge, "side": side}


class ExplorerModel:
    """Usage is estimated: four bytes are a token, and what was heard before is heard again in every
    turn."""

    exact = says_progress = True

    def __init__(self, name: str = NAME) -> None:
        self.info = ModelInfo(
            name=name, window=50_000_000, max_output=32_768, price_in=0, price_out=0
        )

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Reply:
        request.progress.wait()
        await asyncio.sleep(0)
        message = answer(request)
        if message.text:
            emit(message.text)
        stop: Literal["calls", "end"] = "calls" if message.calls else "end"
        return Reply(
            message=message, usage=measure(request, message), stop=stop, model=request.model
        )


def measure(request: Request, message: Assistant) -> Usage:
    heard = len(request.instructions) + sum(len(m.text) for m in request.messages)
    heard += sum(len(c.args) for m in request.messages if isinstance(m, Assistant) for c in m.calls)
    said = len(message.text) + sum(len(c.args) + len(c.name) for c in message.calls)
    return Usage(
        input=max(1, heard // BYTES_PER_TOKEN),
        output=min(said // BYTES_PER_TOKEN + 1, max(1, request.max_output)),
    )


def answer(request: Request) -> Assistant:
    """What to say next: a pure function of the request."""
    work = assignment(request.messages)
    room = max(256, request.max_output * BYTES_PER_TOKEN)
    order = order_in(work.task)
    if request.purpose == "announce" and order is not None:
        return Assistant(text=_announcement(request))
    if not work.task and work.summary:
        return _end(request, _recalled(work), ok=True)
    closing = request.purpose != "turn"
    limit = MOST_CALLS if order is None else MOST_CALLS_OF_PART
    book = KnownAnswers(work, request.tools, request.declared, closing=closing, limit=limit)
    if order is not None:
        text, ok = _part(
            book,
            order,
            min(room, ROOM if not isinstance(order.get("room"), int) else order["room"]),
        )
    else:
        report = _job(book, read_intent(work.task))
        text, ok = (report.text(room), True) if report is not None else ("", True)
    if book.pending:
        return _calls(request, book)
    if book.resting:
        return Assistant(text=book.resting)
    if request.purpose == "compact":
        return Assistant(text=f"Task: {work.task}\n\n{text}")
    return _end(request, text, ok=ok)


def _job(book: KnownAnswers, intent: Intent) -> Report | None:
    note = ""
    if intent.unknown:
        note = (
            f"Note: unknown job `{intent.unknown}`. Known: {', '.join(JOBS)}. This is "
            f"`{intent.job}`."
        )
    elif not intent.sure:
        note = (
            "Note: without an LLM only four jobs can be done: map, find, review, compare. The task "
            "names none of them, so this is the map."
        )
    if not any(book.can(t) for t in ("list", "find", "search", "read", "git")) and not book.n_calls:
        report = Report()
        report.section(
            "No tool to look at files is available (list, search, find, read, git), so "
            "nothing can be reported."
        )
        report.section(FOOTER)
        return report
    match intent.job:
        case "map":
            return map_job(book, note)
        case "find":
            return find_job(book, intent.text, note)
        case "review":
            return review_job(book, intent.text, note)
        case "compare":
            return compare_job(book, intent.text, note)


def _part(book: KnownAnswers, order: dict[str, Any], room: int) -> tuple[str, bool]:
    """The findings of a sub-agent as a text; false when there is nothing in them."""
    name = str(order.get("name", ""))
    work = PARTS.get(str(order.get("part")))
    if work is None:
        return f"Unknown part {order.get('part')!r}.", False
    found = work(book, order)
    if book.pending:
        return "", True
    rows = [
        *([["note", "a limit was reached before the end"]] if book.starved else []),
        *found.rows,
    ]
    whole = found.whole and not book.starved
    said = f"{name or '(root)'}: {plural(len(rows), 'finding')}."
    solid = any(row[0] not in ("note", "defs", "inline", "cases") for row in rows) or found.whole
    text = encode(name, said, rows, calls=book.n_calls, whole=whole, room=room)
    return text, solid or bool(rows)


def _calls(request: Request, book: KnownAnswers) -> Assistant:
    chosen = book.pending[:CALLS_A_TURN]
    return Assistant(
        calls=tuple(
            Call(
                id=f"x{len(request.messages)}_{n}",
                name=name,
                args=json.dumps(args, ensure_ascii=False),
            )
            for n, (name, args) in enumerate(chosen)
        )
    )


def _end(request: Request, text: str, *, ok: bool) -> Assistant:
    """Hand it in where there is a tool for it, alone; twice refused, or without one, it is said."""
    tools = {t.name: t for t in request.tools}
    tried = sum(
        c.name in (RESULT, ERROR)
        for m in request.messages
        if isinstance(m, Assistant)
        for c in m.calls
    )
    text = text or "Nothing was found."
    if request.purpose in ("turn", "grace") and tried < 2:
        args = json.dumps({"result": text}, ensure_ascii=False)
        if ok and RESULT in tools and _takes_text(tools[RESULT].parameters) and not tried:
            return Assistant(calls=(Call(id=f"s{len(request.messages)}", name=RESULT, args=args),))
        if ERROR in tools:
            why = (
                text
                if not ok
                else "The offline explorer can only submit a text, and it was not "
                f"accepted:\n{text}"
            )
            args = json.dumps({"error": why}, ensure_ascii=False)
            return Assistant(calls=(Call(id=f"s{len(request.messages)}", name=ERROR, args=args),))
    return Assistant(text=text)


def _takes_text(parameters: dict[str, Any]) -> bool:
    kind = parameters.get("properties", {}).get("result", {}).get("type", "string")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _announcement(request: Request) -> str:
    """Whoever handed out a part reads its findings; nobody else has to be told."""
    prompt = request.messages[-1].text if request.messages else ""
    token = SKIP.search(prompt)
    return token[1] if token else "Done; the findings were submitted."


def _recalled(work: Assignment) -> str:
    """After a compaction the summary is all there is: it holds the report as it was then."""
    _, _, text = work.summary.partition("\n\n")
    return text or work.summary
