"""The question of a limit on a terminal: the choices, and the request that an answer becomes."""

from __future__ import annotations

import math
from typing import Any

from retinue.host import requests
from retinue.view import format as view_format
from retinue.view import parked_runs
from retinue.view.budget_table import amount_text, exact

ENDED = "cancelled by the user at its limit"


def suggested(q: dict[str, Any]) -> str:
    """What a plain yes adds."""
    return amount_text(q["limit"], q["suggested"][q["limit"]])


def command(q: dict[str, Any]) -> str:
    """What adds another amount than the suggested one."""
    return parked_runs.raise_it(
        view_format.short_id(q["run"]), q["limit"], exact(q["limit"], q["suggested"][q["limit"]])
    )


def answer(q: dict[str, Any], key: str) -> requests.HostRequest:
    """The request behind a choice; `t` has a text first (`added`)."""
    if key == "e":
        return requests.CancelRequest(runs=(q["run"],), reason=ENDED)
    return requests.AnswerRequest(run=q["run"], question=q["id"], allow=key == "y")


def added(q: dict[str, Any], text: str) -> requests.BudgetRequest | None:
    """`2`, `$0.50` or `5,000` of what is short; None for anything but an amount above zero."""
    word = text.strip().lstrip("$").replace(",", "").replace("_", "")
    try:
        much = float(word)
    except ValueError:
        return None
    if not math.isfinite(much) or much <= 0 or (q["limit"] != "usd" and much != int(much)):
        return None
    fields: dict[str, Any] = {q["limit"]: much if q["limit"] == "usd" else int(much)}
    return requests.BudgetRequest(run=q["run"], question=q["id"], **fields)


def typed_answer(q: dict[str, Any], text: str) -> requests.HostRequest | None:
    """A typed line: yes, land, end, or how much. Anything else is none of these."""
    word = text.strip().lower().rstrip(".!")
    for key, words in (("y", ("y", "yes")), ("n", ("n", "no", "land")), ("e", ("e", "end"))):
        if word in words:
            return answer(q, key)
    return added(q, text)
