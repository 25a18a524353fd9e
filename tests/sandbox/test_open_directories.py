"""The directories of a tree are held open: what is reached is beneath them, and a link on the way
is not followed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.core.values import Permissions
from retinue.errors import NotFound, Refused
from retinue.sandbox import open_beneath as beneath
from retinue.sandbox.base import Command
from retinue.sandbox.open_directories import (
    OpenDirectories,
    OpenDirectory,
    checked_directories,
    real_paths,
)
from retinue.sandbox.unsandboxed import Unsandboxed
from tests.waiting import SECONDS


@pytest.fixture(params=["kernel", "walk"])
def top(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "walk":
        monkeypatch.setattr(beneath, "kernel_open", lambda: None)
    (tmp_path / "top" / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    return Path(os.path.realpath(tmp_path / "top"))


def opened(holding: OpenDirectory, path: Path) -> str:
    fd = holding.open(str(path))
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def link(path: Path, to: str) -> None:
    os.rename(path, path.with_name("aside"))
    os.symlink(to, path)


@pytest.mark.parametrize(
    "to", ["../outside", "{outside}", "aside", "/proc/self/root{outside}", "sub"]
)
def test_no_link_is_followed_on_the_way_not_even_one_that_stays_inside(top: Path, to: str) -> None:
    with OpenDirectory((str(top),)) as holding:
        assert opened(holding, top / "sub" / "deep") == str(top / "sub" / "deep")
        link(top / "sub", to.format(outside=top.parent / "outside"))
        for path in (top / "sub", top / "sub" / "deep"):
            with pytest.raises(Refused, match="was replaced by a symbolic link"):
                holding.open(str(path))


def test_a_link_in_the_place_of_the_top_itself_is_not_followed(top: Path) -> None:
    with OpenDirectory((str(top),)) as holding:
        link(top, "outside")
        with pytest.raises(Refused, match="symbolic link"):
            holding.open(str(top))


def test_a_top_that_was_made_anew_is_found_again(top: Path) -> None:
    with OpenDirectory((str(top),)) as holding:
        before = os.stat(top).st_ino
        assert opened(holding, top) == str(top)
        os.rename(top, top.with_name("old"))
        with pytest.raises(NotFound, match="cannot be opened"):
            holding.open(str(top))
        top.mkdir()
        fd = holding.open(str(top))
        assert os.fstat(fd).st_ino == os.stat(top).st_ino != before
        os.close(fd)


def test_what_is_in_no_top_is_opened_by_its_real_path(top: Path) -> None:
    with OpenDirectory((str(top / "sub"),)) as holding:
        assert opened(holding, top) == str(top)
        with pytest.raises(NotFound):
            holding.open("")


def test_nothing_is_opened_when_the_tree_has_ended(top: Path) -> None:
    holdings = OpenDirectories()
    amount = holdings.of("tree", "one", (str(top),))
    assert holdings.of("tree", "two", ()) is amount
    holdings.over("one")
    assert opened(amount, top) == str(top)
    holdings.over("two")
    with pytest.raises(Refused, match="has ended"):
        amount.open(str(top))
    assert len(holdings._held) == len(holdings._tree) == 0


def test_no_descriptor_is_left_open(top: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for path in (top, top / "sub", top / "none"):
        with OpenDirectory((str(top),)) as holding, contextlib.suppress(NotFound):
            opened(holding, path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_directories_are_recorded_without_links(top: Path) -> None:
    os.symlink(top, top.parent / "alias")
    paths = real_paths(Permissions(read=(str(top.parent / "alias"), "relative"), write=()))
    assert paths == Permissions(read=(str(top), "relative"), write=())


def test_without_a_sandbox_a_command_starts_in_what_was_opened(top: Path) -> None:
    text = bytearray()

    async def main(act: Callable[[], None]) -> None:
        with OpenDirectory((str(top),)) as holding:
            fd = holding.open(str(top / "sub"))
            act()
            command = Command(
                argv=("/bin/pwd", "-P"), cwd=str(top / "sub"), opened={str(top / "sub"): fd}
            )
            running = await Unsandboxed(unsafe_no_sandbox=True).start(command, text.extend)
            os.close(fd)
            await running.wait(SECONDS)

    asyncio.run(main(lambda: link(top / "sub", "../outside")))
    assert text.decode().strip() == str(top / "aside")


def test_a_directory_that_was_checked_before_is_taken_without_following_links(top: Path) -> None:
    deep, folder = str(top / "sub" / "deep"), str(top)
    access = Permissions(read=(folder,), write=(deep,))
    value = {"cwd": deep, "permissions": access}
    assert checked_directories(value) == [deep, folder]
    assert checked_directories(value, {folder}) == [deep]
    assert checked_directories({}) == []
    link(top / "sub", "../outside")
    for wrong in (value, {"cwd": str(top / "sub")}, {"permissions": Permissions(write=(deep,))}):
        with pytest.raises(Refused, match="symbolic link, which is not followed"):
            checked_directories(wrong)
    for odd in ("sub", f"{top}/sub/../..", f"{top}/", "//etc"):
        with pytest.raises(Refused, match="absolute path"):
            checked_directories({"cwd": odd})
    with pytest.raises(NotFound, match="cannot be opened"):
        checked_directories({"cwd": f"{top}/nowhere"})
