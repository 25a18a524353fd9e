"""What must work, so that nobody can say that everything fails here."""

import os
import socket
from typing import Any

from .base import attempt, shell, write


@attempt
def control_write_the_workspace() -> Any:
    return write("allowed")


@attempt
def control_write_temporary_files() -> Any:
    return write("/tmp/allowed")


@attempt
def control_run_programs() -> Any:
    return shell("ls /usr | grep -q bin")


@attempt
def control_unix_sockets() -> Any:
    a, b = socket.socketpair()
    a.send(b"x")
    return b.recv(1) == b"x"


@attempt
def control_set_other_modes() -> Any:
    write("tool")
    os.chmod("tool", 0o755)
    os.mkdir("shared")
    os.chmod("shared", 0o2775)
    return os.stat("tool").st_mode & 0o777 == 0o755 and os.stat("shared").st_mode & 0o2000
