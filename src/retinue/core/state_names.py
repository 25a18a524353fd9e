"""The names of states: in the core, and for users. Nothing is imported here, because listings have
to be quick."""

from __future__ import annotations

import re
from collections.abc import Iterable

SHOWN = {
    "queued": "queued",
    "thinking": "running",
    "short": "waiting",
    "working": "running",
    "waiting": "waiting",
    "asking": "needs_input",
    "stopping": "cancelling",
}
"""States of the machine, as users see them; the others keep their names."""
ENDS = ("completed", "incomplete", "failed", "timed_out", "cancelled", "interrupted")
FAILURES = ("failed", "timed_out", "interrupted", "incomplete")
WORDS = {
    "running": "working",
    "needs_input": "needs you",
    "cancelling": "stopping",
    "completed": "done",
    "timed_out": "failed",
    "interrupted": "failed",
    "incomplete": "failed",
    "rate_limited": "rate limited",
    "at_limit": "stopped at limit",
}
"""What people read on screens for a shown state, and for what a screen tells apart beyond it; the
others are their own words."""
_STAMP = re.compile(r"-[0-9a-f]{8}(?=\.|$)")


def shown_state(name: str) -> str:
    """The state that users see, for one of the machine's."""
    return SHOWN.get(name, name)


def state_text(state: str) -> str:
    """A shown state in the word that screens have for it."""
    return WORDS.get(state) or state.replace("_", " ")


def is_wanted(state: str, names: Iterable[str]) -> bool:
    """Whether a state is among those asked for; `failed` means every way to fail, `open` every run
    that has not ended."""
    for name in names:
        if (
            name == state
            or (name == "failed" and state in FAILURES)
            or (name == "open" and state not in ENDS)
        ):
            return True
    return False


def short_id(id: str) -> str:
    """Ids start with their time, so runs of the same minute begin alike; users see a piece of the
    other end."""
    return id[24:30] if len(id) == 36 else id


SHORTEST_QUESTION_ID = 6
"""Characters of a question's id that name the question, if no other one begins so."""


def names_question(name: str, id: str) -> bool:
    """Whether a name is the id of a question or the start of it."""
    return name == id or (len(name) >= SHORTEST_QUESTION_ID and id.startswith(name))


def agent_label(name: str) -> str:
    """An agent's name without the stamp that tells apart two definitions of one name."""
    return _STAMP.sub("", name)
