"""The table of public names on the page about the API."""

from __future__ import annotations

from pathlib import Path

import retinue
from docs.makers.markdown import first_sentence, one_line, replaced

PAGE = Path(__file__).resolve().parents[1] / "reference" / "api.md"


def page() -> str:
    rows = ["| name | what it is |", "|---|---|"]
    for name in retinue.__all__:
        about = first_sentence(getattr(retinue, name).__doc__)
        rows.append(f"| `{name}` | {one_line(about)} |")
    return replaced(PAGE, "names", rows)
