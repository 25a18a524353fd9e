"""Where real clients are tried: a project with Retinue installed in it, and a fake provider that is
the model of the client and of our agents."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import Gate, PrivateHome, private_home
from tests.waiting import SECONDS

TASK = "Look at the parser and say what it copies."
ANSWER = "The parser copies its input once."
DELEGATE, COLLECT, STOP = "delegate it", "collect the answers", "stop the agents"
MANY, N_MANY = "delegate them all", 12
_RUN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TASK = re.compile(r"as task (\w+)")


@dataclass
class Script:
    """Both models. The client's does what its user says last; an agent answers when the gate is
    open. `separator` stands between the name of our server and that of a tool."""

    separator: str
    gate: Gate = field(default_factory=lambda: Gate(ANSWER))
    said: list[str] = field(default_factory=list)
    """What the client's model was told by tools and tasks."""

    async def __call__(self, request: Any) -> Any:
        if request.dialect == "openai_chat":
            return await self.gate(request)
        return self._lead(request.messages)

    def _lead(self, messages: Any) -> Any:
        texts = [(type(m).__name__, getattr(m, "text", "")) for m in messages]
        orders = (DELEGATE, COLLECT, STOP, MANY)
        at = max(
            (n for n, (kind, text) in enumerate(texts) if _order(kind, text, orders)), default=-1
        )
        if at < 0:
            return "Nothing to do."
        order = _order(*texts[at], orders)
        results = [text for kind, text in texts[at + 1 :] if kind == "ToolMessage"]
        later = " ".join(text for _, text in texts[at + 1 :])
        self.said += results[-1:]
        match order, len(results):
            case "delegate it", 0:
                return self._tool("delegate", tasks=[TASK])
            case "delegate them all", 0:
                return self._tool("delegate", tasks=[f"{n}: {TASK}" for n in range(N_MANY)])
            case "collect the answers" | "stop the agents", 0:
                if order == STOP and (task := _TASK.search(" ".join(t for _, t in texts[:at]))):
                    return call("TaskStop", task_id=task[1])
                return self._tool("agents")
            case "collect the answers", 1:
                return self._tool("result", ids=[_RUN.findall(results[0])[0]])
            case "stop the agents", 1 if _RUN.search(results[0]):
                return self._tool("cancel", ids=[_RUN.findall(results[0])[0]])
        if ANSWER in later:
            return f"The agent says: {ANSWER}"
        return "The agents are stopped." if order == STOP else "An agent is at work."

    def _tool(self, name: str, **arguments: Any) -> Any:
        return call(f"mcp__retinue{self.separator}{name}", **arguments)


def _order(kind: str, text: str, orders: tuple[str, ...]) -> str:
    if kind != "UserMessage":
        return ""
    return next((order for order in orders if order in text), "")


class Stage:
    """One client in one project."""

    def __init__(self, home: PrivateHome, script: Script) -> None:
        self.home, self.script, self.gate = home, script, script.gate
        self._started: list[subprocess.Popen[str]] = []

    def run(self, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            env=env,
            cwd=self.home.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def wait(self, process: subprocess.Popen[str]) -> str:
        """What it wrote, up to its end."""
        out, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, (process.returncode, out[-2000:])
        return out

    def reached(self) -> None:
        """An agent is at work. A client that has ended without one has failed."""
        self.home.until(lambda: self.gate.reached.is_set() or self._ended())
        assert self.gate.reached.is_set(), f"no agent was started: {self._ended()}"

    def _ended(self) -> str:
        last = self._started[-1] if self._started else None
        if last is None or last.poll() is None:
            return ""
        return f"exit {last.returncode}, {last.communicate(timeout=SECONDS)[0][-1000:]}"

    def kill_host(self) -> None:
        os.kill(self.home.host_pid(), signal.SIGKILL)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """The client and everything that it has started in its group."""
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=SECONDS)

    def state(self) -> str:
        """Of the one run that there is: nothing was started twice."""
        (run,) = self.home.runs()
        return str(run["state"])

    def until_state(self, state: str) -> None:
        self.home.until(lambda: self.state() == state)

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    self.kill(process)


@contextlib.contextmanager
def stage(separator: str) -> Iterator[Stage]:
    script = Script(separator)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        private_home(Path(folder), script) as home,
    ):
        stage = Stage(home, script)
        try:
            yield stage
        finally:
            script.gate.opened.set()
            stage.close()


def events(text: str) -> list[dict[str, Any]]:
    """The lines of JSON in what a client wrote."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
