"""The larger the budget of a lead, the more of its plain spawns start and get to work, in every
family: what children get by default is never in the way of the next one."""

from __future__ import annotations

from typing import Any

import pytest

from retinue import Agent, Budget, Retinue, tool
from retinue.core.values import ModelInfo
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, VirtualClock, call, run_virtual
from retinue.tools.families.profiles import FAMILIES, family

N = 5
BUDGETS = (
    1_000,
    4_000,
    9_000,
    14_000,
    20_000,
    35_000,
    50_000,
    60_000,
    100_000,
    150_000,
    300_000,
    1_000_000,
)
PRICED = ModelInfo(name="m", price_in=1_000, price_out=5_000)


@tool(restart="pure", risk="read")
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is a word"


def _tasks(**more: Any) -> list[dict[str, Any]]:
    return [{name: value.format(n=n) for name, value in more.items()} for n in range(N)]


SPAWNS: dict[str, list[Any]] = {
    "agent": [call("agent_spawn", prompt=f"task {n}") for n in range(N)],
    "agent by forks": [call("agent_fork", prompt=f"task {n}") for n in range(N)],
    "delegate": [
        call(
            "delegate_tasks",
            mode="parallel",
            tasks=[
                {"task_id": f"t{n}", "prompt": f"task {n}", "tools": ["look_up"]} for n in range(N)
            ],
        )
    ],
    "fanout": [call("spawn_agents", tasks=_tasks(task="task {n}"))],
    "sessions": [call("sessions_spawn", task=f"task {n}") for n in range(N)],
    "subagent": [call("subagent", label=f"t{n}", task_prompt=f"task {n}") for n in range(N)],
    "subagent at once": [
        call("parallel_subagent", tasks=_tasks(label="t{n}", task_prompt="task {n}"))
    ],
}


def test_every_family_is_asked() -> None:
    assert {name.split()[0] for name in SPAWNS} == set(FAMILIES)


async def lead(spawns: str, budget: Budget) -> tuple[int, int]:
    answered: set[str] = set()

    def say(request: ModelRequest) -> Any:
        if request.path == "0" and request.turn == 0 and request.purpose == "turn":
            return SPAWNS[spawns]
        if request.path != "0":
            answered.add(request.path)
        is_handed_in = request.path != "0" and any(t.name == "submit_result" for t in request.tools)
        return call("submit_result", result="found it") if is_handed_in else "found it"

    agent = Agent(
        "lead",
        model=Scripted(say, info=PRICED),
        tools=[look_up],
        families=[family(spawns.split()[0])],
    )
    store = MemoryStore()
    async with Retinue(store, clock=VirtualClock(), agents=[agent]) as retinue:
        outcome = await retinue.run(agent, "Go.", budget=budget)
    row = await store.row(outcome.id)
    assert row is not None
    return row.run.n_children, len(answered)


def started(spawns: str, budget: Budget) -> tuple[int, int]:
    """How many children of five were started, and how many had their say."""
    return run_virtual(lead(spawns, budget))


@pytest.mark.parametrize("spawns", SPAWNS)
def test_what_starts_grows_with_the_budget(spawns: str) -> None:
    results = [started(spawns, Budget(tokens=tokens)) for tokens in BUDGETS]
    assert [n for n, _ in results] == sorted(n for n, _ in results), list(
        zip(BUDGETS, results, strict=True)
    )
    assert [n for _, n in results] == sorted(n for _, n in results), list(
        zip(BUDGETS, results, strict=True)
    )
    assert results[-1] == (N, N)
    assert results[0] == (0, 0)


@pytest.mark.parametrize("spawns", SPAWNS)
def test_what_starts_grows_with_the_dollars(spawns: str) -> None:
    results = [started(spawns, Budget(usd=tokens / 1_000_000)) for tokens in BUDGETS[::2]]
    assert [n for n, _ in results] == sorted(n for n, _ in results), list(
        zip(BUDGETS[::2], results, strict=True)
    )
    assert [n for _, n in results] == sorted(n for _, n in results), list(
        zip(BUDGETS[::2], results, strict=True)
    )
    assert results[-1] == (N, N)
