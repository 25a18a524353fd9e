"""What all trees of a tenant may spend together is never exceeded by one unit, whichever nodes they
are on, and is there again for those who continue."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from retinue import Actions, Agent, Budget, Context, Retry, tool
from retinue.cluster.tenant_budgets import remove_budget, set_budget, tenant_budgets
from retinue.core.account import Account
from retinue.core.exposure import exposure, loan
from retinue.core.ledger import Ledger
from retinue.core.messages import AssistantMessage, ModelReply
from retinue.core.values import ModelInfo, Origin, Usage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests import postgres
from tests.cluster.test_nodes import run, until
from tests.cluster.workload import QUICK, node, rows

MOST = 400
MOVES = "select needs from trees where owner is null and is_open"
FAST = Retry(attempts=8, base_ms=100, cap_ms=400, then="fail")
PATIENT = Retry(attempts=1, base_ms=50, cap_ms=200, then="wait")


class Greedy:
    """Replies that cost as much as they may, and how much that was."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}

    def agent(self, turns: int = 4) -> Agent[Any, Any]:
        @tool(restart="pure")
        async def note() -> str:
            """Note."""
            return "noted"

        async def reply(request: ModelRequest) -> ModelReply:
            n = sum(isinstance(message, AssistantMessage) for message in request.messages)
            size = sum(len(message.text) for message in request.messages)
            usage = Usage(input=size, output=MOST)
            await asyncio.sleep(0.02)
            self.spent[request.root] = self.spent.get(request.root, 0) + usage.tokens
            message = (
                AssistantMessage(text="done")
                if n >= turns
                else AssistantMessage(calls=(call("note").replace(id=f"c{n}"),))
            )
            stop: Any = "calls" if message.calls else "end"
            return ModelReply(message=message, usage=usage, stop=stop, model=request.model)

        info = ModelInfo(name="greedy", max_output=MOST, price_in=0, price_out=0)
        return Agent("greedy", "Spend.", model=Scripted(reply, info=info), tools=[note])

    @property
    def total(self) -> int:
        return sum(self.spent.values())


def test_trees_of_a_tenant_on_three_nodes_never_spend_more_than_its_budget() -> None:
    async def test() -> None:
        url, greedy, limit = postgres.fresh(), Greedy(), 20_000
        own = greedy.agent()
        async with (
            node(url, agents=[own]) as one,
            node(url, agents=[greedy.agent()]),
            node(url, agents=[greedy.agent()]),
        ):
            set_budget(url, "ada", limit, None)
            options: Any = {"origin": Origin(user="ada"), "retry": FAST}
            outs = await asyncio.gather(*(one.run(own, f"{n}", **options) for n in range(16)))
            assert limit / 3 < greedy.total <= limit
            states = {out.state for out in outs}
            assert states == {"completed", "failed"}, states
            failed = next(out for out in outs if out.state == "failed")
            assert "The budget of ada is used up: of 20,000 tokens" in failed.error
            other: Any = {"origin": Origin(user="bob"), "retry": FAST}
            assert (await one.run(own, "not ada's", **other)).state == "completed"
        (line,) = tenant_budgets(url)
        assert (line.tenant, line.tokens) == ("ada", limit)
        assert line.spent_tokens == sum(
            n for root, n in greedy.spent.items() if root != max(greedy.spent)
        )

    run(test())


def test_a_run_that_waits_for_its_tenants_budget_continues_when_it_is_raised() -> None:
    async def test() -> None:
        url, greedy = postgres.fresh(), Greedy()
        own = greedy.agent()
        async with node(url, agents=[own]) as one:
            set_budget(url, "ada", 1_000, None)
            id = await one.spawn(own, "spend", origin=Origin(user="ada"), retry=PATIENT)

            async def waits() -> bool:
                (row,) = [one async for one in one.runs()]
                return row.waiting_for == "provider"

            await until(waits)
            assert greedy.total <= 1_000
            set_budget(url, "ada", 100_000, None)
            await one.retry(id)
            assert (await one.wait(id)).state == "completed"
            set_budget(url, "ada", 10, None)
            remove_budget(url, "ada")
            assert tenant_budgets(url) == ()
            out = await one.run(own, "spend", origin=Origin(user="ada"), retry=FAST)
            assert out.state == "completed"

    run(test())


