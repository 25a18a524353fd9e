"""What the host writes or runs by a name while runs change the directories: no link of a run is
followed on the way, and nothing of the host's own lies where runs write."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from retinue.channels.file import JsonLines
from retinue.core.values import Delivery, Origin
from retinue.errors import ConfigError, RetinueError
from retinue.host import answer_file
from retinue.sandbox import git_copy
from retinue.sandbox import git_repository as git
from retinue.testing import call
from tests.cli.private_home import private_home
from tests.needs import needs
from tests.security.holes import git as by_hand
from tests.security.holes import make_repository
from tests.security.own_state import hostile, machine, provider
from tests.security.test_planted_programs import plant_programs


@needs("bwrap")
@pytest.mark.parametrize("path", ["out/evil.desktop", "out/new/evil.desktop", "new/evil.desktop"])
def test_an_answer_is_not_written_through_a_link_that_the_run_has_made(path: str) -> None:
    with machine("this user") as home:
        (home.project / "out").mkdir()
        outside = home.home / ".config/autostart"
        swap = f"rm -rf out; ln -s {outside} out; ln -s {outside} new; echo it was swapped"
        with provider(hostile(call("shell", command=swap))) as env:
            result = home.run(
                "-m", "retinue", "run", "--yolo", "-p", "-o", path, "go", cwd=home.project, **env
            )
        assert "it was swapped" in result.stdout
        assert list(outside.iterdir()) == []
        assert (
            result.returncode != 0
            and "was not written" in result.stderr
            and "Traceback" not in result.stderr
        )


def test_an_answer_is_written_where_the_name_led_when_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    target = answer_file.settled("link/sub/a.md", str(tmp_path))
    answer_file.write(target, "one")
    assert (tmp_path / "real/sub/a.md").read_text() == "one\n"
    (tmp_path / "elsewhere").write_text("mine\n")
    (tmp_path / "real/sub/a.md").unlink()
    (tmp_path / "real/sub/a.md").symlink_to(tmp_path / "elsewhere")
    answer_file.write(target, "two\n")
    assert (tmp_path / "elsewhere").read_text() == "mine\n"
    assert (tmp_path / "real/sub/a.md").read_text() == "two\n"
    assert [p.name for p in (tmp_path / "real/sub").iterdir()] == ["a.md"]


@pytest.mark.parametrize(
    "path", ["/dev/null", "/dev/stdout", "/proc/self/status", "pipe", "folder"]
)
def test_a_device_or_a_pipe_is_not_replaced_by_an_answer(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="not a regular file"):
        answer_file.settled(path, str(tmp_path))


@pytest.mark.parametrize("part", ["said.jsonl", "folder"])
def test_announcements_are_not_written_through_a_link_that_came_later(
    tmp_path: Path, part: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    channel = JsonLines(tmp_path / "folder/said.jsonl")
    delivery = Delivery(key="k", run="r", origin=Origin(channel="c"), text="$(evil)")

    async def main() -> None:
        await channel.send(delivery)
        (tmp_path / "folder/said.jsonl").unlink()
        if part == "folder":
            (tmp_path / "folder").rmdir()
            (tmp_path / "folder").symlink_to(outside)
        else:
            (tmp_path / "folder/said.jsonl").symlink_to(outside / ".bashrc")
        with pytest.raises(RetinueError, match="Cannot append to"):
            await channel.send(delivery)

    asyncio.run(main())
    assert list(outside.iterdir()) == []


AGENT = {
    "one": {
        "description": "d",
        "prompt": "p",
        "isolation": "worktree",
        "tools": ["Write", "Read", "git"],
    }
}


@needs("bwrap", "git")
def test_no_copy_is_made_with_a_sandbox_that_a_command_could_have_put_on_path(
    tmp_path: Path,
) -> None:
    def model(request: Any) -> Any:
        n = sum(type(m).__name__ == "AssistantMessage" for m in request.messages)
        return call("write", path="new.txt", content="precious\n") if n == 0 else "Done."

    with private_home(tmp_path, model) as home:
        mark, tools = tmp_path / "mark", home.project / "tools"
        (home.project / ".git").rmdir()
        plant_programs(tools, mark)
        top = make_repository(home.project / "repository")
        home.env["PATH"] = f"{tools}:{home.env['PATH']}"
        result = home.real(
            "run", "--yolo", "--agents", json.dumps(AGENT), "--agent", "one", "go", cwd=top
        )
        assert result.returncode == 0 and "Done." in result.stdout, result.stderr
        assert "retinue/" in by_hand(top, "branch", "--list")
        home.ok("host", "stop")
        assert not mark.exists(), mark.read_text()


@needs("git")
def test_the_settings_that_git_is_given_do_not_lie_where_commands_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "repository")
    monkeypatch.setenv("TMPDIR", str(top))
    monkeypatch.setattr(tempfile, "tempdir", str(top))

    async def main() -> None:
        async with git.opened(git_copy.find_repository(str(top))) as ours:
            assert not Path(ours.folder).is_relative_to(top)
            assert "a.txt" in await ours.text("ls-files")

    asyncio.run(main())
