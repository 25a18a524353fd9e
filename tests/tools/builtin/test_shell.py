"""The shell tool in the foreground: what it answers, what it refuses, and what a restart finds."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from retinue.core.restarts import UNKNOWN
from retinue.core.values import Permissions
from retinue.sandbox.bwrap import find_sandbox
from retinue.tools.base import ToolResult
from retinue.tools.builtin.command_record import plain
from retinue.tools.builtin.run_processes import Processes
from retinue.tools.builtin.shell import ShellTool
from tests.needs import needs
from tests.sandbox.bwrap_world import (
    SandboxedTools,
    processes_with,
    wait_until,
    with_sandboxed_tools,
)

pytestmark = needs("bwrap")


def sh(folder: Path, command: str, **args: Any) -> ToolResult:
    return with_sandboxed_tools(folder, lambda tools: tools.sh(command, **args))


async def begun(tools: SandboxedTools) -> None:
    assert await asyncio.to_thread(wait_until, (tools.workspace / "begun").exists)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_the_answer_has_the_exit_code_the_time_and_the_output(tmp_path: Path) -> None:
    answer = sh(tmp_path, "echo out; echo err >&2; pwd")
    first, rest = answer.text.split("\n", 1)
    assert first.startswith("exit code 0 after 0.") and first.endswith("s.")
    assert rest == f"out\nerr\n{tmp_path}/workspace\n"
    assert not answer.error


def test_a_failed_command_is_an_error_with_its_output(tmp_path: Path) -> None:
    answer = sh(tmp_path, "echo no such luck; exit 3")
    assert answer.error
    assert answer.text.startswith("exit code 3 after") and "no such luck" in answer.text


def test_the_time_limit_kills_and_shows_what_there_was(tmp_path: Path) -> None:
    answer = sh(tmp_path, "echo begun; sleep 600", timeout_seconds=1)
    assert answer.error
    assert "it took longer than 1 s" in answer.text and "begun" in answer.text


def test_a_long_output_has_head_and_tail_and_the_middle_can_be_read(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> tuple[str, str]:
        caller = tools.caller()
        first = await tools.sh("seq 1 100000", caller)
        record = tools.processes.record(caller.key)
        page = await tools.output.run(tools.caller(), {"id": record.id, "offset": 32768})
        assert isinstance(page, ToolResult)
        return first.text, page.text

    text, page = with_sandboxed_tools(tmp_path, act)
    assert len(text) < 70_000
    assert "\n1\n2\n" in text and text.endswith("99999\n100000\n")
    assert "[truncated: 523359 of 588895 bytes hidden; continue with shell_output, id '" in text
    assert "offset 32768]" in text
    assert "\n6776\n" in page and "continue with offset 98304]" in page


def test_broken_characters_and_escapes_do_not_get_through(tmp_path: Path) -> None:
    answer = sh(
        tmp_path,
        r"printf '\033[31mred\033[0m \377\376 \033]0;title\007ok\n10%%\r50%%\r100%%\nnul\000l\n'",
    )
    assert answer.text.split("\n", 1)[1] == "red �� ok\n100%\nnull\n"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b[2J\x1b[Hx", "x"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b", ""),
        (b"\x1b[", ""),
        (b"a\tb\x08\x07c", "a\tbc"),
        (b"cut\x1b]0;title\x07 off", "cut off"),
        (b"cut\x1b]0;never ends", "cut0;never ends"),
    ],
)
def test_what_a_terminal_would_not_show_is_removed(raw: bytes, text: str) -> None:
    assert plain(raw) == text


@pytest.mark.parametrize("command", ["yes", "cat /dev/urandom", "head -c 10G /dev/zero"])
def test_a_flood_of_output_is_capped_and_memory_stays(tmp_path: Path, command: str) -> None:
    """A29."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = sh(tmp_path, command, timeout_seconds=8)
    assert answer.error
    assert "killed after" in answer.text and "bytes hidden" in answer.text
    assert len(answer.text) < 300_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    sizes = [p.stat().st_size for p in (tmp_path / "state/shell").glob("*/output")]
    assert sizes == [16 << 20]


