"""Writes the pages that are generated from the code: `make docs`. A test compares them."""

from __future__ import annotations

from pathlib import Path

from docs.makers import (
    commands,
    configuration,
    decisions,
    events,
    examples,
    families,
    family_settings,
    modules,
    names,
    public_events,
    states,
)
from retinue.host import openapi
from retinue.tools.families.profiles import FAMILIES

DOCS = Path(__file__).resolve().parent.parent


def pages() -> dict[Path, str]:
    """Every generated page, or page with a generated table, as it should be."""
    reference = DOCS / "reference"
    return {
        reference / "api.md": names.page(),
        reference / "commands.md": commands.page(),
        reference / "configuration.md": configuration.page(),
        reference / "events.md": events.page(),
        reference / "family_settings.md": family_settings.page(),
        reference / "modules.md": modules.page(),
        reference / "openapi.json": openapi.document(),
        reference / "states.md": states.page(),
        reference / "watching.md": public_events.page(),
        DOCS / "decisions" / "README.md": decisions.page(),
        DOCS.parent / "examples" / "README.md": examples.page(),
        **{DOCS / "guides" / "families" / f"{name}.md": families.page(name) for name in FAMILIES},
    }
