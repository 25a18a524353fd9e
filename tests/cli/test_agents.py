"""Agents, advice and skills from files, as the command line uses them: what a file says binds its
runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import SECONDS, Gate, PrivateHome, private_home

WRITE = call("write", path="made.txt", content="hello")


def put(path: Path, head: str, body: str = "Work.") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{head}\n---\n{body}\n")


def mine(home: PrivateHome, name: str, head: str = "", body: str = "Work.") -> None:
    """An agent of the user's own."""
    place = home.folder / "config" / "retinue" / "agents" / f"{name}.md"
    put(place, f"name: {name}\ndescription: Does {name} work.\n{head}".rstrip(), body)


def results(request: Any) -> list[Any]:
    return [m for m in request.messages if type(m).__name__ == "ToolMessage"]


def writer(request: Any) -> Any:
    return results(request)[-1].text if results(request) else WRITE


def boss(request: Any) -> Any:
    """`main` starts `scribe`, who writes; both tell what came of it."""
    if "You are the scribe." in request.system:
        return writer(request)
    return (
        results(request)[-1].text
        if results(request)
        else call("agent", name="scribe", task="Write it.")
    )


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("permissionMode: plan", "plan"),
        ("disallowedTools: Write", "write"),
        ("tools: Read, Write(docs/**)\ndisallowedTools: Write(made.txt)", "deny: write(made.txt)"),
    ],
)
def test_what_a_file_forbids_binds_whatever_the_command_permits(
    tmp_path: Path, head: str, words: str
) -> None:
    with private_home(tmp_path, writer) as home:
        mine(home, "scribe", head)
        output = home.ok("run", "--agent", "scribe", "--yolo", "write it")
        assert words in output and not (home.project / "made.txt").exists()


def test_what_a_file_forbids_binds_when_another_agent_starts_it(tmp_path: Path) -> None:
    with private_home(tmp_path, boss) as home:
        mine(home, "scribe", "permissionMode: plan", "You are the scribe.")
        assert "plan" in home.ok("run", "--yolo", "have it written")
        assert not (home.project / "made.txt").exists()
        assert [r["agent"] for r in home.runs()] == ["main", "scribe"]
        mine(home, "scribe", "", "You are the scribe.")
        home.ok("run", "--yolo", "have it written")
        assert (home.project / "made.txt").read_text() == "hello"


def test_agents_on_disk_and_on_the_command_line_are_staff_of_the_default_agent(
    tmp_path: Path,
) -> None:
    def lister(request: Any) -> Any:
        names = [
            t.parameters["properties"]["name"]["enum"] for t in request.tools if t.name == "agent"
        ]
        return json.dumps(names[0] if names else None)

    with private_home(tmp_path, lister) as home:
        mine(home, "scribe")
        mine(home, "ghost", "disabled: true")
        inline = '{"critic": {"description": "d", "prompt": "p", "tools": "Read, Grep"}}'
        assert json.loads(home.ok("run", "--agents", inline, "hello")) == ["critic", "scribe"]
        (home.project / "agents.json").write_text(inline)
        lines = home.lines("run", "--json", "--agents", "agents.json", "hello")
        assert lines[0]["agents"] == ["critic", "scribe"] and "agent" in lines[0]["tools"]
        assert "agent" not in home.lines("run", "--json", "--family", "none", "hello")[0]["tools"]


def test_limits_of_a_file_end_its_run(tmp_path: Path) -> None:
    with private_home(tmp_path, [call("artifact", id="0" * 64)]) as home:
        mine(home, "short", "maxTurns: 2")
        mine(home, "poor", "budget: {max_tokens: 3000}")
        assert home.run("run", "--agent", "short", "go").returncode == 5
        assert home.run("run", "--agent", "poor", "go").returncode == 5
        output = home.ok("show")
        assert "◐ stopped at limit" in output
        (budget,) = [line for line in output.splitlines() if line.startswith("budget")]
        assert budget.endswith(" tokens") and ", left " in budget


def test_a_model_of_a_file_that_cannot_be_used_here_is_told(tmp_path: Path) -> None:
    with private_home(tmp_path, boss) as home:
        mine(home, "scribe", "model: opus", "You are the scribe.")
        result = home.run("run", "--yolo", "have it written")
        assert (
            result.returncode == 0
            and "Agent scribe: model opus is not available (" in result.stderr
        )
        alone = home.run("run", "--agent", "scribe", "write it")
        assert alone.returncode == 6 and "ANTHROPIC_API_KEY" in alone.stderr


