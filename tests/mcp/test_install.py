"""Our entry in the files of clients: added, kept a copy of, taken out again; nothing else moves."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.mcp.client_configs import CLIENTS, with_entry
from tests.cli.private_home import PrivateHome

FILES = {
    "claude": ("project/.mcp.json", "mcpServers"),
    "codex": ("home/.codex/config.toml", "mcp_servers"),
    "cursor": ("project/.cursor/mcp.json", "mcpServers"),
    "vscode": ("project/.vscode/mcp.json", "servers"),
    "gemini": ("home/.gemini/settings.json", "mcpServers"),
    "opencode": ("project/opencode.json", "mcp"),
}
OTHER = {
    "json": '{\n  "theme": "dark",\n  "TABLE": {\n    "other": {\n      "x": 1\n    }\n  }\n}\n',
    "toml": '# mine\nmodel = "m"  # a comment\n\n[TABLE.other]\ncommand = "x"\n',
}


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("is_new", [True, False])
def test_an_entry_is_added_and_taken_out_again(tmp_path: Path, client: str, is_new: bool) -> None:
    assert set(FILES) == set(CLIENTS)
    home = PrivateHome(tmp_path)
    name, table = FILES[client]
    path = tmp_path / name
    text = OTHER[path.suffix[1:]].replace("TABLE", table)
    if not is_new:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    home.ok("mcp", "install", client, "--yes", "--max-budget-usd", "2")
    data = (
        tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())
    )
    entry = data[table]["retinue"]
    words = entry["command"] if client == "opencode" else [entry["command"], *entry["args"]]
    assert words[-6:] == ["mcp", "serve", "--guest", client, "--max-budget-usd", "2.0"]
    assert is_new or data[table]["other"]
    if client == "codex":  # it passes on only what it is told to
        assert {"XDG_RUNTIME_DIR", "RETINUE_PROBE"} <= {*entry["env_vars"]}
        assert not {"HOME", "PATH"} & {*entry["env_vars"]}
    again = home.run("mcp", "install", client, "--yes", "--max-budget-usd", "2")
    assert "Nothing to do" in again.stderr
    home.ok("mcp", "install", client, "--undo", "--yes")
    if is_new:
        assert not path.exists()
    else:
        assert path.read_text() == text
        assert path.with_name(path.name + ".before-retinue").read_text() == text


def test_nothing_is_written_without_a_yes_or_into_a_file_that_is_broken(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    result = home.run("mcp", "install", "cursor")
    assert result.returncode == 2 and "Nothing was written" in result.stderr
    path = home.project / ".cursor" / "mcp.json"
    assert not path.exists()
    path.parent.mkdir()
    path.write_text('// mine\n{"a": ')
    result = home.run("mcp", "install", "cursor", "--yes")
    assert result.returncode == 2 and "cannot be changed here" in result.stderr
    assert path.read_text() == '// mine\n{"a": '
    unknown = home.run("mcp", "install", "emacs", "--yes")
    assert unknown.returncode and "Known are: claude, codex" in unknown.stderr
    with pytest.raises(ConfigError):
        with_entry(CLIENTS["claude"], '{"mcpServers": []}', {})


def test_the_configuration_is_printed_with_the_flags_that_were_given(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    text = home.ok("mcp", "serve", "--print-config", "--guest", "x", "--client-may-approve")
    entry = json.loads(text)["mcpServers"]["retinue"]
    assert entry["args"][-5:] == ["mcp", "serve", "--guest", "x", "--client-may-approve"]
    wrong = home.run("mcp", "serve", "--guest", "a b")
    assert wrong.returncode == 2 and "letters, digits" in wrong.stderr
    wrong = home.run("mcp", "serve", "--root", "nowhere")
    assert wrong.returncode == 2 and "nowhere is not a directory" in wrong.stderr


def test_a_link_of_a_project_leads_an_entry_nowhere(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    file = home.project / ".mcp.json"
    copy = home.project / ".mcp.json.before-retinue"
    (home.project / ".cursor").symlink_to(outside)
    for client, path, target, text in (
        ("claude", file, outside / "there.json", ""),
        ("claude", file, outside / "is.json", "{}"),
        ("claude", copy, outside / "hooks.json", ""),
        ("cursor", None, None, ""),
    ):
        if path is not None and target is not None:
            path.symlink_to(target)
        if text and target is not None:
            target.write_text(text)
        if path is copy:
            file.write_text('{"hooks": {}}')
        result = home.run("mcp", "install", client, "--yes")
        assert result.returncode == 2 and "Nothing was changed" in result.stderr, result
        if path is not None:
            path.unlink()
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("is.json", "{}")]
    assert file.read_text() == '{"hooks": {}}'


def test_a_link_of_the_user_is_followed(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "home" / ".gemini").symlink_to(tmp_path / "dotfiles")
    home.ok("mcp", "install", "gemini", "--yes")
    assert "retinue" in (tmp_path / "dotfiles" / "settings.json").read_text()


@pytest.mark.parametrize("kind", ["pipe", "endless", "no text", "deep", "folder"])
def test_an_odd_file_of_a_project_holds_nothing_up(tmp_path: Path, kind: str) -> None:
    home = PrivateHome(tmp_path)
    path = home.project / ".mcp.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    else:
        path.write_bytes(b"\xff\xfe" if kind == "no text" else b"[" * 200_000)
    result = home.real("mcp", "install", "claude", "--yes")
    assert result.returncode == 2 and "Internal error" not in result.stderr, result
    assert ".mcp.json" in result.stderr
