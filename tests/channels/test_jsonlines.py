"""Announcements in a file: durable, whole, once, with others at it and processes killed in the
middle."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import Origin, RetinueError
from retinue.channels import file
from retinue.channels.file import JsonLines
from tests.contracts.channel import ChannelContract, Side, delivery
from tests.contracts.world import START, run_async
from tests.waiting import SECONDS

ROOT = Path(__file__).resolve().parents[2]


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n")[:-1]]


def whole_lines(path: Path) -> list[Any]:
    """Those that can be read: a torn one cannot."""
    results = []
    for line in path.read_bytes().split(b"\n"):
        try:
            results.append(msgspec.json.decode(line))
        except msgspec.DecodeError:
            continue
    return results


class FileSide:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "box" / "announcements.jsonl"
        self.channel = JsonLines(self.path)

    def taken(self) -> list[str]:
        return [line["text"] for line in lines(self.path)] if self.path.exists() else []

    def break_down(self) -> None:
        """A file stands where the folder was."""
        self.path.parent.rename(self.path.parent.with_name("aside"))
        self.path.parent.write_text("in the way")

    def mend(self) -> None:
        self.path.parent.unlink()
        self.path.parent.with_name("aside").rename(self.path.parent)


class TestJsonLines(ChannelContract):
    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Side]:
        yield FileSide(folder)  # type: ignore[misc]


@run_async
async def test_a_line_says_everything_a_reader_needs(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    await JsonLines(str(path)).send(delivery("It is\ndone.", key="k", run="r7"))
    assert path.read_bytes() == (
        b'{"key":"k","run":"r7","channel":"post","user":"ada","thread":"42","text":"It '
        b'is\\ndone.","at":%d}\n' % START
    )


@run_async
async def test_the_file_and_its_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "out.jsonl"
    before = os.umask(0)
    try:
        await JsonLines(path).send(delivery())
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent, path.parent.parent)]
    assert [f"{mode:o}" for mode in modes] == ["600", "700", "700"]


@run_async
async def test_it_stays_where_it_was_when_the_program_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    channel = JsonLines("out.jsonl")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await channel.send(delivery())
    assert len(lines(tmp_path / "out.jsonl")) == 1


@run_async
async def test_a_key_that_another_channel_wrote_before_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    first, second = JsonLines(path), JsonLines(path)
    for key in ("a", "b"):
        await first.send(delivery(key, key=key))
        await second.send(delivery(key, key=key))
    await JsonLines(path).send(delivery("b", key="b"))
    await first.send(delivery("c", key="c"))
    await second.send(delivery("c", key="c"))
    assert [line["key"] for line in lines(path)] == ["a", "b", "c"]


@run_async
async def test_a_line_that_was_torn_anywhere_is_left_and_written_again(tmp_path: Path) -> None:
    path = tmp_path / "whole.jsonl"
    text = 'a "quoted" text, } and {"key":"x"} in it, 漢'
    await JsonLines(path).send(delivery("first", key="a"))
    first = path.read_bytes()
    await JsonLines(path).send(delivery(text, key="b"))
    both = path.read_bytes()
    for position in range(len(first), len(both) + 1):
        torn = tmp_path / f"torn{position}.jsonl"
        torn.write_bytes(both[:position])
        channel = JsonLines(torn)
        await channel.send(delivery("third", key="c"))
        await channel.send(delivery(text, key="b"))
        await channel.send(delivery("first", key="a"))
        for _ in range(2):
            assert torn.read_bytes().startswith(both[:position]), "what is there is never changed"
            assert Counter(line["key"] for line in whole_lines(torn)) == {"a": 1, "b": 1, "c": 1}, (
                position
            )
            await JsonLines(torn).send(delivery(text, key="b"))


@run_async
async def test_lines_that_are_not_ours_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    foreign = b'not json\n\n[]\n{"key": 7}\n{"other": "k"}\n"k"\n\x00\x00\xff\xfe\nk\n'
    path.write_bytes(foreign)
    await JsonLines(path).send(delivery(key="k"))
    await JsonLines(path).send(delivery(key="k"))
    assert path.read_bytes().startswith(foreign)
    assert len(path.read_bytes().splitlines()) == len(foreign.splitlines()) + 1


@run_async
async def test_a_file_that_was_put_aside_or_emptied_is_started_anew(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    channel = JsonLines(path)
    await channel.send(delivery("a", key="a"))
    path.rename(tmp_path / "old.jsonl")
    await channel.send(delivery("a", key="a"))
    await channel.send(delivery("b", key="b"))
    assert [line["key"] for line in lines(path)] == ["b"], "what was taken was taken"
    path.write_bytes(b"")
    await channel.send(delivery("c", key="c"))
    path.write_bytes(b"")
    await JsonLines(path).send(delivery("", key="d"))
    await channel.send(delivery("", key="d"))
    assert [line["key"] for line in lines(path)] == ["d"]


@run_async
async def test_only_the_newest_keys_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    monkeypatch.setattr(file, "KEPT", 3)
    channel = JsonLines(path)
    for key in "abcd":
        await channel.send(delivery(key, key=key))
    for reader in (channel, JsonLines(path)):
        for key in "dcb":
            await reader.send(delivery(key, key=key))
        assert [line["key"] for line in lines(path)] == list("abcd")
    await JsonLines(path).send(delivery("a", key="a"))
    assert [line["key"] for line in lines(path)] == list("abcda")


# the disk


@run_async
async def test_a_line_is_on_the_disk_before_send_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "new" / "out.jsonl", list[tuple[str, int]]()
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        name = os.readlink(f"/proc/self/fd/{fd}") if os.path.exists("/proc/self/fd") else ""
        synced.append(
            (Path(name).name, os.fstat(fd).st_size if stat.S_ISREG(os.fstat(fd).st_mode) else 0)
        )

    monkeypatch.setattr(os, "fsync", fsync)
    await JsonLines(path).send(delivery())
    assert synced == [(tmp_path.name, 0), ("new", 0), ("out.jsonl", path.stat().st_size)]
    synced.clear()
    await JsonLines(path).send(delivery())
    assert synced == [("new", 0), ("out.jsonl", path.stat().st_size)], (
        "found, but who knows whether it is on the disk"
    )


@pytest.mark.parametrize("fails", ["fsync", "write"])
@run_async
async def test_what_could_not_be_made_durable_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path, real = tmp_path / "out.jsonl", os.write
    channel = JsonLines(path)
    await channel.send(delivery("first", key="a"))
    before = path.read_bytes()

    def no_sync(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def short(fd: int, data: Any) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, no_sync if fails == "fsync" else short)
        with pytest.raises(RetinueError, match=r"error|space"):
            await channel.send(delivery("second", key="b"))
    assert path.read_bytes() == before
    await channel.send(delivery("second", key="b"))
    assert [line["key"] for line in lines(path)] == ["a", "b"]


def test_a_disk_that_is_really_full_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    program = """
import asyncio, resource, sys
from retinue import RetinueError
from retinue.channels.file import JsonLines
from tests.contracts.channel import delivery
resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
channel, full = JsonLines(sys.argv[1]), 0
for n in range(5):
    try:
        asyncio.run(channel.send(delivery("text", key=f"k{n}")))
    except RetinueError as error:
        assert "File too large" in str(error), error
        full += 1
