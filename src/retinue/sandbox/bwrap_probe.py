"""Checks whether bubblewrap works here, and if not, why."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from typing import NamedTuple

OLDEST = (0, 8, 0)
# Everything that is not about files. A user namespace even for root, so that capabilities mean
# nothing outside.
ISOLATE = (
    *(
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--disable-userns",
    ),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"),
)
# /proc read-only as a whole: root needs no capability to write most of /proc/sys, and bwrap does
# not cover that.
CLOSE = ("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/")
INSTALL = "Install the package bubblewrap."
ALLOW_NAMESPACES = (
    "Usually user namespaces are disabled. Allow them (sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0). In a "
    "container, use a seccomp profile that allows them."
)


class _Probe(NamedTuple):
    """Why a program cannot be used, and the fix; or whether it takes directories by descriptor."""

    problem: str = ""
    fix: str = ""
    by_fd: bool = False


@lru_cache(maxsize=8)
def probe_bwrap(program: str) -> _Probe:
    try:
        version = _output(program, "--version").strip()
        numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:3])
        if numbers < OLDEST:
            number = version.removeprefix("bubblewrap ") or "of unknown version"
            problem = f"bubblewrap {number} is too old: 0.8 or newer is needed"
            return _Probe(problem, "Install a newer package bubblewrap.")
        isolate = [
            *ISOLATE,
            "--unshare-net",
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            *CLOSE[:4],
        ]
        _output(program, *isolate, "--", "/bin/sh", "-c", ":")
        return _Probe(by_fd="--bind-fd" in _output(program, "--help"))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "output", None) or b""
        words = output.decode("utf-8", "replace").split() or str(error).split()
        detail = " ".join(words)[:300]
        return _Probe(f"bubblewrap cannot create a sandbox ({detail})", ALLOW_NAMESPACES)


def _output(*argv: str) -> str:
    process = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={},
        timeout=20,
        check=True,
    )
    return process.stdout.decode("utf-8", "replace")
