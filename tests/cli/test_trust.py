"""`retinue trust`: what a project's files would do is shown, and nothing of it happens before its
user agrees; whatever changes has to be agreed to again."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.config.trust_record import TrustFile
from retinue.errors import ConfigError
from tests.cli.private_home import PrivateHome

AGENT = (
    "---\nname: wide\ndescription: d\npermissionMode: bypassPermissions\ntools: Bash(git *), "
    "Read\n---\nHi\n"
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[PrivateHome]:
    home = PrivateHome(tmp_path)
    yield home
    home.close()


def write(root: Path, name: str, text: str) -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def furnish(root: Path) -> None:
    write(root, ".retinue/config.toml", '[permissions]\nmode = "auto"\nallow = ["shell(git *)"]\n')
    server = {"command": "npx", "args": ["-y", "x\u202ey"], "env": {"TOKEN": "hidden-value"}}
    write(root, ".mcp.json", json.dumps({"mcpServers": {"files": server}}))
    write(
        root,
        ".vscode/mcp.json",
        '{"servers": {"web": {"url": "https://mcp.example.org/x", "headers": {"A": "b"}}}}',
    )
    write(root, ".claude/agents/deep/wide.md", AGENT)
    write(root, ".claude/settings.json", '{"hooks": {"PreToolUse": []}}')
    write(root, "AGENTS.md", "Be good.\n")
    write(root, "lib/AGENTS.md", "Be better.\n")


def test_everything_that_would_become_active_is_shown_before_anybody_is_asked(
    home: PrivateHome,
) -> None:
    furnish(home.project)
    result = home.run("trust", input="n\n")
    text = result.stderr
    for line in (
        'permissions.mode = "auto"  (.retinue/config.toml)',
        'permissions.allow = ["shell(git *)"]',
        'files: "npx" "-y" "x\\u202ey"; env: TOKEN  (.mcp.json)',
        "web: https://mcp.example.org/x; headers: A  (.vscode/mcp.json)",
        "wide (.claude/agents/deep/wide.md): mode bypassPermissions; allow: shell(git *)",
        "AGENTS.md, 9 bytes",
        "lib/AGENTS.md, 11 bytes",
        "hooks in .claude/settings.json",
    ):
        assert line in text, line
    assert "hidden-value" not in text and "\u202e" not in text
    assert result.returncode == 4 and text.rstrip().endswith("Nothing was trusted.")
    assert home.run("trust", "--check").returncode == 1


def test_yes_trusts_the_files_as_they_are_and_it_is_kept_for_its_owner_alone(
    home: PrivateHome,
) -> None:
    furnish(home.project)
    assert home.run("trust", input="y\n").returncode == 0
    assert home.ok("trust", "--check") == "trusted"
    file = home.folder / "data" / "retinue" / "trust.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert home.ok("trust", "--list").startswith(f"{home.project}  7 files")
    assert home.run("trust").stderr.endswith("trusted; nothing has changed\n")
    home.ok("trust", "--revoke")
    assert home.run("trust", "--check").returncode == 1
    assert home.run("trust", "--list").stderr == "No project is trusted.\n"


def test_nobody_to_ask_means_no(home: PrivateHome) -> None:
    furnish(home.project)
    result = home.run("trust")
    assert result.returncode == 4 and "pass --yes" in result.stderr


CHANGES: list[tuple[str, Any, str]] = [
    ("a changed server", lambda r: write(r, ".mcp.json", "{}"), "changed: .mcp.json"),
    ("a new agent", lambda r: write(r, ".claude/agents/b.md", AGENT), "new: .claude/agents/b.md"),
    (
        "one where packages are",
        lambda r: write(r, ".claude/agents/node_modules/b.md", AGENT),
        "node_modules/b.md",
    ),
    (
        "a file that is gone",
        lambda r: (r / ".retinue/config.toml").unlink(),
        "gone: .retinue/config.toml",
    ),
    ("new advice", lambda r: write(r, "GEMINI.md", "x"), "new: GEMINI.md"),
    ("a link to elsewhere", lambda r: (r / ".codex").symlink_to("/etc"), "new: .codex"),
]


@pytest.mark.parametrize(("change", "says"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_what_has_changed_is_named_and_has_to_be_trusted_again(
    home: PrivateHome, change: Any, says: str
) -> None:
    furnish(home.project)
    home.ok("trust", "--yes")
    change(home.project)
    result = home.run("trust", "--check")
    assert result.returncode == 1
    assert says in result.stdout
    assert home.ok("config", "get", "permissions.mode") == "manual"
    home.ok("trust", "--yes")
    assert home.run("trust", "--check").returncode == 0


def test_copies_that_runs_work_in_do_not_count(home: PrivateHome) -> None:
    furnish(home.project)
    home.ok("trust", "--yes")
    write(home.project, ".retinue/worktrees/a/AGENTS.md", "x")
    assert home.run("trust", "--check").returncode == 0


def test_a_file_that_leads_out_is_never_trusted_but_does_not_stand_in_the_way(
    home: PrivateHome,
) -> None:
    outside = write(home.folder, "evil.json", '{"mcpServers": {}}')
    furnish(home.project)
    (home.project / ".mcp.json").unlink()
    (home.project / ".mcp.json").symlink_to(outside)
    result = home.run("trust", "--yes")
    assert f".mcp.json: outside of {home.project}" in result.stderr
    stands = TrustFile(str(home.folder / "data" / "retinue" / "trust.json")).standing(home.project)
    assert stands.is_trusted
    assert not stands.trusts(home.project / ".mcp.json")
    assert stands.trusts(home.project / "AGENTS.md")


def test_trust_belongs_to_the_directory_and_not_to_its_files(home: PrivateHome) -> None:
    furnish(home.project)
    home.ok("trust", "--yes")
    other = home.folder / "other"
    (other / ".git").mkdir(parents=True)
    furnish(other)
    assert home.run("trust", "--check", str(other)).returncode == 1
    link = home.folder / "link"
    link.symlink_to(home.project)
    assert home.run("trust", "--check", str(link)).returncode == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 2, "projects": {}}', '{"version": 1, "projects": 3}', "\xff"],
)
def test_a_damaged_record_trusts_nothing_and_says_so(home: PrivateHome, text: str) -> None:
    furnish(home.project)
    home.ok("trust", "--yes")
    file = home.folder / "data" / "retinue" / "trust.json"
    file.write_bytes(text.encode("latin-1"))
    result = home.run("trust", "--check")
    assert result.returncode == 2
    assert "no project is trusted" in result.stderr and len(result.stderr.splitlines()) == 1
    assert home.ok("config", "get", "permissions.mode") == "manual"
    assert home.run("trust", "--yes").returncode == 2
    assert file.read_bytes() == text.encode("latin-1")


def test_a_record_that_others_may_write_is_not_believed(home: PrivateHome) -> None:
    furnish(home.project)
    home.ok("trust", "--yes")
    (home.folder / "data" / "retinue" / "trust.json").chmod(0o622)
    assert "other users can write it" in home.run("trust", "--check").stderr


def test_a_file_that_is_swapped_after_the_check_is_not_read(tmp_path: Path) -> None:
    trust = TrustFile(str(tmp_path / "data" / "trust.json"))
    root = tmp_path / "p"
    furnish(root)
    trust.grant(trust.survey(root))
    stands = trust.standing(root)
    config = root / ".retinue" / "config.toml"
    assert stands.read(config) == config.read_bytes()
    config.write_text('[permissions]\nmode = "bypassPermissions"\n')
    assert stands.read(config) is None and not stands.trusts(config)
    assert stands.read(root / "unknown") is None and stands.read("/etc/passwd") is None


def test_what_changes_while_it_is_looked_at_is_not_trusted(tmp_path: Path) -> None:
    trust = TrustFile(str(tmp_path / "trust.json"))
    root = tmp_path / "p"
    furnish(root)
    survey = trust.survey(root)
    write(root, "AGENTS.md", "Be bad.\n")
    with pytest.raises(ConfigError, match="changed during the review"):
        trust.grant(survey)
    assert trust.projects() == {}


def test_a_folder_below_is_judged_by_its_own_files_and_those_above(tmp_path: Path) -> None:
    trust = TrustFile(str(tmp_path / "trust.json"))
    root = tmp_path / "p"
    furnish(root)
    trust.grant(trust.survey(root))
    write(root, "lib/AGENTS.md", "changed")
    assert trust.is_trusted(root)
    assert not trust.is_trusted(root, root / "lib")
    assert trust.trusted_files(root, root / "lib") == {}
    write(root, "node_modules/x/AGENTS.md", "never seen")
    assert not trust.is_trusted(root, root / "node_modules" / "x")


def test_processes_that_trust_at_the_same_time_do_not_undo_each_other(tmp_path: Path) -> None:
    roots = [tmp_path / f"p{n}" for n in range(8)]
    for root in roots:
        write(root, "AGENTS.md", "x")

    def give(root: Path) -> None:
        trust = TrustFile(str(tmp_path / "data" / "trust.json"))
        trust.grant(trust.survey(root))

    threads = [threading.Thread(target=give, args=(root,)) for root in roots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(TrustFile(str(tmp_path / "data" / "trust.json")).projects()) == {
        os.path.realpath(r) for r in roots
    }


def test_an_empty_project_needs_no_trust(home: PrivateHome) -> None:
    assert home.ok("trust", "--check") == "nothing to trust"
    assert "nothing to trust" in home.run("trust").stderr
    assert not TrustFile(str(home.folder / "x.json")).is_trusted(home.project)


def test_flags_that_exclude_each_other_are_refused(home: PrivateHome) -> None:
    result = home.run("trust", "--list", "--revoke")
    assert result.returncode == 2 and "Use only one of" in result.stderr
    assert home.run("trust", str(home.folder / "nowhere")).returncode == 2


def test_a_home_directory_is_no_project(home: PrivateHome) -> None:
    write(home.folder, "home/.retinue/config.toml", '[permissions]\nmode = "auto"\n')
    inside = home.folder / "home" / "work"
    inside.mkdir()
    result = home.run("trust", "--yes", cwd=home.folder / "home")
    assert result.returncode == 2 and "is not a project" in result.stderr
    result = home.run("trust", "--yes", cwd=inside)
    assert f"{inside}: nothing to trust" in result.stderr
    (home.folder / "home/.git").mkdir()
    result = home.run("trust", "--yes", cwd=inside)
    assert result.returncode == 2 and "is not a project" in result.stderr
    assert home.ok("config", "get", "permissions.mode", cwd=inside) == "manual"


def test_a_project_that_nobody_trusted_is_not_read(home: PrivateHome) -> None:
    furnish(home.project)
    stands = TrustFile(str(home.folder / "trust.json")).standing(home.project)
    assert stands.state == "new" and set(stands.files.values()) == {""}
    assert not stands.trusts(home.project / "AGENTS.md")


def test_every_place_that_a_loader_reads_is_covered() -> None:
    from retinue.agent_files import agents_md, discovery, skill_discovery
    from retinue.config import trusted_files

    read = (
        [place.path for place in discovery.PROJECT]
        + [*agents_md.NAMES]
        + [*skill_discovery.FOLDERS]
    )
    for path in (
        *read,
        ".mcp.json",
        ".vscode/mcp.json",
        ".gemini/settings.json",
        ".codex/config.toml",
    ):
        assert path in trusted_files.FILES or any(
            (path + "/").startswith(folder + "/") for folder in trusted_files.FOLDERS
        ), path
        assert trusted_files.home_of(f"a/b/{path}") == "a/b"


def test_a_new_way_to_files_that_are_trusted_is_a_change(home: PrivateHome) -> None:
    furnish(home.project)
    home.ok("trust", "--yes")
    (home.project / ".claude" / "skills").symlink_to("agents")
    assert "new: .claude/skills/deep/wide.md" in home.run("trust", "--check").stdout
    home.ok("trust", "--yes")
    (home.project / ".claude" / "loop").symlink_to(".")
    result = home.run("trust", "--yes")
    assert result.returncode == 0 and ".claude/loop: it is not a regular file" in result.stderr


def test_servers_of_a_json5_file_are_shown_too(home: PrivateHome) -> None:
    write(
        home.project,
        ".retinue/config.json5",
        "{mcp_servers: {x: {command: 'run-me', args: ['a b']}}}",
    )
    assert 'mcp_servers.x: "run-me" "a b"  (.retinue/config.json5)' in home.run("trust").stderr


def test_folders_that_links_make_very_many_hold_up_no_command(home: PrivateHome) -> None:
    """Two links in each of thirty folders to the next one are a thousand million ways."""
    top = home.project / ".claude/agents"
    for n in range(30):
        (top / f"x{n}").mkdir(parents=True)
        for name in "ab":
            (top / f"x{n}" / name).symlink_to(f"../x{n + 1}")
    write(top, "x30/deep.md", AGENT)
    (home.project / ".agents").symlink_to(".claude")
    assert home.run("agents", "list").returncode == 0
    assert home.run("trust", "--check").returncode == 1
    standing = TrustFile(str(home.folder / "trust.json")).survey(home.project)
    assert ".claude/agents/x30/deep.md" in standing.files and standing.refused


@pytest.mark.parametrize(
    ("n_folders", "size", "words"), [(5_001, 0, "folders"), (0, 8 << 20, "MiB")]
)
def test_a_project_with_too_much_to_trust_is_refused_at_once(
    home: PrivateHome, n_folders: int, size: int, words: str
) -> None:
    top = home.project / ".claude/skills"
    top.mkdir(parents=True)
    for n in range(n_folders):
        (top / f"s{n}").mkdir()
    for n in range(40 if size else 0):
        with open(top / f"f{n}", "wb") as file:
            file.truncate(size)
    result = home.run("trust", "--check")
    assert result.returncode == 2 and words in result.stderr and ".claude" in result.stderr, (
        result.stderr
    )