assert 0 < full < 5, full
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for n in range(5):
    asyncio.run(channel.send(delivery("text", key=f"k{n}")))
"""
    assert start(program, str(path)).communicate(timeout=SECONDS) == (b"", b"")
    assert [line["key"] for line in lines(path)] == [f"k{n}" for n in range(5)]


@pytest.mark.parametrize("kind", ["folder", "fifo", "below a file"])
@run_async
async def test_a_path_that_cannot_be_appended_to_raises(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out.jsonl"
    match kind:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.write_text("")
            path = path / "out.jsonl"
    why = r"out\.jsonl is not a regular file" if kind == "fifo" else r"append to .*out\.jsonl"
    with pytest.raises(RetinueError, match=why):
        await JsonLines(path).send(delivery())


# several processes


def start(program: str, *args: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-W", "error", "-c", program, *args]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=pipe, stderr=pipe
    )


APPEND = """
import asyncio, os, sys, time
from retinue.channels.file import JsonLines
from tests.contracts.channel import delivery

async def main(path, name, n, gate):
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    while gate and not os.path.exists(gate):
        time.sleep(0.001)
    channel = JsonLines(path)
    for i in range(n):
        key = f"{name}-{i}" if i % 10 == 0 else f"shared-{i}"
        await channel.send(delivery("text " * (i % 50), key=key))
        sys.stdout.write(key + "\\n")
        sys.stdout.flush()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
