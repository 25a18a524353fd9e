"""Pages that can be made are made, and are not older than what they are made from."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from retinue.tools.families.profiles import FAMILIES

DOCS = Path(__file__).parent.parent / "docs"


def maker(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_states_is_what_the_machine_says() -> None:
    assert (DOCS / "reference" / "states.md").read_text() == maker("make_states").page()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tools_on_a_family_s_page_are_those_that_it_has(family: str) -> None:
    made = maker("make_families").page(family)
    assert "| parameter | type | needed | meaning |" in made
    assert (DOCS / "guides" / "families" / f"{family}.md").read_text() == made


def test_every_link_between_the_pages_leads_somewhere() -> None:
    import re

    broken = []
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []
