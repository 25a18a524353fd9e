"""The look into the sandbox before the command begins: what was put in the place of something in
between is found."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from retinue.errors import Refused
from retinue.sandbox.base import Command
from retinue.sandbox.bwrap import Bwrap, find_sandbox
from retinue.sandbox.private_paths import Private
from tests.needs import needs
from tests.sandbox.bwrap_world import run_in
from tests.waiting import SECONDS

pytestmark = needs("bwrap")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def swapping(
    tmp_path: Path, commands: str, *, by_fd: bool, private: Private | None = None
) -> Bwrap:
    """A bwrap before which somebody does something, at the worst moment: everything is checked,
    nothing mounted."""
    program = tmp_path / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n{commands}\nexec {shutil.which("bwrap")} "$@"\n')
    program.chmod(0o755)
    return Bwrap(
        str(program), by_fd=by_fd, private=private or Private(), aside=str(tmp_path / "taken")
    )


BY = pytest.mark.parametrize("by_fd", [True, False])


def has_by_fd() -> bool:
    return find_sandbox()._by_fd


def refused(tmp_path: Path, workspace: Path, sandbox: Bwrap, by_fd: bool) -> None:
    if by_fd and not has_by_fd():
        pytest.skip("this bwrap does not take directories by descriptor")
    with pytest.raises(
        Refused, match=r"was replaced while the command was prepared. Nothing was run"
    ):
        run_in(workspace, "touch ran; cat */secret", sandbox=sandbox)
    assert not list(tmp_path.rglob("ran"))


@BY
def test_a_workspace_that_became_a_link(tmp_path: Path, workspace: Path, by_fd: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    sandbox = swapping(
        tmp_path, f"mv {workspace} {workspace}.gone; ln -s {outside} {workspace}", by_fd=by_fd
    )
    refused(tmp_path, workspace, sandbox, by_fd)
    assert list(outside.iterdir()) == []


@BY
@pytest.mark.parametrize(
    "swap",
    [
        "mv .git g; ln -s evil .git",
        "mv .git g; cp -r evil .git",
        "mv .git/hooks .git/h; mkdir .git/hooks",
    ],
)
def test_a_protected_directory_that_was_swapped(
    tmp_path: Path, workspace: Path, by_fd: bool, swap: str
) -> None:
    for folder in (".git/hooks", "evil/hooks"):
        (workspace / folder).mkdir(parents=True)
    (workspace / ".git/config").write_text("[core]\n")
    (workspace / "evil/config").write_text("[core]\n")
    # bwrap itself may fail over it, which is as good: nothing is run.
    sandbox = swapping(tmp_path, f"cd {workspace}; {swap}; cd /", by_fd=by_fd)
    script = "touch ran; echo evil > .git/hooks/pre-commit"
    try:
        ended, _ = run_in(workspace, script, sandbox=sandbox)
        assert ended.code is None
    except Refused as error:
        assert "was replaced" in str(error)
    assert not (workspace / "ran").exists()
    assert not list(workspace.rglob("pre-commit"))


@BY
@pytest.mark.parametrize("swap", ["mv sub s; ln -s other sub", "mv sub s; mv other sub"])
def test_a_hidden_place_that_was_swapped_is_not_shown(
    tmp_path: Path, workspace: Path, by_fd: bool, swap: str
) -> None:
    (workspace / "sub/state").mkdir(parents=True)
    (workspace / "other/state").mkdir(parents=True)
    (workspace / "sub/state/secret").write_text("canary")
    private = Private(folders=(str(workspace / "sub/state"),))
    sandbox = swapping(tmp_path, f"cd {workspace}; {swap}; cd /", by_fd=by_fd, private=private)
    output = ""
    try:
        ended, output = run_in(
            workspace, "find . -type f; cat s/state/secret; touch ran", sandbox=sandbox
        )
        assert ended.code is None
    except Refused as error:
        assert "was replaced" in str(error)
    assert "canary" not in output and not (workspace / "ran").exists()


def test_what_was_opened_is_what_is_mounted(tmp_path: Path, workspace: Path) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY)

    async def go() -> None:
        here, argv = str(workspace), ("/bin/sh", "-c", "touch ran")
        command = Command(argv=argv, cwd=here, write=(here,), opened={here: fd})
        await (await find_sandbox().start(command, lambda data: None)).wait(SECONDS)

    try:
        asyncio.run(go())
        assert (workspace / "ran").exists()
        (workspace / "ran").unlink()
        workspace.rename(tmp_path / "gone")
        workspace.symlink_to(evil)
        with pytest.raises(Refused, match="replaced"):
            asyncio.run(go())
    finally:
        os.close(fd)
    assert not list(tmp_path.rglob("ran"))
