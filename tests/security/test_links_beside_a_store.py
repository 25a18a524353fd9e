"""What lies beside a store in a project that nobody trusts: a link there leads nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retinue.errors import StoreError
from retinue.store.sqlite.store_lock import Lock
from tests.cli.private_home import private_home

FILES = (".lock", ".sent", "-wal", "-shm", "-journal", ".sock", ".sock.key")
DIRECTORIES = (".tools", ".plans", ".artifacts")


@pytest.mark.parametrize("tail", [*FILES, *DIRECTORIES])
def test_a_store_with_a_link_beside_it_is_refused_and_nothing_is_written(
    tmp_path: Path, tail: str
) -> None:
    with private_home(tmp_path) as home:
        victim = tmp_path / "victim"
        if tail in DIRECTORIES:
            victim.mkdir()
        else:
            victim.write_text("precious\n")
        (home.project / f"retinue.db{tail}").symlink_to(victim)
        result = home.run("run", "-p", "--store", "retinue.db", "Work.")
        assert (
            result.returncode != 0
            and f"retinue.db{tail}" in result.stderr
            and "is a link" in result.stderr
        )
        assert (
            list(victim.iterdir()) == []
            if tail in DIRECTORIES
            else victim.read_text() == "precious\n"
        )
        assert sorted(os.listdir(home.project)) == [".git", f"retinue.db{tail}"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda at: Path(at).write_text("x" * 100)])
def test_something_else_in_the_place_of_the_lock_is_left_as_it_is(
    tmp_path: Path, make: object
) -> None:
    at = tmp_path / "a.db.lock"
    make(at)  # type: ignore[operator]
    before = os.lstat(at)
    with pytest.raises(StoreError, match=r"a\.db\.lock"):
        Lock(str(tmp_path / "a.db")).acquire()
    assert os.lstat(at).st_mtime_ns == before.st_mtime_ns and os.lstat(at).st_size == before.st_size


def test_a_second_name_of_another_file_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    os.link(tmp_path / "mine", tmp_path / "a.db.lock")
    with pytest.raises(StoreError, match="not a lock file of Retinue"):
        Lock(str(tmp_path / "a.db")).acquire()
    assert (tmp_path / "mine").read_text() == "precious"
