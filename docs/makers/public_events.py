"""The table of public events on the page about watching."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from docs.makers.markdown import first_sentence, one_line, replaced
from retinue.events import Event

PAGE = Path(__file__).resolve().parents[1] / "reference" / "watching.md"


def page() -> str:
    rows = ["| event | `type` | its own fields | when |", "|---|---|---|---|"]
    kinds = get_args(Event)
    shared = set.intersection(*(set(kind.__struct_fields__) for kind in kinds))
    for kind in kinds:
        own = ", ".join(f"`{name}`" for name in kind.__struct_fields__ if name not in shared)
        about = one_line(first_sentence(kind.__doc__))
        rows.append(f"| `{kind.__name__}` | `{kind.type}` | {own} | {about} |")
    return replaced(PAGE, "events", rows)
