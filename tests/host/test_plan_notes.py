"""What a run says at its start of agents that name models which cannot be used here."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.private_home import Llm, PrivateHome

AGENTS = {
    name: {"description": name, "prompt": "Work.", "model": model}
    for name, model in (("a", "openrouter:x"), ("b", "mistral:y"), ("c", "groq:z"))
}


def test_agents_that_an_offline_run_never_starts_are_not_complained_of(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    try:
        result = home.run("run", "--agent-file", json.dumps(AGENTS), "map this repository")
        assert result.returncode == 0 and "not available" not in result.stderr, result.stderr
    finally:
        home.close()


def test_several_agents_whose_models_are_not_available_are_one_line(tmp_path: Path) -> None:
    with Llm(["Here."]) as llm:
        home = PrivateHome(tmp_path)
        try:
            flags = ("--agent-file", json.dumps(AGENTS), "-m", "openai-chat:scripted")
            result = home.run("run", *flags, "Go.", env=llm.env)
            lines = [line for line in result.stderr.splitlines() if "not available" in line]
            assert len(lines) == 1 and "Agents a, b, c: " in lines[0], result.stderr
        finally:
            home.close()
