"""The host: one process for a store, found or started by every command, and replaceable at any
moment."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from retinue.testing import call
from tests.cli.private_home import SECONDS, Gate, PrivateHome, is_alive, private_home

OLD_HOST = """
import os, pathlib, socket, sys
pathlib.Path(sys.argv[2]).write_text(str(os.getpid()))
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("listening", flush=True)
while True:
    line, _ = server.accept()
    line.recv(100_000)
    line.sendall(b'{"hello":1,"error":"that was no greeting"}\\n')
    line.close()
"""


def post(address: Path, path: str, body: Any, key: str | None) -> tuple[int, Any]:
    """One request as any program could make it."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(address))
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request("POST", path, json.dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_run_is_carried_out_by_a_host_that_leaves_when_nothing_is_left(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        assert home.ok("run", "hello") == "Done."
        pid = home.host_pid()
        home.until(lambda: not is_alive(pid))
        assert list((tmp_path / "run" / "retinue").iterdir()) == []
        assert [r["state"] for r in home.runs()] == ["completed"]


def test_everything_is_for_its_owner_alone(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "hello")
        gate.reached.wait(SECONDS)
        store, plans = home.store, Path(f"{home.store}.plans")
        assert [mode(p) for p in (store, home.socket, *plans.iterdir())] == [0o600] * 3
        assert [mode(p) for p in (store.parent, plans, home.socket.parent)] == [0o700] * 3
        logs = list((tmp_path / "state" / "retinue" / "log").iterdir())
        assert [mode(p) for p in logs] == [0o600]
        assert json.loads((store.parent / "project.json").read_text())["root"] == str(home.project)
        gate.opened.set()


def test_a_key_is_in_no_file_and_in_no_list_of_processes(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.quick = False
        home.ok("run", "--bg", "hello")
        assert gate.reached.wait(SECONDS)
        pid = home.host_pid()
        assert b"sk-very-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert b"sk-very-secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        gate.opened.set()
        home.ok("wait")
        for path in tmp_path.rglob("*"):
            if path.is_file():
                assert b"sk-very-secret" not in path.read_bytes(), path


def test_runs_of_a_killed_host_are_taken_up_by_the_next_command(tmp_path: Path) -> None:
    gate = Gate(call("artifact", id="0" * 64), "All of it.", at=1)
    with private_home(tmp_path, gate) as home:
        id = home.ok("run", "--bg", "a long task")
        assert gate.reached.wait(SECONDS)
        os.kill(home.host_pid(), signal.SIGKILL)
        home.until(lambda: home.runs()[0]["state"] == "paused")
        gate.reached.clear()
        waiting = home.start("wait", id)
        assert gate.reached.wait(SECONDS)
        gate.opened.set()
        assert waiting.wait(SECONDS) == 0
        waiting.communicate()
        assert home.ok("show", id).endswith("All of it.")
        events = [m["event"]["event"] for m in home.lines("logs", id, "--jsonl")]
        assert events.count("Requested") == 1 and "Recovered" in events


def test_a_run_that_is_watched_while_its_host_dies_says_so_and_is_kept(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        watching = home.start("run", "a long task")
        assert gate.reached.wait(SECONDS)
        os.kill(home.host_pid(), signal.SIGKILL)
        _, err = watching.communicate(timeout=SECONDS)
        assert watching.returncode == 1
        assert (
            "retinue: Lost the connection to this project's host" in err and "Traceback" not in err
        )
        gate.opened.set()
        assert home.ok("resume") == "Done."


def test_two_commands_that_need_a_host_at_once_get_the_same_one(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        both = [home.start("run", f"task {n}") for n in range(3)]
        assert [p.communicate(timeout=SECONDS)[0].strip() for p in both] == ["Done."] * 3
        assert [p.returncode for p in both] == [0] * 3
        assert [r["state"] for r in home.runs()] == ["completed"] * 3


def test_a_host_that_is_asked_to_end_leaves_its_runs_open(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        id = home.ok("run", "--bg", "a long task")
        assert gate.reached.wait(SECONDS)
        pid = home.host_pid()
        assert "1 runs stay open" in home.run("host", "stop").stderr
        assert not is_alive(pid)
        assert home.runs()[0]["state"] == "paused"
        gate.opened.set()
        assert home.ok("attach", id) == "Done."


def test_sigterm_closes_a_host_in_good_order(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        id = home.ok("run", "--bg", "a long task")
        assert gate.reached.wait(SECONDS)
        pid = home.host_pid()
        os.kill(pid, signal.SIGTERM)
        home.until(lambda: not is_alive(pid))
        gate.opened.set()
        assert home.ok("attach", id) == "Done."
        event = next(
            e["event"]
            for e in home.lines("logs", id, "--jsonl")
            if e["event"]["event"] == "Recovered"
        )
        assert event["clean"] is True


def test_stop_all_ends_the_hosts_of_every_project(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        other = tmp_path / "other"
        (other / ".retinue").mkdir(parents=True)
        home.ok("run", "--bg", "one")
        home.ok("run", "--bg", "two", cwd=other)
        result = home.run("host", "stop", "--all-projects", cwd=tmp_path)
        assert result.stderr.count("Stopped host") == 2
        assert "No host is running" in home.run("host", "stop").stderr


def test_a_command_of_another_version_is_refused_in_words(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        key = Path(f"{home.socket}.key").read_text()
        status, text = post(home.socket, "/api/v1/host/hello", {"version": 99}, key)
        assert (
            status == 409 and text["about"] == "version" and ("retinue host stop") in text["detail"]
        )


def test_a_request_that_is_not_understood_is_answered_and_the_host_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        key = Path(f"{home.socket}.key").read_text()
        assert post(home.socket, "/api/v1/dance", {}, key)[0] == 404
        status, text = post(home.socket, "/api/v1/wait", {"runs": 7}, key)
        assert status == 400 and "could not read this request" in text["detail"]
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(home.socket))
            line.sendall(b'{"hello":1}\n\n')
            assert line.makefile("rb").readline().startswith(b"HTTP/1.1 400 ")
        assert home.runs()[0]["state"] == "running"


def test_a_host_of_an_older_version_is_named_and_can_be_stopped(tmp_path: Path) -> None:
    """It answers the first bytes of a request with a line of JSON, as hosts did before HTTP."""
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        address = home.socket
        home.ok("host", "stop")
        home.until(lambda: not address.exists())
        command = [sys.executable, "-c", OLD_HOST, str(address), f"{home.store}.lock"]
        old = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert old.stdout is not None and old.stdout.readline() == "listening\n"
            result = home.run("attach", env={"RETINUE_START_SECONDS": "2"})
            assert (
                result.returncode == 1
                and "Run `retinue host stop`, then try again" in result.stderr
            )
            assert home.run("host", "stop").returncode == 0
            assert old.wait(SECONDS) == -signal.SIGTERM
        finally:
            old.kill()
            old.wait(SECONDS)
            old.stdout.close()
        gate.opened.set()
        assert home.ok("attach") == "Done."


def test_a_path_that_is_too_long_for_a_socket_is_replaced(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        deep = tmp_path / ("d" * 60) / ("e" * 60)
        deep.mkdir(parents=True)
        home.env["XDG_RUNTIME_DIR"] = ""
        store = deep / "runs.db"
        try:
            assert home.ok("run", "--store", str(store), "hello") == "Done."
            assert home.lines("ps", "--store", str(store), "--jsonl")[0]["state"] == "completed"
        finally:
            home.run("host", "stop", "--store", str(store))
        assert mode(store) == 0o600


def test_without_a_runtime_folder_the_socket_stands_beside_the_store(tmp_path: Path) -> None:
    gate = Gate()
    with tempfile.TemporaryDirectory() as short, private_home(tmp_path, gate) as home:
        home.env |= {"XDG_RUNTIME_DIR": "", "XDG_DATA_HOME": short}
        try:
            home.ok("run", "--bg", "hello")
            paths = list(Path(short).glob("retinue/projects/*/retinue.db.sock"))
            assert [mode(p) for p in paths] == [0o600]
            gate.opened.set()
            home.ok("wait")
        finally:
            home.run("host", "stop")


def test_new_keys_hold_from_the_next_command_on(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        wrong = home.run(
            "run", "--max-turns", "1", "hello", env={"OPENAI_BASE_URL": f"{home.llm.url}/nowhere"}
        )
        assert wrong.returncode != 0
        assert home.ok("run", "hello") == "Done."


def test_a_store_that_another_program_holds_is_named(tmp_path: Path) -> None:
    from retinue.store.sqlite.store_lock import Lock

    with private_home(tmp_path) as home:
        store = tmp_path / "held.db"
        lock = Lock(str(store))
        lock.acquire()
        try:
            result = home.run(
                "run", "--store", str(store), "hello", env={"RETINUE_START_SECONDS": "2"}
            )
        finally:
            lock.release()
        assert result.returncode == 1
        assert (
            f"is in use by process {os.getpid()}" in result.stderr
            and "Traceback" not in result.stderr
        )


@pytest.mark.parametrize("command", [("ps",), ("deliveries",), ("ps", "--json")])
def test_looking_starts_no_host_and_makes_no_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    home = PrivateHome(tmp_path)
    home.ok(*command)
    assert list((tmp_path / "data").iterdir()) == []
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("key", [None, "", "0" * 64])
def test_who_does_not_show_the_key_gets_a_reason_and_nothing_else(
    tmp_path: Path, key: str | None
) -> None:
    gate = Gate()
    with private_home(tmp_path, gate) as home:
        home.ok("run", "--bg", "a long task")
        file = Path(f"{home.socket}.key")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and len(file.read_text()) == 64
        for path in ("/api/v1/host/hello", "/api/v1/host/stop"):
            status, text = post(home.socket, path, {}, key)
            assert status == 401 and "token of this host is missing or wrong" in text["detail"]
            assert not text.get("pid") and not text.get("store")
        assert home.ok("ps", "--json"), "the host goes on"


def test_a_key_is_new_with_every_host_and_goes_with_it(tmp_path: Path) -> None:
    with private_home(tmp_path, Gate()) as home:
        keys = set()
        for _ in range(2):
            home.ok("run", "--bg", "a long task")
            key = Path(f"{home.socket}.key")
            keys.add(key.read_text())
            home.run("host", "stop")
            home.until(lambda key=key: not key.exists())
        assert len(keys) == 2
