"""Pages that can be made are made, and are not older than what they are made from."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_table_of_states_is_what_the_machine_says() -> None:
    spec = importlib.util.spec_from_file_location("make_states", DOCS / "make_states.py")
    assert spec is not None
    assert spec.loader is not None
    make_states = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_states)
    assert (DOCS / "states.md").read_text() == make_states.page()


def test_every_link_between_the_pages_leads_somewhere() -> None:
    import re

    broken = []
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []
