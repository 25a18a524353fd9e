"""The other commands: looking at runs, talking to them, ending them, from any terminal."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from retinue import __version__
from retinue.errors import NotFound
from retinue.testing import call
from tests.cli.private_home import SECONDS, Gate, PrivateHome, private_home
from tests.cli.test_run import FANOUT, failing, lead


def test_a_message_from_another_terminal_reaches_the_run(tmp_path: Path) -> None:
    gate = Gate(call("artifact", id="0" * 64), "Done.", at=0)
    with private_home(tmp_path, gate) as home:
        running = home.start("run", "-n", "work", "a long task")
        assert gate.reached.wait(SECONDS)
        result = home.real("send", "work", "also", "count", "the", "files")
        assert result.returncode == 0 and "It is read at the next turn." in result.stderr
        gate.opened.set()
        out, _ = running.communicate(timeout=SECONDS)
        assert (running.returncode, out) == (0, "Done.\n")
        assert any("also count the files" in m.text for m in gate.heard[-1].messages)
        late = home.run("send", "work", "too late")
        assert late.returncode == 1 and "Traceback" not in late.stderr


def test_a_cancel_from_another_terminal_is_over_when_it_returns(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        running = home.start("run", "a long task")
        assert gate.reached.wait(SECONDS)
        ended = home.real("cancel", "latest", "--reason", "enough")
        assert ended.returncode == 0 and "cancelled" in ended.stderr
        assert [r["state"] for r in home.runs()] == ["cancelled"]
        _, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 1 and "enough" in err
        assert "No open runs." in home.run("cancel", "--all").stderr


def test_a_sub_agent_is_addressed_through_its_run(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        home.ok("run", *FANOUT, "-n", "counting", "Delegate it.")
        root, one, two = home.runs()
        assert (one["parent"], one["depth"], one["state"]) == (root["id"], 1, "completed")
        address = f"{root['short'][:4]}/{one['short']}"
        for name in (address, one["id"][:-2]):
            assert home.ok("show", name).splitlines()[0].endswith(f"run {one['short']}")
        many = home.run("show", f"counting/{one['label']}")
        assert one["label"] != two["label"] or (
            many.returncode == 2 and "can mean 2 runs" in many.stderr
        )
        table = home.ok("ps", "--tree", "--all").splitlines()
        assert len(table) == 3 and root["short"] in table[0] and table[2].startswith(" └ ✓ ")
        assert home.ok("ps", "--tree", root["short"]).splitlines() == table
        (head, row) = home.ok("ps", "counting").splitlines()
        assert head.split() == ["RUN", "STATE", "TASK", "AGE", "AGENTS", "COST"]
        assert row.startswith(f"{root['short']}  ✓ done") and row.split()[-2] == "3"
        assert home.lines("ps", "--state", "failed", "--tree", "--jsonl") == []
        assert len(home.lines("ps", "--since", "1h", "--jsonl")) == 1
        result = home.ok("show", "counting")
        assert "├ ✓" in result and "└ ✓" in result and result.endswith("Both have counted.")


def test_what_was_said_can_be_read_and_exported(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        home.ok("run", *FANOUT, "Delegate <b>it</b>.")
        assert "  spawn_agents  starts 2 agents" in home.ok("logs")
        assert '"tasks"' in home.ok("logs", "--tools") and '"tasks"' not in home.ok("logs")
        assert home.ok("logs", "--calls") == home.ok("logs", "--tools")
        assert home.ok("logs", "-n", "1").endswith("Both have counted.")
        assert home.lines("logs", "--jsonl")[0]["event"]["event"] == "Requested"
        assert home.ok("export").startswith("# Delegate <b>it</b>.")
        page = home.ok("export", "--format", "html")
        assert "<b>it" not in page and "&lt;b&gt;it" in page and "<script" not in page
        assert f"retinue {__version__}, {time.strftime('%Y-%m-%d')}<" in page
        trace = json.loads(home.ok("export", "--format", "perfetto"))["traceEvents"]
        assert len({e["pid"] for e in trace}) == 3 and all(
            e["dur"] > 0 for e in trace if e["ph"] == "X"
        )
        spans = home.ok("export", "--format", "otlp")
        assert spans.count('"name":"invoke_agent') == 3 and "Delegate" not in spans
        assert "Delegate" in home.ok("export", "--format", "otlp", "--content")
        refused = home.run("export", "--content")
        assert refused.returncode == 2 and "--content is for --format otlp" in refused.stderr
        items = home.lines("export", "--format", "jsonl")
        assert {i["is"] for i in items} == {"run", "step", "message", "state"}
        home.ok("export", "--format", "md", "-o", "run.md")
        assert (home.project / "run.md").read_text().startswith("# Delegate")
        assert home.lines("export", "--format", "stream-json")[-1]["type"] == "result"
        assert home.ok("replay").splitlines()[-1].startswith("✓ main ")


def test_logs_follow_a_run_to_its_end(tmp_path: Path) -> None:
    gate = Gate("The end.")
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        assert gate.reached.wait(SECONDS)
        following = home.start("logs", "-f")
        gate.opened.set()
        out, _ = following.communicate(timeout=SECONDS)
        assert "  you           a long task\n" in out and out.endswith("\n              The end.\n")


def test_logs_since_a_time_shows_only_newer_messages(tmp_path: Path) -> None:
    with private_home(tmp_path, Gate(call("think", thought="first"), "The end.", at=9)) as home:
        home.ok("run", "-p", "a long task")
        everything = home.ok("logs")
        assert "a long task" in everything and "think" in everything
        assert home.ok("logs", "--since", "1h") == everything
        home.ok("host", "stop")
        move_into_the_past(home.store, 7_200_000, until="The end.")
        recent = home.ok("logs", "--since", "1h")
        assert recent.startswith("4 ") and recent.endswith("The end."), (
            "messages keep their numbers"
        )
        assert "a long task" not in recent and "think" not in recent
        assert "a long task" in home.ok("logs", "--since", "3h")
        assert home.ok("logs", "--since", "3h", "-n", "1") == recent
        assert (
            0
            < len(home.lines("logs", "--since", "1h", "--jsonl"))
            < len(home.lines("logs", "--jsonl"))
        )


def move_into_the_past(store: Path, ms: int, until: str) -> None:
    """Every step before the one that has the text `until` is older by so much."""
    database = apsw.Connection(str(store))
    rows = list(database.execute("select seq, body from bodies order by seq"))
    last = next(seq for seq, body in rows if until in str(json.loads(body)))
    for seq, body in rows:
        if seq < last:
            entry = json.loads(body)
            entry["at"] -= ms
            new = json.dumps(entry).encode()
            database.execute("update bodies set body = ? where seq = ?", (new, seq))
    database.close()


def test_a_run_goes_on_forks_and_is_deleted(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: f"{len(request.messages)} messages") as home:
        home.ok("run", "-n", "first", "one")
        (first,) = home.runs()
        assert home.ok("resume", first["short"], "two") == "3 messages"
        assert home.ok("fork", first["short"], "--at", "1", "three") == "2 messages"
        assert home.ok("fork", first["short"], "four") == "3 messages"
        assert len(home.runs()) == 4
        assert home.run("rm", first["short"][:2] + "zz").returncode == 2
        home.ok("rm", "--ended")
        assert home.runs() == []


def test_an_open_run_is_not_deleted(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        id = home.ok("run", "--bg", "a long task")
        refused = home.run("rm", id)
        assert refused.returncode == 1 and "Cancel it first" in refused.stderr
        over = home.run("wait", id, "--timeout", "50ms")
        assert over.returncode == 5 and "still open" in over.stderr


def test_failed_sub_agents_can_be_tried_again(tmp_path: Path) -> None:
    def script(request: Any) -> Any:
        last = request.messages[-1].text
        if "were retried" in last:
            return f"With that: {last}"
        return call("submit_result", result="one!") if "Try again" in last else failing(request)

    with private_home(tmp_path, script) as home:
        home.ok("run", *FANOUT, "-n", "counting", "Delegate it.")
        result = home.run("resume", "counting", "--from-failed")
        assert result.returncode == 0 and result.stderr.count("Retrying") == 1
        assert "(completed): one!" in result.stdout
        refused = home.run("resume", "latest", "--from-failed")
        assert refused.returncode == 1 and "No sub-agent" in refused.stderr


def test_the_store_can_be_copied_while_it_is_in_use(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        home.ok("backup", str(tmp_path / "copy.db"))
        assert (
            home.lines("ps", "--jsonl", "--store", str(tmp_path / "copy.db"))[0]["task"]
            == "a long task"
        )
        again = home.run("backup", str(tmp_path / "copy.db"))
        assert again.returncode == 1 and "already exists" in again.stderr


def test_a_store_is_compacted_with_a_host_and_without(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: "x" * 30_000) as home:
        for n in range(12):
            home.ok("run", f"task {n}")
        home.ok("run", "the one that stays")
        home.ok("host", "stop")
        first = json.loads(home.ok("compact", "--json"))
        assert (
            first["freed"] == first["before"]["file"] - first["after"]["file"]
            and not first["is_old"]
        )
        full = first["after"]["file"]
        old_runs = [line["id"] for line in home.lines("ps", "--all", "--jsonl")][1:]
        home.ok("rm", *old_runs)
        result = home.run("compact")
        assert result.returncode == 0 and "freed in" in result.stdout + result.stderr
        home.ok("host", "stop")
        assert json.loads(home.ok("compact", "--json"))["after"]["file"] < 0.6 * full
        assert [line["task"] for line in home.lines("ps", "--all", "--jsonl")] == [
            "the one that stays"
        ]


def test_catalogues_can_be_listed(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path, OPENAI_API_KEY="k")
    models = home.ok("models", "list").splitlines()
    assert any(re.match(r"openai:gpt\S+ +OPENAI_API_KEY is set$", line) for line in models)
    assert max(map(len, models)) < 80 and models[0].startswith("anthropic:claude-")
    assert {f["family"] for f in json.loads(home.ok("families", "--json"))} == {
        "agent",
        "delegate",
        "fanout",
        "sessions",
        "subagent",
    }
    assert "delegate_tasks" in home.ok("families", "meepo")
    assert [t["name"] for t in json.loads(home.ok("tools", "list", "--json"))][:2] == [
        "read",
        "list",
    ]
    assert "(execute" in home.ok("tools", "show", "shell")
    (home.project / ".claude" / "agents").mkdir(parents=True)
    text = "---\nname: critic\ndescription: Criticises.\ntools: Read\n---\nBe harsh.\n"
    (home.project / ".claude" / "agents" / "critic.md").write_text(text)
    assert "critic" in home.ok("agents", "list") and "Be harsh." in home.ok(
        "agents", "show", "critic"
    )
    assert home.run("agents", "lint").returncode == 0
    assert "No announcements." in home.run("deliveries").stderr
    missing = home.run("deliveries", "retry", "nothing")
    assert missing.returncode == 2 and "No announcement has the key" in missing.stderr


def test_an_agent_of_a_file_can_be_run(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: request.system) as home:
        (home.project / ".claude" / "agents").mkdir(parents=True)
        text = "---\nname: critic\ndescription: Criticises.\ntools: Read\n---\nBe harsh.\n"
        (home.project / ".claude" / "agents" / "critic.md").write_text(text)
        assert "Be harsh." in home.ok("run", "--agent", "critic", "judge")
        assert home.runs()[0]["label"] == "critic"
        missing = home.run("run", "--agent", "nobody", "judge")
        assert missing.returncode == 2 and "Unknown agent 'nobody'" in missing.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_has_a_completion_script(tmp_path: Path, shell: str) -> None:
    assert "retinue" in PrivateHome(tmp_path).ok("completion", shell)


def test_runs_are_completed_with_their_task(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "count the files")
        (run,) = home.runs()
        env = {
            "_RETINUE_COMPLETE": "zsh_complete",
            "COMP_WORDS": "retinue show ",
            "COMP_CWORD": "2",
        }
        lines = home.real(env=env).stdout.splitlines()
        assert run["short"] in lines and any("count the files" in line for line in lines)
        env = {"_RETINUE_COMPLETE": "zsh_complete", "COMP_WORDS": "retinue ca", "COMP_CWORD": "1"}
        assert "cancel" in home.real(env=env).stdout.splitlines()


def test_an_address_that_means_several_runs_lists_them(tmp_path: Path) -> None:
    from retinue.host import project_paths
    from retinue.host.listing import RunListing

    with private_home(tmp_path) as home:
        for n in range(3):
            home.ok("run", f"task {n}")
        with RunListing(project_paths.find(home.env, cwd=str(home.project))) as shelf:
            with pytest.raises(NotFound, match=r"matches 3 runs: .*task 2.*task 0"):
                shelf.resolve("main")
            with pytest.raises(NotFound, match="matches 3 runs"):
                shelf.resolve(home.runs()[0]["id"][:4])
            assert shelf.resolve("latest").task == "task 2"
            assert shelf.resolve(shelf.resolve("latest").short).task == "task 2"
