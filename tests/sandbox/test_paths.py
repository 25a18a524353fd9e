"""Paths stay beneath their root, whoever opens them: the kernel, or the walk that stands in for
it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from retinue.errors import NotFound, Refused
from retinue.sandbox import open_beneath as beneath
from retinue.sandbox import paths
from retinue.sandbox.file_location import locate, spot
from retinue.sandbox.open_beneath import kernel_open, open_beneath, walk_open
from retinue.sandbox.path_checks import MAX_FILE, checked_text
from retinue.sandbox.paths import AllowedRoots, Root

Opener = Callable[[int, str, int], int]


def by_kernel(fd: int, path: str, flags: int) -> int:
    opened = kernel_open()
    assert opened is not None, "this kernel has no openat2: Linux 5.6 has it"
    return opened(fd, path, flags, 0)  # type: ignore[call-arg]


@pytest.fixture(params=[by_kernel, walk_open], ids=["kernel", "walk"])
def opener(request: pytest.FixtureRequest) -> Opener:
    opener: Opener = request.param
    return opener


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[int]:
    """A root with links of every kind, and a secret beside it."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "rootling").mkdir()
    (tmp_path / "rootling" / "file").write_text("secret too")
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("text")
    links = {
        "absolute": tmp_path / "secret",
        "absolute_inside": root / "a",
        "upward": "../secret",
        "a/far": "../../secret",
        "a/near": "../a/b/file",
        "dir": "a/b",
        "round": "round",
        "proc": "/proc/self/root",
        "up_dir": "..",
        "dangling": "a/nothing",
    }
    for name, target in links.items():
        os.symlink(target, root / name)
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    "path", ["a/b/file", "a/near", "dir/file", "a/../a/b/file", "./a//b/./file", "dir/../b/file"]
)
def test_what_lies_inside_is_opened(inside: int, opener: Opener, path: str) -> None:
    fd = opener(inside, path, os.O_RDONLY)
    assert os.read(fd, 99) == b"text"
    os.close(fd)


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/etc/passwd",
        "absolute",
        "absolute_inside/b/file",
        "upward",
        "a/far",
        "a/../../secret",
        "proc/etc/passwd",
        "up_dir/secret",
        "..",
        "dir/../../../secret",
        "../rootling/file",
        "../root/a/b/file",
        "/",
        "up_dir/root/a/b/file",
    ],
)
def test_what_leads_out_is_refused(inside: int, opener: Opener, path: str) -> None:
    with pytest.raises(OSError) as failure:
        os.close(opener(inside, path, os.O_RDONLY))
    assert failure.value.errno == errno.EXDEV


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("round", errno.ELOOP),
        ("nothing", errno.ENOENT),
        ("dangling", errno.ENOENT),
        ("a/b/file/x", errno.ENOTDIR),
        ("a/b/file/", errno.ENOTDIR),
        ("nothing/../a", errno.ENOENT),
        ("", errno.ENOENT),
        ("x" * 300, errno.ENAMETOOLONG),
    ],
)
def test_both_ways_fail_alike(inside: int, opener: Opener, path: str, number: int) -> None:
    with pytest.raises(OSError) as failure:
        os.close(opener(inside, path, os.O_RDONLY))
    assert failure.value.errno == number


def test_a_link_at_the_end_is_not_followed_when_that_is_asked_for(
    inside: int, opener: Opener
) -> None:
    with pytest.raises(OSError) as failure:
        os.close(opener(inside, "a/near", os.O_RDONLY | os.O_NOFOLLOW))
    assert failure.value.errno == errno.ELOOP
    os.close(opener(inside, "dir/file", os.O_RDONLY | os.O_NOFOLLOW))


def test_no_descriptor_is_left_behind(inside: int, opener: Opener) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a/b/file/x", "upward", "round", "a/b/file", "nothing/x"):
        with contextlib.suppress(OSError):
            os.close(opener(inside, path, os.O_RDONLY))
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_the_system_call_the_walk_does_it(
    inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beneath, "kernel_open", lambda: None)
    os.close(open_beneath(inside, "a/near", os.O_RDONLY))
    with pytest.raises(OSError):
        open_beneath(inside, "upward", os.O_RDONLY)


