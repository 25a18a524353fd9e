"""Wrong uses and broken machines: each gets one clear line, what to do, and its exit code; nothing
is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from retinue.core.messages import AssistantMessage, ToolCall
from retinue.testing import call
from tests.cli.private_home import SECONDS, Gate, PrivateHome, private_home, whole
from tests.needs import needs


def one_line(result: Any, code: int, *words: str) -> str:
    """What every failure has to look like; the line that it is told in."""
    assert result.returncode == code, result
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("retinue: ") and all(word in last for word in words), result.stderr
    return last


def confined(
    home: PrivateHome, *options: str, command: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """A command in a file system of its own, with nothing left of it afterwards."""
    bwrap = [
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--unshare-pid",
        "--die-with-parent",
        "--proc",
        "/proc",
        *options,
    ]
    return subprocess.run(
        [*bwrap, sys.executable, "-m", "retinue", *command],
        cwd=home.project,
        env=home.env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@needs("bwrap")
@pytest.mark.parametrize("name", ["data", "state", "run"])
def test_a_folder_that_can_only_be_read_is_named(tmp_path: Path, name: str) -> None:
    home = PrivateHome(tmp_path)
    folder = str(tmp_path / name)
    process = confined(home, "--ro-bind", folder, folder, command=("run", "map"))
    assert "Read-only file system" in one_line(process, 1, folder)


@needs("bwrap")
@pytest.mark.parametrize(("size", "words"), [("4096", "Free some"), ("40960", "Free some")])
def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path, size: str, words: str) -> None:
    home = PrivateHome(tmp_path)
    data = str(tmp_path / "data")
    process = confined(
        home, "--size", size, "--tmpfs", data, command=("run", "--timeout", "20s", "map")
    )
    assert words in one_line(process, 1, "retinue.db")


def test_without_a_home_the_home_of_the_user_is_meant(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        home.env.pop(name)
    assert home.real("run", "map").returncode == 0
    assert home.real("ps").returncode == 0


def test_a_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    path = tmp_path / "gone"
    for command in ("ps", "run x", ""):
        path.mkdir()
        text = f'rmdir "{path}" && exec "{sys.executable}" -m retinue {command}'
        process = subprocess.run(
            ["sh", "-c", text],
            cwd=path,
            env=home.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if command:
            one_line(process, 2, "directory", "no longer exists")
        else:
            assert process.returncode == 0, process


def test_a_store_that_another_program_holds_is_told_with_its_process(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "hello")
        home.ok("host", "stop")
        code = (
            "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, 2); print(1, "
            "flush=True); input()"
        )
        lock = f"{home.store}.lock"
        holder = subprocess.Popen(
            [sys.executable, "-c", code, lock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None and holder.stdout.readline()
            one_line(home.run("run", "x", env={"RETINUE_START_SECONDS": "2"}), 1, "retinue.db")
            assert home.runs()[0]["state"] == "completed"
        finally:
            holder.communicate("")


def test_a_host_that_is_killed_between_commands_is_replaced(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "hello", env={"RETINUE_IDLE_SECONDS": "60"})
        os.kill(home.host_pid(), signal.SIGKILL)
        assert home.ok("run", "again") == "Done."
        assert [r["state"] for r in home.runs()] == ["completed"] * 2


@pytest.mark.parametrize("text", ["", "{", '{"lead": 1}', "{}"])
def test_a_damaged_plan_is_named_and_only_its_runs_wait(tmp_path: Path, text: str) -> None:
    gate = Gate(call("artifact", id="0" * 64), "Done.", at=1)
    with private_home(tmp_path, gate) as home:
        id = home.ok("run", "--bg", "a long task")
        assert gate.reached.wait(SECONDS)
        os.kill(home.host_pid(), signal.SIGKILL)
        (plan,) = Path(f"{home.store}.plans").iterdir()
        whole = plan.read_text()
        plan.write_text(text)
        gate.opened.set()
        assert home.ok("run", "--family", "none", "another") == "Done."
        for command in ("resume", "attach", "wait"):
            one_line(home.run(command, id), 2, "plan", plan.name)
        plan.write_text(whole)
        assert home.ok("attach", id) == "Done."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "\udcff"), "Run '\\udcff' not found"),
        (("run", "--model", "m\udcff", "x"), "m\\udcff"),
        (("run", "-n", "\udcff", "x"), "not valid UTF-8"),
    ],
)
def test_arguments_that_are_no_text_are_told(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in one_line(PrivateHome(tmp_path).real(*arguments), 2)


def test_a_reader_that_wants_one_line_gets_it_and_nothing_is_said(tmp_path: Path) -> None:
    with private_home(tmp_path, [whole("line\n" * 50_000)]) as home:
        home.ok("run", "hello")
        for command in (
            "show",
            "logs latest",
            "export latest --format md",
            "ps --all",
            "replay latest --speed 1000",
        ):
            text = f'"{sys.executable}" -m retinue {command} | head -1'
            process = subprocess.run(
                ["sh", "-c", text],
                cwd=home.project,
                env=home.env,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
            assert (
                process.stdout.count("\n") == 1
                and "Traceback" not in process.stderr
                and "Internal error" not in process.stderr
            )


def test_two_formats_of_input_and_output_go_together(tmp_path: Path) -> None:
    with private_home(tmp_path, lambda request: request.messages[-1].text.upper()) as home:
        line = json.dumps(
            {
                "type": "user",
                "message": {"role": "user", "content": [{"type": "text", "text": "one"}]},
            }
        )
        assert home.ok("run", "--input-format", "stream-json", input=line + "\n") == "ONE"
        one_line(
            home.run("run", "--input-format", "stream-json", input="nonsense\n"),
            2,
            "Line 1 of stdin",
        )
        one_line(home.run("run", "--input-format", "stream-json", input=""), 2, "No message")
        one_line(home.run("run", "--input-format", "stream-json", "x", input=""), 2, "stdin")
        assert home.run("run", "-p", "--color", "always", "hello").stdout == "HELLO\n"


def test_a_run_that_waits_for_a_person_is_told_by_wait(tmp_path: Path) -> None:
    with private_home(tmp_path, [call("write", path="x", content=""), "Done."]) as home:
        id = home.ok("run", "--bg", "write it")
        home.until(lambda: home.runs()[0]["state"] == "needs_input")
        waited = home.run("wait", id, "--timeout", "50ms")
        assert waited.returncode == 4 and f"retinue approve {id}" in waited.stderr
        text = home.ok("tools", "explain", "Write", "--run", id, "--args", '{"path": "x"}')
        assert "manual" in text
        one_line(home.run("approve", id, "perhaps"), 2, "Answer y, always or no")
        home.ok("approve", id, "no", "not", "there")
        home.ok("wait", id)
        assert not (home.project / "x").exists()
        one_line(home.run("tools", "explain", "write", "--run", id), 1, "has ended")


def test_a_tool_that_is_not_known_makes_no_rule(tmp_path: Path) -> None:
    assert "Unknown tool 'Bsh'" in one_line(
        PrivateHome(tmp_path).run("run", "--disallowed-tools", "Bsh", "x"), 2
    )


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "hello")
        home.ok("host", "stop")
        with contextlib.closing(apsw.Connection(str(home.store))) as db:
            db.execute("update runs set body = '{'")
        assert "retinue.db is damaged" in one_line(home.run("ps", "--all"), 1, "retinue doctor")


@pytest.mark.parametrize("depth", [400, 900, 1500, 50_000])
def test_arguments_that_are_nested_without_end_break_no_command(tmp_path: Path, depth: int) -> None:
    deep = '{"command":' + "[" * depth + '"x"' + "]" * depth + "}"
    script = [
        AssistantMessage(calls=(ToolCall(id="c1", name="shell", arguments_json=deep),)),
        "Done.",
    ]
    with private_home(tmp_path, lambda request: script[min(request.turn, 1)]) as home:
        for options in ((), ("--output-format", "stream-json")):
            result = home.run("run", *options, "Go.")
            assert result.returncode == 0 and "Done." in result.stdout, result.stderr[-2000:]
        for words in (
            ["show"],
            ["logs", "--tools"],
            ["export", "--format", "stream-json"],
            ["export"],
            ["approve"],
        ):
            result = home.run(*words)
            assert (
                "RecursionError" not in result.stderr and "Internal error" not in result.stderr
            ), (
                words,
                result.stderr[-2000:],
            )
