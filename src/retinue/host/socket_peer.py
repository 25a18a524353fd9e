"""Identifies the process at the other end of a Unix socket, as far as the system allows."""

from __future__ import annotations

import os
import socket
import struct


def is_ours(line: socket.socket) -> bool:
    """Whether the other end is a process of our own user, as far as the system tells."""
    return not hasattr(socket, "SO_PEERCRED") or _credentials(line)[1] == os.getuid()


def peer(line: socket.socket) -> int:
    """The process at the other end, 0 where the system does not tell."""
    return _credentials(line)[0] if hasattr(socket, "SO_PEERCRED") else 0


def key_in(path: str) -> str:
    """The token of the host; "" when there is no such file, and then the host says so."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(1024).strip()
    except OSError:
        return ""


def _credentials(line: socket.socket) -> tuple[int, int, int]:
    packed = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, user, group = struct.unpack("3i", packed)
    return pid, user, group
