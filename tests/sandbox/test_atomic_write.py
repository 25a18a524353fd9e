"""A file is replaced whole or not at all, and what stands in the way of that is left as it is."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import stat
import threading
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from retinue.errors import NotFound, Refused
from retinue.sandbox import open_beneath as beneath
from retinue.sandbox.atomic_write import SUFFIX, PendingWrite, alone, prefix, remove, sweep, umask
from retinue.sandbox.file_location import spot
from retinue.sandbox.paths import Root

N_SWAPS = 10_000


def put(root: Root, path: str, data: bytes) -> None:
    with spot(root, path, make=True) as place:
        place.refresh()
        PendingWrite(place, data).commit()


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    old = tmp_path / "file"
    old.write_bytes(b"old")
    old.chmod(0o754)
    number = old.stat().st_ino
    with Root(str(tmp_path)) as root:
        put(root, "file", b"new")
        put(root, "sub/deep/file", b"made")
    assert old.read_bytes() == b"new"
    assert stat.S_IMODE(old.stat().st_mode) == 0o754
    assert old.stat().st_ino != number
    path = tmp_path / "sub" / "deep" / "file"
    assert path.read_bytes() == b"made"
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask()
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["deep", "file", "file", "sub"]


def test_the_umask_is_read_without_being_set() -> None:
    before = os.umask(0o027)
    try:
        assert umask() == 0o027
    finally:
        os.umask(before)


def test_special_bits_of_a_mode_are_not_given_to_new_content(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o4755)
    with Root(str(tmp_path)) as root:
        put(root, "file", b"x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o755


def test_a_file_that_was_changed_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with Root(str(tmp_path)) as root, spot(root, "file") as place:
        draft = PendingWrite(place, b"new")
        (tmp_path / "file").write_text("someone else's")
        with pytest.raises(Refused, match="changed by another process"):
            draft.commit()
    assert (tmp_path / "file").read_text() == "someone else's"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with Root(str(tmp_path)) as root, spot(root, "file") as place:
        draft = PendingWrite(place, b"new")
        (tmp_path / "file").write_text("someone else's")
        with pytest.raises(Refused):
            draft.commit()
    assert (tmp_path / "file").read_text() == "someone else's"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_that_appears_at_the_name_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_text("old")
    with Root(str(tmp_path / "root")) as root, spot(root, "file") as place:
        draft = PendingWrite(place, b"new")
        os.unlink(tmp_path / "root" / "file")
        os.symlink(outside, tmp_path / "root" / "file")
        with pytest.raises(Refused):
            draft.commit()
    assert outside.read_text() == "untouched"


def test_the_other_names_of_a_file_keep_the_old_content(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    (tmp_path / "root").mkdir()
    os.link(outside, tmp_path / "root" / "file")
    with Root(str(tmp_path / "root")) as root:
        put(root, "file", b"new")
    assert outside.read_text() == "untouched"
    assert (tmp_path / "root" / "file").read_text() == "new"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with Root(str(tmp_path)) as root, spot(root, "file") as place:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(Refused, match="No space left"):
            PendingWrite(place, b"new")
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_dead_process_left_is_swept_by_the_call_that_left_it(tmp_path: Path) -> None:
    mine, other = f".{prefix('k1')}00{SUFFIX}", f".{prefix('k2')}00{SUFFIX}"
    (tmp_path / mine).touch()
    (tmp_path / other).touch()
    with Root(str(tmp_path)) as root, spot(root, "file") as place:
        sweep(place, "k1")
    assert os.listdir(tmp_path) == [other]


def test_a_removed_file_is_the_one_that_was_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with Root(str(tmp_path)) as root, spot(root, "file") as place:
        (tmp_path / "file").write_text("newer")
        with pytest.raises(Refused, match="not removed"):
            remove(place)
        place.refresh()
        remove(place)
    assert os.listdir(tmp_path) == []


def test_two_who_change_one_file_take_turns(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    def append(root: Root, letter: bytes) -> None:
        for _ in range(20):
            with spot(root, "file") as place, alone([place]):
                PendingWrite(place, place.read() + letter).commit()

    with Root(str(tmp_path)) as root:
        threads = [threading.Thread(target=append, args=(root, c)) for c in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted((tmp_path / "file").read_text()) == sorted("abc" * 20)


def exchange(a: str, b: str) -> None:
    """Two names change places at once: there is no moment without either."""
    if (
        ctypes.CDLL(None, use_errno=True).renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2)
        != 0
    ):
        raise OSError(ctypes.get_errno(), "renameat2")


def swap(root: str, n: int, over: Event) -> None:
    """Turn a directory into a link out of the root and back, again and again."""
    try:
        for _ in range(n):
            exchange(f"{root}/dir", f"{root}/link")
    finally:
        over.set()


@pytest.mark.parametrize("way", ["kernel", "walk"])
def test_no_write_goes_out_while_a_directory_is_swapped_for_a_link(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A21: what is written lands in the root or is refused."""
    if way == "walk":
        monkeypatch.setattr(beneath, "kernel_open", lambda: None)
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "dir").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("untouched")
    os.symlink(outside, root / "link")
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    swapper = context.Process(target=swap, args=(str(root), N_SWAPS, over))
    swapper.start()
    n_written = refused = 0
    try:
        with Root(str(root)) as amount:
            while not over.is_set() or not n_written:
                try:
                    put(amount, f"dir/file{n_written % 3}", b"%d" % n_written)
                    n_written += 1
                except (Refused, NotFound):
                    refused += 1
    finally:
        swapper.join()
    assert swapper.exitcode == 0
    assert [p.name for p in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "untouched"
    assert not list(root.rglob(f"*{SUFFIX}"))
    assert refused > 0
