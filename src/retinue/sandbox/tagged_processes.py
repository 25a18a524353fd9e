"""Finds processes that carry a command's tag, wherever they are."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

TAG = "RETINUE_TOOL"


def tagged(tag: str) -> list[int]:
    """Processes with a tag that starts so, in their environment or, as bwrap has it, on their
    command line."""
    needles = (f"\0{TAG}={tag}".encode(), f"\0{TAG}\0{tag}".encode())
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            text = b"\0" + _bytes(entry / "environ") + b"\0" + _bytes(entry / "cmdline")
            if any(needle in text for needle in needles) and not _is_dead(entry):
                pids.append(int(entry.name))
    return pids


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone, or another user's
        return b""


def kill_tagged(tag: str) -> list[int]:
    """Kill every process with that tag; what was found. (A process that cleans its environment is
    not.)"""
    pids = tagged(tag)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _is_dead(entry: Path) -> bool:
    return _bytes(entry / "stat").rpartition(b") ")[2][:1] in (b"", b"Z", b"X")
