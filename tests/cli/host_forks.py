"""Hosts for tests, forked from a process that has everything imported already: the same code in a
process of its own, without the half second that Python needs to read it."""

from __future__ import annotations

import array
import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import IO

CODE = """
import array, asyncio, gc, json, os, socket, sys, threading
import aiohttp
import retinue.host.daemon, retinue.host.openapi, retinue.models.openai_chat
from retinue.api import Retinue
from retinue.host.keys import KeyedCatalog
from retinue.host.plan import Plan
from retinue.host.builder import AgentBuilder
from retinue.tools.families.profiles import FAMILIES

async def warm():
    lender = KeyedCatalog({"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    async with Retinue(None, models=lender) as runtime:
        for n, model in enumerate(("openai-chat:m", "offline/explorer")):
            plan = Plan(model=model, families=tuple(FAMILIES), root=str(n))
            runtime.register(await AgentBuilder("", lender).agent(plan))

asyncio.run(warm())
assert threading.active_count() == 1
line = socket.socket(fileno=int(sys.argv[2]))
gc.freeze()
line.send(b"ready")
while True:
    data, ancillary, _, _ = line.recvmsg(1 << 20, socket.CMSG_SPACE(8))
    if not data:
        break
    told = json.loads(data)
    fds = array.array("i", ancillary[0][2])
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        os.waitpid(pid, 0)  # the host forks once more, so that this one ends at once
        continue
    line.close()
    os.setsid()
    os.dup2(fds[0], 0)
    os.dup2(fds[1], 1)
    for fd in fds:
        os.close(fd)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.environ.clear()
    os.environ.update(told["env"])
    os.chdir(told["cwd"])
    os._exit(retinue.host.daemon.main(told["argv"]))
"""


class Forked:
    """What the command line needs of a process that it has started."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.stdin, self.stdout = stdin, stdout

    def wait(self, timeout: float | None = None) -> int:
        return 0


class HostForks:
    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The name of the host's module is an argument, so that its processes are found by it.
        command = [sys.executable, "-c", CODE, "retinue.host.daemon", str(theirs.fileno())]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=env, stderr=subprocess.DEVNULL
        )
        theirs.close()
        atexit.register(self.close)
        assert self._line.recv(100) == b"ready", "it ended instead"

    def start(self, command: list[str], cwd: str, env: Mapping[str, str]) -> Forked:
        """In the place of `client.start_process`."""
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        data = json.dumps({"argv": command[4:], "cwd": cwd, "env": dict(env)}).encode()
        fds = array.array("i", [their_in, their_out])
        self._line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        os.close(their_in)
        os.close(their_out)
        return Forked(os.fdopen(our_in, "wb"), os.fdopen(our_out, "rb"))

    def close(self) -> None:
        self._line.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)


_made: list[HostForks] = []


def host_forks() -> HostForks:
    """One for all tests of this process."""
    if not _made:
        _made.append(HostForks())
    return _made[0]
