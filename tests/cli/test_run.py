"""`retinue run`: prompts, answers, formats, limits and exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import SECONDS, Gate, PrivateHome, private_home, whole

TWO = [{"task": "count to one"}, {"task": "count to two"}]
FANOUT = ("--family", "fanout")


def lead(request: Any) -> Any:
    """Hands two tasks to sub-agents, then sums up; they answer at once."""
    if "Delegate" not in request.messages[0].text:
        return call("submit_result", result="counted")
    is_done = any(type(m).__name__ == "ToolMessage" for m in request.messages)
    return "Both have counted." if is_done else call("spawn_agents", tasks=TWO)


def failing(request: Any) -> Any:
    if "count to one" in request.messages[0].text:
        return call("submit_error", error="cannot count")
    return lead(request)


def test_the_answer_is_all_that_is_written_to_stdout(tmp_path: Path) -> None:
    with private_home(tmp_path, ["The answer."]) as home:
        result = home.real("run", "what", "is", "it")
        assert (result.returncode, result.stdout) == (0, "The answer.\n")
        first, *_, last = result.stderr.splitlines()
        assert "openai-chat:scripted (RETINUE_MODEL)" in first
        assert last.startswith("  cost    n/a: no price known for ")
        (end,) = [line for line in result.stderr.splitlines() if line.startswith("✓ done in ")]
        assert "retinue show " in end and "n/a" not in end, "costs have a line of their own"


def test_nothing_is_said_when_quiet_is_asked_for(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        assert home.run("run", "-q", "hello").stderr == ""


def test_a_prompt_can_come_from_stdin_or_from_both(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: request.messages[-1].text.upper()) as home:
        assert home.ok("run", "-", input="from a pipe\n") == "FROM A PIPE"
        assert home.ok("run", input="from a pipe") == "FROM A PIPE"
        assert home.ok("run", "sum up:", "-", input="a text") == "SUM UP:\n\nA TEXT"
        assert (
            "no prompt" in home.run("run", "--", "").stderr or home.run("run", " ").returncode == 2
        )


def test_json_is_one_object_in_the_shape_of_a_result(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        (line,) = home.lines("run", "--output-format", "json", *FANOUT, "Delegate it.")
        assert line["type"] == "result" and line["subtype"] == "success" and not line["is_error"]
        assert line["result"] == "Both have counted." and line["num_turns"] == 2
        assert line["subagent_stats"]["spawned"] == line["subagent_stats"]["completed"] == 2
        assert (
            line["usage"]["output_tokens"] > 0
            and line["modelUsage"]["scripted"]["inputTokens"] >= 0
        )
        assert line["permission_denials"] == [] and line["terminal_reason"] == "done"


def test_who_never_returned_is_told_beside_the_answer(tmp_path: Path) -> None:
    line = '1 of 2 sub-agents never returned: "count to one" (failed: sub_agent_error)'
    with private_home(tmp_path, failing) as home:
        result = home.run("run", *FANOUT, "Delegate it.")
        assert (result.returncode, result.stdout) == (0, "Both have counted.\n")
        assert f"! {line}" in result.stderr.splitlines()
        text = home.lines("run", "--json", *FANOUT, "Delegate it.")[-1]
        assert text["missing"] == line
        assert (text["helpers"]["n_started"], text["helpers"]["n_lost"]) == (2, 1)
        assert text["helpers"]["lost"][0]["state"] == "failed"
        assert f"missing  {line}" in home.ok("show").splitlines()
        assert home.lines("show", "--json")[0]["agents"][0]["missing"] == line
        assert f"missing: {line}" in home.ok("export", "--format", "md").splitlines()


def test_stream_json_tells_of_everybody_and_ends_with_the_result(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        lines = home.lines("run", "--json", *FANOUT, "Delegate it.")
        kinds = [(line["type"], line.get("subtype")) for line in lines]
        assert kinds[0] == ("system", "init") and kinds[-1] == ("result", "success")
        assert (
            kinds.count(("system", "task_started"))
            == kinds.count(("system", "task_notification"))
            == 2
        )
        root = lines[0]["agent_id"]
        children = {line["agent_id"] for line in lines} - {root}
        assert len(children) == 2
        delegating = next(
            c for line in lines if line["type"] == "assistant" for c in line["message"]["content"]
        )
        for line in lines:
            assert {
                "agent_id",
                "parent_agent_id",
                "depth",
                "seq",
                "ts",
                "session_id",
            } <= line.keys()
            assert line["session_id"] == root
            if line["agent_id"] in children:
                assert (line["parent_agent_id"], line["depth"]) == (root, 1)
                assert line.get("parent_tool_use_id", delegating["id"]) == delegating["id"]
        results = [
            c for line in lines if line["type"] == "user" for c in line["message"]["content"]
        ]
        assert any(
            c.get("tool_use_id") == delegating["id"] and "counted" in c["content"] for c in results
        )
        assert sum(line["type"] == "assistant" for line in lines) == 4
        assert [x["status"] for x in lines if x.get("subtype") == "task_notification"] == [
            "completed"
        ] * 2
        seqs = [line["seq"] for line in lines]
        assert seqs == sorted(seqs)
        again = home.lines("replay", "latest", "--output-format", "stream-json")
        assert sorted(_said(lines)) == sorted(_said(again))


def _said(lines: list[Any]) -> list[str]:
    return [
        json.dumps([x["agent_id"], x["message"]])
        for x in lines
        if x["type"] in ("assistant", "user")
    ]


def test_text_as_it_comes_is_told_when_asked_for(tmp_path: Path) -> None:
    with private_home(
        tmp_path, ["A long answer in several pieces."], chunks=4, seconds=0.5
    ) as home:
        lines = home.lines("run", "--json", "--include-partial-messages", "hello")
        text = "".join(x["event"]["delta"]["text"] for x in lines if x["type"] == "stream_event")
        assert text == "A long answer in several pieces."


def test_a_slow_reader_gets_every_byte_and_no_colour(tmp_path: Path) -> None:
    long = "x\x1b[31m" * 60_000
    with private_home(tmp_path, [whole(long)]) as home:
        process = home.start("run", "--json", "hello")
        assert process.stdout is not None and process.stderr is not None
        home.until(lambda: [r for r in home.runs() if r["state"] == "completed"])
        text = process.stdout.read()
        process.wait(SECONDS)
        process.stderr.close()
        process.stdout.close()
        lines = [json.loads(line) for line in text.splitlines()]
        assert lines[-1]["type"] == "result" and lines[-1]["result"].startswith("x\x1b[31m")
        assert "\x1b" not in text


def test_a_reader_that_goes_away_ends_the_run(tmp_path: Path) -> None:
    gate = Gate(call("artifact", id="0" * 64), "Done.", at=1)
    with private_home(tmp_path, gate) as home:
        process = home.start("run", "--json", "hello")
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(SECONDS) == 1
        assert "Traceback" not in process.stderr.read()
        process.stderr.close()
        home.until(lambda: home.runs()[0]["state"] == "cancelled")


def test_the_answer_is_also_written_to_files(tmp_path: Path) -> None:
    with private_home(tmp_path, ["# Report"]) as home:
        home.ok("run", "-o", "last.md", "--write", "docs/ARCHITECTURE.md", "map it")
        assert (home.project / "last.md").read_text() == "# Report\n"
        assert (home.project / "docs" / "ARCHITECTURE.md").read_text() == "# Report\n"


def test_a_result_can_be_asked_for_in_a_schema(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    with private_home(tmp_path, [call("submit_result", result={"n": 7}), "?"]) as home:
        (home.project / "schema.json").write_text(json.dumps(schema))
        (line,) = home.lines(
            "run", "--output-format", "json", "--output-schema", "schema.json", "how many?"
        )
        assert line["structured_output"] == {"n": 7}
        assert "schema" in home.run("run", "--output-schema", "missing.json", "x").stderr


def test_a_conversation_can_come_line_by_line(tmp_path: Path) -> None:
    with private_home(
        tmp_path,
        lambda request: (
            f"heard {sum(m.__class__.__name__ == 'UserMessage' for m in request.messages)}"
        ),
    ) as home:
        lines = [
            {"type": "user", "message": {"role": "user", "content": text}}
            for text in ("one", "two")
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        texts = home.lines("run", "--input-format", "stream-json", "--json", input=text)
        assert [x["result"] for x in texts if x["type"] == "result"] == ["heard 1", "heard 2"]


def test_a_run_can_be_continued_forked_and_named(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: f"{len(request.messages)} messages") as home:
        assert home.ok("run", "-n", "first", "hello") == "1 messages"
        (first,) = home.runs()
        assert home.ok("run", "-c", "and now?") == "3 messages"
        assert home.ok("run", "-r", first["short"], "--fork-session", "otherwise?") == "3 messages"
        again = home.run("run", "-r", first["id"], "again?")
        assert again.returncode == 1 and "already resumed" in again.stderr


def test_nothing_is_kept_of_a_run_in_memory(tmp_path: Path) -> None:
    with private_home(tmp_path, lead) as home:
        assert (
            home.ok("run", "--no-session-persistence", *FANOUT, "Delegate it.")
            == "Both have counted."
        )
        assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    "number, code, who", [(signal.SIGINT, 130, "you"), (signal.SIGTERM, 143, "the system: SIGTERM")]
)
def test_a_signal_cancels_the_run_and_keeps_what_there_is(
    number: int, code: int, who: str, tmp_path: Path
) -> None:
    gate = Gate(call("artifact", id="0" * 64), "Done.", at=1)
    with private_home(tmp_path, gate) as home:
        process = home.start("run", "a long task")
        assert gate.reached.wait(SECONDS)
        until_watched(process)
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == code
        assert f"⊘ cancelled by {who} ·" in err and f"exit {code}" in err
        assert "Traceback" not in err
        assert home.runs()[0]["state"] == "cancelled"
        home.until(lambda: not home.llm.open)


def until_watched(process: subprocess.Popen[str]) -> None:
    """Until it has told of the run: before that, a signal ends the command and not the run."""
    assert process.stderr is not None
    while not re.match(r"\d\d:\d\d run ", process.stderr.readline()):
        assert process.poll() is None


def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        process = home.start("run", "a long task")
        assert gate.reached.wait(SECONDS)
        until_watched(process)
        os.kill(home.host_pid(), signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            while "Stopping" not in process.stderr.readline():
                pass
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=SECONDS)
        finally:
            os.kill(home.host_pid(), signal.SIGCONT)
        assert process.returncode == 130 and "retinue attach" in err


def test_sigterm_cancels_and_exits_with_143(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        process = home.start("run", "a long task")
        assert gate.reached.wait(SECONDS)
        until_watched(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
        assert process.returncode == 143
        assert home.runs()[0]["state"] == "cancelled"


@pytest.mark.parametrize(
    ("script", "flags", "code"),
    [
        (["fine"], ("--strict",), 0),
        ([call("artifact", id="0" * 64)], ("--max-turns", "2"), 5),
        ([call("artifact", id="0" * 64)], ("--max-tokens", "3000"), 5),
    ],
)
def test_a_run_exits_with_the_code_of_its_end(
    tmp_path: Path, script: Any, flags: tuple[str, ...], code: int
) -> None:
    with private_home(tmp_path, script) as home:
        assert home.run("run", *flags, "go").returncode == code


def test_a_time_limit_exits_with_5(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        result = home.run("run", "--timeout", "300ms", "go")
        assert result.returncode == 5 and "◐ stopped at limit: time after " in result.stderr
        assert re.search(r"stopped at limit.* exit 5$", result.stderr, re.MULTILINE)


def test_a_failed_sub_agent_exits_with_3_when_strict(tmp_path: Path) -> None:
    with private_home(tmp_path, failing) as home:
        strict = home.run("run", *FANOUT, "--strict", "Delegate it.")
        assert (strict.returncode, "3 agents: 2 done, 1 failed" in strict.stderr) == (3, True), (
            strict
        )
        assert home.run("run", *FANOUT, "Delegate it.").returncode == 0


def test_bytes_that_are_no_text_do_not_stop_a_run(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: request.messages[-1].text) as home:
        assert home.ok("run", "bad \udcff byte") == "bad \N{REPLACEMENT CHARACTER} byte"
        named = home.run("run", "-n", "\udcff", "x")
        assert named.returncode == 2 and "not valid UTF-8" in named.stderr


def test_without_a_command_the_commands_are_listed(tmp_path: Path) -> None:
    assert "Start and continue:" in PrivateHome(tmp_path).ok()


@pytest.mark.parametrize(("text", "words"), [(b"\n", "# project"), (b"n\n", "Start and continue:")])
def test_without_a_command_a_terminal_in_a_source_tree_is_offered_the_map(
    tmp_path: Path, text: bytes, words: str
) -> None:
    home = PrivateHome(tmp_path)
    (home.project / "app.py").write_text("def main(): ...\n")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "retinue"],
        cwd=home.project,
        env={**home.env, "TERM": "dumb"},
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    try:
        bytes_asked = b""
        while b"[Y/n] " not in bytes_asked:
            bytes_asked += os.read(ours, 4096)
        assert b"no model, no cost" in bytes_asked and b"Map this repository now?" in bytes_asked
        os.write(ours, text)
        out, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0 and words in out
    finally:
        os.close(ours)
        home.close()


WRONG = [
    (("run", "--model", "nosuch", "x"), 2, "Unknown model 'nosuch'. Use PROVIDER:MODEL"),
    (("run", "--model", "opnai:gpt", "x"), 2, "Did you mean 'openai'"),
    (("run", "--model", "anthropic:claude-x", "x"), 6, "Set ANTHROPIC_API_KEY"),
    (("run", "--permission-mode", "wild", "x"), 2, "Unknown permission mode: 'wild'"),
    (("run", "--family", "fanuot", "x"), 2, "Did you mean 'fanout'"),
    (("run", "--timeout", "soon", "x"), 2, "not a duration"),
    (("run", "--max-turns", "0", "x"), 2, "The turn limit must be 1 or more, not 0."),
    (("run", "--max-budget-usd", "-1", "x"), 2, "Budget.usd"),
    (("run", "--output-schema", "{bad", "x"), 2, "not valid JSON"),
    (("run", "--fork-session", "x"), 2, "--continue"),
    (("run", "--agents", "[]", "x"), 2, "--agents"),
    (("run", "--cwd", "missing", "x"), 2, "not found. Check --cwd."),
    (("run", "--nosuch"), 2, "--nosuch"),
    (("runn", "x"), 2, "Did you mean 'run'"),
    (("show", "abcdef"), 2, "Run 'abcdef' not found"),
    (("logs", "nobody"), 2, "Run 'nobody' not found"),
    (("artifact", "0" * 64), 2, "there are no artifacts"),
    (("cancel",), 2, "--all"),
    (("families", "nosuch"), 2, "Unknown family or profile"),
    (("tools", "show", "nosuch"), 2, "Unknown tool 'nosuch'"),
    (("models", "pull", "nosuch"), 2, "nosuch"),
    (("backup", "copy.db"), 2, "nothing to copy"),
    (("completion", "tcsh"), 2, "tcsh"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "words"), WRONG, ids=lambda v: " ".join(v) if type(v) is tuple else None
)
def test_wrong_use_gets_one_line_and_a_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    run = PrivateHome(tmp_path).run(*arguments)
    assert (run.returncode, run.stdout) == (code, "")
    (line,) = run.stderr.splitlines()
    assert line.startswith("retinue: ") and words in line


def test_a_folder_that_cannot_be_written_gets_one_line(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.env["XDG_DATA_HOME"] = "/proc/nowhere"
        result = home.run("run", "x")
        assert result.returncode == 1
        (line,) = result.stderr.splitlines()
        assert line.startswith("retinue: /proc/nowhere")


def test_a_damaged_store_gets_one_line(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        store = tmp_path / "bad.db"
        store.write_bytes(b"this is no database" * 500)
        for command in (("run", "x"), ("ps",), ("show", "x")):
            result = home.run(*command, "--store", str(store))
            assert result.returncode in (1, 2), (command, result)
            (line,) = result.stderr.splitlines()
            assert line.startswith("retinue: ") and "bad.db" in line, command


def test_a_provider_that_refuses_the_key_exits_with_6(tmp_path: Path) -> None:
    with private_home(tmp_path, ["fine"], faults=lambda request, n: "F10") as home:
        result = home.run("run", "x")
        assert result.returncode == 6, result.stderr
        assert "Traceback" not in result.stderr


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    process = PrivateHome(tmp_path).real("show", "abcdef", env={"RETINUE_DEBUG": "1"})
    assert isinstance(process, subprocess.CompletedProcess)
    assert "Traceback" in process.stderr and process.returncode == 2
