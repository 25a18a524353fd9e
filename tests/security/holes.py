"""What the tests of closed holes share: verdicts, scripted agents, a repository."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from retinue import Actions, Agent, Context, Permissions, Retinue, tool
from retinue.core import permissions
from retinue.core.messages import ToolCall, ToolMessage
from retinue.core.values import PermissionGrant, ToolRisk
from retinue.models.base import ModelRequest
from retinue.testing import Scripted

WRITE = ToolRisk(risk="write", subject="path", guarded=True)
SHELL = ToolRisk(risk="execute", subject="command", guarded=True)
FETCH = ToolRisk(risk="network", subject="url", guarded=True)
FREE = Permissions(mode="bypassPermissions")
SECRET = "s3cr3t-Value-12345"


def verdict(
    name: str, args: Any, guard: ToolRisk, *rules: str, mode: str = "", grants: tuple[str, ...] = ()
) -> str:
    text = args if isinstance(args, str) else json.dumps(args)
    chain = [("run", Permissions(rules=rules, mode=mode))]
    return permissions.rule_on(
        chain,
        ToolCall(id="c", name=name, arguments_json=text),
        guard,
        [PermissionGrant(rule=g) for g in grants],
    ).verdict


def talk(*turns: Any) -> Callable[[ModelRequest], object]:
    return lambda request: turns[request.turn] if request.turn < len(turns) else "done"


def agent(name: str, *turns: Any, **fields: Any) -> Agent:
    return Agent(name, model=Scripted(talk(*turns), name=name), **fields)


def hire(child: Agent, **options: Any) -> Any:
    @tool(name="hire", restart="keyed")
    async def hire(context: Context) -> Actions:
        """Hire."""
        return context.spawn_actions(child, "task", **options)

    return hire


async def results(retinue: Retinue, run: str) -> list[str]:
    return [m.text for m in await retinue.messages(run) if isinstance(m, ToolMessage)]


async def until(look_up: Callable[[], Awaitable[Any]]) -> Any:
    for _ in range(12_000):  # however busy the machine is
        if value := await look_up():
            return value
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come")


def git(where: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    return subprocess.run(
        ["git", *who, "-C", str(where), *args], check=True, capture_output=True, text=True
    ).stdout


def shown_by(where: Path, what: str) -> str:
    command = ["git", "-C", str(where), "show", what]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def is_directory(path: str) -> bool:
    return os.path.isdir(path)


def make_repository(top: Path) -> Path:
    top.mkdir(parents=True)
    (top / "a.txt").write_text("one\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    return top
