"""A place is told things in the order in which they happened, also while its channel fails for a
moment; and one that cannot be told anything is refused before anybody has worked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Actions, Context, Delivery, Limits, Origin, Refused, Retinue, tool
from retinue.testing import VirtualClock, call
from tests.api.scripted_agents import STORES, Home, agent, last, on_virtual_time

both = pytest.mark.parametrize("kind", STORES)
ADA, BOB = (Origin(channel="hook", user=user) for user in ("ada", "bob"))


class Flaky:
    """A channel that refuses what `refuse` says, and remembers what it took."""

    def __init__(self, refuse: Callable[[Delivery], bool] = lambda delivery: False) -> None:
        self.refuse, self.heard = refuse, list[tuple[str, str]]()

    async def send(self, delivery: Delivery) -> None:
        if self.refuse(delivery):
            raise RuntimeError("not now")
        self.heard.append((delivery.origin.user, delivery.text))

    def texts(self, user: str = "ada") -> list[str]:
        return [text for of, text in self.heard if of == user]


def first_times(n: int) -> Callable[[Delivery], bool]:
    """Refuse the first n attempts, whatever they are about."""
    rest = [n]

    def refuse(delivery: Delivery) -> bool:
        rest[0] -= 1
        return rest[0] >= 0

    return refuse


async def say(retinue: Retinue, text: str, origin: Origin = ADA) -> None:
    await retinue.run(
        agent(f"sayer of {text} to {origin.user}", [text]), "Go.", announce=True, origin=origin
    )


TEXTS = [str(n) for n in range(12)]


@both
@pytest.mark.parametrize("failures", [1, 3, 7])
@on_virtual_time
async def test_what_one_place_is_told_stays_in_order_while_its_channel_fails_briefly(
    kind: str, failures: int, tmp_path: Path
) -> None:
    hook = Flaky(first_times(failures))
    async with Home(kind, tmp_path).open(channels={"hook": hook}) as retinue:
        for text in TEXTS:
            await say(retinue, text)
        assert await retinue.settle()
        assert {d.state async for d in retinue.deliveries()} == {"acked"}
    assert hook.texts() == TEXTS


@on_virtual_time
async def test_the_order_holds_when_the_channel_fails_in_the_middle_and_again() -> None:
    tries: dict[str, int] = {}

    def refuse(delivery: Delivery) -> bool:
        tries[delivery.text] = tries.get(delivery.text, 0) + 1
        return delivery.text in ("3", "4", "8") and tries[delivery.text] < 4

    hook = Flaky(refuse)
    async with Retinue(clock=VirtualClock(), channels={"hook": hook}) as retinue:
        await asyncio.gather(
            *(say(retinue, "0", Origin(channel="hook", user=str(n))) for n in range(5))
        )
        for text in TEXTS[1:]:
            await say(retinue, text)
        assert await retinue.settle()
    assert hook.texts() == TEXTS[1:]


@on_virtual_time
async def test_another_place_on_the_same_channel_does_not_wait() -> None:
    hook = Flaky(lambda delivery: delivery.origin.user == "ada" and not hook.texts("bob")[3:])
    async with Retinue(clock=VirtualClock(), channels={"hook": hook}) as retinue:
        for text in TEXTS[:4]:
            await say(retinue, text)
            await say(retinue, text, BOB)
        assert await retinue.settle()
    assert hook.texts("ada") == hook.texts("bob") == TEXTS[:4]


@both
@on_virtual_time
async def test_the_order_holds_after_a_restart_while_the_first_waits_for_its_next_try(
    kind: str, tmp_path: Path
) -> None:
    home, closed = Home(kind, tmp_path), Flaky(lambda delivery: True)
    async with home.open(channels={"hook": closed}) as retinue:
        for text in TEXTS[:4]:
            await say(retinue, text)
        await asyncio.sleep(8)
        states = [(d.text, d.state, d.bounces > 0) async for d in retinue.deliveries()]
        assert states[0] == ("0", "pending", True) and not any(
            refused for _, _, refused in states[1:]
        )
    hook = Flaky()
    async with home.open(channels={"hook": hook}) as retinue:
        await say(retinue, "4")
        assert await retinue.settle()
    assert hook.texts() == TEXTS[:5]


@on_virtual_time
async def test_what_is_given_up_is_out_of_the_way_of_the_rest() -> None:
    hook = Flaky(lambda delivery: delivery.text == "0")
    async with Retinue(
        clock=VirtualClock(), channels={"hook": hook}, limits=Limits(delivery_tries=2)
    ) as retinue:
        for text in TEXTS[:3]:
            await say(retinue, text)
        assert await retinue.settle()
        (dead,) = [d async for d in retinue.deliveries(state=["dead"])]
        assert dead.text == "0" and hook.texts() == ["1", "2"]
        hook.refuse = lambda delivery: False
        await retinue.redeliver(dead.key)
        assert await retinue.settle()
    assert hook.texts() == ["1", "2", "0"]


@on_virtual_time
async def test_what_a_person_has_dropped_is_out_of_the_way_at_once() -> None:
    hook = Flaky(lambda delivery: delivery.text == "0")
    async with Retinue(clock=VirtualClock(), channels={"hook": hook}) as retinue:
        for text in TEXTS[:3]:
            await say(retinue, text)
        first = await anext(retinue.deliveries())
        for _ in range(500):
            await asyncio.sleep(0.01)
            first = await anext(retinue.deliveries())
            if first.state == "pending" and first.bounces:
                break
        await retinue.drop_delivery(first.key)
        await asyncio.sleep(0.1)
        assert hook.texts() == ["1", "2"]
        assert await retinue.settle()


@on_virtual_time
async def test_nothing_is_remembered_of_places_that_were_told_everything() -> None:
    hook = Flaky(first_times(2))
    async with Retinue(clock=VirtualClock(), channels={"hook": hook}) as retinue:
        for n in range(20):
            await say(retinue, "x", Origin(channel="hook", user=str(n)))
        assert await retinue.settle()
        assert not retinue._engine.performer.outbox.n_lines


# places that there are not


@on_virtual_time
async def test_an_origin_whose_channel_does_not_exist_is_refused_before_anybody_works() -> None:
    one = agent("one", ["It is done."])
    async with Retinue(clock=VirtualClock(), channels={"file": Flaky(), "log": Flaky()}) as retinue:
        for start in (retinue.run, retinue.spawn):
            with pytest.raises(
                Refused, match=r"Unknown channel 'hook'. Known: file, log"
            ) as refused:
                await start(one, "Go.", origin=ADA)
            assert refused.value.limit == "channel"
        assert [r async for r in retinue.runs()] == []
        run = await retinue.spawn(one, "Go.", origin=Origin(channel="file"))
        await retinue.settle(run)
        with pytest.raises(Refused, match="Unknown channel 'hook'"):
            await retinue.resume(run, origin=ADA)
        with pytest.raises(Refused, match="Unknown channel 'hook'"):
            await retinue.fork(run, "Go on.", origin=ADA)
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(Refused, match=r"Unknown channel 'hook'. Known: none"):
            await retinue.run(agent("two", ["x"], options={"origin": ADA}), "Go.")
        assert (await retinue.run(one, "Go.", origin=Origin(user="ada"))).ok, (
            "who names no channel needs none"
        )


@on_virtual_time
async def test_a_tool_cannot_send_its_children_to_a_channel_that_does_not_exist() -> None:
    child = agent("child", ["x"])

    @tool(restart="keyed")
    async def hire(context: Context) -> Actions:
        """Hire somebody for somebody else."""
        return context.spawn_actions(child, "Go.", origin=ADA, announce=True)

    def script(request: Any) -> Any:
        return call("hire") if request.turn == 0 else last(request)

    lead = agent("lead", script, tools=[hire], staff=[child])
    async with Retinue(clock=VirtualClock(), channels={"log": Flaky()}) as retinue:
        outcome = await retinue.run(lead, "Go.")
    assert "Unknown channel 'hook'. Known: log" in outcome.text
    assert not outcome.children
