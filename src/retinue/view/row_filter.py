"""What is typed to see some rows only: words, or pairs such as `state:failed agent:models`."""

from __future__ import annotations

from retinue.core.state_names import ENDS, SHOWN
from retinue.formats.suggestion import did_you_mean
from retinue.view import format as view_format
from retinue.view.run_row import RunRow
from retinue.view.state_marks import MARKS


def matches(row: RunRow, query: str) -> bool:
    """Whether a row has all the words: `state:failed`, `agent:models`, `model:sonnet`, or any other
    text."""
    everything = f"{row.label} {row.short} {row.word} {row.now} {row.task} {row.model}".lower()
    fields = {"agent": row.label, "model": row.model, "task": row.task}
    for part in query.lower().split():
        key, _, value = part.partition(":")
        if key == "state" and value:
            if not view_format.is_wanted(row.state, value.split(",")) and value not in row.word:
                return False
        elif value and key in fields:
            if value not in fields[key].lower():
                return False
        elif part not in everything:
            return False
    return True


def meant(query: str) -> str:
    """An unknown state, with the states that may have been meant."""
    names = [*dict.fromkeys((*SHOWN.values(), *ENDS, *(m.word for m in MARKS.values())))]
    for part in query.split():
        key, _, value = part.partition(":")
        if key == "state" and value and value not in names:
            return did_you_mean(value, names).replace("'", "")
    return ""