def test_a_tree_whose_worker_was_cut_off_keeps_its_loan_and_spends_no_more() -> None:
    async def test() -> None:
        url, greedy, limit = postgres.fresh(), Greedy(), 12_000
        own = greedy.agent(turns=8)
        async with node(url, settings=None, agents=[own]) as asking:
            set_budget(url, "ada", limit, None)
            options: Any = {"origin": Origin(user="ada"), "retry": FAST}
            async with (
                node(url, agents=[greedy.agent(turns=8)]) as one,
                node(url, agents=[greedy.agent(turns=8)]) as other,
            ):
                ids = [await asking.spawn(own, f"{n}", **options) for n in range(6)]

                async def disturb() -> None:
                    while True:
                        for worker in (one.worker, other.worker):
                            assert worker is not None
                            for activation in list(worker.driven.values()):
                                activation.give_up()
                        await asyncio.sleep(0.4)

                disturbing = asyncio.create_task(disturb())
                outs = await asyncio.gather(*(asking.wait(id) for id in ids))
                disturbing.cancel()
            assert {out.state for out in outs} <= {"completed", "failed"}
            assert 0 < greedy.total <= limit
            (line,) = tenant_budgets(url)
            assert line.spent_tokens <= limit

    run(test())


def test_a_tree_whose_calls_are_made_on_two_nodes_never_exceeds_its_own_budget() -> None:
    """Its sub-agents work where its root need not."""

    async def test() -> None:
        url, greedy, limit = postgres.fresh(), Greedy(), 9_000

        def team() -> Agent[Any, Any]:
            child = greedy.agent(turns=3)

            @tool(restart="keyed")
            def fan(context: Context) -> Actions:
                """Have parts done."""
                return context.spawn_actions(child, "a", "b", "c", needs=["gpu"])

            async def lead(request: ModelRequest) -> ModelReply:
                size = sum(len(message.text) for message in request.messages)
                usage = Usage(input=size, output=MOST)
                greedy.spent[request.run] = greedy.spent.get(request.run, 0) + usage.tokens
                is_first = not any(isinstance(m, AssistantMessage) for m in request.messages)
                message = AssistantMessage(text="done")
                if is_first:
                    message = AssistantMessage(calls=(call("fan").replace(id="f"),))
                stop: Any = "calls" if message.calls else "end"
                return ModelReply(message=message, usage=usage, stop=stop, model=request.model)

            info = ModelInfo(name="lead", max_output=MOST, price_in=0, price_out=0)
            model = Scripted(lead, info=info)
            return Agent("lead", "Lead.", model=model, tools=[fan], staff=[child])

        own, with_gpu = team(), replace(QUICK, offers=("gpu",))
        async with (
            node(url, settings=None, agents=[own]) as asking,
            node(url, agents=[team()]),
        ):
            id = await asking.spawn(own, "lead", budget=Budget(tokens=limit))

            async def wait_for_gpu() -> bool:
                return await rows(url, MOVES) == [(["gpu"],)]

            await until(wait_for_gpu)
            by_lead = greedy.total
            async with node(url, agents=[team()], settings=with_gpu):
                out = await asking.wait(id)
            assert 0 < by_lead < greedy.total, "calls were made on both"
            assert out.state in ("completed", "incomplete")
            spending = await asking.budget(id)
            assert spending.spent.tokens is not None
            assert 0 < greedy.total <= spending.spent.tokens <= limit

    run(test())


def test_a_loan_is_never_more_than_what_is_left_and_leaves_others_their_part() -> None:
    assert loan(100, 101, 0, 0) is None
    assert loan(100, 100, 0, 0) == 100
    for remaining in range(0, 2_000, 37):
        for need in range(0, remaining + 1, 23):
            for n in (0, 1, 5):
                amount = loan(remaining, need, 0, n)
                assert amount is not None and need <= amount <= remaining
                assert (amount - need) * 2 * (n + 1) <= remaining - need


def test_the_exposure_of_a_tree_counts_calls_and_no_grants() -> None:
    ledger = Ledger()
    ledger.open("root", "", (None, None, None, None), (False,) * 4)
    ledger.open("child", "root", (1_000, None, None, None), (True, False, False, False))
    ledger.hold("root", (1_000, 0, 0, 0))
    assert exposure(ledger, "root") == (0, 0)
    ledger.hold("child", (300, 7, 1, 0))
    ledger.hold("root", (50, 1, 1, 0))
    assert exposure(ledger, "root") == (350, 8)
    ledger.settle("child", (300, 7, 1, 0), (200, 5, 1, 0))
    assert exposure(ledger, "root") == (250, 6)
    assert exposure(ledger, "unknown") == (0, 0) and isinstance(ledger.accounts["root"], Account)


def test_what_trees_that_have_ended_have_spent_is_kept_in_one_row() -> None:
    async def test() -> None:
        url, greedy = postgres.fresh(), Greedy()
        own = greedy.agent()
        async with node(url, agents=[own]) as one:
            set_budget(url, "ada", 1_000_000, None)
            for n in range(3):
                await one.run(own, f"{n}", origin=Origin(user="ada"))

            async def is_over() -> bool:
                return await rows(url, "select 1 from trees where is_open") == []

            await until(is_over)
            await one.run(own, "last", origin=Origin(user="ada"))
            assert len(await rows(url, "select 1 from loans")) == 1
        assert tenant_budgets(url)[0].spent_tokens == greedy.total

    run(test())
