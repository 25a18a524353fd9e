"""Files of clients that are not as we would write them: nothing is lost, nothing is written
elsewhere, and what cannot be changed safely is refused with a reason."""

from __future__ import annotations

import os
import random
import re
import tomllib
from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.mcp.client_configs import CLIENTS, parsed, server_entry, with_entry
from retinue.mcp.config_install import planned_change, write_change
from tests.cli.private_home import PrivateHome
from tests.repeats import times

COMMAND = ["/usr/bin/retinue", "mcp", "serve", "--guest", "x"]
CODEX = CLIENTS["codex"]
TOML = {
    "none": "",
    "CRLF": 'model = "m"\r\n[mcp_servers.other]\r\ncommand = "x"\r\n',
    "other lists": 'a = [\n  ["x"],\n["y"],\n]\n[mcp_servers.other]\nargs = [\n["z"],\n]\n',
    "our name in a text": 'note = """\n[mcp_servers.other]\nx = 1\n"""\n',
    "signs that end lines elsewhere": 'note = "a\\u2028b \x85 \u2028 c"\n',
    "a table with a longer name": '[mcp_servers.retinue2]\ncommand = "x"\n',
    "our head in a text": 'note = """\n[mcp_servers.retinue]\nx = 1\n"""\n',
}
REFUSED_TOML = {
    "in one line": 'mcp_servers = { retinue = { command = "x" } }\n',
    "dotted": 'mcp_servers.retinue.command = "x"\n',
    "a list of tables": "[[mcp_servers]]\nx = 1\n",
    "broken": "model = \n",
    "twice": "a = 1\na = 2\n",
}
REFUSED_JSON = {
    "twice": '{"mcpServers": {}, "mcpServers": {"a": {}}}',
    "a list": "[]",
    "a text": '"x"',
    "nothing there": '{"mcpServers": null}',
    "a list of servers": '{"mcpServers": []}',
    "no number": '{"a": NaN}',
    "more behind its end": '{"a": 1} x',
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


OLD = {"command": "old", "args": ["x"]}
KEPT_JSON = {
    "comments everywhere": """// a
{
  /* b */ "mcpServers": { // c, d
    "other": {"run": "y", /* } */ "words": ["//"]}, // e
    // f
  }, // g
  "theme": "dark" // h
} // i
""",
    "commas at the ends": '{"mcpServers": {"other": {"y": [1,],},},}',
    "one line": '{"mcpServers":{"a":1}}',
    "no table": '{\n\t"theme": "é" // last\n}\n',
    "CRLF": '{\r\n    "mcpServers": {\r\n        "a": 1\r\n    }\r\n}\r\n',
    "only a comment": "// nothing yet\n",
    "a comment in an empty table": '{"mcpServers": { /* none */ }}',
    "half a character": '{"a": "\\ud800"}',
    "a text like a comment": '{"a": "// \\" /* ,}", "mcpServers": {}}',
}


@pytest.mark.parametrize("name", KEPT_JSON)
def test_comments_and_layout_of_json_stay(name: str) -> None:
    text, config = KEPT_JSON[name], CLIENTS["cursor"]
    new = with_entry(config, text, OLD)
    data = parsed(config, new)
    assert data["mcpServers"].pop("retinue") == OLD
    before = parsed(config, text)
    assert data == {**before, "mcpServers": before.get("mcpServers", {})}
    assert _words(text) == [word for word in _words(new) if word in _words(text)]
    assert ("\r\n" in text) == ("\r\n" in new) and new.count("\r\n") in (0, new.count("\n"))
    without = with_entry(config, new, None)
    assert {"mcpServers": {}, **parsed(config, without)} == {"mcpServers": {}, **before}
    assert {*_words(text)} - {*_words(without)} <= {"mcpServers"}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|//|/\*|\*/", text)


def test_random_files_keep_all_that_is_not_ours() -> None:
    """Objects with comments, commas and spaces at every place where JSON as editors allow it has
    them."""
    rng, config = random.Random(5), CLIENTS["cursor"]

    def space() -> str:
        return rng.choice(["", " ", "\n  ", " // c, } \n", "/* , } */", "\t"])

    def value(depth: int) -> str:
        if depth > 2 or rng.random() < 0.4:
            return rng.choice(["1", '"//"', '"}"', "null", "[1, {}]", '"\\""'])
        return written({f"k{n}": value(depth + 1) for n in range(rng.randrange(3))})

    def written(fields: dict[str, str]) -> str:
        pairs = [f'{space()}"{k}"{space()}:{space()}{v}{space()}' for k, v in fields.items()]
        last = rng.choice(["", ","]) if pairs else ""
        return "{" + ",".join(pairs) + last + space() + "}"

    for _ in range(times(300)):
        servers = {f"s{n}": value(1) for n in range(rng.randrange(3))}
        fields = {"first": value(0), "mcpServers": written(servers), "last": value(0)}
        names = rng.sample(sorted(fields), rng.randrange(1, 4))
        text = space() + written({name: fields[name] for name in names}) + space()
        before = parsed(config, text)
        new = with_entry(config, text, OLD)
        other = with_entry(config, new, {"command": "new", "args": ["x", "y"], "type": "stdio"})
        assert parsed(config, other)["mcpServers"]["retinue"]["args"] == ["x", "y"]
        for one in (new, other):
            without = with_entry(config, one, None)
            assert {"mcpServers": {}, **parsed(config, without)} == {"mcpServers": {}, **before}
            assert one.count("// c") == without.count("// c") == text.count("// c")


def test_what_a_person_has_added_to_our_entry_stays() -> None:
    entry = server_entry("codex", COMMAND, ["KEY"])
    text = with_entry(CODEX, "", entry)
    mine = text.replace("tool_timeout_sec = 60\n", "tool_timeout_sec = 600 # slow\n")
    mine += (
        '# approve\ndefault_tools_approval_mode = "approve"\n\n[mcp_servers.retinue.env]\n'
        'A = "1"\n\n# about another\n[mcp_servers.other]\ncommand = "x" # y\n'
    )
    again = with_entry(CODEX, mine, server_entry("codex", [*COMMAND, "more"], ["KEY", "OTHER"]))
    data = tomllib.loads(again)["mcp_servers"]["retinue"]
    assert data["args"][-1] == "more" and data["env_vars"] == ["KEY", "OTHER"]
    assert (data["tool_timeout_sec"], data["env"]) == (600, {"A": "1"})
    assert data["default_tools_approval_mode"] == "approve"
    for line in ("# slow", "# approve", "# about another", "# y"):
        assert line in again
    assert with_entry(CODEX, again, None) == (
        '# about another\n[mcp_servers.other]\ncommand = "x" # y\n'
    )
    head = '[mcp_servers."retinue"] # mine\nargs = [\n  "x", # the first\n]\ncommand = "old"'
    new = tomllib.loads(with_entry(CODEX, head, entry))["mcp_servers"]["retinue"]
    assert new == entry and "# mine" in with_entry(CODEX, head, entry)

    vscode = CLIENTS["vscode"]
    text = with_entry(vscode, "", server_entry("vscode", COMMAND))
    mine = text.replace('"args"', '"env": {"A": "1"}, // mine\n      "args"')
    again = with_entry(vscode, mine, server_entry("vscode", ["new"]))
    assert parsed(vscode, again)["servers"]["retinue"] == {
        "type": "stdio",
        "command": "new",
        "args": [],
        "env": {"A": "1"},
    }
    assert "// mine" in again and with_entry(vscode, again, None) == ""


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
