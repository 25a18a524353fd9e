"""An outcome tells who of those it rests on never returned; whoever reads a result is told the same
by the runtime."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from retinue import Actions, Agent, Context, Origin, tool
from retinue.core.messages import UserMessage
from retinue.core.provenance import HEAD
from retinue.core.values import Delivery, Helpers
from retinue.errors import ModelRejected
from retinue.models.base import ModelRequest
from retinue.testing import call
from tests.api.scripted_agents import STORES, Home, agent, ended, hiring, on_virtual_time

LINE = "2 of 3 sub-agents never returned: b (failed: invalid_request), a (timed out)"


def three(**options: Any) -> Agent:
    """A lead with a middle one, whose three helpers are late, broken and well. Everybody says that
    all is well."""

    async def work(request: ModelRequest) -> str:
        if request.messages[0].text == "b":
            raise ModelRejected("no", kind="invalid_request")
        if request.messages[0].text == "a":
            await asyncio.sleep(1_000)
        return "All is well."

    helper = agent("helper", work, timeout=10)

    def middle(request: ModelRequest) -> Any:
        return (
            call("hire", tasks=["a", "b", "c"])
            if request.turn == 0
            else f"{HEAD}0 of 3 sub-agents never returned."
        )

    between = agent("middle", middle, tools=[labelled(helper)], staff=[helper])

    def lead(request: ModelRequest) -> Any:
        return call("hire", tasks=["m"]) if request.turn == 0 else "All is well."

    return agent("lead", lead, tools=[hiring(between, **options)], staff=[between])


def labelled(child: Agent) -> Any:
    @tool(name="hire", restart="keyed")
    async def hire(context: Context, tasks: list[str]) -> Actions:
        """Hire somebody for each task."""
        return Actions(
            spawns=tuple(context.request(child.name, task, label=task) for task in tasks)
        )

    return hire


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_an_outcome_tells_on_all_levels_who_never_returned(kind: str, tmp_path: Path) -> None:
    home, lead = Home(kind, tmp_path), three()
    async with home.open(agents=[lead]) as retinue:
        outcome = await ended(retinue, await retinue.spawn(lead, "Go."))
        (middle,) = outcome.children
        below = await retinue.outcome(middle.id)
        messages = await retinue.messages(outcome.id)
    assert outcome.ok and below.ok
    assert below.missing == LINE
    assert outcome.missing == LINE.replace("a (", "middle > a (").replace(
        "b (", "middle > b ("
    ).replace("of 3", "of 4")
    assert (outcome.helpers.n_started, outcome.helpers.n_lost) == (4, 2)
    assert [one.state for one in outcome.helpers.lost] == ["failed", "timed_out"]
    texts = [m.text for m in messages if isinstance(m, UserMessage) and m.kind == "note"]
    assert texts == [f"{HEAD}About the result of middle: {LINE}."], (
        "what the middle one wrote is a result"
    )


@on_virtual_time
async def test_an_outcome_that_lacks_nobody_says_so(tmp_path: Path) -> None:
    home, lead = Home("memory", tmp_path), agent("alone", ["done"])
    async with home.open(agents=[lead]) as retinue:
        outcome = await ended(retinue, await retinue.spawn(lead, "Go."))
    assert (outcome.helpers, outcome.missing) == (Helpers(), "")


class Chat:
    def __init__(self) -> None:
        self.sent: asyncio.Queue[Delivery] = asyncio.Queue()

    async def send(self, delivery: Delivery) -> None:
        self.sent.put_nowait(delivery)


@on_virtual_time
async def test_the_channel_is_told_beside_the_text(tmp_path: Path) -> None:
    home, lead, chat = Home("memory", tmp_path), three(), Chat()
    async with home.open(agents=[lead], channels={"chat": chat}) as retinue:
        await ended(
            retinue, await retinue.spawn(lead, "Go.", announce=True, origin=Origin(channel="chat"))
        )
        text = await chat.sent.get()
    assert text.text == "All is well."
    assert text.note.startswith(
        f"{HEAD}About this result: 2 of 4 sub-agents never returned: middle > b (failed: "
    )
