"""What the configuration says holds for runs whose command says nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.house import House, house
from tests.tools.mcp.parts import FAKE


def say(home: House, text: str) -> None:
    folder = home.folder / "config" / "retinue"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(text)


def writer(heard: Any) -> Any:
    results = [m for m in heard.messages if type(m).__name__ == "Result"]
    return results[-1].text if results else call("write", path="made.txt", content="hello")


def test_modes_and_rules_are_configured_and_a_flag_comes_first(tmp_path: Path) -> None:
    with house(tmp_path, writer) as home:
        say(home, '[permissions]\nmode = "acceptEdits"\n')
        home.ok("run", "write it")
        assert (home.project / "made.txt").read_text() == "hello"
        (home.project / "made.txt").unlink()
        home.ok("run", "--permission-mode", "plan", "write it")
        assert not (home.project / "made.txt").exists()
        say(home, '[permissions]\nmode = "acceptEdits"\ndeny = ["write(made.*)"]\n')
        assert "deny: write(made.*)" in home.ok("run", "--yolo", "write it")


def test_limits_models_families_and_servers_are_configured(tmp_path: Path) -> None:
    def teller(heard: Any) -> Any:
        return " ".join(sorted(t.name for t in heard.tools))

    with house(tmp_path, teller) as home:
        home.env.pop("RETINUE_MODEL")
        server = f"[mcp_servers.fake]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(['-I', str(FAKE)])}\n"
        models = '[models]\ndefault = "quick"\n[models.aliases]\nquick = "openai-chat:scripted"\n'
        say(home, f'profiles = ["phoenix"]\n{models}{server}')
        done = home.run("run", "hello")
        assert "openai-chat:scripted (the configuration)" in done.stderr, done.stderr
        assert "spawn_agents" in done.stdout and "mcp__fake__echo" in done.stdout
        say(home, models + '[models.allow]\nopenai-chat = ["other-*"]\n')
        assert home.run("run", "hello").returncode == 2
        say(home, models + "[limits]\nmax_turns = 1\ntimeout = 0.2\n")
        assert home.run("run", "hello").returncode in (0, 5)


def test_a_mistake_in_the_configuration_gets_one_line_with_its_place(tmp_path: Path) -> None:
    home = House(tmp_path)
    say(home, '[permissions]\nmode = "wild"\n')
    done = home.run("run", "x")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "config.toml, line 2" in line and "wild" in line