"""


def appender(path: Path, name: str, n: int, gate: str = "") -> subprocess.Popen[bytes]:
    process = start(APPEND, str(path), name, str(n), gate)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def test_two_processes_that_append_the_same_keys_at_once_write_each_once(tmp_path: Path) -> None:
    path, gate, n = tmp_path / "box" / "out.jsonl", tmp_path / "gate", 150
    both = [appender(path, name, n, str(gate)) for name in ("one", "two")]
    gate.touch()
    assert [process.communicate(timeout=SECONDS)[1] for process in both] == [b"", b""]
    keys = {f"shared-{i}" for i in range(n) if i % 10}
    keys |= {f"{name}-{i}" for name in ("one", "two") for i in range(0, n, 10)}
    assert Counter(line["key"] for line in lines(path)) == dict.fromkeys(keys, 1)


@run_async
async def test_nobody_looks_while_another_is_about_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "out.jsonl", os.write

    def slow(fd: int, data: Any) -> int:
        time.sleep(0.1)
        return real(fd, data)

    monkeypatch.setattr(os, "write", slow)
    await asyncio.gather(*(JsonLines(path).send(delivery(key="k")) for _ in range(3)))
    assert len(lines(path)) == 1


def test_a_process_that_is_killed_loses_nothing_that_it_was_told_is_taken(tmp_path: Path) -> None:
    path, acked = tmp_path / "out.jsonl", set[str]()
    for n_before_the_kill in (1, 25, 60):
        process = appender(path, "one", 100_000)
        with process:
            out = process.stdout
            assert out is not None
            acked |= {out.readline().decode().strip() for _ in range(n_before_the_kill)}
            process.send_signal(signal.SIGKILL)
            acked |= {line.decode().strip() for line in out if line.endswith(b"\n")}
    keys = Counter(line["key"] for line in whole_lines(path))
    assert acked <= set(keys)
    assert set(keys.values()) == {1}
    assert len(keys) - len(acked) <= 3, "at most one a kill was written and not reported"


@run_async
async def test_whoever_holds_the_file_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    path.touch()
    channel = JsonLines(path)
    with path.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        monkeypatch.setattr(file, "LOCK_SECONDS", 0.1)
        began = time.monotonic()
        with pytest.raises(RetinueError, match="locked by another process"):
            await channel.send(delivery())
        assert time.monotonic() - began >= 0.1
        monkeypatch.setattr(file, "LOCK_SECONDS", 30.0)
        sending = asyncio.create_task(channel.send(delivery()))
        await asyncio.sleep(0.05)
        assert not sending.done()
        assert path.read_bytes() == b""
    await sending
    assert len(lines(path)) == 1


@run_async
async def test_a_file_that_is_replaced_while_we_wait_for_it_is_not_written_to(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.jsonl"
    path.touch()
    with path.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        sending = asyncio.create_task(JsonLines(path).send(delivery()))
        await asyncio.sleep(0.05)
        path.rename(tmp_path / "old.jsonl")
    await sending
    assert (tmp_path / "old.jsonl").read_bytes() == b""
    assert len(lines(path)) == 1


@run_async
async def test_an_origin_without_names_is_written_too(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    await JsonLines(path).send(delivery(origin=Origin(channel="log")))
    assert [(line["channel"], line["user"], line["thread"]) for line in lines(path)] == [
        ("log", "", "")
    ]


@run_async
async def test_what_the_runtime_says_is_a_field_of_its_own(tmp_path: Path) -> None:
    await JsonLines(tmp_path / "out").send(delivery("done", note="one is missing"))
    assert msgspec.json.decode((tmp_path / "out").read_bytes())["note"] == "one is missing"
