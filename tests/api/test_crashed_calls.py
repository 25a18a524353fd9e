"""After a crash only those model calls are paid for that had left: not those that waited for their
provider."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Budget
from retinue.core.messages import ModelReply
from retinue.core.values import ModelInfo, Usage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted
from retinue.testing.fake_llm.fake_provider import FakeLLM, FakeSettings
from tests.api.scripted_agents import Home, last, lead_of, on_virtual_time
from tests.api.test_kill_loops import die

N_CHILDREN, AT_ONCE = 200, 20
BUDGET = 2_400_000
"""Enough for all children and for what three crashes broke off; not for the bounds of all children
three times."""
EACH = Usage(input=80, output=20)


class Provider(Scripted):
    """It takes so many calls at a time; whoever waits has sent nothing."""

    def __init__(self) -> None:
        super().__init__(self._say, info=ModelInfo(name="m", price_in=0, price_out=0), usage=EACH)
        self.seconds, self.asked, self.left = 1_000.0, 0, 0
        self.open()

    def open(self) -> None:
        """As a new process has it: nothing is under way."""
        self._room, self.asked, self.left = asyncio.Semaphore(AT_ONCE), 0, 0

    async def complete(self, request: ModelRequest, emit: Any) -> ModelReply:
        request.progress.wait()
        self.asked += 1
        async with self._room:
            self.left += 1
            return await super().complete(request, emit)

    async def _say(self, request: ModelRequest) -> str:
        await asyncio.sleep(self.seconds)
        return f"did {last(request)}"


async def until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0.05)


async def killed(home: Home, lead: Agent, provider: Provider, run: str = "") -> str:
    """One process that dies when everybody has asked and as many as may have left."""
    provider.open()
    retinue = home.open(agents=[lead])
    await retinue.__aenter__()
    run = run or await retinue.spawn(lead, "Go.", budget=Budget(tokens=BUDGET))
    await until(lambda: provider.asked == N_CHILDREN)
    assert provider.left == AT_ONCE
    await die(retinue)
    return run


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@on_virtual_time
async def test_three_crashes_cost_what_had_left_and_everybody_completes(
    kind: str, tmp_path: Path
) -> None:
    home, provider = Home(kind, tmp_path), Provider()
    lead = lead_of(Agent("child", model=provider), N_CHILDREN)
    run = ""
    for _ in range(3):
        run = await killed(home, lead, provider, run)
    provider.open()
    provider.seconds = 0.01
    async with home.open(agents=[lead]) as retinue:
        outcome = await retinue.wait(run)
        assert outcome is not None
        assert outcome.state == "completed", (outcome.stop, outcome.error)
        assert {child.state for child in outcome.children} == {"completed"}
        usages = [
            o.usage for o in await asyncio.gather(*(retinue.wait(c.id) for c in outcome.children))
        ]
        assert sum(usage.turns - 1 for usage in usages) == 3 * AT_ONCE
        assert sum(usage.estimated > 0 for usage in usages) <= 3 * AT_ONCE
        assert outcome.tree_tokens < BUDGET


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@on_virtual_time
async def test_who_is_cancelled_before_it_is_taken_up_pays_for_what_had_left(
    kind: str, tmp_path: Path
) -> None:
    home, provider = Home(kind, tmp_path), Provider()
    one, names = Agent("one", model=provider), [f"task {n}" for n in range(AT_ONCE + 1)]
    retinue = home.open(agents=[one])
    await retinue.__aenter__()
    runs = [await retinue.spawn(one, name) for name in names]
    await until(lambda: provider.asked == len(runs))
    await die(retinue)
    async with home.open() as retinue:
        assert set(retinue.runs_without_agent) == set(runs)
        paid = []
        for run in runs:
            await retinue.cancel(run)
            outcome = await retinue.outcome(run)
            assert outcome is not None
            paid.append(outcome.usage.turns)
    assert paid == [1] * AT_ONCE + [0]


LIFE = """
import asyncio, sys
from retinue import Agent, Budget, Retinue
from retinue.models.catalog import Catalog
from retinue.models.provider_settings import ProviderTerms
from tests.api.scripted_agents import lead_of

async def main(store, url):
    environ = {"ANTHROPIC_API_KEY": "sk-canary-7f3a9c51e2b84d06", "ANTHROPIC_BASE_URL": url}
    terms = ProviderTerms(max_concurrent=5, start_concurrent=5)
    catalog = Catalog(environ, terms={"anthropic": terms})
    child = Agent("child", model="anthropic:claude-haiku-4-5")
    lead = lead_of(child, 60)
    async with Retinue(store, agents=[lead], models=catalog) as retinue:
        run = await retinue.spawn(lead, "Go.", key="it", budget=Budget(tokens=10_000_000))
        print("up", flush=True)
        outcome = await retinue.wait(run)
        done = await asyncio.gather(*(retinue.wait(c.id) for c in outcome.children))
        print(outcome.state, sum(o.usage.turns - 1 for o in done), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.timeout(120)
def test_a_killed_process_pays_for_what_its_provider_has_heard(tmp_path: Path) -> None:
    async def live(url: str) -> asyncio.subprocess.Process:
        command = [sys.executable, "-c", LIFE, str(tmp_path / "log.db"), url]
        return await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, cwd=Path.cwd()
        )

    async def main() -> None:
        hold = asyncio.Event()

        async def answer(request: object) -> str:
            await hold.wait()
            return "done"

        async with FakeLLM(answer, settings=FakeSettings(keep=1_000)) as llm:
            process = await live(llm.url)
            await until(lambda: llm.open == 5 or process.returncode is not None)
            process.send_signal(signal.SIGKILL)
            await process.wait()
            assert llm.n_requests == 5
            hold.set()
            await until(lambda: not llm.open)
            process = await live(llm.url)
            output, _ = await process.communicate()
            assert output.decode().split("\n")[1] == "completed 5"

    asyncio.run(main())
