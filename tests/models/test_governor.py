"""Who may call a provider, and when: on virtual time, so that an outage of half an hour takes a
moment."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from retinue.errors import ModelRejected, ModelUnavailable
from retinue.testing import run_virtual
from tests.models.governor_world import NOW, Account, limited, overloaded, virtually
from tests.models.http_world import at_rest


@virtually
async def test_no_more_are_let_in_than_the_width() -> None:
    account = Account(width=4)
    await asyncio.gather(*(account.call(f"t{i % 3}") for i in range(40)))
    assert account.most <= 4 + 40, "the width grows with what works"
    assert account.times()[:5] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert at_rest(account.governor)


@virtually
async def test_a_small_tree_does_not_wait_behind_a_large_one() -> None:
    account = Account(width=1)
    account.governor._steady = 1.0
    large = [asyncio.create_task(account.call("large")) for _ in range(100)]
    await asyncio.sleep(0)
    await account.call("small")
    assert [tree for _, tree in account.starts].index("small") <= 3
    for task in large:
        task.cancel()
    await asyncio.gather(*large, return_exceptions=True)
    assert at_rest(account.governor)


@virtually
async def test_one_rate_limit_cools_every_sibling_and_kills_none() -> None:
    account = Account(width=64)
    first = asyncio.create_task(account.quietly(error=limited(7.0), seconds=0.5))
    await asyncio.sleep(0.6)
    assert await first == "rate_limit"
    assert account.governor.why == "rate limit; next try in 7 s"
    ends = await asyncio.gather(*(account.quietly(f"t{i}") for i in range(50)))
    assert ends == ["ok"] * 50
    assert min(account.times()[1:]) == pytest.approx(7.5)
    assert account.governor.why == ""


@virtually
async def test_many_limits_at_the_same_time_halve_the_width_once() -> None:
    account = Account(width=64)
    await asyncio.gather(*(account.quietly(error=limited()) for _ in range(64)))
    assert account.governor.width == 32
    assert account.governor.cool_until == pytest.approx(2.0), (
        "without a time to wait, a guess that begins at one second"
    )
    await account.quietly(error=limited())
    assert account.governor.cool_until == pytest.approx(3.0 + 2.0), "and doubles"


@virtually
async def test_a_retry_after_that_is_a_date_is_waited_for() -> None:
    account = Account()
    headers = {"Date": NOW, "Retry-After": "Mon, 16 Nov 2026 12:00:20 GMT"}
    await account.quietly(error=limited(), seconds=0.0, headers=headers, status=429)
    await account.call()
    assert account.times()[-1] == pytest.approx(20.0)


@virtually
async def test_requests_a_minute_are_learned_from_the_headers() -> None:
    account = Account()
    text = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "3",
        "x-ratelimit-reset-requests": "57s",
    }
    await account.call(headers=text, seconds=0.0)
    assert account.governor.per_minute == {"requests": 60.0}
    await asyncio.gather(*(account.call(seconds=0.0) for _ in range(13)))
    assert account.times()[:4] == [0.0] * 4, "what is left may be used at once"
    assert account.times()[4:] == pytest.approx([float(n) for n in range(1, 11)]), (
        "then one a second"
    )


@virtually
async def test_what_is_on_its_way_is_not_in_the_providers_count() -> None:
    account = Account()
    text = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "15",
        "x-ratelimit-reset-requests": "45s",
    }
    flying = [asyncio.create_task(account.call(seconds=100.0)) for _ in range(10)]
    await asyncio.sleep(0)
    await account.call(headers=text, seconds=0.0)
    await asyncio.gather(*(account.call(seconds=0.0) for _ in range(8)))
    assert account.times()[11:] == pytest.approx([0.0] * 5 + [1.0, 2.0, 3.0])
    await asyncio.gather(*flying)


@virtually
async def test_tokens_a_minute_are_learned_from_dates_too() -> None:
    account = Account()
    text = {
        "date": NOW,
        "anthropic-ratelimit-input-tokens-limit": "6000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-16T12:01:00Z",
        "anthropic-ratelimit-output-tokens-limit": "8000",
        "anthropic-ratelimit-output-tokens-remaining": "8000",
        "anthropic-ratelimit-output-tokens-reset": "2026-11-16T12:00:00Z",
    }
    await account.call(headers=text, seconds=0.0, tokens=500)
    assert account.governor.per_minute == {"input-tokens": 6000.0, "output-tokens": 8000.0}
    await asyncio.gather(*(account.call(seconds=0.0, tokens=500) for _ in range(3)))
    assert account.times()[1:] == pytest.approx([5.0, 10.0, 15.0])
    await account.call(seconds=0.0, tokens=100_000)
    assert account.times()[-1] == pytest.approx(75.0), (
        "what is larger than the limit goes when the bucket is full"
    )


@virtually
async def test_five_failures_in_a_row_leave_one_probe_every_five_seconds() -> None:
    account = Account()
    for _ in range(5):
        assert await account.quietly(error=overloaded(), seconds=0.1) == "overloaded"
    assert account.governor.is_broken
    assert "5 failures in a row (overloaded)" in account.governor.why
    began = len(account.starts)
    waiting = [
        asyncio.create_task(account.quietly(f"t{i}", error=overloaded(), seconds=0.1))
        for i in range(20)
    ]
    await asyncio.sleep(50)
    probes = account.times()[began:]
    assert 9 <= len(probes) <= 10
    assert min(b - a for a, b in itertools.pairwise(probes)) >= 5.0
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert at_rest(account.governor)


@virtually
async def test_what_began_before_an_outage_neither_ends_it_nor_holds_the_probe_back() -> None:
    account = Account()
    long = asyncio.create_task(account.quietly(seconds=100))
    early = asyncio.create_task(account.quietly(seconds=2))
    for _ in range(5):
        await account.quietly(error=overloaded(), seconds=0.1)
    await early
    assert account.governor.is_broken
    assert await account.quietly() == "ok"
    assert not account.governor.is_broken
    assert account.times()[-1] < 10
    assert account.governor.width == 5.0, "after an outage it begins anew"
    await long


@virtually
async def test_a_cancelled_probe_gives_its_turn_to_the_next() -> None:
    account = Account()
    for _ in range(5):
        await account.quietly(error=overloaded(), seconds=0.1)
    probe = asyncio.create_task(account.quietly("a", seconds=1000))
    other = asyncio.create_task(account.quietly("b"))
    await asyncio.sleep(20)
    probe.cancel()
    assert await other == "ok"
    assert account.times()[-1] == pytest.approx(20.5)
    assert at_rest(account.governor)


@virtually
async def test_a_probe_that_is_being_answered_at_length_is_not_waited_for() -> None:
    account = Account()
    for _ in range(5):
        await account.quietly(error=overloaded(), seconds=0.1)
    probe = asyncio.create_task(account.quietly(seconds=600, headers={}))
    await asyncio.gather(*(account.quietly() for _ in range(10)))
    assert account.times()[-1] < 20
    assert (account.governor.probes, account.governor.is_broken) == (1, False)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)


@virtually
async def test_a_spent_account_is_asked_once_a_minute() -> None:
    account = Account()
    spent = ModelUnavailable("No credit", "quota")
    await asyncio.gather(*(account.quietly(error=spent, seconds=0.1) for _ in range(3)))
    assert account.governor.why == "No credit; next try in 60 s"
    for _ in range(100):
        # Nobody waits unseen: whoever comes is told the same at once.
        assert await account.quietly(error=spent, seconds=0.1) == "quota"
        await asyncio.sleep(6)
    assert len(account.starts) <= 3 + 10
    await asyncio.sleep(60)
    assert [await account.quietly() for _ in range(2)] == ["ok", "ok"] and not account.governor.why


@virtually
async def test_who_waits_behind_a_refused_key_is_told_so_and_leaves_nothing_behind() -> None:
    account = Account(width=1)
    dead = ModelUnavailable("no such key", "auth")
    text = await asyncio.gather(
        *(account.quietly(f"t{n}", error=dead, seconds=0.1) for n in range(200))
    )
    assert text == ["auth"] * 200 and len(account.starts) == 2
    assert (account.governor.in_flight, account.governor.waiting, account.governor.is_shut) == (
        0,
        0,
        True,
    )
    await asyncio.sleep(5.1)
    assert [await account.quietly() for _ in range(3)] == [
        "ok"
    ] * 3 and not account.governor.is_shut


@virtually
async def test_one_call_that_is_refused_holds_the_others_until_a_second_has_found_out() -> None:
    account = Account()
    odd = ModelUnavailable("something in it", "auth")
    assert await account.quietly(error=odd, seconds=0.1) == "auth"
    assert not account.governor.is_shut
    began = asyncio.get_running_loop().time()
    assert (
        await asyncio.gather(*(account.quietly(f"t{n}", seconds=1) for n in range(20)))
        == ["ok"] * 20
    )
    assert account.governor.refusal is None and at_rest(account.governor)
    assert asyncio.get_running_loop().time() - began < 3


@virtually
async def test_whoever_was_told_by_hearsay_hears_when_a_call_has_worked() -> None:
    account = Account()
    for _ in range(2):
        await account.quietly(error=ModelUnavailable("no such key", "auth"), seconds=0.1)
    with pytest.raises(ModelUnavailable) as failure:
        async with account.governor.turn("t"):
            raise AssertionError
    assert failure.value.retry_after > 0 and failure.value.hearers is not None
    requests = list[str]()
    failure.value.hearers["r"] = lambda: requests.append("r")
    await asyncio.sleep(5.1)
    assert await account.quietly() == "ok" and requests == ["r"] and not account.governor.hearers


@virtually
async def test_what_this_machine_lacks_is_not_the_providers_failure() -> None:
    account = Account()
    for _ in range(4):
        await account.quietly(error=overloaded())
    for _ in range(50):
        assert (
            await account.quietly(error=ModelUnavailable("Too many open files", "machine"))
            == "machine"
        )
    assert (account.governor.failures, account.governor.is_broken, account.governor.why) == (
        4,
        False,
        "",
    )


@virtually
async def test_a_provider_that_flaps_is_not_taken_for_one_that_is_down() -> None:
    account, draw = Account(), random.Random(1)
    errors = [
        ModelUnavailable("broken", "server_error") if draw.random() < 0.5 else None
        for _ in range(5_000)
    ]
    await asyncio.gather(*(account.quietly(error=error) for error in errors))
    assert account.governor.probes == 0


@virtually
async def test_a_refusal_is_an_answer_and_a_bad_certificate_is_none() -> None:
    account = Account()
    for _ in range(4):
        await account.quietly(error=overloaded())
    await account.quietly(error=ModelRejected("no", "tls"))
    assert account.governor.failures == 4
    await account.quietly(error=ModelRejected("no", "invalid_request"))
    assert account.governor.failures == 0


@virtually
async def test_a_waiter_cancelled_in_the_moment_of_its_turn_passes_it_on() -> None:
    account = Account(width=1)
    first = asyncio.create_task(account.call(seconds=5))
    second, third = asyncio.create_task(account.call()), asyncio.create_task(account.call())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert third.exception() is None
    assert at_rest(account.governor)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_cancelled_or_fails_nobody_is_forgotten_and_nothing_leaks(seed: int) -> None:
    draw = random.Random(seed)

    async def one(account: Account) -> None:
        await asyncio.sleep(draw.random() * 60)
        error = draw.choice(
            [None, None, None, overloaded(), overloaded(3.0), limited(), limited(2.0)]
        )
        kinds = ["requests", "tokens"]
        headers = {f"x-ratelimit-limit-{k}": "50" for k in kinds}
        headers |= {f"x-ratelimit-remaining-{k}": str(draw.randrange(50)) for k in kinds}
        headers |= {f"x-ratelimit-reset-{k}": f"{draw.random() * 9:.3f}s" for k in kinds}
        text = headers if draw.random() < 0.3 else None
        await account.quietly(
            draw.choice("abc"), draw.random() * 5, error, headers=text, tokens=draw.randrange(80)
        )

    async def story() -> None:
        account = Account(width=draw.choice([1, 2, 8]))
        tasks = [asyncio.create_task(one(account)) for _ in range(150)]
        for task in draw.sample(tasks, 50):
            asyncio.get_running_loop().call_later(draw.random() * 90, task.cancel)
        async with asyncio.timeout(3_600):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert at_rest(account.governor)
        await asyncio.wait_for(account.call(), 120)

    run_virtual(story())
