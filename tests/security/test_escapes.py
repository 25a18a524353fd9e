"""Ways out of the sandbox (attempts/): all of them are tried inside one, and none may succeed."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue.sandbox import seccomp
from retinue.sandbox.bwrap import find_sandbox
from retinue.sandbox.private_paths import Private
from tests.needs import needs
from tests.sandbox.bwrap_world import run_in
from tests.security import attempts

pytestmark = needs("bwrap")

CONTROLS = [name for name in attempts.ATTEMPTS if name.startswith("control_")]
ESCAPES = [name for name in attempts.ATTEMPTS if name not in CONTROLS]
CANARY = "canary-" + uuid.uuid4().hex


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("escapes")
    home, state, workspace = folder / "home", folder / "state", folder / "workspace"
    for path in (
        home / ".ssh/id",
        home / ".aws/credentials",
        home / ".config/token",
        home / ".netrc",
        state / "log.db",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY)
    outside = folder / "elsewhere/outside.txt"
    outside.parent.mkdir()
    outside.write_text(CANARY)
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / ".git/config").write_text("[core]\n")
    token = uuid.uuid4().hex
    victim = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", token], stdin=subprocess.PIPE
    )
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as file,
    ):
        abstract.bind(f"\0{token}")
        abstract.listen()
        file.bind(str(folder / "s"))
        file.listen()
        patch.setenv("HOME", str(home))
        patch.setenv("RETINUE_TEST_SECRET", CANARY)
        facts = {
            "home": str(home),
            "state": str(state),
            "outside": str(outside),
            "canary": CANARY,
            "token": token,
            "victim": victim.pid,
            "tcp": tcp.getsockname()[1],
            "abstract": token,
            "socket": str(folder / "s"),
            "syscalls": seccomp.TABLES[platform.machine()].refused,
            "clone": {"x86_64": 56, "aarch64": 220}[platform.machine()],
        }
        (workspace / "facts.json").write_text(json.dumps(facts))
        shutil.copytree(
            Path(attempts.__file__).parent,
            workspace / "attempts",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        script = f"exec {sys.executable} -m attempts facts.json"
        sandbox = find_sandbox(private=Private(folders=(str(state),)))
        ended, output = run_in(
            workspace, script, sandbox=sandbox, env={"PATH": "/usr/bin:/bin", "HOME": str(home)}
        )
        assert ended.code == 0, output
        values = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        yield {
            **{line["name"]: line for line in values},
            "is_alive": victim.poll() is None,
            "outside": outside.read_text(),
            "workspace": workspace,
        }
    victim.communicate()


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_is_stopped(name: str, results: dict[str, Any]) -> None:
    assert not results[name]["escaped"], results[name]


@pytest.mark.parametrize("name", CONTROLS)
def test_what_is_allowed_works(name: str, results: dict[str, Any]) -> None:
    assert results[name]["escaped"], results[name]


def test_there_are_at_least_forty_escapes_and_all_were_tried(results: dict[str, Any]) -> None:
    assert len(ESCAPES) >= 40
    assert set(attempts.ATTEMPTS) <= set(results)


def test_nothing_outside_has_changed(results: dict[str, Any]) -> None:
    assert results["is_alive"]
    assert results["outside"] == CANARY
    workspace = results["workspace"]
    assert (workspace / ".git/config").read_text() == "[core]\n"
    assert list((workspace / ".git/hooks").iterdir()) == []
    assert not (workspace / ".mcp.json").exists(), (
        "what appeared at a protected name was taken away"
    )
    assert not any(
        Path(folder, "retinue-test").exists()
        for folder in ("/", "/etc", "/usr", "/opt", "/var", "/dev")
    )


def test_killing_everything_inside_kills_nothing_outside(tmp_path: Path) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        run_in(
            tmp_path,
            "kill -9 -1; for i in $(seq 1 400); do kill -9 $i; done 2>/dev/null; kill -9 $PPID",
        )
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.parametrize("machine", sorted(seccomp.TABLES))
def test_the_filter_is_well_formed_for_each_machine(machine: str) -> None:
    code = seccomp.program(machine)
    n = len(code) // 8
    assert len(code) % 8 == 0 and n < 4096
    for at in range(n):
        operation, yes, no = (
            int.from_bytes(code[at * 8 : at * 8 + 2], sys.byteorder),
            code[at * 8 + 2],
            code[at * 8 + 3],
        )
        assert operation in (0x20, 0x15, 0x35, 0x45, 0x06)
        assert at + 1 + max(yes, no) < n or operation == 0x06, "a jump stays inside"
    assert seccomp.program("pdp11") == b""


ANSWERS = {0x7FFF0000: "allow", 0x80000000: "kill"}
NEW, OLD = os.O_CREAT | os.O_WRONLY, os.O_RDONLY
CASES: list[tuple[str, tuple[int, int], tuple[int, ...], str]] = [
    ("read", (0, 63), (3, 0, 9), "allow"),
    ("fchmod", (91, 52), (3, 0o755), "allow"),
    ("fchmod of a shared directory", (91, 52), (3, 0o2775), "allow"),
    ("fchmod", (91, 52), (3, 0o4755), "EPERM"),
    ("fchmodat", (268, 53), (3, 0, 0o6755), "EPERM"),
    ("fchmodat2", (452, 452), (3, 0, 0o4000), "EPERM"),
    ("mknodat", (259, 33), (3, 0, 0o104755), "EPERM"),
    ("openat", (257, 56), (3, 0, NEW, 0o644), "allow"),
    ("openat", (257, 56), (3, 0, NEW, 0o4644), "EPERM"),
    ("openat of what is there", (257, 56), (3, 0, OLD, 0o4644), "allow"),
    ("openat2", (437, 437), (3, 0, 0, 0), "ENOSYS"),
    ("ioctl", (16, 29), (0, 0x5412), "EPERM"),
    ("ioctl", (16, 29), (0, 0x5401), "allow"),
    ("socket", (41, 198), (40,), "EAFNOSUPPORT"),
    ("socket", (41, 198), (1,), "allow"),
    ("mount", (165, 40), (), "EPERM"),
]


@pytest.mark.parametrize(("name", "numbers", "arguments", "answer"), CASES)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_what_the_filter_says(
    machine: str, name: str, numbers: tuple[int, int], arguments: tuple[int, ...], answer: str
) -> None:
    """Also on a machine that this is not."""
    number = numbers[machine == "aarch64"]
    data = struct.pack(
        "=iIQ6Q", number, seccomp.TABLES[machine].arch, 0, *arguments, *[0] * (6 - len(arguments))
    )
    text = _answer(seccomp.program(machine), data)
    assert ANSWERS.get(text, errno.errorcode.get(text & 0xFFFF)) == answer, name
    other = struct.pack("=iIQ6Q", number, 0x40000003, 0, *[0] * 6)
    assert ANSWERS[_answer(seccomp.program(machine), other)] == "kill"


def _answer(code: bytes, data: bytes) -> int:
    at = n_held = 0
    while True:
        operation, *steps, k = struct.unpack_from("=HBBI", code, at * 8)
        yes, no = steps
        at += 1
        match operation:
            case 0x20:
                n_held = struct.unpack_from("=I", data, k)[0]
            case 0x06:
                return int(k)
            case _:
                at += (
                    yes
                    if {0x15: n_held == k, 0x35: n_held >= k, 0x45: bool(n_held & k)}[operation]
                    else no
                )
