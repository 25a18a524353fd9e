"""The HTTP API in somebody's own service, and `retinue serve`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retinue.errors import ConfigError
from retinue.server import AccessToken, asgi_app
from retinue.server.serve import ServeAddress, check
from retinue.server.token_file import read_tokens
from tests.cli.private_home import private_home
from tests.host.mounted import mounted_service
from tests.host.served import ALICE, Served
from tests.waiting import SECONDS


def test_the_application_can_be_mounted_in_a_service() -> None:
    with mounted_service("a page", lambda value: None) as service:
        assert service.call("GET", "/page", token=None).body == b"a page"
        assert service.get("/health", token=None).status == 401
        run = service.finished(token=ALICE)
        assert service.get(f"/runs/{run}/outcome", token=ALICE).json["outcome"]["text"] == "Done."


def test_an_application_without_a_token_is_refused() -> None:
    nothing: Any = None
    with pytest.raises(ConfigError, match="needs a token"):
        asgi_app(nothing, (), tokens=())


@pytest.mark.parametrize(
    ("value", "scopes", "words"),
    [
        ("short", ("read",), "16 or more"),
        ("x" * 20, (), "needs a scope"),
        ("x" * 20, ("root",), "Unknown scope 'root'"),
        ("ü" * 20, ("read",), "printable ASCII"),
    ],
)
def test_a_bad_token_is_refused(value: str, scopes: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AccessToken(value, scopes)


def test_tokens_are_read_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n{'a' * 20}\n\n{'b' * 20} read,run alice\n")
    file.chmod(0o600)
    whole, part = read_tokens(str(file))
    assert set(whole.scopes) == {"read", "run", "approve", "admin"} and whole.user == ""
    assert set(part.scopes) == {"read", "run"} and part.user == "alice"
    for text, words in (
        ("", "is empty"),
        ("short", ":1: A token needs"),
        (f"{'a' * 20} nonsense", ":1: Unknown scope"),
        (f"{'a' * 20} read bob too much", "write TOKEN"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_tokens(str(file))
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_tokens(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(str(tmp_path / "missing"))


def test_other_machines_are_let_in_only_with_tokens() -> None:
    for name in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(ConfigError, match="there is no token"):
            check(ServeAddress(name), [])
        check(ServeAddress(name), [AccessToken("x" * 20)])
    for name in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        check(ServeAddress(name), [])


def test_serve_refuses_an_open_address_without_a_token(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        result = home.run("serve", "--host", "0.0.0.0")
        assert result.returncode == 2 and "--token-file" in result.stderr
        assert not (tmp_path / "data" / "retinue").exists(), "nothing was made"


def test_serve_opens_the_project_on_an_address(tmp_path: Path) -> None:
    with private_home(tmp_path, ["From the server."]) as home:
        process = home.start("serve", "--port", "0")
        assert process.stderr is not None
        place = process.stderr.readline()
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/api/v1", place).group(1))  # type: ignore[union-attr]
        key = Path(process.stderr.readline().removeprefix("Token: in ").strip())
        code = re.search(r"code=(\S+)", process.stderr.readline()).group(1)  # type: ignore[union-attr]
        nothing: Any = None
        api = Served(port, nothing, nothing, nothing)
        token = key.read_text()
        assert api.get("/health", token=None).status == 401
        reply = api.post("/runs", {"task": "hello"}, token=token)
        assert reply.status == 201, reply
        states = api.post("/wait", {"runs": [reply.json["run"]]}, token=token).json["states"]
        assert states == {reply.json["run"]: "completed"}
        outcome = api.get(f"/runs/{reply.json['run']}/outcome", token=token).json
        assert outcome["outcome"]["text"] == "From the server."
        assert api.call("GET", f"/api/v1/runs?code={code}", token=None).status == 303
        assert home.ok("run", "from a command") == "From the server."
        models = api.call("GET", "/v1/models", token=token).json["data"]
        assert "main" in [model["id"] for model in models]
        chat = {"model": "main", "messages": [{"role": "user", "content": "hello"}]}
        chat_reply = api.call("POST", "/v1/chat/completions", chat, token=token)
        assert chat_reply.json["choices"][0]["message"]["content"] == "From the server.", chat_reply
        card = api.call("GET", "/a2a/main/.well-known/agent-card.json", token=token)
        assert card.json["name"] == "main"
        assert len(api.get("/runs", token=token).json["runs"]) == 3
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0 and "Traceback" not in err
        assert token not in place + err and "sk-very-secret" not in err
        assert not key.exists()


def test_nothing_listens_on_an_address_unasked(tmp_path: Path) -> None:
    """The host of a command has its Unix socket and no other."""
    from tests.cli.private_home import Gate

    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        assert gate.reached.wait(SECONDS)
        folder = Path(f"/proc/{home.host_pid()}/fd")
        links = [os.readlink(p) for p in folder.iterdir() if p.exists() or p.is_symlink()]
        inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
        listening = {
            fields[9]
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
            if (fields := line.split())[3] == "0A"
        }
        assert not inodes & listening
        gate.opened.set()


def test_serve_says_who_holds_the_store(tmp_path: Path) -> None:
    from tests.cli.private_home import Gate

    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        process: subprocess.CompletedProcess[str] = home.real("serve", "--port", "0")
        assert process.returncode == 1 and "is in use by process" in process.stderr
        assert "retinue host stop" in process.stderr and "Traceback" not in process.stderr
        gate.opened.set()
