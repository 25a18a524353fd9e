"""The configuration files of many programs become one kind of value, and say where they are
wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from retinue.tools.mcp_client import ServerComplaint, ServerConfig, read_servers


def read(value: Any, **environ: str) -> tuple[dict[str, ServerConfig], list[ServerComplaint]]:
    servers, complaints = read_servers([value], environ)
    return {s.name: s for s in servers}, complaints


def one(entry: dict[str, Any], **environ: str) -> ServerConfig:
    servers, complaints = read({"mcpServers": {"x": entry}}, **environ)
    assert complaints == []
    return servers["x"]


def wrong(entry: Any, **environ: str) -> ServerComplaint:
    servers, [complaint] = read({"mcpServers": {"x": entry, "good": {"command": "y"}}}, **environ)
    assert list(servers) == ["good"], "one bad server does not cost the others"
    assert complaint.fatal
    return complaint


def test_a_file_of_claude_is_read(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    local = {"command": "node", "args": ["s.js"], "env": {"A": "b"}, "cwd": "sub", "timeout": 5000}
    remote = {"type": "http", "url": "https://example.test/mcp", "headers": {"X-Key": "k"}}
    file.write_text(
        json.dumps(
            {
                "mcpServers": {
                    "l": local,
                    "r": remote,
                    "o": {"type": "sse", "url": "http://localhost/s"},
                }
            }
        )
    )
    servers, complaints = read(file)
    assert complaints == []
    assert (servers["l"].kind, servers["l"].command, servers["l"].args) == (
        "stdio",
        "node",
        ("s.js",),
    )
    assert (servers["l"].env, servers["l"].cwd, servers["l"].call_seconds) == (
        {"A": "b"},
        "sub",
        5.0,
    )
    assert (servers["r"].kind, servers["r"].headers) == ("http", {"X-Key": "k"})
    assert servers["o"].kind == "sse"
    assert (servers["l"].source.file, servers["l"].source.dialect) == (str(file), "claude")


def test_a_file_of_vscode_is_read_with_its_comments_inputs_and_folder(tmp_path: Path) -> None:
    file = tmp_path / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(
        '{ // servers\n "inputs": [{"id": "key", "type": "promptString", "description": "The '
        'key"},],\n'
        ' "servers": {"a": {"type": "stdio", "command": "${workspaceFolder}/x", "args": ["// no", '
        '"${env:WHO}"],'
        ' "env": {"KEY": "${input:key}"},}, /* the end */ }}'
    )
    [server], complaints = read_servers([file], {"WHO": "me"}, inputs={"key": "k1"})
    assert complaints == []
    assert server.command == f"{tmp_path}/x"
    assert server.args == ("// no", "me")
    assert server.env == {"KEY": "k1"}
    none, [complaint] = read_servers([file], {"WHO": "me"})
    assert none == []
    assert (complaint.kind, complaint.field) == ("unset", "env.KEY")
    assert "The key" in complaint.text


def test_settings_of_gemini_are_read_and_its_other_settings_left_alone(tmp_path: Path) -> None:
    file = tmp_path / ".gemini" / "settings.json"
    file.parent.mkdir()
    web = {
        "httpUrl": "https://example.test/m",
        "trust": True,
        "includeTools": ["a*"],
        "excludeTools": ["ab"],
        "timeout": 2500,
    }
    file.write_text(
        json.dumps(
            {"theme": "dark", "mcpServers": {"web": web, "old": {"url": "https://example.test/s"}}}
        )
    )
    servers, complaints = read(file)
    assert complaints == []
    result = servers["web"]
    assert (result.kind, result.trust, result.include, result.exclude) == (
        "http",
        True,
        ("a*",),
        ("ab",),
    )
    assert result.call_seconds == 2.5
    assert servers["old"].kind == "sse"
    file.write_text("{}")
    assert read(file) == ({}, [])


def test_copilot_says_local_and_names_its_tools() -> None:
    result = one({"type": "local", "command": "x", "tools": ["one", "two"]})
    assert (result.kind, result.include) == ("stdio", ("one", "two"))
    assert one({"type": "local", "command": "x", "tools": ["*"]}).include is None


def test_a_file_of_codex_is_read_with_all_its_fields(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        'model = "x"\n[mcp_servers.a]\ncommand = "node"\nargs = ["s"]\nenv = { A = "1" '
        '}\nenv_vars = ["HAVE", "LACK"]\n'
        'cwd = "d"\nstartup_timeout_sec = 7\ntool_timeout_sec = 8.5\nenabled = false\nrequired = '
        "true\n"
        'enabled_tools = ["r"]\ndisabled_tools = ["w"]\ndefault_tools_approval_mode = "prompt"\n'
        "supports_parallel_tool_calls = false\n"
        '[mcp_servers.b]\nurl = "https://example.test/m"\nbearer_token_env_var = "TOKEN"\n'
        'http_headers = { "X-A" = "1" }\nenv_http_headers = { "X-B" = "HAVE" }\n'
    )
    servers, complaints = read(file, HAVE="have", TOKEN="t0k")
    assert complaints == []
    a, b = servers["a"], servers["b"]
    assert a.env == {"A": "1", "HAVE": "have"}
    assert (a.start_seconds, a.call_seconds, a.disabled, a.required) == (7.0, 8.5, True, True)
    assert (a.include, a.exclude, a.approval, a.is_parallel) == (("r",), ("w",), "prompt", False)
    assert b.headers == {"X-A": "1", "X-B": "have", "Authorization": "Bearer t0k"}
    assert a.source.dialect == "codex"
    _, [complaint] = read(file, HAVE="have")
    assert (complaint.server, complaint.field, complaint.kind) == (
        "b",
        "bearer_token_env_var",
        "unset",
    )


def test_variables_are_filled_in_where_they_may_stand() -> None:
    result = one(
        {"command": "${C}", "args": ["${A:-one}", "${B:-two}"], "env": {"E": "<${A}>"}},
        C="cmd",
        A="1",
        B="",
    )
    assert (result.command, result.args, result.env) == ("cmd", ("1", "two"), {"E": "<1>"})
    remote = one(
        {"type": "http", "url": "https://${HOST}/m", "headers": {"K": "${K}"}}, HOST="h.test", K="v"
    )
    assert (remote.url, remote.headers) == ("https://h.test/m", {"K": "v"})


def test_what_is_no_variable_of_ours_stays_as_it_is() -> None:
    args = ["$HOME", "${x%y}", "${!z}", "${input:a}", "$(id)", "${}", "${1}"]
    assert one({"command": "sh", "args": args}, HOME="h", x="y").args == tuple(args)


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"command": "${NOPE}"}, "command"),
        ({"command": "x", "args": ["a", "${NOPE}"]}, "args[1]"),
        ({"command": "x", "env": {"K": "${NOPE}"}}, "env.K"),
        ({"type": "http", "url": "https://${NOPE}/"}, "url"),
        ({"type": "http", "url": "https://h.test", "headers": {"H": "${NOPE}"}}, "headers.H"),
    ],
)
def test_a_variable_that_is_not_set_is_an_error_with_server_field_and_name(
    entry: Any, field: str
) -> None:
    complaint = wrong(entry)
    assert (complaint.server, complaint.field, complaint.kind) == ("x", field, "unset")
    assert "NOPE" in complaint.text


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ("text", ""),
        (None, ""),
        ({}, "command"),
        ({"command": 5}, "command"),
        ({"command": "x\0y"}, "command"),
        ({"command": "x", "args": "a b"}, "args"),
        ({"command": "x", "args": ["a", 5]}, "args[1]"),
        ({"command": "x", "env": {"A": 1}}, "env.A"),
        ({"command": "x", "env": {"A=B": "1"}}, "env"),
        ({"command": "x", "timeout": "60"}, "timeout"),
        ({"command": "x", "timeout": True}, "timeout"),
        ({"command": "x", "timeout": -1}, "timeout"),
        ({"command": "x", "disabled": "yes"}, "disabled"),
        ({"command": "x", "aliases": {"tool": "no spaces allowed"}}, "aliases"),
        ({"type": "websocket", "url": "wss://h.test"}, "type"),
        ({"type": "http"}, "url"),
        ({"type": "http", "url": "file:///etc/passwd"}, "url"),
        ({"type": "http", "url": "https://"}, "url"),
        ({"type": "http", "url": "https://h.test:99999"}, "url"),
        ({"type": "http", "url": "https://user:pass@h.test"}, "url"),
        ({"type": "http", "url": "https://h.test", "headers": {"A B": "1"}}, "headers"),
        ({"type": "http", "url": "https://h.test", "headers": {"A": "1\r\nB: 2"}}, "headers.A"),
    ],
)
def test_a_wrong_value_costs_its_server_and_tells_its_place(entry: Any, field: str) -> None:
    complaint = wrong(entry)
    assert (complaint.server, complaint.field) == ("x", field)


def test_an_unknown_key_is_reported_and_costs_nothing() -> None:
    servers, [complaint] = read({"mcpServers": {"x": {"command": "y", "comand": "z"}}})
    assert list(servers) == ["x"]
    assert (complaint.kind, complaint.field, complaint.fatal) == ("unknown_key", "comand", False)


def test_doubtful_values_are_taken_and_reported() -> None:
    entry = {"type": "http", "url": "http://h.test/m", "headers": {"A": "k"}, "timeout": 60}
    servers, complaints = read({"mcpServers": {"x": entry}})
    assert servers["x"].call_seconds == 60.0
    assert sorted(c.field for c in complaints) == ["timeout", "url"]
    assert not any(c.fatal for c in complaints)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"mcpServers": {"a": {"command": "x", "command": "y"}}}',
        '{"mcpServers": []}',
        "{}",
        '{"mcpServers": ' + "[" * 100_000,
        "\xff",
    ],
)
def test_a_file_that_cannot_be_used_is_one_complaint(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(text.encode("latin-1"))
    servers, [complaint] = read(file)
    assert servers == {}
    assert complaint.file == str(file)
    assert complaint.fatal


def test_a_file_that_is_not_there_or_no_file_is_one_complaint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "pipe"):
        servers, [complaint] = read(path)
        assert (servers, complaint.kind) == ({}, "unreadable")


def test_json_may_be_given_as_text_and_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert list(read(' {"mcpServers": {"x": {"command": "y"}}}')[0]) == ["x"]
    file = tmp_path / "bom.json"
    file.write_bytes(b'\xef\xbb\xbf{"mcpServers": {"x": {"command": "y"}}}')
    assert list(read(str(file))[0]) == ["x"]


def test_the_servers_of_an_untrusted_file_are_listed_and_nothing_more(tmp_path: Path) -> None:
    project, user = tmp_path / "project.json", tmp_path / "user.json"
    project.write_text(
        json.dumps(
            {"mcpServers": {"same": {"command": "${NOPE}"}, "evil\u202e": {"command": "rm"}}}
        )
    )
    user.write_text(json.dumps({"mcpServers": {"same": {"command": "mine"}}}))
    servers, complaints = read_servers([project, user], {}, trusted=lambda path: path == user)
    assert [(s.name, s.command) for s in servers] == [("same", "mine")], (
        "an untrusted file hides no trusted server"
    )
    assert [(c.server, c.kind) for c in complaints] == [
        ("same", "untrusted"),
        ("evil\\u202e", "untrusted"),
    ]
    assert all("trust the file" in c.text and c.file == str(project) for c in complaints)


def test_the_first_of_two_servers_of_a_name_wins_and_the_other_is_told(tmp_path: Path) -> None:
    near, far = (
        {"mcpServers": {"x": {"command": "near"}}},
        {"mcpServers": {"x": {"command": "far"}}},
    )
    [server], [complaint] = read_servers([near, far], {})
    assert server.command == "near"
    assert (complaint.kind, complaint.fatal) == ("shadowed", False)


def test_a_configuration_shows_no_secret_when_it_is_printed() -> None:
    result = one(
        {
            "type": "http",
            "url": "https://h.test/m?key=s3cret",
            "headers": {"Authorization": "Bearer s3cret"},
        }
    )
    assert "s3cret" not in repr(result)
    local = one({"command": "x", "args": ["--token=s3cret"], "env": {"T": "s3cret"}})
    assert "s3cret" not in repr(local)


def test_what_a_server_is_depends_on_all_that_it_runs_with_but_not_on_values_of_variables() -> None:
    entry: dict[str, Any] = {"command": "x", "args": ["${A}"], "env": {"B": "${A}"}}
    assert one(entry, A="1").identity == one(entry, A="2").identity
    for change in (
        {"command": "y"},
        {"args": ["${A}", "more"]},
        {"env": {"NODE_OPTIONS": "--require=evil"}},
        {"cwd": "z"},
        {"trust": True},
    ):
        assert one({**entry, **change}, A="1").identity != one(entry, A="1").identity
    assert one({**entry, "timeout": 9_000}, A="1").identity == one(entry, A="1").identity
