"""Where a project begins, and what is looked at from there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retinue.config.project_root import folders_between, project_root
from retinue.config.trust_record import TrustFile
from retinue.config.user_folders import note_file, noted_files
from tests.waiting import SECONDS


@pytest.mark.parametrize("mark", [".git", ".retinue"])
def test_a_project_is_the_nearest_folder_that_is_marked(tmp_path: Path, mark: str) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_root(str(inner)) == str(inner)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / mark).mkdir()
    assert project_root(str(inner)) == str(tmp_path / "a")


def test_the_root_of_a_worktree_has_a_file_for_its_mark(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    (tmp_path / "inner").mkdir()
    assert project_root(str(tmp_path / "inner")) == str(tmp_path)


def test_the_agents_of_a_user_do_not_make_a_project_of_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "home/.retinue/agents").mkdir(parents=True)
    (tmp_path / "home/notes").mkdir()
    (tmp_path / "link").symlink_to("home")
    notes = str(tmp_path / "home/notes")
    assert project_root(notes, str(tmp_path / "link")) == notes
    assert project_root(notes, str(tmp_path / "home")) == notes
    (tmp_path / "home/.git").mkdir()
    assert project_root(notes, str(tmp_path / "home")) == str(tmp_path / "home")


def test_a_manifest_marks_no_project(tmp_path: Path) -> None:
    (tmp_path / "package.json").touch()
    (tmp_path / "inner").mkdir()
    assert project_root(str(tmp_path / "inner")) == str(tmp_path / "inner")


@pytest.mark.parametrize(
    ("here", "root", "folders"),
    [
        ("/p/a/b", "/p", ["/p/a/b", "/p/a", "/p"]),
        ("/p", "/p", ["/p"]),
        ("/a/b", "/", ["/a/b", "/a", "/"]),
        ("/elsewhere", "/p", ["/p"]),
        ("/part", "/p", ["/p"]),
    ],
)
def test_folders_are_named_from_the_inside_up_to_the_root(
    here: str, root: str, folders: list[str]
) -> None:
    assert list(folders_between(here, root)) == folders


@pytest.mark.parametrize("name", ["folder/.mcp.json", "folder"])
def test_a_link_that_is_put_there_before_a_file_is_hashed_is_not_followed(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / ".mcp.json").write_text("secret")
    root = tmp_path / "p"
    (root / "folder").mkdir(parents=True)
    (root / "folder/.mcp.json").write_text("{}")
    resolve = os.path.realpath

    def swap(path: str, **options: bool) -> str:
        target = resolve(path, **options)
        if target.endswith(".mcp.json") and not (root / name).is_symlink():
            (root / name).rename(tmp_path / "aside")
            (root / name).symlink_to(outside if name == "folder" else outside / ".mcp.json")
        return target

    monkeypatch.setattr(os.path, "realpath", swap)
    survey = TrustFile(str(tmp_path / "trust.json")).survey(root)
    assert survey.files == {}
    assert survey.refused["folder/.mcp.json"] == "Too many levels of symbolic links"


@pytest.mark.timeout(SECONDS)
def test_a_pipe_among_the_notes_of_stores_is_not_waited_for(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    store = tmp_path / "retinue.db"
    store.touch()
    note_file(environ, str(store))
    os.mkfifo(tmp_path / ".local/state/retinue/stores/0000")
    assert list(noted_files(environ)) == [str(store)]
