"""How many calls are under way at once: what is set, what the provider shows, and what this machine
can open."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from retinue.errors import ConfigError, ModelUnavailable
from retinue.models.governor import CALM_SECONDS, RAMP_SECONDS, Governor
from retinue.models.http import ConnectionPool
from retinue.models.machine_limits import Descriptors
from retinue.models.provider_settings import ProviderTerms
from tests.models.governor_world import Account, limited, overloaded, virtually
from tests.models.http_world import asking, at_rest, complete, http_model, serving
from tests.waiting import SECONDS, until


@virtually
async def test_five_thousand_calls_of_three_seconds_take_little_more_than_three_seconds() -> None:
    account = Account(ramp_seconds=RAMP_SECONDS)
    await asyncio.gather(*(account.call(f"t{i % 7}", seconds=3.0) for i in range(5_000)))
    assert asyncio.get_running_loop().time() <= 3.0 * 1.15
    assert account.times()[63] == 0.0 and account.times()[64] == pytest.approx(RAMP_SECONDS), (
        "64, then twice as many"
    )
    assert at_rest(account.governor)


@virtually
async def test_a_refusal_ends_the_growth_and_halves_what_it_came_to() -> None:
    account = Account(ramp_seconds=RAMP_SECONDS)
    first = [
        asyncio.create_task(account.quietly(error=limited(), seconds=0.12)) for _ in range(300)
    ]
    await asyncio.sleep(0.13)
    assert account.governor.width == 128, "64, 128, 256, and half of that"
    await asyncio.sleep(60)
    await asyncio.gather(*first)
    later = [asyncio.create_task(account.call(seconds=30.0)) for _ in range(500)]
    await asyncio.sleep(20)
    assert account.now <= 129, "nothing grows by itself any more"
    await asyncio.gather(*later)
    await asyncio.sleep(CALM_SECONDS)
    more = [asyncio.create_task(account.call(seconds=30.0)) for _ in range(2_000)]
    await asyncio.sleep(10)
    assert account.now == 2_000, "after a long calm it is learned anew"
    await asyncio.gather(*more)


@virtually
async def test_an_outage_is_not_the_time_to_grow() -> None:
    account = Account(ramp_seconds=RAMP_SECONDS)
    for _ in range(5):
        await account.quietly(error=overloaded(), seconds=0.1)
    await asyncio.sleep(6)
    assert await account.quietly() == "ok"
    crowd = [asyncio.create_task(account.call(seconds=10.0)) for _ in range(100)]
    await asyncio.sleep(5)
    assert account.now <= 5
    await asyncio.gather(*crowd)


@virtually
async def test_the_headers_say_how_many_may_begin_at_once() -> None:
    account = Account()
    text = {
        "x-ratelimit-limit-requests": "5000",
        "x-ratelimit-remaining-requests": "4000",
        "x-ratelimit-reset-requests": "12s",
    }
    await account.call(headers=text, seconds=0.0)
    assert account.governor.width >= 4_000
    await asyncio.gather(*(account.call(seconds=2.0) for _ in range(3_500)))
    assert account.most == 3_500 and account.times()[-1] == 0.0


@virtually
async def test_what_is_set_is_not_exceeded_whatever_the_headers_say() -> None:
    account = Account(
        terms=ProviderTerms(max_concurrent=7, start_concurrent=3), ramp_seconds=RAMP_SECONDS
    )
    text = {
        "x-ratelimit-limit-requests": "5000",
        "x-ratelimit-remaining-requests": "4000",
        "x-ratelimit-reset-requests": "12s",
    }
    assert account.governor.width == 3
    await asyncio.gather(*(account.call(headers=text) for _ in range(100)))
    assert account.most == 7


@pytest.mark.parametrize(
    ("terms", "tokens", "most"),
    [
        (ProviderTerms(requests_per_minute=60), 0, 60),
        (ProviderTerms(tokens_per_minute=6_000), 100, 60),
        (ProviderTerms(requests_per_minute=1), 0, 1),
    ],
)
def test_no_minute_has_more_than_was_set(terms: ProviderTerms, tokens: int, most: int) -> None:
    @virtually
    async def story() -> None:
        account = Account(terms=terms)
        await asyncio.gather(*(account.call(seconds=0.5, tokens=tokens) for _ in range(4 * most)))
        starts = account.times()
        assert max(sum(a <= b < a + 59.99 for b in starts) for a in starts) <= most
        assert starts[-1] < 60.0 * 4 * 1.3, "and nearly as many"

    story()


def test_terms_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"max_concurrent": 0},
        {"requests_per_minute": -1.0},
        {"second_usd": -1.0},
        {"cache_tokens": -1},
    ):
        with pytest.raises(ConfigError):
            ProviderTerms(**wrong)  # type: ignore[arg-type]


class Few(Descriptors):
    """A machine on which calls have so much room."""

    @property
    def room(self) -> int:
        return 5


@virtually
async def test_no_more_calls_are_under_way_than_descriptors_allow_and_it_is_said() -> None:
    few = Few()
    one, two = Account(descriptors=few), Account(descriptors=few)
    calls = [
        asyncio.create_task(account.call(f"t{i}")) for account in (one, two) for i in range(10)
    ]
    await asyncio.sleep(0.5)
    assert one.now + two.now == 5
    assert "ulimit -n" in one.governor.why and "5 calls at a time" in two.governor.why
    await asyncio.gather(*calls)
    assert few.calls == 0 and not one.governor.why
    assert asyncio.get_running_loop().time() < 5.0


def test_the_limit_of_open_files_is_raised_once_a_client_is_used() -> None:
    code = """
import asyncio, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
from retinue.models.connection_pool import ConnectionPool
from retinue.models.machine_limits import DESCRIPTORS
assert DESCRIPTORS.limit == 200 and DESCRIPTORS.room == 136
async def story():
    client = ConnectionPool()
    client.pool()
    await client.close()
asyncio.run(story())
assert DESCRIPTORS.limit == min(hard, 65536) if hard >= 0 else DESCRIPTORS.limit > 200
resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
asyncio.run(story())
assert DESCRIPTORS.limit == 300, "once: what somebody sets later holds"
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS
    )
    assert process.returncode == 0, process.stderr


def test_a_thousand_silent_calls_hold_nobody_up_and_are_gone_at_once() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"x-loud" in head:
            writer.write(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    async def story() -> None:
        async with serving(serve, backlog=2_048) as url:
            client, governor = ConnectionPool(), Governor()
            silent = http_model(url, client=client, governor=governor)
            loud = http_model(url, client=client, governor=governor, headers={"x-loud": "1"})
            tasks = [
                asyncio.create_task(complete(silent, asking(run=f"r{i}", root="big")))
                for i in range(1_000)
            ]
            await until(lambda: governor.in_flight == 1_000)
            async with asyncio.timeout(SECONDS):
                with pytest.raises(ModelUnavailable):
                    await complete(loud, asking(run="other", root="small"))
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            assert at_rest(governor)
            await client.close()

    asyncio.run(story())