def test_agents_are_built_again_from_their_plan_after_a_crash(tmp_path: Path) -> None:
    gate = Gate(WRITE, "Never mind.", at=0)
    with private_home(tmp_path, gate) as home:
        mine(home, "scribe", "permissionMode: plan")
        id = home.ok("run", "--bg", "--agent", "scribe", "--yolo", "write it")
        assert gate.reached.wait(SECONDS)
        os.kill(home.host_pid(), signal.SIGKILL)
        home.until(lambda: home.runs()[0]["state"] == "paused")
        mine(home, "scribe", "permissionMode: bypassPermissions")
        gate.opened.set()
        assert home.ok("attach", id) == "Never mind."
        assert not (home.project / "made.txt").exists()
        assert (
            "plan"
            in [
                m.text for h in gate.heard for m in h.messages if type(m).__name__ == "ToolMessage"
            ][-1]
        )


def test_files_of_a_project_do_nothing_until_it_is_trusted(tmp_path: Path) -> None:
    def teller(request: Any) -> Any:
        staff = [
            t.parameters["properties"]["name"]["enum"] for t in request.tools if t.name == "agent"
        ]
        return json.dumps(
            {
                "system": request.system,
                "staff": staff,
                "skill": any(t.name == "skill" for t in request.tools),
            }
        )

    with private_home(tmp_path, teller) as home:
        put(
            home.project / ".claude" / "agents" / "critic.md",
            "name: critic\ndescription: Criticises.",
        )
        put(
            home.project / ".agents" / "skills" / "tidy" / "SKILL.md",
            "name: tidy\ndescription: Tidies up.",
            "Tidy.",
        )
        (home.project / "AGENTS.md").write_text("Use four blanks.\n")
        (home.project / "deep").mkdir()
        (home.project / "deep" / "AGENTS.md").write_text("Here, two.\n")
        before = home.run("run", "hello")
        value = json.loads(before.stdout)
        assert (
            "four blanks" not in value["system"]
            and "tidy" not in value["system"]
            and value["staff"] == []
        )
        assert "retinue trust" in before.stderr
        assert "files  " not in home.ok("show")
        home.ok("trust", "--yes")
        after = json.loads(home.ok("run", "hello", cwd=home.project / "deep"))
        assert after["staff"] == [["critic"]] and "tidy" in after["system"] and after["skill"]
        assert after["system"].index("four blanks") < after["system"].index("Here, two.")
        output = home.ok("show")
        assert "AGENTS.md (~4 tokens in every turn), " in output
        assert "deep/AGENTS.md (~3 tokens in every turn)" in output
        (loaded, nearer) = json.loads(home.ok("show", "--json"))["agents"][0]["files_loaded"]
        assert (
            loaded["bytes"] == 17
            and len(loaded["sha256"]) == 64
            and nearer["path"].endswith("deep/AGENTS.md")
        )
        (home.project / "AGENTS.md").write_text("Use five blanks.\n")
        changed = home.run("run", "hello")
        assert (
            "blanks" not in json.loads(changed.stdout)["system"]
            and "have changed since" in changed.stderr
        )


def test_a_file_called_main_is_not_the_default_agent(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: request.system) as home:
        mine(home, "main", body="I am an impostor.")
        assert "impostor" not in home.ok("run", "hello")
        assert "impostor" in home.ok("run", "--agent", "main", "hello")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--agents", "[]"), "--agents"),
        (("--agents", '{"critic": 1}'), "critic"),
        (("--agents", "missing.json"), "file not found"),
        (("--agent", "scrib"), "Did you mean 'scribe'"),
        (("--agent", "broken"), "cannot be used"),
        (("--agent", "ghost"), "disabled"),
    ],
)
def test_a_wrong_agent_gets_one_line(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    home = PrivateHome(tmp_path)
    mine(home, "scribe")
    mine(home, "ghost", "disabled: true")
    mine(home, "broken", "budget: much")
    result = home.run("run", *arguments, "x")
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("retinue: ") and words in line
