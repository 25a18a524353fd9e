"""A thousand children under one limit, on the real engine: random prices, lengths, failures, broken
streams, cancels.

Each crowd works twice: first without a limit, which tells what everybody really costs, then with
one that suffices."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from retinue import (
    Actions,
    Agent,
    Budget,
    Context,
    Limits,
    ModelInfo,
    ModelReply,
    ModelUnavailable,
    Retinue,
    Retry,
    Usage,
    tool,
)
from retinue.core.messages import AssistantMessage, ToolCall
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, VirtualClock
from tests.api.scripted_agents import ended, on_virtual_time

WIDE = Limits(calls_per_turn=10_000, min_output=16, final_output=64)
CHILDREN = 1_000
LONGEST = 3_000
RETRY = Retry(attempts=6, base_ms=200, cap_ms=2_000, then="fail")


class World:
    """What was really asked for and really cost, whatever the runtime has booked."""

    def __init__(self, seed: int, *, patient: bool) -> None:
        self.seed, self.patient = seed, patient
        self.tokens = self.nanos = self.open = self.most_open = 0
        self.largest: Counter[str] = Counter()
        self.tried: Counter[tuple[str, int]] = Counter()

    def pay(self, info: ModelInfo, prompt: int, output: int) -> Usage:
        self.tokens += prompt + output
        self.nanos += info.cost(prompt, output)
        return Usage(input=prompt, output=output, nanos=info.cost(prompt, output))


class Frugal:
    """A model that may say much and says little; now and then it is not there, or breaks off."""

    def __init__(self, world: World, name: str, price_in: int, price_out: int) -> None:
        self.info = ModelInfo(
            name=name,
            max_output=LONGEST,
            price_in=price_in,
            price_out=price_out,
            price_cache_write=price_in * 5 // 4,
        )
        self._world = world

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        world, info = self._world, self.info
        r = random.Random(f"{world.seed} {request.path} {request.turn}")
        world.open += 1
        world.most_open = max(world.most_open, world.open)
        try:
            await asyncio.sleep(
                random.Random(f"{request.path} {request.attempt}").choice((0.1, 1, 7))
            )
        finally:
            world.open -= 1
        prompt = sum(len(m.text) for m in request.messages) // 4
        world.largest["prompt"] = max(
            world.largest["prompt"], 4 * prompt + 24 * len(request.messages) + 200
        )
        output = r.choice((5, 20, 60))
        assert output <= request.max_output or not world.patient, (
            "a reply was shortened though nothing was spent"
        )
        output = min(output, request.max_output)
        world.tried[(request.path, request.turn)] += 1
        if world.tried[(request.path, request.turn)] <= r.choice((0, 0, 0, 0, 1, 2)):
            is_faulty = r.random() < 0.5
            usage = world.pay(info, prompt, output // 2) if is_faulty else Usage()
            raise ModelUnavailable("overloaded", "server_error", usage=usage)
        usage = world.pay(info, prompt, output)
        if request.path == "0" and request.turn == 0:
            return ModelReply(
                message=AssistantMessage(
                    calls=(ToolCall(id="c", name="hire", arguments_json="{}"),)
                ),
                usage=usage,
                stop="calls",
            )
        if (
            request.path != "0"
            and request.turn < r.choice((0, 0, 1, 2))
            and request.purpose == "turn"
        ):
            return ModelReply(
                message=AssistantMessage(
                    calls=(ToolCall(id="c", name="look", arguments_json="{}"),)
                ),
                usage=usage,
                stop="calls",
            )
        return ModelReply(message=AssistantMessage(text="done"), usage=usage)


def crowd(world: World, grant: Budget | None) -> Agent:
    @tool(restart="pure")
    async def look() -> str:
        """Look."""
        return "seen " * 10

    names = (("cheap", 1, 5), ("plain", 3, 15), ("dear", 15, 75))
    staff = [Agent(name, model=Frugal(world, name, a, b), tools=[look]) for name, a, b in names]

    @tool(restart="keyed")
    async def hire(context: Context) -> Actions:
        """Hire everybody."""
        r = random.Random(world.seed)
        orders = []
        for n in range(CHILDREN):
            own: dict[str, Any] = {"budget": grant} if grant is not None and n % 100 == 0 else {}
            orders += context.spawn_actions(
                r.choice(staff), "x" * r.choice((20, 300)), retry=RETRY, **own
            ).spawns
        return Actions(spawns=tuple(orders))

    return Agent("lead", model=Frugal(world, "lead", 3, 15), tools=[hire], staff=staff)


async def work(
    seed: int, budget: Budget, grant: Budget | None, *, patient: bool, cancels: int = 0
) -> tuple[World, Any]:
    world, store, clock = World(seed, patient=patient), MemoryStore(), VirtualClock()
    async with Retinue(store, clock=clock, limits=WIDE) as retinue:
        run = await retinue.spawn(crowd(world, grant), "Go.", budget=budget, retry=RETRY)
        r = random.Random(seed)
        for _ in range(cancels):
            await asyncio.sleep(0.3)
            live = [spec.id for spec, _ in retinue._engine.trees.live() if spec.id != run]
            if live:
                await retinue.cancel(r.choice(live))
        outcome = await ended(retinue, run)
        account = await store.account(run)
        assert account is not None and not any(account.held), "everything that was held went back"
        assert not retinue._engine.trees.by_root, "nothing is left in memory"
    return world, outcome


@pytest.mark.parametrize(("seed", "amount"), [(0, "tokens"), (1, "usd"), (2, "tokens")])
@on_virtual_time
async def test_all_complete_when_what_they_cost_and_one_call_and_a_last_turn_fit(
    seed: int, amount: str
) -> None:
    free, outcome = await work(seed, Budget(), None, patient=True)
    assert {c.state for c in outcome.children} == {"completed"}
    prompt_room = free.largest["prompt"] + LONGEST
    if amount == "tokens":
        limit, grant = free.tokens + 4 * prompt_room, Budget(tokens=12_000)
        budget = Budget(tokens=limit)
    else:
        nanos = free.nanos + 4 * prompt_room * 75
        budget, grant = Budget(usd=nanos / 1e9), None
    world, outcome = await work(seed, budget, grant if seed == 2 else None, patient=True)
    assert Counter(c.state for c in outcome.children) == {"completed": CHILDREN}
    assert (world.tokens, world.nanos) == (free.tokens, free.nanos)
    assert world.most_open < free.most_open, "there was something to wait for"
    assert budget.tokens is None or world.tokens <= budget.tokens
    assert budget.usd is None or world.nanos <= budget.usd * 1e9


@pytest.mark.parametrize(("seed", "part"), [(3, 0.3), (4, 0.8)])
@on_virtual_time
async def test_too_little_for_all_is_never_overspent_and_everybody_ends(
    seed: int, part: float
) -> None:
    free, _ = await work(seed, Budget(), None, patient=True)
    budget = Budget(tokens=int(free.tokens * part), usd=free.nanos * part * 1.1 / 1e9)
    world, outcome = await work(seed, budget, None, patient=False, cancels=30)
    assert world.tokens <= (budget.tokens or 0)
    assert world.nanos <= (budget.usd or 0) * 1e9
    states = Counter(c.state for c in outcome.children)
    assert sum(states.values()) == CHILDREN and states["completed"] > CHILDREN * part / 4
