"""`retinue doctor`: one finding for each thing that runs depend on, how to mend it, and an exit
code."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from retinue.cli.doctor.finding import Finding, Look, line
from tests.cli.private_home import SECONDS, PrivateHome

SECRET = "sk-very-secret-value"
STATES = ("ok", "degraded", "broken")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[PrivateHome]:
    home = PrivateHome(tmp_path)
    yield home
    home.close()


def findings(
    home: PrivateHome, *arguments: str, env: dict[str, str] | None = None
) -> tuple[int, dict[str, list[Any]]]:
    result = home.run("doctor", "--json", *arguments, env=env)
    value = json.loads(result.stdout)
    assert value["ok"] is (result.returncode == 0)
    by_name: dict[str, list[Any]] = {}
    for check in value["checks"]:
        assert check["state"] in STATES
        by_name.setdefault(check["name"], []).append(check)
    return result.returncode, by_name


def make_store(home: PrivateHome) -> Path:
    (home.project / "README.md").write_text("# A project\n")
    home.ok("run", "--model", "offline/explorer", "map this repository")
    home.run("host", "stop")
    return home.store


def test_a_fresh_machine_is_well_and_hears_what_a_key_would_give(home: PrivateHome) -> None:
    code, result = findings(home, "--offline")
    assert code == 0
    (model,) = result["model"]
    assert model["state"] == "degraded" and "set ANTHROPIC_API_KEY" in model["fix"]
    assert set(result) >= {
        "python",
        "libraries",
        "extras",
        "configuration",
        "trust",
        "agents",
        "providers",
        "sandbox",
    }
    assert set(result) >= {
        "ripgrep",
        "git",
        "store",
        "host",
        "rights",
        "disk",
        "terminal",
        "local servers",
    }
    assert not any(check["state"] == "broken" for checks in result.values() for check in checks)


def test_a_line_says_its_state_by_glyph_and_word_and_only_where_wanted_by_colour(
    home: PrivateHome,
) -> None:
    text = home.ok("doctor", "--offline", "-v")
    assert "✓ ok        python" in text and "! degraded  model" in text and "\x1b[" not in text
    assert text.splitlines()[-1].startswith("0 broken")
    assert "\x1b[32m✓ ok" in home.ok("doctor", "--offline", "--color", "always")
    assert "\x1b[" not in home.ok(
        "doctor", "--offline", env={"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}
    )
    assert "\x1b[" in home.ok("doctor", "--offline", env={"CLICOLOR_FORCE": "1"})
    plain = home.real("doctor", "--offline", "-v", env={"PYTHONIOENCODING": "ascii"})
    assert "+ ok        python" in plain.stdout and plain.stdout.isascii()
    assert "fix: set a UTF-8 locale" in plain.stdout


def test_what_is_broken_comes_first_and_what_is_in_order_is_one_line(home: PrivateHome) -> None:
    store = make_store(home)
    store.chmod(0o644)
    result = home.run("doctor", "--offline")
    rows = [row for row in result.stdout.splitlines() if not row.startswith(" ")]
    assert [row.split()[1] for row in rows[:2]] == ["broken", "degraded"]
    assert re.match(r"✓ ok        \d+ more +python, libraries, ", rows[-2])
    assert re.fullmatch(r"1 broken, \d+ degraded, \d+ ok +exit 1", rows[-1])
    assert len(rows[-1]) == 79 and result.returncode == 1
    assert not [row for row in rows[:-2] if row.startswith("✓")]


def test_a_long_finding_continues_below_its_text_on_a_terminal() -> None:
    result = Finding(name="libraries", state="ok", text="aiohttp 3.14.5, " * 12, fix="none " * 20)
    rows = line(result, Look(False, False, 80)).split("\n")
    assert len(rows) > 3 and max(map(len, rows)) <= 79
    assert all(row.startswith(" " * 27) and row[27] != " " for row in rows[1:])
    assert line(result, Look(False, False, 0)).count("\n") == 1


def test_providers_are_asked_without_their_keys_and_the_names_of_keys_are_all_that_is_shown(
    home: PrivateHome,
) -> None:
    requests: list[Any] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, dict(self.headers)))
            self.send_response(401)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        dead = holder.getsockname()[1]
    env = {
        "OPENAI_API_KEY": SECRET,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
        "ANTHROPIC_API_KEY": SECRET,
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{dead}",
        "NO_PROXY": "127.0.0.1",
    }
    try:
        code, result = findings(home, env=env)
    finally:
        server.shutdown()
        server.server_close()
    up, down = sorted(result["providers"], key=lambda c: c["state"], reverse=True)
    assert (up["state"], down["state"]) == ("ok", "degraded")
    assert (
        "openai, openai-chat: OPENAI_API_KEY is set" in up["text"] and "responds in" in up["text"]
    )
    assert (
        "anthropic: ANTHROPIC_API_KEY is set" in down["text"] and "does not respond" in down["text"]
    )
    assert code == 0
    assert requests and SECRET not in json.dumps([result, requests])


def test_a_key_that_cannot_be_one_is_broken_and_hides_no_other(home: PrivateHome) -> None:
    env = {"OPENAI_API_KEY": "two words", "GROQ_API_KEY": SECRET}
    code, result = findings(home, "--offline", env=env)
    texts = [f"{check['state']} {check['text']}" for check in result["providers"]]
    assert code == 1 and any(
        "broken openai: OPENAI_API_KEY contains characters" in text for text in texts
    ), texts
    assert any("ok groq: GROQ_API_KEY is set" in text for text in texts), texts
    assert "two words" not in json.dumps(result)


def test_a_provider_that_says_nothing_is_not_waited_for(home: PrivateHome) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {
            "OPENAI_API_KEY": SECRET,
            "OPENAI_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
        }
        _, result = findings(home, env=env | {"NO_PROXY": "*"})
    (openai,) = result["providers"]
    assert openai["state"] == "degraded" and (
        "timed out" in openai["text"] or "no answer" in openai["text"]
    )


@pytest.mark.parametrize(
    ("model", "says", "fix"),
    [
        ("openai:gpt-5.2", "No API key for openai", "Set OPENAI_API_KEY"),
        ("claude-sonnet-4-5", "No API key for anthropic", "Set ANTHROPIC_API_KEY"),
        ("nonsense", "Unknown model 'nonsense'", "retinue config set models.default"),
        ("azure:x", "No API key for azure", "AZURE_OPENAI_API_KEY"),
    ],
)
def test_a_model_that_cannot_be_asked_is_broken(
    home: PrivateHome, model: str, says: str, fix: str
) -> None:
    code, result = findings(home, "--offline", env={"RETINUE_MODEL": model})
    assert code == 1
    (check,) = result["model"]
    assert check["state"] == "broken" and says in check["text"] and fix in check["fix"]
    assert "RETINUE_MODEL" in check["text"]


def test_a_model_that_is_not_allowed_is_broken(home: PrivateHome) -> None:
    file = home.folder / "config" / "retinue" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        '[models]\ndefault = "fast"\naliases = { fast = "openai:a" }\n[models.allow]\nopenai = '
        '["b*"]\n'
    )
    code, result = findings(home, "--offline", env={"OPENAI_API_KEY": SECRET})
    assert code == 1 and "openai:a is not in models.allow" in result["model"][0]["text"]


def test_mistakes_in_files_and_variables_are_found(home: PrivateHome) -> None:
    file = home.folder / "config" / "retinue" / "config.toml"
    file.parent.mkdir()
    file.write_text("[limits]\ndepth = 'x'\nturns = 3\n")
    (home.project / ".retinue").mkdir()
    (home.project / ".retinue" / "config.toml").write_text("")
    agent = home.project / ".claude" / "agents" / "a.md"
    agent.parent.mkdir(parents=True)
    agent.write_text("---\nname: a\ndescription: d\ntools: Nonsense\n---\nx\n")
    code, result = findings(home, "--offline", env={"RETINUE_MODLE": "x"})
    assert code == 1
    assert [c["state"] for c in result["configuration"]] == ["broken", "broken", "degraded"]
    assert "Did you mean 'RETINUE_MODEL'?" in result["configuration"][2]["text"]
    assert (
        result["trust"][0]["state"] == "degraded" and "retinue trust" in result["trust"][0]["fix"]
    )
    assert result["agents"][0]["state"] == "degraded" and "1 broken" in result["agents"][0]["text"]


def test_the_store_is_checked_without_being_touched(home: PrivateHome) -> None:
    store = make_store(home)
    before = {p.name: p.read_bytes() for p in store.parent.iterdir() if p.is_file()}
    code, result = findings(home, "--offline")
    assert code == 0
    assert "hash chain and structure OK, 0 open runs" in result["store"][0]["text"]
    assert {p.name: p.read_bytes() for p in store.parent.iterdir() if p.is_file()} == before


def test_a_changed_event_breaks_the_chain_and_is_named(home: PrivateHome) -> None:
    store = make_store(home)
    db = apsw.Connection(str(store))
    db.execute("update bodies set body = x'7b7d' where seq = 2")
    db.close()
    code, result = findings(home, "--offline")
    assert code == 1
    assert (
        result["store"][0]["text"]
        == "The body of event 2 of the store was changed after it was written."
    )
    assert "backup" in result["store"][0]["fix"]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda f: f.write_bytes(b"not a database, but long enough to be looked at" * 50),
            "cannot be read",
        ),
        (lambda f: f.write_bytes(f.read_bytes()[:8192]), ""),
        (
            lambda f: apsw.Connection(str(f)).execute("pragma user_version = 99"),
            "this version supports",
        ),
        (lambda f: apsw.Connection(str(f)).execute("pragma application_id = 7"), "another program"),
        (
            lambda f: (f.unlink(), Path(f"{f}-wal").write_bytes(b"x")),
            "is missing, but its -wal file exists",
        ),
    ],
)
def test_a_store_that_cannot_be_used_is_broken_and_left_as_it_is(
    home: PrivateHome, spoil: Any, says: str
) -> None:
    store = make_store(home)
    spoil(store)
    before = {p.name: p.read_bytes() for p in store.parent.iterdir() if p.is_file()}
    code, result = findings(home, "--offline")
    assert code == 1
    assert result["store"][0]["state"] == "broken" and says in result["store"][0]["text"]
    assert {p.name: p.read_bytes() for p in store.parent.iterdir() if p.is_file()} == before


def test_a_copy_without_its_log_stays_recognisable_as_one(home: PrivateHome) -> None:
    make_store(home)
    copy = home.folder / "copy.db"
    shutil.copy(home.store, copy)
    home.run("doctor", "--offline", "--store", str(copy))
    assert not Path(f"{copy}-wal").exists() and not Path(f"{copy}-shm").exists()


def test_who_holds_the_store_is_told_and_a_host_is_asked(home: PrivateHome) -> None:
    (home.project / "README.md").write_text("# A project\n")
    home.ok(
        "run",
        "--model",
        "offline/explorer",
        "map this repository",
        env={"RETINUE_IDLE_SECONDS": "60"},
    )
    pid = home.host_pid()
    _, result = findings(home, "--offline")
    assert result["host"][0]["text"] == f"process {pid} holds the store, 0 open runs"
    home.run("host", "stop")
    _, result = findings(home, "--offline")
    assert "no host is running" in result["host"][0]["text"]


def test_another_program_that_holds_the_store_is_named(home: PrivateHome) -> None:
    store = make_store(home)
    Path(f"{store}.lock").write_text(f"{os.getpid()}\n")
    _, result = findings(home, "--offline")
    assert result["host"][0]["state"] == "degraded"
    text = f"the store is locked by another program: process {os.getpid()} ("
    assert text in result["host"][0]["text"]
    Path(f"{store}.lock").write_text("\n")


def test_rights_that_others_have_are_found_and_taken_away(home: PrivateHome) -> None:
    store = make_store(home)
    store.chmod(0o644)
    store.parent.chmod(0o755)
    file = home.folder / "config" / "retinue" / "config.toml"
    file.parent.mkdir(mode=0o755)
    file.write_text("")
    file.chmod(0o664)
    code, results = findings(home, "--offline")
    assert code == 1
    assert sorted(Path(c["text"].split(" has ")[0]).name for c in results["rights"]) == sorted(
        ["retinue.db", store.parent.name, "config.toml"]
    )
    assert all(c["fix"] == "retinue doctor --fix" for c in results["rights"])
    result = home.run("doctor", "--offline", "--fix")
    assert result.returncode == 0
    assert f"{store}: 0644 -> 0600" in result.stderr and f"{file}: 0664 -> 0644" in result.stderr
    assert store.stat().st_mode & 0o777 == 0o600 and store.parent.stat().st_mode & 0o777 == 0o700


def test_a_machine_without_sandbox_and_programs_is_degraded_and_told_what_to_install(
    home: PrivateHome,
) -> None:
    empty = home.folder / "empty"
    empty.mkdir()
    code, result = findings(home, "--offline", env={"PATH": str(empty)})
    assert code == 0
    for name, package in (("sandbox", "bubblewrap"), ("ripgrep", "ripgrep"), ("git", "git")):
        assert result[name][0]["state"] == "degraded" and package in result[name][0]["fix"], name


def test_recovery_says_that_it_is_not_there_and_changes_nothing(home: PrivateHome) -> None:
    result = home.run("doctor", "--recover", "out.db")
    assert result.returncode == 2
    assert "out.db was not created" in result.stderr and "Use a backup" in result.stderr
    assert not (home.project / "out.db").exists()


def test_the_doctor_loads_no_machine_for_help() -> None:
    code = (
        "import sys; from retinue.cli.main import main; main(['doctor', '-h']); "
        "sys.exit('apsw' in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS
    )
    assert process.returncode == 0 and "doctor" in process.stdout, process.stderr
