"""What the configuration says holds for runs whose command says nothing else."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from retinue.testing import call
from tests.cli.private_home import PrivateHome, private_home
from tests.needs import needs
from tests.tools.mcp.client_support import FAKE


def say(home: PrivateHome, text: str) -> None:
    folder = home.folder / "config" / "retinue"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(text)


def writer(request: Any) -> Any:
    results = [m for m in request.messages if type(m).__name__ == "ToolMessage"]
    return results[-1].text if results else call("write", path="made.txt", content="hello")


def test_modes_and_rules_are_configured_and_a_flag_comes_first(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        say(home, '[permissions]\nmode = "acceptEdits"\n')
        home.ok("run", "write it")
        assert (home.project / "made.txt").read_text() == "hello"
        (home.project / "made.txt").unlink()
        home.ok("run", "--permission-mode", "plan", "write it")
        assert not (home.project / "made.txt").exists()
        say(home, '[permissions]\nmode = "acceptEdits"\ndeny = ["write(made.*)"]\n')
        assert "deny: write(made.*)" in home.ok("run", "--yolo", "write it")


def test_limits_models_families_and_servers_are_configured(tmp_path: Path) -> None:
    def teller(request: Any) -> Any:
        return " ".join(sorted(t.name for t in request.tools))

    with private_home(tmp_path, teller) as home:
        home.env.pop("RETINUE_MODEL")
        server = (
            f"[mcp_servers.fake]\ncommand = {json.dumps(sys.executable)}\nargs = "
            f"{json.dumps(['-I', str(FAKE)])}\n"
        )
        models = '[models]\ndefault = "quick"\n[models.aliases]\nquick = "openai-chat:scripted"\n'
        say(home, f'profiles = ["phoenix"]\n{models}{server}')
        result = home.run("run", "hello")
        assert "openai-chat:scripted (the configuration)" in result.stderr, result.stderr
        assert "spawn_agents" in result.stdout and "mcp__fake__echo" in result.stdout
        say(home, models + '[models.allow]\nopenai-chat = ["other-*"]\n')
        assert home.run("run", "hello").returncode == 2
        say(home, models + "[limits]\nmax_turns = 1\ntimeout = 0.2\n")
        assert home.run("run", "hello").returncode in (0, 5)


def test_a_mistake_in_the_configuration_gets_one_line_with_its_place(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    say(home, '[permissions]\nmode = "wild"\n')
    result = home.run("run", "x")
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "config.toml, line 2" in line and "wild" in line


def last(request: Any) -> str:
    """What the last call of this task has brought, "" before the first one."""
    kinds = [type(m).__name__ for m in request.messages]
    return request.messages[-1].text if kinds[-1] == "ToolMessage" else ""


def test_tools_are_switched_on_and_off_by_name_and_pattern_also_those_that_start_others(
    tmp_path: Path,
) -> None:
    def teller(request: Any) -> Any:
        return " ".join(sorted(t.name for t in request.tools))

    with private_home(tmp_path, teller) as home:
        everything = home.ok("run", "hello").split()
        assert {"shell", "read", "delegate_tasks"} <= set(everything)
        say(home, '[tools]\ndisabled = ["Bash", "shell_*", "delegate_tasks"]\n')
        hidden_tools = {"shell", "shell_output", "shell_stop", "delegate_tasks"}
        assert set(home.ok("run", "hello").split()) == set(everything) - hidden_tools
        assert (
            set(home.ok("run", "--no-session-persistence", "hello").split())
            == set(everything) - hidden_tools
        )
        say(home, '[tools]\nenabled = ["read", "search"]\n')
        assert set(home.ok("run", "hello").split()) == {"artifact", "read", "search"}
        say(home, '[tools]\ndisabled = ["shel"]\n')
        result = home.run("run", "hello")
        assert result.returncode == 2 and "tools.disabled: Unknown tool 'shel'" in result.stderr


@needs("bwrap")
def test_commands_get_the_variables_and_the_network_that_are_configured(tmp_path: Path) -> None:
    def looker(request: Any) -> Any:
        return last(request) or call(
            "shell", command="echo $MINE:$OTHER; readlink /proc/self/ns/net"
        )

    with private_home(tmp_path, looker) as home:
        home.env |= {"MINE": "one", "OTHER": "two"}
        allowed = '[permissions]\nallow = ["shell"]\n'
        ours = os.readlink("/proc/self/ns/net")
        say(home, allowed)
        output = home.ok("run", "look")
        assert "net:[" in output and ours not in output and "one" not in output
        say(home, allowed + '[sandbox]\nnetwork = true\nenv = ["MINE"]\n')
        output = home.ok("run", "look")
        assert "one:\n" in output and "two" not in output and ours in output


def test_without_a_sandbox_commands_run_only_if_the_users_own_file_says_so(tmp_path: Path) -> None:
    def looker(request: Any) -> Any:
        return last(request) or call("shell", command="echo it $((40 + 2)) ran")

    with private_home(tmp_path, looker) as home:
        bin = tmp_path / "bin"
        bin.mkdir()
        for program in ("sh", "bash"):
            if result := shutil.which(program):
                (bin / program).symlink_to(result)
        home.env["PATH"] = str(bin)
        assert "it 42 ran" not in home.ok("run", "--yolo", "--no-session-persistence", "look")
        say(home, "[sandbox]\nunsafe_no_sandbox = true\n")
        assert "it 42 ran" in home.ok("run", "--yolo", "--no-session-persistence", "look")
        assert "it 42 ran" in home.ok("run", "--yolo", "look")


def test_how_deep_and_how_wide_a_tree_grows_is_configured(tmp_path: Path) -> None:
    tasks = [
        {"task_id": n, "prompt": f"part {n}", "context_summary": "none", "tools": ["read"]}
        for n in "ab"
    ]

    def lead(request: Any) -> Any:
        if request.messages[0].text != "go":
            return "a part"
        return last(request) or call("delegate_tasks", mode="parallel", tasks=tasks)

    with private_home(tmp_path, lead) as home:
        assert "a part" in home.ok("run", "go")
        say(home, "[limits]\ndepth = 0\n")
        assert "cannot start sub-agents at this depth" in home.ok("run", "go")
        say(home, "[limits]\nchildren = 1\n")
        assert "the limit is 1" in home.ok("run", "go")
        home.ok("host", "stop")
        say(home, "[limits]\ntotal = 1\n")
        assert "Cannot start 2 more children: 0 were started and the limit is 1." in home.ok(
            "run", "go"
        )


def test_calls_of_one_turn_are_limited_by_configuration(tmp_path: Path) -> None:
    def many(request: Any) -> Any:
        results = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        return "\n".join(results) if results else [call("think", thought=str(n)) for n in range(3)]

    with private_home(tmp_path, many) as home:
        say(home, "[limits]\ncalls_per_turn = 2\n")
        assert home.ok("run", "think").count("at most 2 calls run in one reply") == 1


def test_folders_of_agents_are_configured_and_a_broken_file_in_one_stops_nobody(
    tmp_path: Path,
) -> None:
    with private_home(tmp_path, lambda request: str(request.system)) as home:
        folder = tmp_path / "config" / "retinue" / "team"
        folder.mkdir(parents=True)
        (folder / "pilot.md").write_text("---\nname: pilot\ndescription: flies\n---\nFly high.")
        (folder / "broken.md").write_text("---\nname: [\n---\n")
        say(home, '[agents]\ndirectories = ["team"]\ndefault = "pilot"\n')
        assert "pilot" in home.ok("agents", "list")
        assert "Fly high." in home.ok("run", "hello")
        assert "Fly high." in home.ok("run", "-c", "and again")
        say(home, '[agents]\ndirectories = ["nowhere"]\n')
        result = home.run("run", "hello")
        assert result.returncode == 2 and "agents.directories: folder" in result.stderr


def test_the_store_is_where_the_users_file_says_and_a_flag_comes_first(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        say(home, '[store]\npath = "kept/runs.db"\n')
        home.ok("run", "hello")
        assert (tmp_path / "config" / "retinue" / "kept" / "runs.db").exists()
        assert len(home.lines("ps", "--all", "--jsonl")) == 1
        assert not (tmp_path / "data" / "retinue" / "projects").exists()
        assert home.lines("--store", str(tmp_path / "other.db"), "ps", "--all", "--jsonl") == []
        home.ok("host", "stop")


def test_how_long_a_host_stays_is_configured(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.env.pop("RETINUE_IDLE_SECONDS")
        say(home, "[host]\nidle_seconds = 0.1\n")
        assert home.ok("run", "hello") == "Done."
        assert home.until(lambda: not list((tmp_path / "run" / "retinue").glob("*.sock")))


def test_how_long_the_start_of_a_host_is_waited_for_is_configured(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        say(home, "[host]\nstart_seconds = 1e-9\n")
        result = home.run("run", "hello")
        assert result.returncode != 0 and "The host did not respond" in result.stderr


def test_a_host_that_another_command_starts_gets_what_is_configured_too(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.env["WORK"] = home.env.pop("OPENAI_API_KEY")
        assert home.run("run", "hello").returncode != 0
        say(home, '[models.keys]\nopenai-chat = "WORK"\n')
        home.ok("run", "hello")
        home.ok("host", "stop")
        assert home.ok("resume", "latest", "and again") == "Done."


def test_models_that_no_agent_has_are_offered(tmp_path: Path) -> None:
    def lead(request: Any) -> Any:
        if request.messages[0].text != "go":
            return "a part"
        results = [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]
        return (
            results[0] if results else call("sessions_spawn", task="x", model="openai-chat:other")
        )

    with private_home(tmp_path, lead) as home:
        assert "unknown model" in home.ok("run", "--family", "sessions", "go")
        say(home, '[models]\noffered = ["openai-chat:other", "mistral:none"]\n')
        result = home.run("run", "--family", "sessions", "go")
        assert result.returncode == 0 and "unknown model" not in result.stdout, result.stdout
        assert "models.offered: mistral:none cannot be used: No API key" in result.stderr


def test_local_servers_are_not_looked_for_when_that_is_switched_off(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    home.env.pop("RETINUE_PROBE")
    say(home, "[models]\nprobe = false\n")
    with mock.patch("socket.create_connection", side_effect=AssertionError("somebody looked")):
        assert (
            "no model configured" in home.run("run", "--no-session-persistence", "map this").stderr
        )


def test_directories_beside_the_project_are_configured(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "note.txt").write_text("a note from beside")

    def reader(request: Any) -> Any:
        return last(request) or call("read", path=str(beside / "note.txt"))

    with private_home(tmp_path, reader) as home:
        assert "from beside" not in home.ok("run", "read it")
        say(home, '[permissions]\ndirectories = ["../beside"]\n')
        assert "from beside" in home.ok("run", "read it")
        assert "from beside" in home.ok("chat", "-q", input="read it\n")


def test_a_chat_is_configured_as_a_run_is(tmp_path: Path) -> None:
    with private_home(tmp_path, writer) as home:
        say(home, '[permissions]\nmode = "acceptEdits"\ndirectories = ["/"]\n')
        assert home.ok("chat", "-q", input="write it\n")
        assert (home.project / "made.txt").read_text() == "hello"
        say(
            home,
            '[permissions]\nmode = "acceptEdits"\ndeny = ["write(made.*)"]\n[tools]\ndisabled = '
            '["shell"]\n',
        )
        assert "deny: write(made.*)" in home.ok("chat", "-q", input="write it\n")
        say(home, "[limits]\nmax_turns = 1\n")
        assert home.run("chat", input="write it\n").returncode != 0
        say(home, "[limits]\nmax_turns = 0\n")
        assert home.run("chat", input="write it\n").returncode == 2
