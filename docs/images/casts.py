"""Who plays in the pictures: models that reply from a script, and the files that they work on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from retinue.testing import call
from tests.cli.private_home import Gate, PrivateHome

TASK = "Timeouts and retries in every HTTP client"
NAMES = ("sync-client", "async-client", "webhooks")
TOOLS = ["read", "list", "search", "find", "git"]
AREAS = {
    "agents": "5 files, 4 key types",
    "models": "22 files, 9 key types",
    "environments": call("read", path="src/environments/docker.py"),
    "run": call("search", pattern="def main|app ="),
    "config": call("ask", question="Two configurations are read. Which of them is the one in use?"),
    "tests": "",
    "tools": call("list", path="src/tools"),
    "server": call("read", path="src/server/app.py", offset=40, limit=60),
    "cli": call("find", pattern="**/main.*"),
    "git history": call("git", args=["log", "--oneline"]),
}
CLIENT = """import pool


class Client:
    def send(self, request, timeout=None):
        return self._pool.send(request, timeout)

    def close(self):
        self._pool.close()
"""
POLICY = """        policy = self.policy or Policy(total=timeout)
        for attempt in policy.attempts():
            with attempt:
                return self._pool.send(request, attempt.left)
"""
OLD = "        return self._pool.send(request, timeout)\n"
REQUESTS = {
    "sync-client": call("edit", path="src/client.py", old=OLD, new=POLICY),
    "async-client": call("shell", command="pip install 'httpx[http2]==1.4.*'", timeout_seconds=600),
    "docs": "docs/http.md, 1 page",
}
PAGE = """# Cause

- `auth/clock.py:41` calls `datetime.now()` without a time zone.
- The test compares it with an aware time.

```python
def now(self):  # aware
    return datetime.now(tz=UTC) + self.ttl
```

| Fix | Files | Risk |
|---|---:|---|
| Use UTC in the clock | 1 | low: no public name changes |
| Change the test | 2 | hides the fault |

**Next:** run `pytest tests/auth` in both zones."""
LOOKS = [
    [call("read", path="src/client.py")],
    [call("search", pattern="timeout")],
    [call("read", path="src/client.py", offset=2)],
]
WRITES = [
    [call("edit", path="src/pool.py", old="limit = 10\n", new="limit = 20\n")],
    [call("edit", path="src/pool.py", old="limit = 10\n", new="limit = 40\n")],
    [call("write", path="docs/http.md", content="# HTTP\n")],
]


class Mapping:
    """A lead gives out areas; who has nothing more to say thinks until the picture is taken."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def __call__(self, request: Any) -> Any:
        first = request.messages[0].text
        name = next((n for n in AREAS if f"area {n}." in first), "")
        if not name:
            tasks = [
                {"task_id": n, "prompt": f"Look at area {n}.", "tools": [*TOOLS, "ask"]}
                for n in AREAS
            ]
            return (
                "The map." if request.turn else call("delegate_tasks", mode="parallel", tasks=tasks)
            )
        if isinstance(AREAS[name], str):
            return AREAS[name]
        return await self.gate(request) if request.turn else AREAS[name]


def requests(request: Any) -> Any:
    """An edit and a command that wait for a permission."""
    first = request.messages[0].text
    name = next((n for n in REQUESTS if f"area {n}." in first), "")
    if not name:
        texts = ["read", "edit", "shell"]
        tasks = [{"task_id": n, "prompt": f"Look at area {n}.", "tools": texts} for n in REQUESTS]
        return "Done." if request.turn else call("delegate_tasks", mode="parallel", tasks=tasks)
    return "Done." if request.turn else REQUESTS[name]


class Team:
    """A lead that gives out tasks; each is a list of replies, and after the last one the gate is
    waited for, if there is one."""

    def __init__(self, *scripts: list[Any], gate: Gate | None = None, mode: str = "parallel"):
        self.scripts, self.gate, self._mode = scripts, gate, mode
        self.n_waiting = 0

    async def __call__(self, request: Any) -> Any:
        first = request.messages[0].text
        name = next((n for n in NAMES if f"Work on {n}." in first), "")
        if name:
            script = self.scripts[NAMES.index(name)]
            if request.turn < len(script):
                return script[request.turn]
            self.n_waiting += 1
            return await self.gate(request) if self.gate is not None else "Done."
        if request.turn:
            return "A lane limits how many runs work at once."
        tools = ["read", "edit", "write", "search"]
        tasks = [
            {"task_id": n, "prompt": f"Work on {n}.", "tools": tools}
            for n in NAMES[: len(self.scripts)]
        ]
        return call("delegate_tasks", mode=self._mode, tasks=tasks)


def areas(folder: Path) -> None:
    """Files to look at for those who map."""
    for name in ("environments/docker.py", "server/app.py", "tools/shell.py", "cli/main.py"):
        file = folder / "src" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def main():\n    pass\n" * 60)


def sources(home: PrivateHome, client: str = CLIENT) -> None:
    """A small project in git, in which sub-agents that write work side by side."""
    (home.project / "src").mkdir()
    (home.project / "src" / "client.py").write_text(client)
    (home.project / "src" / "pool.py").write_text("limit = 10\n")
    (home.project / ".git").rmdir()
    who = ["-c", "user.name=You", "-c", "user.email=you@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "Start"]):
        subprocess.run(["git", *command], cwd=home.project, check=True)
