"""Files and folders of our own: whole or as they were, durable, and for their owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_folder, make_real


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_whole_with_the_mode_asked_for(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    write_file(path, b"old", durable=durable)
    assert (path.read_bytes(), mode_of(path)) == (b"old", 0o600)
    number = path.stat().st_ino
    write_file(str(path), b"new" * 100_000, 0o644, durable=durable)
    assert (path.read_bytes(), mode_of(path)) == (b"new" * 100_000, 0o644)
    assert path.stat().st_ino != number
    assert os.listdir(tmp_path) == ["file"]


def test_a_name_without_a_folder_is_one_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("file", b"x")
    assert (tmp_path / "file").read_bytes() == b"x"


def test_what_cannot_be_replaced_is_left_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as error:
        write_file(tmp_path / "folder", b"x")
    assert error.value.filename
    assert os.listdir(tmp_path) == ["folder"]
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "missing" / "file", b"x")


def test_a_full_disk_leaves_the_old_file_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as error:
        write_file(path, b"new")
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    (tmp_path / "link").symlink_to(outside)
    write_file(tmp_path / "link", b"ours")
    assert outside.read_bytes() == b"theirs"
    assert not (tmp_path / "link").is_symlink()


def test_drafts_may_lie_in_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("new", "kept"):
        (tmp_path / name).mkdir()
    sources: list[str] = []
    rename = os.rename

    def renamed(source: str, target: str, **rest: int | None) -> None:
        sources.append(os.path.dirname(source))
        rename(source, target, **rest)

    monkeypatch.setattr(os, "rename", renamed)
    write_file(tmp_path / "kept" / "file", b"x", drafts=str(tmp_path / "new"))
    assert sources == [str(tmp_path / "new")]
    assert os.listdir(tmp_path / "new") == []


def test_a_name_in_an_open_folder_stays_there_when_the_folder_is_moved(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    fd = os.open(tmp_path / "folder", os.O_RDONLY | os.O_DIRECTORY)
    try:
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").symlink_to("/")
        write_file("file", b"x", 0o640, dir_fd=fd)
    finally:
        os.close(fd)
    assert (tmp_path / "moved" / "file").read_bytes() == b"x"
    assert mode_of(tmp_path / "moved" / "file") == 0o640


def test_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        make_folder(str(tmp_path / "a" / "b" / "c"))
    finally:
        os.umask(before)
    assert {mode_of(p) for p in tmp_path.rglob("*")} == {0o700}
    (tmp_path / "a").chmod(0o755)
    make_folder(str(tmp_path / "a"))
    assert mode_of(tmp_path / "a") == 0o755


def test_a_folder_that_cannot_be_made_is_named_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as error:
        make_folder(str(tmp_path / "file" / "inner"))
    assert error.value.filename == str(tmp_path / "file" / "inner")


def test_a_folder_of_ours_may_lie_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make_folder(str(tmp_path / "link" / "inner"))
    assert (tmp_path / "real" / "inner").is_dir()


def test_by_a_real_path_no_folder_is_made_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "link").symlink_to("outside")
    with pytest.raises(OSError):
        make_real(str(tmp_path / "link" / "inner"), durable=True)
    assert os.listdir(tmp_path / "outside") == []


def test_each_folder_that_got_a_new_name_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    make_folder(str(tmp_path / "a" / "b"))
    assert synced == [str(tmp_path), str(tmp_path / "a")]
    synced.clear()
    make_folder(str(tmp_path / "a" / "b"))
    assert synced == []
    write_file(tmp_path / "a" / "file", b"x")
    assert len(synced) == 2 and synced[1] == str(tmp_path / "a")
