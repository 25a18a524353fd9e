"""A real process is killed between the ends of its sub-agents and the turn in which their parent
would read of them.

Run as a program (`python -m tests.families.test_agent_killed STORE GATE`) this file is that
process: a lead starts three sub-agents and then sits in a tool until there is a file GATE."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from retinue import Agent, ModelError, Retinue, tool
from retinue.core.events import ChildEnded
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.testing import Scripted
from tests.contracts.world import run_async
from tests.families.agent_world import call, fork, news, prompt_of, spawn

ROOT = Path(__file__).resolve().parents[2]


@tool(restart="pure", risk="read")
async def sit(gate: str) -> str:
    """Do nothing until there is a file."""
    for _ in range(12_000):
        if is_there(gate):
            return "up"
        await asyncio.sleep(0.01)
    return "tired"


def is_there(path: str) -> bool:
    return Path(path).exists()


def script(gate: str) -> Scripted:
    def say(request: ModelRequest) -> object:
        if request.path == "0":
            lines = [[spawn("say a"), fork("say b"), spawn("break")], call("sit", gate=gate)]
            return (
                lines[request.turn] if request.turn < 2 else f"heard {len(news(request.messages))}"
            )
        return (
            ModelError("out of ink", kind="invalid_request")
            if prompt_of(request) == "break"
            else "fine"
        )

    return Scripted(say, name="model")


async def main(store: str, gate: str) -> None:
    lead = Agent("lead", model=script(gate), tools=[sit], families=["agent"])
    async with Retinue(Path(store), agents=[lead]) as retinue:
        run = await retinue.spawn(lead, "Go.", key="one")
        n_ended = 0
        async for item in retinue.steps(run, tree=False, deltas=True):
            if isinstance(item, Step) and isinstance(item.entry.event, ChildEnded):
                n_ended += 1
                if n_ended == 3:
                    sys.stdout.write("ended\n")
                    sys.stdout.flush()
        outcome = await retinue.wait(run)
        assert outcome is not None and await retinue.verify() == []
        text = news(await retinue.messages(run))
        sys.stdout.write(
            json.dumps(
                {"text": outcome.text, "told": text, "ids": [c.id for c in outcome.children]}
            )
        )


async def start(store: Path, gate: Path) -> Process:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.families.test_agent_killed",
        str(store),
        str(gate),
    ]
    return await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "PYTHONPATH": path}, stdout=PIPE
    )


@pytest.mark.parametrize("deaths", [1, 2])
@run_async
async def test_a_process_killed_between_an_end_and_its_notice_tells_it_once(
    deaths: int, tmp_path: Path
) -> None:
    store, gate = tmp_path / "log.db", tmp_path / "gate"
    for _ in range(deaths):
        process = await start(store, gate)
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 25) == b"ended\n"
        process.kill()
        await process.communicate()
        assert process.returncode == -9
    gate.touch()
    process = await start(store, gate)
    output, _ = await asyncio.wait_for(process.communicate(), 25)
    assert process.returncode == 0
    value = json.loads(output.decode().removeprefix("ended\n"))
    assert value["text"] == "heard 3"
    ends = sorted(re.findall(r"\(([0-9a-f-]{36})\) (\w+)", text)[0] for text in value["told"])
    assert ends == sorted(zip(value["ids"], ("completed", "completed", "failed"), strict=True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
