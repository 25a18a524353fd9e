"""What the tests of closed holes share: verdicts, scripted agents, a repository."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from retinue import Agent, Caller, Capabilities, Orders, Retinue, tool
from retinue.core import permissions as permits
from retinue.core.messages import Call, Result
from retinue.core.values import Grant, Guard
from retinue.models.base import Request
from retinue.testing import Scripted

WRITE = Guard(risk="write", subject="path", guarded=True)
SHELL = Guard(risk="execute", subject="command", guarded=True)
FETCH = Guard(risk="network", subject="url", guarded=True)
FREE = Capabilities(mode="bypassPermissions")
SECRET = "s3cr3t-Value-12345"


def verdict(
    name: str, args: Any, guard: Guard, *rules: str, mode: str = "", grants: tuple[str, ...] = ()
) -> str:
    text = args if isinstance(args, str) else json.dumps(args)
    chain = [("run", Capabilities(rules=rules, mode=mode))]
    return permits.rule_on(
        chain, Call(id="c", name=name, args=text), guard, [Grant(rule=g) for g in grants]
    ).verdict


def talk(*turns: Any) -> Callable[[Request], object]:
    return lambda request: turns[request.turn] if request.turn < len(turns) else "done"


def agent(name: str, *turns: Any, **fields: Any) -> Agent:
    return Agent(name, model=Scripted(talk(*turns), name=name), **fields)


def hire(child: Agent, **options: Any) -> Any:
    @tool(name="hire", restart="keyed")
    async def hire(caller: Caller) -> Orders:
        """Hire."""
        return caller.spawn(child, "task", **options)

    return hire


async def results(retinue: Retinue, run: str) -> list[str]:
    return [m.text for m in await retinue.messages(run) if isinstance(m, Result)]


async def until(found: Callable[[], Awaitable[Any]]) -> Any:
    for _ in range(12_000):  # however busy the machine is
        if value := await found():
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