def test_a_kernel_that_never_makes_up_its_mind_is_not_asked_for_ever(
    inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> int:
        raise OSError(errno.EAGAIN, "again")

    monkeypatch.setattr(beneath, "kernel_open", lambda: busy)
    with open(open_beneath(inside, "a/b/file", os.O_RDONLY)) as file:
        assert file.read() == "text"


def test_only_regular_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(tmp_path)  # the address of a socket may not be long
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    (tmp_path / "empty").touch()
    with open(tmp_path / "full", "wb") as file:
        file.truncate(MAX_FILE)
    with open(tmp_path / "over", "wb") as file:
        file.truncate(MAX_FILE + 1)
    with Root(str(tmp_path)) as root:
        assert root.read_file("empty") == b""
        assert len(root.read_file("full")) == MAX_FILE
        for name, words in {
            "fifo": "FIFO",
            "socket": "socket",
            "over": f"{MAX_FILE + 1} bytes",
            ".": "directory",
        }.items():
            with pytest.raises(Refused, match=words):
                root.read_file(name)


def test_a_device_is_not_read() -> None:
    with Root("/dev") as root, pytest.raises(Refused, match="character device"):
        root.read_file("zero")


@pytest.mark.parametrize(
    "path", ["", "a\0b", "\ud800", "x" * 256, "a/" * 2048 + "b", "\u00e9" * 128]
)
def test_what_no_file_system_can_have_is_refused(path: str) -> None:
    with pytest.raises(Refused):
        checked_text(path)


def test_an_absolute_path_belongs_to_the_root_that_it_starts_with(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (tmp_path / "hereabouts").mkdir()
    reach = AllowedRoots.of(str(here), (str(here), str(there)), (str(there),))
    assert reach.find(f"{here}/x", "read") == (str(here), "x")
    assert reach.find(f"{tmp_path}//./here/./x", "read") == (str(here), "x")
    assert reach.find("x/y", "read") == (str(here), "x/y")
    assert reach.find(str(there), "write") == (str(there), ".")
    for path in (
        f"{tmp_path}/hereabouts/x",
        "/",
        "/etc",
        f"{tmp_path}",
        f"{tmp_path}/here/../there2",
    ):
        with pytest.raises(Refused):
            reach.find(path, "write")
    with pytest.raises(Refused):
        reach.find("x", "write")
    with pytest.raises(Refused, match="cannot write any"):
        AllowedRoots.of(str(here), None, ()).find("x", "write")


def test_a_path_is_shown_relative_to_the_runs_own_root(tmp_path: Path) -> None:
    reach = AllowedRoots.of(str(tmp_path / "a"), (str(tmp_path / "a"), str(tmp_path / "b")), None)
    assert reach.shown(str(tmp_path / "a"), "x/y") == "x/y"
    assert reach.shown(str(tmp_path / "a"), "") == "."
    assert reach.shown(str(tmp_path / "b"), "x") == str(tmp_path / "b" / "x")


def test_a_link_at_the_end_is_followed_inside_and_not_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "file").write_text("x")
    os.symlink("a/file", root / "inner")
    os.symlink("../outside", root / "outer")
    os.symlink(tmp_path / "outside", root / "absolute")
    os.symlink("round", root / "round")
    with Root(str(root)) as amount:
        with spot(amount, "inner") as place:
            assert (place.name, place.stat is not None) == ("file", True)
        for name in ("outer", "absolute", "round"):
            with pytest.raises(Refused):
                locate(amount, name)
        for name in (".", "..", "a", "a/", "a/.."):
            with pytest.raises(Refused, match="directory"):
                locate(amount, name)
        with pytest.raises(NotFound):
            locate(amount, "none/file")


def test_directories_that_were_made_for_a_failure_are_taken_away(tmp_path: Path) -> None:
    with Root(str(tmp_path)) as root:
        with pytest.raises(ZeroDivisionError), spot(root, "a/b/c/file", make=True) as place:
            assert (tmp_path / "a" / "b" / "c").is_dir()
            place.refresh()
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == []
        with spot(root, "a/b/file", make=True):
            pass
        assert (tmp_path / "a" / "b").is_dir()


def test_a_directory_that_is_moved_out_of_the_root_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    with Root(str(tmp_path / "root")) as root, spot(root, "a/file") as place:
        os.rename(tmp_path / "root" / "a", tmp_path / "elsewhere")
        with pytest.raises(Refused, match="moved out"):
            place.check()


def test_a_root_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="cannot be opened"):
        Root(str(tmp_path / "none"))


def test_without_proc_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(path: str, **_: object) -> str:
        raise FileNotFoundError(path)

    with Root(str(tmp_path)) as root:
        monkeypatch.setattr(paths.os, "readlink", no_proc)  # type: ignore[attr-defined]
        with pytest.raises(Refused, match="/proc"):
            locate(root, "file")
