"""Resources and prompts of MCP servers, and servers that an agent's file defines, through the
installed program and a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import PrivateHome, is_alive, private_home

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "content_server.py"


def entry(*options: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", "-S", str(SERVER), *options], **more}


def notes(*options: str, **more: Any) -> str:
    return json.dumps({"mcpServers": {"notes": entry(*options, **more)}})


def results(request: Any) -> list[str]:
    return [m.text for m in request.messages if type(m).__name__ == "ToolMessage"]


def offered(request: Any) -> set[str]:
    return {t.name for t in request.tools if t.name.startswith("mcp_")}


def reader(request: Any) -> Any:
    wants = [
        {"action": "list"},
        {"action": "read", "server": "notes", "uri": "notes://day/3"},
        {"action": "read", "server": "notes", "uri": "other://x"},
        {"action": "read", "server": "gone", "uri": "notes://one"},
    ]
    texts = results(request)
    return call("mcp_resources", **wants[len(texts)]) if len(texts) < 4 else "\n---\n".join(texts)


def test_resources_are_listed_and_read_without_secrets_and_with_permission(tmp_path: Path) -> None:
    with private_home(tmp_path, reader) as home:
        config = notes(env={"TOKEN": "tok-1234567890abcdef"})
        answer = home.ok("run", "--mcp-config", config, "--yolo", "read")
        listed, day, *others = answer.split("\n---\n")
        other, lost_part = others
        assert listed.splitlines() == [
            "notes:",
            "- notes://one (one, text/plain)",
            "- notes://two (two, The second.)",
            "- template notes://day/{day} (a day)",
        ]
        assert "The text of notes://day/3" in day and "tok-1234567890abcdef" not in answer
        assert "there is no such thing" in other and "'gone'" in lost_part and "notes" in lost_part
        rule = "--disallowed-tools"
        (denied,) = home.lines(
            *("run", "--mcp-config", config, "-p", "--output-format", "json", "--yolo"),
            *(rule, "mcp_resources(notes://day/*)", "read"),
        )
        assert [d["tool_input"]["uri"] for d in denied["permission_denials"]] == ["notes://day/3"]
        (line,) = home.lines("run", "--mcp-config", config, "-p", "--output-format", "json", "read")
        assert {d["tool_name"] for d in line["permission_denials"]} == {"mcp_resources"}


def test_a_server_without_resources_brings_no_tool_for_them(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: " ".join(sorted(offered(request)))) as home:
        assert home.ok("run", "--mcp-config", notes("bare"), "x") == "mcp__notes__note"


def test_a_prompt_of_a_server_is_a_task(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: f"[{request.messages[-1].text}]") as home:
        run = ("run", "--mcp-config", notes(), "--mcp-prompt")
        assert home.ok(*run, "notes/summarize", "topic=May", "style=short", "and", "more") == (
            "[Summarize May: short\n\nand more]"
        )
        assert home.ok(*run, "notes/summarize", "the", "spring") == "[Summarize the spring: -]"
        assert home.ok(*run, "notes/talk") == "[user: Hello.\n\nassistant: Hello to you.]"
        for words, sentence in (
            (("notes/summarize",), "topic=..."),
            (("notes/sumarize", "x"), "notes/summarize"),
            (("other/talk",), "notes/talk"),
        ):
            result = home.run(*run, *words)
            assert result.returncode == 2 and sentence in result.stderr, result.stderr


def test_a_chat_sends_prompts_of_servers_and_other_slashes_as_they_are(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: f"[{request.messages[-1].text}]") as home:
        (home.folder / "config" / "retinue").mkdir()
        (home.folder / "config" / "retinue" / "mcp.json").write_text(notes())
        lines = "/notes:summarize topic=May\n/Makefile:3 is wrong\n/notes:none\n"
        result = home.run("chat", input=lines)
        assert result.stdout.splitlines() == ["[Summarize May: -]", "[/Makefile:3 is wrong]"]
        assert "Unknown MCP prompt" in result.stderr + result.stdout


KEEPER = """---
name: keeper
description: Keeps notes.
tools: read
mcpServers:
  - notes: {entry}
---
Keep notes.
"""


def keeper(home: PrivateHome, *options: str) -> Path:
    """A project whose file defines an agent with a server of its own; returns the file of pids."""
    pids = home.folder / "pids"
    folder = home.project / ".retinue" / "agents"
    folder.mkdir(parents=True)
    text = json.dumps(entry(f"pids={pids}", *options))
    (folder / "keeper.md").write_text(KEEPER.replace("{entry}", text))
    return pids


def alive(pids: Path) -> list[int]:
    numbers = [int(n) for n in pids.read_text().split()] if pids.exists() else []
    return [pid for pid in numbers if is_alive(pid)]


def lead(request: Any) -> Any:
    """Has a note written by the agent, and reports what each of them had."""
    if "Keep notes." in request.system:
        text = results(request)
        return f"{text[0]} with {sorted(offered(request))}" if text else call("mcp__notes__note")
    text = results(request)
    return f"{text[0]}; the lead has {sorted(offered(request))}" if text else KEEP


KEEP = call("agent", name="keeper", task="keep it")


def test_a_server_of_an_agent_file_serves_that_agent_and_ends_with_its_runs(
    tmp_path: Path,
) -> None:
    with private_home(tmp_path, lead) as home:
        home.env["RETINUE_IDLE_SECONDS"] = "60"
        pids = keeper(home)
        home.ok("trust", "--yes")
        answer = home.ok("run", "--yolo", "note it")
        assert "noted by" in answer and answer.endswith("the lead has []")
        assert "['mcp__notes__note', 'mcp_resources']" in answer
        home.until(lambda: not alive(pids))
        assert is_alive(home.host_pid())
        again = home.ok("run", "--yolo", "note it")
        assert "noted by" in again and again != answer
        home.until(lambda: not alive(pids))
        (listed,) = json.loads(home.ok("mcp", "list", "--json"))
        assert (listed["name"], listed["status"]) == ("keeper/notes", "connected")
        (denied,) = home.lines("run", "-p", "--output-format", "json", "note it")
        assert [d["tool_name"] for d in denied["permission_denials"]] == ["mcp__notes__note"]


@pytest.mark.parametrize("how", ["untrusted", "strict", "disabled"])
def test_a_server_of_an_agent_file_is_not_started_where_it_may_not_be(
    tmp_path: Path, how: str
) -> None:
    with private_home(tmp_path, lead) as home:
        pids = keeper(home)
        options = ["--strict-mcp-config"] if how == "strict" else []
        if how != "untrusted":
            home.ok("trust", "--yes")
        if how == "disabled":
            (home.folder / "config" / "retinue").mkdir()
            path = home.folder / "config" / "retinue" / "config.toml"
            path.write_text('[mcp]\ndisabled = ["notes"]\n')
        result = home.run("run", "--yolo", *options, "note it")
        assert "noted by" not in result.stdout and not pids.exists(), result.stdout