def test_no_secret_is_in_the_environment_and_named_ones_are(tmp_path: Path) -> None:
    """A25."""
    environ = {
        **os.environ,
        "PGPASSWORD": "canary-1",
        "DATABASE_URL": "canary-2",
        "TOKEN": "canary-3",
    }

    async def act(tools: SandboxedTools) -> tuple[str, str]:
        script = "env; cat /proc/*/environ; ps e 2>/dev/null; cat ~/.aws/credentials"
        all_of_it = await tools.sh(script)
        named = await tools.sh(
            "echo $TOKEN $PGPASSWORD", tools.caller(permissions=Permissions(env=("TOKEN",)))
        )
        return all_of_it.text, named.text

    text, named = with_sandboxed_tools(tmp_path, act, environ=environ)
    assert "canary" not in text and "PATH=" in text
    assert named.endswith("\ncanary-3\n")


@pytest.mark.parametrize("cwd", ["..", "/", "/etc", "a/../../..", "out", "missing", "file", "a\0b"])
def test_a_directory_outside_is_refused(tmp_path: Path, cwd: str) -> None:
    """A7."""
    tools = SandboxedTools(tmp_path)
    (tools.workspace / "a").mkdir()
    (tools.workspace / "file").touch()
    (tools.workspace / "out").symlink_to("/")
    answer = sh(tmp_path, "touch ran", cwd=cwd)
    assert answer.error and "cwd" in answer.text
    assert not list(tools.workspace.rglob("ran"))
    assert not list(tmp_path.glob("state/shell/*")), "what is refused leaves no record"


def test_a_directory_inside_is_where_it_runs(tmp_path: Path) -> None:
    (SandboxedTools(tmp_path).workspace / "a/b").mkdir(parents=True)
    assert sh(tmp_path, "pwd", cwd="a/b").text.endswith("/workspace/a/b\n")
    assert sh(tmp_path, "pwd", cwd=f"{tmp_path}/workspace/a").text.endswith("/workspace/a\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"command": ""}, "command is empty"),
        ({"command": " \n"}, "command is empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x" * 100_001}, "Put it in a file"),
        ({}, "command"),
        ({"command": 1}, "command"),
        ({"command": "true", "timeout_seconds": 0}, "timeout_seconds"),
        ({"command": "true", "timeout_seconds": 1e9}, "timeout_seconds"),
        ({"command": "true", "background": "yes"}, "background"),
        ({"command": "true", "surprise": 1}, "surprise"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, args: dict[str, Any], says: str) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        answer = await tools.shell.run(tools.caller(), args)
        assert isinstance(answer, ToolResult)
        return answer

    answer = with_sandboxed_tools(tmp_path, act)
    assert answer.error and answer.text.startswith("Invalid parameters") and says in answer.text


def test_half_a_surrogate_is_no_traceback(tmp_path: Path) -> None:
    assert sh(tmp_path, "echo \ud800").text.endswith("\n�\n")


def test_a_run_without_a_directory_is_told(tmp_path: Path) -> None:
    answer = with_sandboxed_tools(tmp_path, lambda tools: tools.sh("true", tools.caller(root="")))
    assert answer.error and "no working directory" in answer.text


