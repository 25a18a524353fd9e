"""Helpers for tests of one's own agents: a tool by itself, typed results in scripts, what a model
was asked, and crashes at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from retinue import Agent, Context, Retinue, run_sync, tool
from retinue.testing import Scripted, call, fake_context, simulate, submit


@dataclass
class Review:
    file: str
    score: int


reviewer = Agent("reviewer", model=Scripted([submit(Review("b.py", 2))]), output=Review)


@tool(restart="pure")
async def review(ctx: Context, files: list[str]) -> str:
    """Have files reviewed."""
    reviews = await ctx.gather(reviewer, *files, at_once=2, timeout=60)
    worst = min(reviews.results, key=lambda one: one.score)
    return f"{worst.file} ({worst.score}), {len(reviews.failed)} failed"


lead = Agent(
    "lead",
    model=Scripted([call("review", files=["a.py", "b.py"]), "Fix b.py."]),
    tools=[review],
    staff=[reviewer],
)


async def test_a_tool_is_called_with_results_of_children_that_are_given() -> None:
    ctx = fake_context(results={"reviewer": [Review("a.py", 3), ValueError("no such file")]})
    assert await review(ctx, ["a.py", "b.py"]) == "a.py (3), 1 failed"
    with pytest.raises(AssertionError, match=r"no result for 'reviewer' with the task 'c.py'"):
        await review(ctx, ["c.py"])


async def test_a_context_has_dependencies_meta_and_answers() -> None:
    @tool
    async def greet(ctx: Context[str], word: str) -> str:
        """Greet somebody."""
        who = await ctx.ask("Whom?", choices=["Ada", "Bob"])
        await ctx.send("other", "hello")
        return f"{word} {who} of {ctx.deps}, says {ctx.meta['who']} in {ctx.now.year}"

    ctx = fake_context(deps="Rome", answers=["Ada"], meta={"who": "Eve"})
    assert await greet(ctx, "Hello") == "Hello Ada of Rome, says Eve in 2027"
    with pytest.raises(AssertionError, match=r"no answer to 'Whom\?'"):
        await greet(ctx, "Hello")


def test_a_script_hands_in_a_typed_result_and_says_what_it_was_asked() -> None:
    model = Scripted([submit(Review("a.py", 9))])
    outcome = run_sync(Agent("r", "Review it.", model=model, output=Review), "a.py")
    assert outcome.unwrap() == Review("a.py", 9)
    assert [r.messages[0].text for r in model.requests] == ["a.py"]
    assert model.requests[0].instructions == "Review it."


async def scenario(retinue: Retinue) -> None:
    outcome = await retinue.run(lead, "What should we fix?", key="once")
    assert outcome.text == "Fix b.py." and len(outcome.children) == 2


def test_nothing_is_lost_wherever_the_process_dies() -> None:
    report = simulate(scenario, agents=[lead], crashes="every_step")
    assert report.failures == ()
    assert report.crashes == report.seeds - 1 > 10
    assert simulate(scenario, agents=[lead], seeds=3, crashes="none").crashes == 0


def test_what_a_crash_breaks_in_ones_own_code_is_found() -> None:
    sold: list[str] = []

    @tool(restart="pure")
    async def sell(ctx: Context) -> str:
        """Sell something, without the key that would make it once."""
        sold.append(ctx.key)
        await ctx.run(reviewer, "a.py")
        return "sold"

    model = Scripted([call("sell"), "Done."])
    keeper = Agent("keeper", model=model, tools=[sell], staff=[reviewer])

    async def shop(retinue: Retinue) -> None:
        sold.clear()
        await retinue.run(keeper, "Sell.", key="once")

    async def honest_shop(retinue: Retinue) -> None:
        await retinue.run(keeper, "Sell.", key="once")
        assert len(sold) == len(set(sold)), "sold twice"

    assert not simulate(shop, agents=[keeper], seeds=5).failures
    sold.clear()
    report = simulate(honest_shop, agents=[keeper], crashes="every_step")
    assert any("AssertionError: sold twice" in failure for failure in report.failures)


def test_an_assertion_that_fails_in_a_script_is_a_failure() -> None:
    def strict(request: Any) -> str:
        assert request.turn == 7, "turn 7 expected"
        return "x"

    odd = Agent("odd", model=Scripted(strict))

    async def ask(retinue: Retinue) -> None:
        await retinue.run(odd, "Go.", key="once")

    [failure] = simulate(ask, agents=[odd], seeds=1, crashes="none").failures
    assert failure.startswith("seed 0: a script failed: turn 7 expected")
