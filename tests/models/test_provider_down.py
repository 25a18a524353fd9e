"""A provider that is down, over HTTP: `run` fails after its tries, and says with what."""

from __future__ import annotations

import asyncio
import socket

import pytest

from retinue import Agent, Retinue, Retry
from retinue.models.http import ConnectionPool, Times
from tests.models.http_world import DIALECTS, FAST, http_model, talking
from tests.waiting import SECONDS

TWICE = Retry(attempts=2, base_ms=5, cap_ms=20, then="fail")
SHORT = Times(connect=2.0, headers=0.3, idle=0.3, content=0.5, attempt=2.0)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("fault", "stop", "reason"),
    [("F6", "server_error", "rror"), ("F18", "network", "did not respond in time")],
)
def test_a_provider_that_fails_every_call_fails_the_run(
    dialect: str, fault: str, stop: str, reason: str
) -> None:
    async def story() -> None:
        async with (
            talking(dialect=dialect, times=SHORT, faults=lambda request, n: fault) as (llm, model),
            Retinue() as retinue,
        ):
            model.governor.probe_seconds = 0.05
            one = Agent("one", model=model)
            outcome = await asyncio.wait_for(retinue.run(one, "Go.", retry=TWICE), SECONDS)
            assert (outcome.state, outcome.stop) == ("failed", stop), outcome.error
            assert outcome.error.startswith("Failed after 2 attempts: ")
            assert reason in outcome.error
            assert llm.n_requests >= 2, "it is tried again"

    asyncio.run(story())


def test_a_provider_where_nobody_listens_fails_the_run() -> None:
    with socket.socket() as holder:  # bound and not listening: a connection is refused
        holder.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{holder.getsockname()[1]}"

        async def story() -> None:
            client = ConnectionPool(FAST)
            model = http_model(url, "anthropic", client=client)
            model.governor.probe_seconds = 0.05
            async with Retinue() as retinue:
                one = Agent("one", model=model)
                outcome = await asyncio.wait_for(retinue.run(one, "Go.", retry=TWICE), SECONDS)
            await client.close()
            assert (outcome.state, outcome.stop) == ("failed", "network")
            assert outcome.error.startswith("Failed after 2 attempts: no response from m: ")
            assert "no connection to 127.0.0.1" in outcome.error

        asyncio.run(story())