def test_a_run_that_may_not_write_sees_a_read_only_directory(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> tuple[ToolResult, ToolResult]:
        permissions = Permissions(write=())
        leased = ShellTool(tools.processes, may_write=lambda caller: "run-7 is writing here")
        other = await leased.run(tools.caller(), {"command": "touch b"})
        assert isinstance(other, ToolResult)
        return await tools.sh("touch a", tools.caller(permissions=permissions)), other

    refused, leased = with_sandboxed_tools(tmp_path, act)
    assert (
        refused.text.startswith("[read-only: this run cannot write]\n")
        and "Read-only file system" in refused.text
    )
    assert (
        leased.text.startswith("[read-only: run-7 is writing here]\n")
        and "Read-only file system" in leased.text
    )
    assert list((tmp_path / "workspace").iterdir()) == []


def test_the_lease_may_be_asked_for_asynchronously(tmp_path: Path) -> None:
    async def lease(caller: object) -> str:
        await asyncio.sleep(0)
        return ""

    async def act(tools: SandboxedTools) -> ToolResult:
        answer = await ShellTool(tools.processes, may_write=lease).run(
            tools.caller(), {"command": "touch a"}
        )
        assert isinstance(answer, ToolResult)
        return answer

    assert not with_sandboxed_tools(tmp_path, act).error
    assert (tmp_path / "workspace/a").exists()


def test_roots_of_a_run_are_what_it_sees(tmp_path: Path) -> None:
    for name in ("notes", "out", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(f"in {name}")
    workspace = str(tmp_path / "workspace")
    permissions = Permissions(
        read=(workspace, str(tmp_path / "notes")), write=(str(tmp_path / "out"),)
    )

    async def act(tools: SandboxedTools) -> tuple[ToolResult, ToolResult]:
        script = (
            "cd ..; cat notes/a out/a other/a; echo x > out/b; echo x > notes/b; echo x > "
            "workspace/b"
        )
        blind = Permissions(read=(str(tmp_path / "notes"),), write=())
        return await tools.sh(script, tools.caller(permissions=permissions)), await tools.sh(
            "true", tools.caller(permissions=blind)
        )

    answer, blind = with_sandboxed_tools(tmp_path, act)
    assert "in notes" in answer.text and "in out" in answer.text and "in other" not in answer.text
    assert [p for p in tmp_path.glob("*/b")] == [tmp_path / "out/b"]
    assert blind.error and "cannot read" in blind.text


def test_the_network_is_there_only_for_a_run_that_holds_all_hosts(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> list[str]:
        script = "cat /proc/net/dev | wc -l"
        hosts: list[tuple[str, ...] | None] = [None, (), ("example.com",), ("*",)]
        return [
            (await tools.sh(script, tools.caller(permissions=Permissions(hosts=h)))).text.split(
                "\n"
            )[1]
            for h in hosts
        ]

    *narrow, everything = with_sandboxed_tools(tmp_path, act)
    assert narrow == ["3"] * 3, "a loopback of its own, and nothing else"
    with open("/proc/net/dev") as file:
        assert int(everything) == len(file.readlines())


def test_the_state_of_the_runtime_is_private_and_hidden(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        (tools.state / "log.db").parent.mkdir(exist_ok=True)
        (tools.state / "log.db").write_text("canary")
        caller = tools.caller(root=str(tmp_path))
        return await tools.sh("cat state/log.db; ls state; echo x > state/x", caller)

    assert "canary" not in with_sandboxed_tools(tmp_path, act).text
    assert not (tmp_path / "state/x").exists()
    folder = tmp_path / "state/shell"
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_cancelling_kills_and_records(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> tuple[str, Any]:
        caller = tools.caller()
        task = asyncio.ensure_future(tools.sh("touch begun; sleep 600", caller))
        await begun(tools)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        end = tools.processes.record(caller.key).end
        return tools.processes.record(caller.key).id, end

    id, end = with_sandboxed_tools(tmp_path, act)
    assert (end.code, end.why) == (None, "cancelled")
    assert processes_with(id) == []


def test_after_a_restart_the_real_outcome_is_given_once_more(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> tuple[ToolResult, ToolResult]:
        caller = tools.caller("key-1")
        first = await tools.sh("echo x >> log; echo said; exit 5", caller)
        later = SandboxedTools(tmp_path)  # a new process on the same state
        second = await later.sh(
            "echo x >> log; echo said; exit 5", later.caller("key-1", again=True)
        )
        return first, second

    first, second = with_sandboxed_tools(tmp_path, act)
    assert first == second and "exit code 5" in first.text
    assert (tmp_path / "workspace/log").read_text() == "x\n"


def test_after_a_restart_a_command_that_never_began_is_run(tmp_path: Path) -> None:
    answer = with_sandboxed_tools(
        tmp_path, lambda tools: tools.sh("echo x >> log", tools.caller("key-2", again=True))
    )
    assert not answer.error
    assert (tmp_path / "workspace/log").read_text() == "x\n"


def test_after_a_restart_a_command_that_was_cut_off_is_unknown(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        caller = tools.caller("key-3")
        task = asyncio.ensure_future(tools.sh("echo half; touch begun; sleep 600", caller))
        await begun(tools)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        (
            tools.processes.record("key-3").folder / "end.json"
        ).unlink()  # as if the runtime had died before
        return await SandboxedTools(tmp_path).sh(
            "echo half; touch begun; sleep 600", tools.caller("key-3", again=True)
        )

    answer = with_sandboxed_tools(tmp_path, act)
    assert answer.error
    assert answer.text == f"{UNKNOWN}\nIts output until then:\nhalf\n"


def test_a_torn_record_of_the_end_is_not_believed(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> ToolResult:
        await tools.sh("echo whole", tools.caller("key-4"))
        (tools.processes.record("key-4").folder / "end.json").write_text('{"code": 0, "wh')
        return await tools.sh("echo whole", tools.caller("key-4", again=True))

    assert with_sandboxed_tools(tmp_path, act).text.startswith(UNKNOWN)


def test_without_a_sandbox_nothing_runs_and_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A37."""
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = sh(tmp_path, "touch ran")
    assert (
        answer.error
        and "Install the package bubblewrap" in answer.text
        and "Nothing was run" in answer.text
    )
    assert not (tmp_path / "workspace/ran").exists()


def test_a_helper_that_crashes_in_the_middle_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    """A37."""

    async def act(tools: SandboxedTools) -> tuple[ToolResult, str]:
        caller = tools.caller()
        task = asyncio.ensure_future(tools.sh("touch begun; setsid sleep 600 & sleep 600", caller))
        await begun(tools)
        id = tools.processes.record(caller.key).id
        os.kill(next(pid for pid in processes_with(id) if name_of(pid) == "bwrap"), signal.SIGKILL)
        return await task, id

    answer, id = with_sandboxed_tools(tmp_path, act)
    assert (
        answer.error
        and "the sandbox failed" in answer.text
        and "Check before you repeat" in answer.text
    )
    assert processes_with(id) == []


def test_a_copy_of_bwrap_that_is_removed_between_two_commands(tmp_path: Path) -> None:
    """A37."""
    (tmp_path / "bin").mkdir()
    shutil.copy(shutil.which("bwrap") or "", tmp_path / "bin/bwrap")

    async def act(tools: SandboxedTools) -> ToolResult:
        assert not (await tools.sh("touch one")).error
        (tmp_path / "bin/bwrap").unlink()
        return await tools.sh("touch two")

    answer = with_sandboxed_tools(tmp_path, act, sandbox=find_sandbox(path=str(tmp_path / "bin")))
    assert answer.error and "no longer exists" in answer.text
    assert not (tmp_path / "workspace/two").exists()


def test_twenty_commands_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    async def act(tools: SandboxedTools) -> list[ToolResult]:
        return await asyncio.gather(*(tools.sh(f"echo {i} > f{i}; cat f{i}") for i in range(20)))

    answers = with_sandboxed_tools(tmp_path, act)
    assert [a.text.split("\n")[1] for a in answers] == [str(i) for i in range(20)]
    assert len(list((tmp_path / "workspace").iterdir())) == 20, "no placeholder is left"


def test_the_summary_is_one_line(tmp_path: Path) -> None:
    tool = ShellTool(Processes(tmp_path))
    assert tool.summary({"command": "make\n  test"}) == "$ make test"
    assert tool.summary({"command": "serve", "background": True}) == "$ serve &"
    assert len(tool.summary({"command": "x" * 500})) < 110
    assert (tool.restart, tool.risk, tool.subject) == ("adoptable", "execute", "command")
