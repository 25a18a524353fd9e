"""Tools of a program's own in a runtime: what is asked before they run, what the model reads when
they fail, and where they work."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from retinue import Agent, Permissions, Retinue, ToolCall, ToolError, ToolResult, tool
from retinue.testing import Scripted, call, run_virtual
from tests.api.scripted_agents import STORES, Home, agent, last, on_virtual_time
from tests.api.test_permissions import asked


def lines(*script: Any) -> Any:
    """A script in which a line may be a function of its request."""

    def talk(request: Any) -> Any:
        line = script[request.turn]
        return line(request) if callable(line) else line

    return talk


def ordering(placed: list[str], *items: str, approve: Any = True) -> Agent:
    @tool(approve=approve, risk="read")
    def order(item: str) -> str:
        """Place an order."""
        placed.append(item)
        return f"ordered {item}"

    def talk(request: Any) -> object:
        if request.turn < len(items):
            return call("order", item=items[request.turn])
        return f"said: {request.messages[-1].text}"

    return agent("clerk", talk, tools=[order])


@on_virtual_time
async def test_a_tool_that_wants_approval_asks_before_it_runs() -> None:
    placed: list[str] = []
    async with Retinue() as retinue:
        clerk = ordering(placed, "tea")
        free = Permissions(mode="bypassPermissions")
        run = await retinue.spawn(clerk, "go", permissions=free, questions="ask")
        (question,) = await asked(retinue)
        assert question.text == 'Call order with {"item":"tea"}?'
        assert placed == []
        await retinue.decide(question.id, True, by="ann")
        outcome = await retinue.wait(run)
        assert (outcome.text, placed) == ("said: ordered tea", ["tea"])


@on_virtual_time
async def test_a_no_keeps_the_tool_from_running_and_so_does_nobody_there() -> None:
    placed: list[str] = []
    async with Retinue() as retinue:
        run = await retinue.spawn(ordering(placed, "tea"), "go", questions="ask")
        (question,) = await asked(retinue)
        await retinue.decide(question.id, False, by="ann", reason="Too dear.")
        outcome = await retinue.wait(run)
        assert outcome.text == "said: Denied by ann. Too dear."
    async with Retinue() as retinue:
        alone = await retinue.run(ordering(placed, "tea"), "go")
        assert "the tool wants approval before it runs" in alone.text
    assert placed == []


@on_virtual_time
async def test_a_yes_for_always_is_not_asked_again_and_a_denying_rule_is_not_lifted() -> None:
    placed: list[str] = []
    async with Retinue() as retinue:
        run = await retinue.spawn(ordering(placed, "tea", "tea", "milk"), "go", questions="ask")
        (question,) = await asked(retinue)
        await retinue.decide(question.id, True, always=True)
        (other,) = await asked(retinue)
        assert other.text == 'Call order with {"item":"milk"}?'
        assert placed == ["tea", "tea"]
        await retinue.decide(other.id, True)
        await retinue.wait(run)
    async with Retinue() as retinue:
        rules = Permissions(rules=("deny: order",))
        assert (
            "Denied: rule" in (await retinue.run(ordering([], "tea"), "x", permissions=rules)).text
        )


@on_virtual_time
async def test_a_function_says_which_calls_need_approval() -> None:
    def dear(call: ToolCall) -> bool:
        return "gold" in call.arguments_json

    placed: list[str] = []
    async with Retinue() as retinue:
        run = await retinue.spawn(
            ordering(placed, "tea", "gold", approve=dear), "go", questions="ask"
        )
        (question,) = await asked(retinue)
        assert (question.text, placed) == ('Call order with {"item":"gold"}?', ["tea"])
        await retinue.decide(question.id, True)
        await retinue.wait(run)
        assert placed == ["tea", "gold"]

    def broken(call: ToolCall) -> bool:
        raise KeyError("price")

    async with Retinue() as retinue:
        await retinue.spawn(ordering(placed, "tea", approve=broken), "go", questions="ask")
        assert len(await asked(retinue)) == 1


@pytest.mark.parametrize("kind", STORES)
def test_the_question_is_still_open_after_a_restart(kind: str, tmp_path: Path) -> None:
    placed: list[str] = []
    clerk, home = ordering(placed, "tea"), Home(kind, tmp_path)

    async def first() -> str:
        async with home.open() as retinue:
            run = await retinue.spawn(clerk, "go", questions="ask")
            await asked(retinue)
            return run

    async def second(run: str) -> str:
        async with home.open(agents=[clerk]) as retinue:
            (question,) = await asked(retinue)
            await retinue.decide(question.id, True)
            outcome = await retinue.wait(run)
            return outcome.text

    async def both() -> str:
        return await second(await first())

    assert run_virtual(both()) == "said: ordered tea"
    assert placed == ["tea"]


@on_virtual_time
async def test_an_error_for_the_model_is_told_and_any_other_is_also_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def taken() -> str:
        """x"""
        raise ToolError("Table 3 is taken; try another.")

    @tool
    def broken() -> str:
        """x"""
        raise ZeroDivisionError("by zero")

    script = lines(call("taken"), call("broken"), last)
    with caplog.at_level(logging.WARNING):
        async with Retinue() as retinue:
            clerk = agent("clerk", script, tools=[taken, broken])
            outcome = await retinue.run(clerk, "go")
            read = await retinue.messages(outcome.id)
    assert outcome.text == "The tool failed: ZeroDivisionError: by zero"
    messages = [m for m in read if getattr(m, "name", "") == "taken"]
    assert [(m.text, m.error) for m in messages] == [("Table 3 is taken; try another.", True)]
    (record,) = [r for r in caplog.records if r.name == "retinue.tools"]
    assert record.levelno == logging.WARNING
    assert "tool broken of run" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_plain_functions_work_in_as_many_threads_as_are_set() -> None:
    started, most, lock = [0], [0], threading.Lock()

    @tool
    def slow() -> str:
        """x"""
        with lock:
            started[0] += 1
            most[0] = max(most[0], started[0])
        threading.Event().wait(0.02)
        with lock:
            started[0] -= 1
        return threading.current_thread().name

    async def work() -> str:
        calls = [call("slow") for _ in range(6)]
        model = Scripted(lines(calls, last), name="m")
        async with Retinue(threads=2) as retinue:
            return (await retinue.run(Agent("a", model=model, tools=[slow]), "go")).text

    assert asyncio.run(work()).startswith("retinue-tool")
    assert most[0] == 2


def test_a_cancelled_run_does_not_wait_for_its_thread() -> None:
    start, go, result = threading.Event(), threading.Event(), threading.Event()

    @tool
    def stuck() -> str:
        """x"""
        start.set()
        go.wait(30)
        result.set()
        return "late"

    async def work() -> str:
        async with Retinue(threads=1) as retinue:
            a = Agent("a", model=Scripted([call("stuck"), "never"], name="m"), tools=[stuck])
            run = await retinue.spawn(a, "go")
            await asyncio.to_thread(start.wait, 30)
            state = (await retinue.cancel(run)).state
            assert not result.is_set()
            go.set()
            await asyncio.to_thread(result.wait, 30)
            return state

    assert asyncio.run(work()) == "cancelled"


class Verdict(BaseModel):
    grade: int = Field(ge=1, le=6)


@on_virtual_time
async def test_a_result_may_be_a_pydantic_model() -> None:
    script = lines(
        call("submit_result", result={"grade": 9}),
        lambda request: (
            call("submit_result", result={"grade": 2})
            if "less than or equal to 6" in request.messages[-1].text
            else "?"
        ),
    )
    async with Retinue() as retinue:
        outcome = await retinue.run(agent("judge", script, output=Verdict), "go")
    assert outcome.output == Verdict(grade=2)


@on_virtual_time
async def test_wrong_arguments_reach_the_model_with_an_example() -> None:
    @tool
    def who(name: str) -> ToolResult:
        """x"""
        return ToolResult(text=f"hello {name}")

    script = lines(call("who", name=3), last)
    async with Retinue() as retinue:
        outcome = await retinue.run(agent("a", script, tools=[who]), "go")
    assert outcome.text == (
        'Invalid parameters: name: expected a string, got 3. Example: {"name":"text"}'
    )
