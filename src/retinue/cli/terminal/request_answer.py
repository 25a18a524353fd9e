"""Turns the user's choice into a request to the host, and the line that reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.cli.context import now_ms
from retinue.cli.terminal import limit_answer
from retinue.cli.terminal.wall_clock import moment
from retinue.formats.safe_text import one_line
from retinue.host import requests
from retinue.view import format as view_format
from retinue.view.request_panel import request_panel


def answer(q: Mapping[str, Any], key: str, text: str) -> requests.HostRequest | None:
    """The request behind a choice; None for an amount that is none."""
    run, id = q["run"], q["id"]
    if q["kind"] == "budget":
        return (
            limit_answer.added(dict(q), text) if key == "y" else limit_answer.answer(dict(q), key)
        )
    if q["kind"] == "permission":
        allow = key in ("y", "A")
        answer_text = "" if allow else text
        return requests.AnswerRequest(
            run=run, question=id, allow=allow, always=key == "A", text=answer_text
        )
    options = {c.key: c.label for c in request_panel(q).choices if c.text is None}
    options = dict(zip(options, q.get("choices") or options.values(), strict=False))
    return requests.AnswerRequest(run=run, question=id, text=options.get(key, text))


def answer_report(q: Mapping[str, Any], key: str, text: str, n_more: int = 0) -> str:
    """`Allowed once. 1 more needs you: a`."""
    who = one_line(view_format.agent_label(q["label"]), 40)
    if q["kind"] == "permission":
        reason = one_line(text, 80) or "no reason was given"
        sentence = {
            "y": "Allowed once.",
            "A": "Allowed in this run and its sub-agents.",
            "n": f"Denied. {who} was told: {reason}",
        }[key]
    elif q["kind"] == "budget":
        sentence = {
            "y": f"Added to the limit of {who}.",
            "n": f"{who} finishes with one last turn.",
            "e": f"Cancelling {who}.",
        }[key]
    else:
        sentence = f"Answered {who}."
    if not n_more:
        return sentence
    return f"{sentence} {n_more} more need{'s' if n_more == 1 else ''} you: a"


def queued_text(label: str, *, is_steering: bool) -> str:
    """What becomes of a message that was sent."""
    if is_steering:
        return f"Sent. {label} reads it now, in a new turn."
    return f"Queued {moment(now_ms(), now_ms())}. {label} reads it at its next turn."


def retry_text(label: str, reply: Mapping[str, Any]) -> str:
    """That a failed run is tried once more, and under which id."""
    return f"Retrying {label} as run {view_format.short_id(reply['run'])}."
