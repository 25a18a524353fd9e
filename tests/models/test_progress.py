"""Whoever breaks a call off can see whether it ever left, and what is known of its cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue.core.messages import ModelReply
from retinue.core.values import ModelInfo, Usage
from retinue.errors import ModelError, ModelUnavailable
from retinue.models.base import ModelRequest, Progress
from retinue.models.explorer import ExplorerModel
from retinue.models.fallback import Fallback
from retinue.models.governor import Governor
from retinue.models.http import ConnectionPool, Times
from retinue.testing import Scripted
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.models.http_world import (
    DIALECTS,
    FAST,
    QUICK,
    answering,
    asking,
    closed_port,
    complete,
    http_model,
    talking,
    url_of,
)
from tests.waiting import until

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
PRICED = ModelInfo(name="m", max_output=1_024, price_in=3_000, price_out=15_000)
LONG = "You know all of this. " * 500


async def cancelled(model: Any, request: ModelRequest, is_so: Any) -> Progress:
    task = asyncio.create_task(complete(model, request))
    await until(is_so)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return request.progress


def test_a_model_that_says_nothing_is_taken_to_have_sent() -> None:
    progress = Progress()
    assert progress.sent and progress.usage is None
    progress.wait()
    assert not progress.sent and progress.usage == Usage()
    progress.leave()
    assert progress.sent and progress.usage is None, "it is out, and nobody has answered"
    progress.follow(lambda: Usage(input=7))
    assert progress.sent and progress.usage == Usage(input=7)


def test_what_is_refused_has_left_and_cost_nothing_and_what_broke_off_is_not_forgotten() -> None:
    progress = Progress()
    progress.leave()
    progress.settle(Usage())
    assert not progress.sent and progress.usage == Usage()
    progress.leave()
    progress.follow(lambda: Usage(input=7))
    progress.wait()
    assert progress.sent and progress.usage == Usage(input=7), (
        "the next attempt waits, the one before is paid"
    )
    progress.leave()
    assert progress.usage is None
    progress.wait()
    assert progress.sent and progress.usage is None, "what was lost once stays unknown"


@every_dialect
def test_a_call_that_waits_for_its_turn_has_not_left(dialect: str) -> None:
    async def story() -> None:
        governor = Governor(width=1, ramp_seconds=0.0)
        async with talking(dialect=dialect, seconds=3_600.0, governor=governor, times=Times()) as (
            llm,
            model,
        ):
            first, second = asking(run="a"), asking(run="b")
            one = asyncio.create_task(complete(model, first))
            await until(lambda: llm.open == 1)
            progress = await cancelled(model, second, lambda: governor.waiting == 1)
            assert not progress.sent and progress.usage == Usage()
            assert first.progress.sent and first.progress.usage is None, "that one is out"
            one.cancel()
            await asyncio.gather(one, return_exceptions=True)
            assert llm.n_requests == 1

    asyncio.run(story())


def test_a_call_that_is_still_connecting_has_not_left() -> None:
    async def story() -> None:
        client = ConnectionPool(FAST)
        model = http_model(f"http://127.0.0.1:{closed_port()}", client=client)
        with pytest.raises(ModelUnavailable) as failure:
            await complete(model)
        assert not failure.value.sent and failure.value.usage == Usage()
        await client.close()

    asyncio.run(story())


@every_dialect
@pytest.mark.parametrize("fault", ["F4", "F20", "F23", "F24", "F25"])
def test_a_stream_that_breaks_after_its_first_byte_says_what_it_has_cost(
    dialect: str, fault: str
) -> None:
    async def story() -> ModelError:
        text = "A good day to you and to all of yours. " * 20
        async with talking([text], dialect, faults=[fault], info=PRICED) as (_, model):
            with pytest.raises(ModelUnavailable) as failure:
                await complete(model, asking(instructions=LONG))
            return failure.value

    error = asyncio.run(story())
    assert error.sent
    used: Usage = error.usage
    assert used.input + used.estimated >= len(LONG) // 4, "the prompt was read"
    assert used.nanos >= (used.input + used.estimated - 256) * 3_000 > 0
    assert used.tokens < len(LONG) // 2, "and no more than is likely"


@every_dialect
def test_a_call_that_is_cancelled_in_the_middle_of_its_answer_says_what_it_has_cost(
    dialect: str,
) -> None:
    async def story() -> None:
        async with talking(["word " * 200], dialect, faults=["F20"], info=PRICED) as (_, model):
            texts: list[str] = []
            request = asking(instructions=LONG)
            task = asyncio.create_task(complete(model, request, texts))
            await until(lambda: len(texts) >= 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            used = request.progress.usage
            assert request.progress.sent and used is not None
            n_shown = len("".join(texts)) // 4
            assert used.tokens >= len(LONG) // 4 + n_shown
            assert used.tokens < len(LONG) // 2, "and not its bound"

    asyncio.run(story())


@every_dialect
@pytest.mark.parametrize("fault", ["F1", "F3", "F5", "F6", "F11", "F35"])
def test_what_is_refused_costs_nothing(dialect: str, fault: str) -> None:
    async def story() -> ModelError:
        async with talking(dialect=dialect, faults=[fault]) as (_, model):
            with pytest.raises(ModelError) as failure:
                await complete(model)
            return failure.value

    counted = (fault, dialect) == (
        "F5",
        "anthropic",
    )  # it says what it has read before it says that it failed
    assert (asyncio.run(story()).usage == Usage()) is not counted


def test_what_was_sent_and_never_answered_is_not_known() -> None:
    async def story() -> ModelError:
        async with answering(b"") as (url, _):
            client = ConnectionPool(FAST)
            with pytest.raises(ModelUnavailable) as failure:
                await complete(http_model(url, client=client))
            await client.close()
            return failure.value

    error = asyncio.run(story())
    assert error.sent and error.usage is None


def test_whoever_is_told_of_a_refused_account_without_a_call_has_sent_nothing() -> None:
    async def story() -> None:
        async with talking(faults=["F10"] * 5) as (llm, model):
            errors = []
            for _ in range(3):
                with pytest.raises(ModelUnavailable) as failure:
                    await complete(model)
                errors.append(failure.value)
            assert llm.n_requests == 2, (
                "one call may be refused for what is in it: another finds out"
            )
            assert (errors[2].sent, errors[2].usage) == (False, Usage())

    asyncio.run(story())


def test_what_the_first_of_a_chain_has_cost_is_in_the_reply_of_the_second() -> None:
    """An overload in the middle of a stream makes the chain go on: what came until then is
    charged."""

    async def story() -> tuple[ModelReply, ModelReply]:
        async with FakeLLM(["word " * 100], faults=["F4", None, None], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            one = http_model(url_of(llm, "anthropic"), client=client, info=PRICED)
            two = http_model(url_of(llm, "anthropic"), client=client, info=PRICED)
            chained = await complete(Fallback([one, two], name="c"), asking(instructions=LONG))
            alone = await complete(two, asking(instructions=LONG))
            await client.close()
            return chained, alone

    chained, alone = asyncio.run(story())
    assert chained.usage.tokens >= 1.8 * alone.usage.tokens


def test_models_of_this_process_say_so_too() -> None:
    async def story() -> None:
        slow = asking()
        progress = await cancelled(Scripted(["Hi."], delay=60.0), slow, lambda: slow.progress.sent)
        assert progress.sent and progress.usage is None
        request = asking()
        await complete(ExplorerModel(), request)
        assert not request.progress.sent, "it sends nothing anywhere, and costs nothing"

    asyncio.run(story())
