"""The pictures of the documentation: each is shown on a page, and is one that a scene takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.images.frame_check import frame_problems

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
TAKEN = {
    *re.findall(r'stage\.take\(\w+, "([\w-]+)"', (IMAGES / "scenes.py").read_text()),
    *("mcp-claude", "mcp-codex"),  # by `docs/images/clients.py`, with the programs from npm
}


def test_each_picture_is_taken_by_a_scene_and_shown_on_a_page() -> None:
    names = {path.stem.removesuffix("-wide") for path in IMAGES.glob("*.svg")}
    assert names == TAKEN
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    assert not [name for name in names if f"images/{name}.svg" not in pages]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (" ├ ✓ docs            done         docs/http.md, 1 page              37s   $0.03", ""),
        (" ◆ 1 needs you  ✗ 1 failed", ""),
        (" ◆ sync-client wants to change src/client.py", ""),
        ("x" * 80, "80 cells"),
        (
            " ├ ✓ docs           docs/http.md, 1 page                           37s   $0.03",
            "✓ without",
        ),
        ("a ★ b", "★ has no meaning"),
    ],
)
def test_the_rules_of_a_frame_find_what_they_are_for(line: str, problem: str) -> None:
    problems = frame_problems(line, 80)
    assert problems == [] if not problem else problems[0].startswith(problem)
