"""Directories that change while they are gone through: nothing is waited for, no link is
followed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.sandbox import directory_walk
from retinue.sandbox import folder_operations as folders
from retinue.sandbox.open_beneath import open_real
from tests.waiting import SECONDS


def swapping(monkeypatch: pytest.MonkeyPatch, path: Path, put: Callable[[Path], None]) -> None:
    """Right after its directory was listed, `path` is something else."""
    entries = directory_walk.folder_entries

    def listed(fd: int) -> tuple[list[str], list[os.DirEntry[str]]]:
        result = entries(fd)
        if (
            path.name in {*result[0], *(entry.name for entry in result[1])}
            and path.with_name(f"{path.name}.aside") not in path.parent.iterdir()
        ):
            path.rename(path.with_name(f"{path.name}.aside"))
            put(path)
        return result

    for module in (directory_walk, folders):
        monkeypatch.setattr(module, "folder_entries", listed)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("canary")
    return tmp_path / "outside"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "top/sub/more").mkdir(parents=True)
    (tmp_path / "top/file").write_text("text")
    (tmp_path / "top/sub/more/file").write_text("text")
    return tmp_path / "top"


def seen(top: Path, *, lenient: bool = False) -> list[str]:
    fd = open_real(str(top.resolve()))
    try:
        walk = directory_walk.walk_folders(fd, lenient=lenient)
        return [f"{at}/{entry.name}" for at, _, others, _ in walk for entry in others]
    finally:
        os.close(fd)


def test_a_walk_sees_everything_once(top: Path) -> None:
    assert sorted(seen(top)) == ["./file", "./sub/more/file"]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", ["sub", "sub/more"])
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_what_takes_the_place_of_a_directory_ends_the_walk(
    top: Path, outside: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapping(
        monkeypatch,
        top / name,
        os.mkfifo if kind == "fifo" else lambda path: path.symlink_to(outside),
    )
    with pytest.raises(OSError):
        seen(top)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_lenient_walk_leaves_out_what_takes_the_place_of_a_directory(
    top: Path, outside: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "other").mkdir()
    (top / "other/file").touch()
    swapping(
        monkeypatch,
        top / "sub",
        os.mkfifo if kind == "fifo" else lambda path: path.symlink_to(outside),
    )
    assert sorted(seen(top, lenient=True)) == ["./file", "./other/file"]


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", ["sub", "sub/more", "file"])
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_removing_waits_for_nobody_and_goes_nowhere_else(
    top: Path, outside: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapping(
        monkeypatch,
        top / name,
        os.mkfifo if kind == "fifo" else lambda path: path.symlink_to(outside),
    )
    folders.remove(top)
    assert (outside / "secret").read_text() == "canary"
    monkeypatch.undo()
    folders.remove(top)
    assert not top.exists()


def test_what_is_closed_to_everybody_or_very_deep_is_removed_too(top: Path) -> None:
    (top / "sub/more").chmod(0)
    (top / "sub").chmod(0o500)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    folders.remove(top)
    assert not top.exists()


def test_a_file_a_link_and_nothing_can_be_removed(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(outside)
    for name in ("file", "link", "nothing"):
        folders.remove(tmp_path / name)
        assert not os.path.lexists(tmp_path / name)
    assert (outside / "secret").exists()


def copied(top: Path, target: Path, **most: int) -> None:
    fd = os.open(top.parent, os.O_RDONLY)
    try:
        folders.copy(
            fd, top.name, str(target), **{"most_bytes": 1 << 20, "most_files": 100, **most}
        )
    finally:
        os.close(fd)


def test_a_copy_is_whole_and_keeps_links_as_links(top: Path, tmp_path: Path, outside: Path) -> None:
    (top / "link").symlink_to(outside)
    copied(top, tmp_path / "copy")
    assert (tmp_path / "copy/sub/more/file").read_text() == "text"
    assert os.readlink(tmp_path / "copy/link") == str(outside)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("name", ["sub", "file"])
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_copy_reads_nothing_that_took_the_place_of_something_else(
    top: Path, tmp_path: Path, outside: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = os.mkfifo if kind == "fifo" else lambda path: path.symlink_to(outside / "secret")
    swapping(monkeypatch, top / name, put)
    if (name, kind) == ("file", "link"):  # copied as the link that it is
        copied(top, tmp_path / "copy")
    else:
        with pytest.raises(OSError):
            copied(top, tmp_path / "copy")
    everything = [
        path for path in (tmp_path / "copy").rglob("*") if path.is_file() and not path.is_symlink()
    ]
    assert all("canary" not in path.read_text() for path in everything)


def test_a_copy_ends_where_it_was_told_to(top: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        copied(top, tmp_path / "few", most_files=3)
    with pytest.raises(OSError):
        copied(top, tmp_path / "short", most_bytes=7)
