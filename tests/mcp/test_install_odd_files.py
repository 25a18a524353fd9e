"""Files of clients that are not as we would write them: nothing is lost, nothing is written
elsewhere, and what cannot be changed safely is refused with a reason."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.mcp.client_configs import CLIENTS, server_entry, with_entry
from retinue.mcp.config_install import planned_change, write_change
from tests.cli.private_home import PrivateHome

COMMAND = ["/usr/bin/retinue", "mcp", "serve", "--guest", "x"]
CODEX = CLIENTS["codex"]
TOML = {
    "none": "",
    "CRLF": 'model = "m"\r\n[mcp_servers.other]\r\ncommand = "x"\r\n',
    "other lists": 'a = [\n  ["x"],\n["y"],\n]\n[mcp_servers.other]\nargs = [\n["z"],\n]\n',
    "our name in a text": 'note = """\n[mcp_servers.other]\nx = 1\n"""\n',
    "signs that end lines elsewhere": 'note = "a\\u2028b \x85 \u2028 c"\n',
    "a table with a longer name": '[mcp_servers.retinue2]\ncommand = "x"\n',
}
REFUSED_TOML = {
    "our head in a text": 'note = """\n[mcp_servers.retinue]\nx = 1\n"""\n',
    "in one line": 'mcp_servers = { retinue = { command = "x" } }\n',
    "dotted": 'mcp_servers.retinue.command = "x"\n',
    "quoted": '[mcp_servers."retinue"]\ncommand = "x"\n',
    "with a comment": '[mcp_servers.retinue] # mine\ncommand = "x"\n',
    "a list of tables": "[[mcp_servers]]\nx = 1\n",
    "broken": "model = \n",
    "twice": "a = 1\na = 2\n",
}
REFUSED_JSON = {
    "comments": '{// mine\n"mcpServers": {}}',
    "twice": '{"mcpServers": {}, "mcpServers": {"a": {}}}',
    "a list": "[]",
    "a text": '"x"',
    "nothing there": '{"mcpServers": null}',
    "a list of servers": '{"mcpServers": []}',
    "no number": '{"a": NaN}',
    "half a character": '{"a": "\\ud800"}',
    "deep": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a mark at its start": "\ufeff{}",
}


@pytest.mark.parametrize("name", TOML)
def test_toml_of_others_stays_as_it_is(name: str) -> None:
    text = TOML[name]
    new = with_entry(CODEX, text, server_entry("codex", COMMAND, ["KEY"]))
    data = tomllib.loads(new)
    assert data["mcp_servers"].pop("retinue")["command"] == COMMAND[0]
    before = tomllib.loads(text)
    assert data == {"mcp_servers": {}, **before}
    assert with_entry(CODEX, new, None) == text
    assert ("\r\n" in text) == ("\r\n" in new) and new.count("\r\n") in (0, new.count("\n"))


@pytest.mark.parametrize("name", REFUSED_TOML)
def test_toml_that_cannot_be_changed_without_loss_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--print-config"):
        with_entry(CODEX, REFUSED_TOML[name], server_entry("codex", COMMAND))


@pytest.mark.parametrize("name", REFUSED_JSON)
def test_json_that_cannot_be_changed_without_loss_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--print-config"):
        with_entry(CLIENTS["cursor"], REFUSED_JSON[name], server_entry("cursor", COMMAND))


def test_odd_words_of_ours_are_written_so_that_they_are_read_again() -> None:
    for word in ("ä 🙂", 'a"b\\c', "a\nb"):
        new = with_entry(CODEX, "", server_entry("codex", [word]))
        assert tomllib.loads(new)["mcp_servers"]["retinue"]["command"] == word


def test_the_layout_of_a_person_comes_back(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    path = home.project / "opencode.json"
    text = '{ "mcp": {"a": {"x": 1}},\n\t"theme":"é" }'
    path.write_text(text)
    home.ok("mcp", "install", "opencode", "--yes")
    home.ok("mcp", "install", "opencode", "--yes", "--max-agents", "2")
    home.ok("mcp", "install", "opencode", "--yes", "--undo")
    assert path.read_text() == text
    newer = '{"mcp": {"b": {}}}'
    path.write_text(newer)
    home.ok("mcp", "install", "opencode", "--yes")  # its copy is of today, not of the first time
    assert path.with_name("opencode.json.before-retinue").read_text() == newer


def test_the_mode_of_a_file_stays(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    settings = tmp_path / "dotfiles.json"
    settings.write_text("{}")
    settings.chmod(0o640)
    (tmp_path / "home" / ".gemini").mkdir()
    (tmp_path / "home" / ".gemini" / "settings.json").symlink_to(settings)
    home.ok("mcp", "install", "gemini", "--yes")
    assert settings.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "home" / ".gemini" / "settings.json").is_symlink()


def test_what_a_client_writes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / ".mcp.json"
    path.write_text("{}")
    change = planned_change("claude", COMMAND, {}, str(tmp_path))
    path.write_text('{"new": 1}')
    with pytest.raises(ConfigError, match="meanwhile"):
        write_change(change)
    assert path.read_text() == '{"new": 1}' and os.listdir(tmp_path) == [".mcp.json"]
