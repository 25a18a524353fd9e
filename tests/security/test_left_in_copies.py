"""What a run leaves in its copy of a repository is kept, ends nothing, and keeps no host from
starting."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import RetinueError
from retinue.sandbox import background_removal as removal
from retinue.sandbox import folder_operations as folders
from retinue.sandbox.worktree import Worktrees
from retinue.testing import call
from retinue.tools.builtin.builtin_tools import BuiltinTools
from tests.cli.private_home import private_home
from tests.needs import needs
from tests.security.holes import git, make_repository, shown_by
from tests.security.prepared import ISOLATED, played, ready, turns
from tests.waiting import until

pytestmark = needs("git")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


def deep(copy: Path) -> None:
    script = "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", script], cwd=copy, check=True)


def broken(copy: Path) -> None:
    Path((copy / ".git").read_text()[8:].strip(), "HEAD").write_text("ref: refs/heads/../../x\n")


def odd_names(copy: Path) -> None:
    (copy / "a\nb\udcff").write_text("x")
    (copy / ".gitattributes").write_text("* working-tree-encoding=UTF-16\n")
    (copy / "a.txt").unlink()
    (copy / "a.txt").mkdir()
    (copy / "a.txt" / "inner").write_text("x")


@pytest.mark.parametrize("spoil", [deep, broken, odd_names])
def test_whatever_a_run_leaves_in_its_copy_is_kept_and_ends_nothing(
    repository: Path, tmp_path: Path, spoil: Any
) -> None:
    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(repository)))
        (copy / "new.txt").write_text("precious\n")
        spoil(copy)
        try:
            await trees.changes("r1", "task")
        except RetinueError as error:
            assert str(error)
        await trees.close("r1", "task")
        assert (
            shown_by(repository, "retinue/run-r1:new.txt") == "precious\n"
            or (copy / "new.txt").exists()
        )
        folders.remove(copy)

    asyncio.run(main())


def test_a_commit_with_very_many_submodules_is_copied_and_kept(
    repository: Path, tmp_path: Path
) -> None:
    rows = "".join(f"160000 {1:040d} 0\tlinks/{n:0200d}\n" for n in range(12_000))
    subprocess.run(
        ["git", "-C", repository, "update-index", "--index-info"], input=rows, text=True, check=True
    )
    git(repository, "commit", "-qm", "links")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        (Path(await trees.open("r1", str(repository))) / "new.txt").write_text("precious\n")
        changes = await trees.changes("r1", "task")
        assert changes is not None and changes.files == 1

    asyncio.run(main())
    assert shown_by(repository, "retinue/run-r1:new.txt") == "precious\n"


def test_all_kinds_of_changes_are_kept_beside_a_submodule(repository: Path, tmp_path: Path) -> None:
    for name in ("b/c", "gone", "d e\n", "mode"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text(name)
    git(repository, "add", ".")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{1:040d},mod")
    git(repository, "commit", "-qm", "more")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(repository)))
        (copy / "a.txt").unlink()
        (copy / "a.txt").mkdir()
        (copy / "a.txt/x").write_text("x")
        (copy / "b/c").unlink()
        (copy / "b").rmdir()
        (copy / "b").write_text("b")
        (copy / "gone").unlink()
        (copy / "d e\n").write_text("other")
        (copy / "mode").chmod(0o755)
        (copy / "link").symlink_to("b")
        (copy / "mod/evil").write_text("x")
        await trees.close("r1", "task")

    asyncio.run(main())
    listed = git(repository, "ls-tree", "-r", "-z", "retinue/run-r1").split("\0")[:-1]
    modes = {row.split("\t")[1]: row.split()[0] for row in listed}
    files = {"a.txt/x": "100644", "b": "100644", "d e\n": "100644", "mode": "100755"}
    assert modes == {**files, "link": "120000", "mod": "160000"}


@needs("bwrap")
def test_the_next_host_starts_whatever_an_isolated_run_has_left(tmp_path: Path) -> None:
    command = (
        "python3 -c \"import os\nfor i in range(1500): os.mkdir('d'); os.chdir('d')\"; echo made"
    )
    model = turns(call("write", path="work.txt", content="x"), call("shell", command=command))
    with private_home(tmp_path, lambda request: model(request)) as home:
        ready(home)
        assert "made" in played(home, "--agents", ISOLATED, "--agent", "one")[1]
        home.ok("host", "stop")
        model = turns(call("shell", command="echo fine"))
        assert "fine" in played(home)[0]
        home.ok("host", "stop")
        (copy,) = (tmp_path / "data").glob("retinue/projects/*/*.tools/worktrees/*/work.txt")
        folders.remove(copy.parent)  # or nobody else could


def test_what_fails_for_one_run_does_not_keep_a_host_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    async def close(self: Worktrees, run: str, message: str = "") -> None:
        closed.append(run)
        raise PermissionError(13, "no")

    (tmp_path / "worktrees").mkdir()
    for run in ("r1", "r2"):
        (tmp_path / f"worktrees/{run}.json").write_text(
            '{"repository":"/r","inside":".","branch":"b","base":"c"}'
        )
    monkeypatch.setattr(Worktrees, "close", close)

    async def main() -> None:
        kit = BuiltinTools(None, tmp_path)
        await kit.sweep(set(), lambda place: False)
        await kit.close()

    asyncio.run(main())
    assert closed == ["r1", "r2"]


def test_a_start_does_not_wait_until_a_large_copy_is_removed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_remove = folders.remove
    monkeypatch.setattr(removal, "SOON_SECONDS", 0.1)
    monkeypatch.setattr(removal.remove_soon, "__defaults__", (0.1,))
    monkeypatch.setattr(removal, "remove", lambda name, **options: None)

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        await trees.open("r1", str(repository))
        await trees.close("r1")
        assert trees.runs() == [] and [n for n in os.listdir(trees.folder) if removal.GONE in n]
        monkeypatch.setattr(removal, "remove", true_remove)
        await trees.sweep()
        await until(lambda: not os.listdir(trees.folder))

    asyncio.run(main())
