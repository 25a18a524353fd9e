"""Files as people have them, in every dialect, and the specs that they become."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.agent_files.agent_spec import AgentSpec, FoundAgents
from retinue.agent_files.discovery import find_agents
from tests.agent_files.helpers import WILD

GOLDEN = WILD.parent / "golden.json"
PLACES = {
    "claude": ".claude/agents",
    "codex": ".codex/agents",
    "copilot": ".github/agents",
    "cursor": ".cursor/agents",
    "gemini": ".gemini/agents",
    "opencode": ".opencode/agents",
    "retinue": ".retinue/agents",
}


@pytest.fixture(scope="module")
def wild(tmp_path_factory: pytest.TempPathFactory) -> FoundAgents:
    root = tmp_path_factory.mktemp("wild")
    (root / ".git").mkdir()
    for dialect, place in PLACES.items():
        shutil.copytree(WILD / dialect, root / place)
    (root / ".codex/agents/config.toml").rename(root / ".codex/config.toml")
    (root / ".opencode/agents/opencode.jsonc").rename(root / "opencode.jsonc")
    (root / "prompts").mkdir()
    (root / "prompts/planner.txt").write_text("Plan first.\n")
    (root / ".codex/roles").mkdir()
    (root / ".codex/roles/fixer.toml").write_text(
        'developer_instructions = "Fix one thing."\nmodel = "gpt-5.2"\n'
    )
    return find_agents(root, None, root, trusted=True)


def plain(spec: AgentSpec, root: str) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(msgspec.json.encode(spec))
    out["source"]["path"] = out["source"]["path"].removeprefix(root + "/")
    out["complaints"] = [str(c).removeprefix(root + "/") for c in spec.complaints]
    return out


def test_every_dialect_becomes_the_spec_that_it_means(wild: FoundAgents) -> None:
    root = str(Path(wild.searched[0]).parent.parent)
    agents = {name: plain(spec, root) for name, spec in wild.agents.items()}
    assert agents == json.loads(GOLDEN.read_text())


def test_nothing_in_the_wild_is_broken_or_shadowed(wild: FoundAgents) -> None:
    assert wild.broken == ()
    assert wild.shadowed == ()
    assert {c.severity for c in wild.complaints} == {"note"}


def test_all_seven_dialects_are_there(wild: FoundAgents) -> None:
    assert {spec.source.dialect for spec in wild.agents.values()} == set(PLACES)
