"""A limit that asks, on the command line: the run is parked, says so, and goes on when somebody has
decided."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import PrivateHome, is_alive, private_home

SMALL = ("--max-tokens", "1000", "--on-limit", "ask")
"""Less than one turn of any agent that has tools."""


def park(home: PrivateHome, *flags: str) -> dict[str, Any]:
    """A run that nobody is there to answer for, at its limit; returns its line of `ps`."""
    result = home.run("run", "-p", *SMALL, *flags, "Go.")
    assert result.returncode == 4, result.stderr
    assert result.stdout == "" and "of 1,000 tokens spent; one more turn may need" in result.stderr
    (row,) = home.lines("ps", "--jsonl")
    assert (
        f"retinue budget {row['short']} --add-tokens" in result.stderr
        and "--land, or --end" in result.stderr
    )
    return dict(row)


def test_a_run_parks_at_its_limit_and_goes_on_when_it_is_raised(tmp_path: Path) -> None:
    with private_home(tmp_path, ["Here I am."]) as home:
        row = park(home)
        assert (row["state"], row["limit_of"], row["waits_kind"]) == (
            "needs_input",
            row["id"],
            "tokens",
        )
        listed, output = home.ok("ps"), home.ok("show")
        for text in (listed, output):
            assert (
                "needs you" in text
                and f"retinue budget {row['short']} --add-tokens {row['more']}" in text
            )
        looked = home.ok("budget")
        assert "wait and ask you" in looked and "1,000" in looked and "asks" in looked
        assert json.loads(
            home.ok("budget", row["short"], "--add-tokens", str(row["more"]), "--json")
        )["limit"]
        home.ok("wait", row["short"])
        assert "Here I am." in home.ok("show")
        after = json.loads(home.ok("budget", "--json"))
        assert (
            after["limit"]["tokens"] == 1_000 + row["more"]
            and after["spent"]["tokens"] > 0
            and after["asks"] == []
        )


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_it_survives_its_host_and_a_raise_starts_the_next(end: str, tmp_path: Path) -> None:
    with private_home(tmp_path, ["Back."]) as home:
        row = park(home)
        pid = home.host_pid()
        if end == "kill":
            os.kill(pid, signal.SIGKILL)
            home.until(lambda: not is_alive(pid))
        else:
            home.ok("host", "stop")
        (paused,) = home.lines("ps", "--jsonl")
        assert paused["state"] == "paused" and paused["limit_of"] == row["id"]
        assert f"retinue budget {row['short']}" in home.ok("ps") and "asks" in home.ok("budget")
        result = home.run("budget", row["short"], "--add-tokens", "1000000")
        assert result.returncode == 0 and "may now spend 1,001,000 tokens in total" in result.stderr
        home.ok("wait", row["short"])
        assert "Back." in home.ok("show") and home.host_pid() != pid


def test_a_raise_outlives_a_host_that_is_killed_right_after_it(tmp_path: Path) -> None:
    with private_home(tmp_path, ["Never mind."]) as home:
        row = park(home)
        result = home.run("budget", row["short"], "--add-tokens", "7")
        assert "is still waiting" in result.stderr
        os.kill(home.host_pid(), signal.SIGKILL)
        assert "1,007" in home.ok("budget")
        home.ok("budget", row["short"], "--add-tokens", "1")
        assert json.loads(home.ok("budget", "--json"))["limit"]["tokens"] == 1_008


def test_it_can_be_let_land_and_can_be_ended(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        first = park(home)
        assert "one last turn" in home.run("budget", "--land").stderr
        assert "failed" in home.run("wait", first["short"]).stderr
        assert home.run("run", "-p", *SMALL, "Go.").returncode == 4
        result = home.run("budget", "--end")
        assert result.returncode == 0 and "cancelled" in result.stderr
        assert home.run("budget", "--add-tokens", "5").returncode == 1


def test_approve_lists_it_and_a_yes_adds_what_is_suggested(tmp_path: Path) -> None:
    with private_home(tmp_path, ["Here I am."]) as home:
        row = park(home)
        listed = home.ok("approve")
        (value,) = json.loads(home.ok("approve", "--json"))
        assert (value["kind"], value["run"], value["limit"]) == ("budget", row["id"], "tokens")
        assert (
            f"y adds {row['more']:,} tokens, no lets the run finish" in listed
            and value["id"][:8] in listed
        )
        result = home.run("approve", row["short"])
        assert result.returncode == 1 and "Nothing was added" in result.stderr, (
            "a yes needs the id, or a terminal"
        )
        result = home.run("approve", row["short"], "500", "--question", value["id"])
        assert result.returncode == 2 and "retinue budget" in result.stderr
        assert (
            "added:" in home.run("approve", row["short"], "y", "--question", value["id"][:8]).stderr
        )
        home.ok("wait", row["short"])
        assert home.run("approve", row["short"], "y", "--question", value["id"]).returncode == 1


def test_no_lets_it_land(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        row = park(home)
        assert "allowed to finish:" in home.run("approve", row["short"], "no").stderr
        assert "failed" in home.run("wait", row["short"]).stderr


@pytest.mark.parametrize(
    ("arguments", "why", "code"),
    [
        (("--add-usd", "1"), "It has no limit of usd of its own.", 1),
        (("--add-seconds", "10m"), "no deadline to move", 1),
        (("--add-tokens", "-5"), "can be raised, not lowered", 2),
        (("--end", "--add-tokens", "5"), "cannot be combined", 2),
        (("nobody",), "Run 'nobody' not found", 2),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    arguments: tuple[str, ...], why: str, code: int, tmp_path: Path
) -> None:
    with private_home(tmp_path) as home:
        park(home)
        result = home.run("budget", *arguments)
        assert (
            result.returncode == code
            and why in result.stderr
            and len(result.stderr.splitlines()) == 1
        )
        assert json.loads(home.ok("budget", "--json"))["limit"]["tokens"] == 1_000


def test_the_sub_agents_of_a_run_wait_and_are_one_question(tmp_path: Path) -> None:
    def script(request: Any) -> Any:
        if not request.messages[0].text.startswith("Lead"):
            return call("submit_result", result="A part.")
        if any(getattr(m, "call_id", "") for m in request.messages):
            return "All parts are here."
        return call(
            "spawn_agents", tasks=[{"task": f"part {n}", "max_turns": 10} for n in range(4)]
        )

    with private_home(tmp_path, script) as home:
        result = home.run(
            "run",
            "-p",
            "--family",
            "fanout",
            "--max-tokens",
            "45000",
            "--on-limit",
            "ask",
            "Lead them.",
        )
        assert result.returncode == 4, (result.stdout, result.stderr)
        rows = {row["id"]: row for row in home.runs()}
        (top,) = [row for row in rows.values() if not row["parent"]]
        waiting = [row for row in rows.values() if row["limit_of"]]
        assert waiting and {row["limit_of"] for row in waiting} == {top["id"]}
        assert (
            len(json.loads(home.ok("approve", "--json"))) == 1 and home.ok("ps").count("asks:") == 1
        )
        child = next(row for row in rows.values() if row["parent"])
        assert f"draws from main {top['short']}" in home.ok("budget", child["short"])
        home.ok("budget", top["short"], "--add-tokens", "5000000")
        home.ok("wait", top["short"])
        assert "All parts are here." in home.ok("show")


def test_stream_json_tells_what_is_asked(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        result = home.run("run", *SMALL, "--output-format", "stream-json", "Go.")
        assert result.returncode == 4
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        (question,) = [line for line in lines if line.get("subtype") == "needs_input"]
        assert (
            "one more turn may need" in question["question"]
            and question["limit_of"] == question["agent_id"]
        )


def test_what_happens_at_a_limit_can_be_configured(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        folder = home.folder / "config" / "retinue"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text('[limits]\nmax_tokens = 1000\non_limit = "ask"\n')
        assert home.run("run", "-p", "Go.").returncode == 4
        assert home.run("run", "-p", "--on-limit", "land", "Go.").returncode == 5
        assert home.run("run", "-p", "Go.", env={"RETINUE_ON_LIMIT": "stop"}).returncode == 5
        result = home.run("run", "-p", "--no-session-persistence", "Go.")
        assert result.returncode == 2 and "needs a stored run or a terminal" in result.stderr
