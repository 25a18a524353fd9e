"""What a file tool leaves alone, under every name that leads to it and also while it does not
exist."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from retinue.errors import Refused
from retinue.sandbox import git_config
from retinue.sandbox.file_location import locate
from retinue.sandbox.paths import Root
from retinue.sandbox.protected_paths import plain, protected


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        ".git/hooks/pre-commit",
        ".git/config",
        ".git/info/attributes",
        ".git/modules/sub/hooks/post-checkout",
        "vendor/lib/.git/hooks/pre-push",
        ".GIT/HOOKS/pre-commit",
        ".Git/config",
        ".git./config",
        ".git /config",
        ".g\u200cit/config",
        "\uff0egit/config",
        "git~1/config",
        ".git::$INDEX_ALLOCATION/config",
        ".hg/hgrc",
        ".husky/pre-commit",
        ".retinue/config.toml",
        ".retinue/agents/boss.md",
        "sub/.retinue/agents/boss.md",
        ".mcp.json",
        "sub/.MCP.JSON",
        ".claude/settings.json",
        ".claude/agents/x.md",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        ".devcontainer/devcontainer.json",
        ".github/agents/x.agent.md",
        ".cursor/mcp.json",
        ".envrc",
        "deep/er/.envrc",
        ".gitmodules",
        ".bashrc",
        ".zshenv",
        ".profile",
    ],
)
def test_a_protected_path_is_refused_though_it_does_not_exist(tmp_path: Path, path: str) -> None:
    assert protected(f"{tmp_path}/{path}", str(tmp_path))
    with Root(str(tmp_path)) as root, pytest.raises(Refused) as failure:
        locate(root, path, make=True)
    assert failure.value.limit == "protected"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "gitlab.py",
        ".gitignore",
        ".gitattributes",
        ".github/workflows/ci.yml",
        "src/git/config",
        "mcp.json",
        "x.git",
        "docs/.bashrc",
        "bin/run",
        ".config/nextest.toml",
        ".env",
        "objects/x.c",
        "refs/y.c",
        "HEAD",
        "agents/x.md",
    ],
)
def test_an_ordinary_path_is_not(tmp_path: Path, path: str) -> None:
    assert protected(f"{tmp_path}/{path}", str(tmp_path)) is None


def test_links_do_not_hide_what_is_protected(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    os.symlink(".git/hooks", tmp_path / "scripts")
    os.symlink(".git", tmp_path / "meta")
    os.symlink(".git/config", tmp_path / "settings")
    os.symlink(".envrc", tmp_path / "environment")
    os.symlink("meta/hooks/../config", tmp_path / "twice")
    with Root(str(tmp_path)) as root:
        for path in (
            "scripts/pre-commit",
            "meta/config",
            "settings",
            "environment",
            "twice",
            "meta/../.git/x",
        ):
            with pytest.raises(Refused) as failure:
                locate(root, path, make=True)
            assert failure.value.limit == "protected", path


def test_the_whole_path_counts_when_the_root_itself_is_protected(tmp_path: Path) -> None:
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(parents=True)
    with Root(str(hooks)) as root, pytest.raises(Refused):
        locate(root, "pre-commit")


@pytest.mark.parametrize("holder", [".retinue", ".claude"])
def test_a_worktree_is_judged_as_if_it_stood_by_itself(tmp_path: Path, holder: str) -> None:
    root = f"{tmp_path}/{holder}/worktrees/abc"
    assert protected(f"{root}/src/a.py", root) is None
    assert protected(f"{root}/.git", root)
    assert protected(f"{root}/.retinue/config", root)
    assert protected(f"{root}/.retinue/worktrees/x", root)
    assert protected(f"{root}/src/a.py", f"{tmp_path}"), "it is another run's"
    assert protected(f"{tmp_path}/{holder}/worktrees/other/a.py", root)


def test_the_git_file_of_a_worktree_is_protected(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    with Root(str(tmp_path)) as root, pytest.raises(Refused):
        locate(root, ".git")


def test_a_git_directory_is_known_by_its_shape(tmp_path: Path) -> None:
    bare = tmp_path / "store"
    for name in ("objects", "refs", "hooks"):
        (bare / name).mkdir(parents=True)
    assert protected(f"{bare}/config", str(tmp_path)) is None
    assert protected(f"{bare}/objects/x", str(tmp_path)) is None
    assert protected(f"{bare}/HEAD", str(tmp_path)), "it would become one"
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("config", "hooks/pre-receive", "HEAD", "objects/x"):
        assert protected(f"{bare}/{name}", str(tmp_path)), name
    assert protected(f"{bare}/hooks/update", f"{bare}/hooks")
    (bare / "refs").rmdir()
    assert protected(f"{bare}/refs/heads/main", str(tmp_path)), "it would become one again"
    assert protected(f"{bare}/config", str(tmp_path)) is None


def test_in_a_home_directory_names_with_a_dot_configure_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "ada"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in (
        ".bashrc",
        ".ssh/authorized_keys",
        ".config/fish/config.fish",
        ".local/bin/ls",
        "bin/ls",
        ".newrc",
    ):
        assert protected(f"{home}/{name}", str(home)), name
        assert protected(f"{home}/{name}", str(tmp_path)), name
    assert protected(f"{home}/.ssh/authorized_keys", f"{home}/.ssh")
    assert protected(f"{home}/notes.txt", str(home)) is None
    assert protected(f"{home}/.gitignore", str(home)) is None
    assert protected(f"{home}/project/.eslintrc", str(home)) is None
    assert protected(f"{home}/.local/src/project/a.py", f"{home}/.local/src/project") is None
    assert protected(f"{home}/.local/bin/ls", f"{home}/.local"), "also for a root in between"
    assert protected(f"{home}/.local/bin/ls", f"{home}/.local/bin")


def test_names_are_compared_as_the_laxest_file_system_would() -> None:
    assert {
        plain(n)
        for n in (".git", ".GIT", ".gIt", ".git.", ".git ", ".gi\u200dt", "\ufeff.git", "GIT~1")
    } == {".git"}
    assert plain("git") == "git"
    assert plain("...") == "..."


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("[core] hooksPath = tools", [("core", "hookspath", "tools")]),
        ('[CORE]\n\tHooksPath="a b" ; no\n', [("core", "hookspath", "a b")]),
        (
            "[core]\nhooksPath = a\\\n  b # no\n x\n",
            [("core", "hookspath", "a  b"), ("core", "x", "")],
        ),
        (
            '# [core] hooksPath = x\n;y\n[includeIf "gitdir:[x]\\""]path="a#b"',
            [("includeif", "path", "a#b")],
        ),
        ("\ufeff[include]\r\npath = c\r\n", [("include", "path", "c")]),
        (
            "[a.b] c = d\\te  \n]bad\n[include] path = x",
            [("a", "c", "d\te"), ("include", "path", "x")],
        ),
    ],
)
def test_settings_of_git_are_read_as_git_reads_them(
    text: str, results: list[tuple[str, str, str]]
) -> None:
    assert list(git_config.settings(text)) == results


def test_what_the_settings_of_git_name_is_protected_wherever_the_repository_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, top = tmp_path / "home", tmp_path / "work" / "repository"
    (top / ".git").mkdir(parents=True)
    (top / "real").mkdir()
    (top / "linked").symlink_to("real")
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".gitconfig").write_text("[core]\n hooksPath = shared\n")
    (top / ".git/config").write_text("[core] hooksPath = linked/hooks\n[include] path = ../.team\n")
    (top / ".team").write_text(
        '[includeIf "gitdir:**"]\npath = sub/more\n[include]\npath = .team\n'
    )
    for root in (str(top), str(tmp_path / "work"), str(top / "sub")):
        for name in (
            "real/hooks/pre-commit",
            "shared/x",
            ".team",
            "sub/more",
            "SUB/More",
            "linked/hooks",
        ):
            assert protected(f"{top}/{name}", root), name
        for name in ("real/x", "sub/other", "hooks/x", "more"):
            assert protected(f"{top}/{name}", root) is None, name
    fd = os.open(top, os.O_PATH)
    assert {".team", "sub/more", "real/hooks", "shared"} <= set(
        git_config.named_beneath(str(top), fd)
    )
    os.close(fd)
    os.mkfifo(top / "sub-pipe")
    (top / ".git/config").write_text("[include]\npath = ../sub-pipe\n")
    assert protected(f"{top}/sub-pipe", str(top))


def test_settings_of_git_are_found_where_git_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "repository"
    (top / ".git").mkdir(parents=True)
    (tmp_path / "settings/git").mkdir(parents=True)
    (tmp_path / "settings/git/config").write_text("[core]\n hooksPath = tools/hooks\n")
    (top / ".git/config").write_text("[include]\n path = ~root/shared.cfg\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    result = git_config.named(str(top))
    assert f"{top}/tools/hooks" in result
    assert os.path.normpath(os.path.expanduser("~root/shared.cfg")) in result
