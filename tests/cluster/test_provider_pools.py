"""What workers use of one account at a provider together: never more than it allows, shared fairly,
and given back by those who die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

from psycopg_pool import AsyncConnectionPool

from retinue import Agent
from retinue import Provider as Declared
from retinue.cluster.node_notices import Listener
from retinue.cluster.provider_pools import ProviderPools
from retinue.cluster.status import cluster_status
from retinue.errors import ModelUnavailable
from retinue.models.governor import Governor
from retinue.models.provider_settings import ProviderTerms
from retinue.store.postgres.connections import connect
from retinue.store.postgres.database_schema import migrate
from retinue.testing.fake_llm import FakeLLM
from retinue.testing.fake_llm.fake_request import FakeSettings
from tests import postgres
from tests.cluster.test_nodes import run, until
from tests.cluster.workload import node, rows

ACCOUNT = "provider:model#1"


class Provider:
    """Who calls now, and when each call began."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.starts: list[tuple[float, str]] = []

    async def reaches(self, n: int) -> None:
        async def has() -> bool:
            return self.now >= n

        await until(has)


class OneWorker:
    """A worker with one account, and nothing else of a node."""

    def __init__(self, url: str, provider: Provider, terms: ProviderTerms) -> None:
        self.id, self._url, self._provider = str(uuid4()), url, provider
        self.governor = Governor(terms=terms)
        self._pool: Any = AsyncConnectionPool(
            url, min_size=1, max_size=2, open=False, kwargs={"autocommit": True}
        )
        self.pools = ProviderPools(self._pool, self.id)
        self._listener = Listener(url, lambda kind, names: self.pools.notice(kind))
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.live(60)
        await self._pool.open()
        self._listener.start()
        self.pools.join(ACCOUNT, self.governor)
        self.task = asyncio.create_task(self.pools.work())

    async def live(self, seconds: float) -> None:
        """Its lease holds for so long from now on."""
        await rows(
            self._url,
            "insert into workers (id, name, version, until) values (%s, 'w', '1',"
            " clock_timestamp() + make_interval(secs => %s))"
            " on conflict (id) do update set until = excluded.until returning 1",
            self.id,
            seconds,
        )

    async def die(self) -> None:
        """Nothing is given back."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.live(-1)

    async def call(
        self, seconds: float = 0.05, tokens: int = 0, error: Exception | None = None
    ) -> None:
        async with self.governor.turn(str(uuid4()), tokens):
            provider = self._provider
            provider.starts.append((time.monotonic(), self.id))
            provider.now += 1
            provider.most = max(provider.most, provider.now)
            try:
                await asyncio.sleep(seconds)
                if error is not None:
                    raise error
            finally:
                provider.now -= 1

    async def close(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._listener.stop()
        await self._pool.close()


@asynccontextmanager
async def workers(
    url: str, n: int, provider: Provider, **terms: Any
) -> AsyncIterator[list[OneWorker]]:
    with connect(url) as db:
        migrate(db, url)
    async with AsyncExitStack() as stack:
        out = []
        for _ in range(n):
            one = OneWorker(url, provider, ProviderTerms(**terms))
            await one.start()
            stack.push_async_callback(one.close)
            out.append(one)
        yield out


def test_workers_together_never_have_more_calls_under_way_than_the_account_allows() -> None:
    async def test() -> None:
        url, provider = postgres.fresh(), Provider()
        async with workers(url, 3, provider, max_concurrent=5) as all:
            await asyncio.gather(*(one.call() for one in all for _ in range(30)))
        assert provider.most == 5
        assert len(provider.starts) == 90
        assert await rows(url, "select coalesce(sum(calls), 0) <= 5 from chunks") == [(True,)]

    run(test())


def test_a_worker_with_many_calls_leaves_others_their_part() -> None:
    async def test() -> None:
        url, provider = postgres.fresh(), Provider()
        async with workers(url, 2, provider, max_concurrent=4) as (greedy, modest):
            many = [asyncio.create_task(greedy.call(0.2)) for _ in range(200)]
            await provider.reaches(4)
            n = len(provider.starts)
            await asyncio.gather(*(modest.call(0.2) for _ in range(8)))
            others = sum(id == greedy.id for _, id in provider.starts[n:])
            # Its 8 calls, two at a time, last as long as 8 of the other; a queue of all calls
            # would have put 196 before them.
            assert others < 60, others
            assert provider.most == 4
            for task in many:
                task.cancel()
            await asyncio.gather(*many, return_exceptions=True)

    run(test())


def test_what_a_dead_worker_had_is_free_when_its_lease_is_over_and_not_before() -> None:
    async def test() -> None:
        url, provider = postgres.fresh(), Provider()
        async with workers(url, 2, provider, max_concurrent=3) as (dying, other):
            tasks = [asyncio.create_task(dying.call(60)) for _ in range(3)]
            await provider.reaches(3)
            assert dying.task is not None
            dying.task.cancel()
            await dying.live(1.0)
            waits = asyncio.create_task(other.call())
            await asyncio.sleep(0.5)
            assert not waits.done() and len(provider.starts) == 3
            await waits
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(test())


def test_what_is_not_used_comes_back() -> None:
    async def test() -> None:
        url, provider = postgres.fresh(), Provider()
        async with workers(url, 2, provider, max_concurrent=6) as (one, other):
            await asyncio.gather(*(one.call() for _ in range(6)))
            await asyncio.wait_for(asyncio.gather(*(other.call(0.2) for _ in range(6))), 5)
            assert provider.most == 6

            async def is_empty() -> bool:
                return await rows(url, "select 1 from chunks") == []

            await until(is_empty)

    run(test())


def test_no_minute_has_more_calls_than_the_limit_whichever_worker_makes_them() -> None:
    async def test() -> None:
        url, provider = postgres.fresh(), Provider()
        async with workers(url, 3, provider, requests_per_minute=240.0) as all:
            began = time.monotonic()
            tasks = [asyncio.create_task(one.call(0.0)) for one in all for _ in range(40)]
            await asyncio.sleep(3.0)
            elapsed, n = time.monotonic() - began, len(provider.starts)
            later = [id for _, id in provider.starts[24:]]
            by_worker = [later.count(one.id) for one in all]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        rate = (240 - 24) / 62
        assert 24 <= n <= 24 + rate * elapsed + 1, n
        assert min(by_worker) >= 2, "the first to come may have had all that could go together"

    run(test())


def test_a_call_with_a_large_prompt_is_not_overtaken_for_ever() -> None:
    async def test() -> None:
        url, provider = postgres.fresh(), Provider()
        async with workers(url, 2, provider, tokens_per_minute=60_000.0) as (large, small):
            tasks = [asyncio.create_task(small.call(0.0, 400)) for _ in range(300)]
            await asyncio.sleep(0.3)
            await asyncio.wait_for(large.call(0.0, 3_000), 20)
            assert provider.starts[-1][1] == large.id and len(provider.starts) < 300
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(test())


def test_a_pause_that_one_worker_is_told_to_make_is_made_by_all() -> None:
    async def test() -> None:
        url, provider = postgres.fresh(), Provider()
        slow_down = ModelUnavailable("Slow down", "rate_limit", 2.0)
        async with workers(url, 3, provider) as (one, *others):
            await asyncio.gather(*(other.call() for other in others))
            notice_time = time.monotonic()
            await asyncio.gather(one.call(0.0, error=slow_down), return_exceptions=True)
            await asyncio.sleep(0.3)
            await asyncio.gather(*(other.call() for other in others))
            assert all(at - notice_time >= 1.9 for at, _ in provider.starts[-2:])
            notice_time = time.monotonic()
            await asyncio.gather(one.call(0.0, error=slow_down), return_exceptions=True)
            await asyncio.sleep(0.3)
            late = OneWorker(url, provider, ProviderTerms())
            await late.start()
            await late.call()
            await late.close()
            assert provider.starts[-1][0] - notice_time >= 1.9

    run(test())


def test_nodes_share_the_accounts_of_their_catalogs() -> None:
    async def test() -> None:
        url = postgres.fresh()
        async with FakeLLM(["Hello."], seconds=0.1) as llm:
            most = 0

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, llm.open)
                    await asyncio.sleep(0.005)

            def agent() -> Agent[Any, Any]:
                return Agent("greeter", "Greet.", model="openai:some-model")

            declared = Declared(api_key="fake-key", base_url=f"{llm.url}/v1", max_parallel=3)
            options: Any = {"providers": {"openai": declared}}
            own = agent()
            async with (
                node(url, agents=[own], **options) as one,
                node(url, agents=[agent()], **options),
                node(url, agents=[agent()], **options),
            ):
                watching = asyncio.create_task(watch())
                outs = await asyncio.gather(*(one.run(own, f"{n}") for n in range(24)))
                watching.cancel()
            assert {out.text for out in outs} == {"Hello."}
            assert 1 < most <= 3
            ((name,),) = await rows(url, "select name from pools")
            assert name.startswith("openai:some-model#") and "fake-key" not in name

    run(test())


def test_a_rate_limit_of_one_node_keeps_the_other_from_calling() -> None:
    async def test() -> None:
        url, times = postgres.fresh(), list[float]()

        def fault(request: Any, n: int) -> str | None:
            times.append(time.monotonic())
            return "F1" if n == 1 else None

        settings = FakeSettings(retry_after_seconds=2.0)
        async with FakeLLM(["Hello."], faults=fault, settings=settings) as llm:

            def agent(name: str) -> Agent[Any, Any]:
                return Agent(name, "Greet.", model="openai:some-model")

            here, there = agent("here"), agent("there")
            async with (
                node(url, settings=None, agents=[here, there], **llm.providers) as asking,
                node(url, agents=[agent("here")], **llm.providers),
                node(url, agents=[agent("there")], **llm.providers),
            ):
                first = asyncio.create_task(asking.run(here, "hello"))

                async def is_told() -> bool:
                    return bool(await rows(url, "select 1 from pools where why <> ''"))

                await until(is_told)
                (account,) = (await asyncio.to_thread(cluster_status, url)).accounts
                assert 0 < account.paused_seconds <= 2 and account.why == "rate limit"
                outs = [await asking.run(there, "hello"), await first]
            assert [out.text for out in outs] == ["Hello.", "Hello."]
            assert len(times) == 3
            assert min(times[1:]) - times[0] >= 1.9

    run(test())
