"""What the typed surface does when it runs: options, results, dependencies, ids."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from retinue import (
    Agent,
    ConfigError,
    Context,
    NotFound,
    Origin,
    Retinue,
    RunFailed,
    RunId,
    Tool,
    json_schema,
    one_of,
    run_sync,
    tool,
)
from retinue.models.base import ModelRequest
from retinue.testing import MemoryStore, Scripted, VirtualClock, call, submit
from tests.api.scripted_agents import STORES, Home, agent, on_virtual_time


class Invoice(msgspec.Struct):
    number: str


class Refusal(BaseModel):
    reason: str


@dataclass
class Shop:
    prices: dict[str, float]


@dataclass
class Bank:
    balance: float


@tool(restart="pure", quick=True)
def price(ctx: Context[Shop], item: str) -> float:
    """What an item costs."""
    return ctx.deps.prices[item]


@tool
async def whose(ctx: Context) -> str:
    """Whose run this is."""
    return ctx.meta.get("customer", "nobody")


def submits(*results: object) -> Scripted:
    lines = [call("submit_result", result=result) for result in results]
    return Scripted(lambda q: lines[q.turn], name=f"m{len(results)}{results[0]}")


def keeper(*script: object) -> Agent[str, Shop]:
    return Agent("keeper", deps_type=Shop, tools=[price], model=Scripted(list(script), name="k"))


@on_virtual_time
async def test_an_option_that_does_not_exist_is_answered_with_the_one_that_was_meant() -> None:
    one, wrong = agent("one", ["x"]), {"timeout_s": 5}
    async with Retinue(clock=VirtualClock()) as retinue:
        for verb, name in (
            (retinue.run(one, "Go.", **wrong), "run"),
            (retinue.spawn(one, "Go.", **wrong), "spawn"),
            (retinue.gather(one, "Go.", **wrong), "gather"),
            (retinue.fork("nobody", "Go.", **wrong), "fork"),
            (retinue.resume("nobody", "Go.", **wrong), "resume"),
        ):
            with pytest.raises(ConfigError) as failure:
                await verb
            assert str(failure.value) == (
                f"{name}() has no option 'timeout_s'. Did you mean 'timeout'?"
            )
            assert (failure.value.field, failure.value.suggestion) == ("timeout_s", "timeout")
    short: Any = {"tool": [price]}
    with pytest.raises(ConfigError, match=r"^Agent 'a' has no option 'tool'. Did you mean 'tools'"):
        Agent("a", **short)
    with pytest.raises(ConfigError, match=r"Agent 'a': options= has no option 'labell'"):
        Agent("a", options={"labell": "x"})
    with pytest.raises(ConfigError, match=r"Retinue\(\) has no option 'limit'. .*'limits'"):
        Retinue(limit=3)


def test_a_plain_function_among_the_tools_is_told_how_it_becomes_one() -> None:
    def read_file(path: str) -> str:
        return path

    with pytest.raises(ConfigError) as failure:
        Agent("lead", tools=[read_file])
    assert str(failure.value) == (
        "Agent 'lead': read_file is a plain function. Write tools=[tool(read_file)], or put @tool "
        "above it."
    )
    with pytest.raises(ConfigError, match="3 is neither a tool nor the name of one"):
        Agent("lead", tools=[3])
    assert Agent("lead", tools=[tool(read_file)]).own_tools[0].schema.name == "read_file"


def test_what_is_no_type_of_results_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"Write output=json_schema"):
        Agent("a", output={"type": "object"})
    with pytest.raises(ConfigError, match=r"Write one_of\(A, B\)"):
        Agent("a", output=(Invoice, Refusal))
    with pytest.raises(ConfigError, match="two types or more"):
        one_of(Invoice)


@on_virtual_time
async def test_a_result_is_of_the_first_type_that_it_fits() -> None:
    clerk = Agent("clerk", output=one_of(Invoice, Refusal), model=submits({"reason": "a poem"}))
    other = Agent("other", output=one_of(Invoice, Refusal), model=submits({"number": "17"}))
    async with Retinue(clock=VirtualClock()) as retinue:
        refusal, invoice = await retinue.run(clerk, "Go."), await retinue.run(other, "Go.")
    assert refusal.unwrap() == Refusal(reason="a poem")
    assert invoice.output == Invoice("17")


@on_virtual_time
async def test_a_result_that_fits_none_of_the_types_is_asked_for_again() -> None:
    texts: list[str] = []

    def talk(request: ModelRequest) -> object:
        texts.append(request.messages[-1].text)
        return call("submit_result", result={"number": 1} if not request.turn else {"number": "1"})

    clerk = Agent("clerk", output=one_of(Invoice, Refusal), model=Scripted(talk))
    async with Retinue(clock=VirtualClock()) as retinue:
        assert (await retinue.run(clerk, "Go.")).unwrap() == Invoice("1")
    assert "as Invoice: number: expected a string" in texts[1] and "as Refusal: " in texts[1]


@on_virtual_time
async def test_a_json_schema_gives_a_dict_and_a_plain_agent_gives_its_text() -> None:
    schema = json_schema({"type": "object", "required": ["n"]})
    counter = Agent("counter", output=schema, model=submits({"n": 3}))
    async with Retinue(clock=VirtualClock()) as retinue:
        assert (await retinue.run(counter, "Go.")).unwrap() == {"n": 3}
        plain = await retinue.run(agent("one", ["hello"]), "Go.")
    assert plain.output == plain.unwrap() == "hello"


@on_virtual_time
async def test_a_run_that_did_not_complete_has_no_output_and_its_error_carries_the_outcome() -> (
    None
):
    slow = agent("slow", ["x"], seconds=100)
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(slow, "Go.", timeout=5)
    assert outcome.output is None
    with pytest.raises(RunFailed) as failure:
        outcome.unwrap()
    assert failure.value.outcome is outcome
    assert str(failure.value).startswith(f"Run {outcome.id} of 'slow' is timed_out (")


@on_virtual_time
async def test_gather_keeps_the_order_of_the_tasks_and_how_many_work_at_once() -> None:
    most = at_work = 0

    async def talk(request: ModelRequest) -> str:
        nonlocal most, at_work
        at_work += 1
        most = max(most, at_work)
        task = request.messages[0].text
        await asyncio.sleep(10 - int(task))
        at_work -= 1
        if task == "3":
            raise ValueError("three is too many")
        return task

    worker = Agent("worker", model=Scripted(talk))
    async with Retinue(clock=VirtualClock()) as retinue:
        ends = await retinue.gather(worker, "1", "2", "3", "4", at_once=2, key="all")
        again = await retinue.gather(worker, "1", "2", "3", "4", at_once=2, key="all")
    assert most == 2
    assert ends.results == ["1", "2", "4"] and [o.state for o in ends.failed] == ["failed"]
    assert [o.id for o in again] == [o.id for o in ends], "a key starts each of them once"
    assert len(ends) == 4 and ends[0].text == "1" and [o.text for o in ends[:2]] == ["1", "2"]
    with pytest.raises(RunFailed, match="of 'worker' is failed"):
        ends.unwrap()


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_tools_get_the_dependencies_of_the_runtime(kind: str, tmp_path: Any) -> None:
    shop = Shop({"apple": 0.4})
    home = Home(kind, tmp_path)
    async with home.open(deps=shop) as retinue:
        assert retinue.deps is shop
        outcome = await retinue.run(keeper(call("price", item="apple"), "It is 0.4."), "Apples?")
        texts = [m.text for m in await retinue.messages(outcome.id)]
    assert "0.4" in texts


@on_virtual_time
async def test_an_agent_without_its_dependencies_is_refused() -> None:
    async with Retinue(clock=VirtualClock()) as bare:
        with pytest.raises(ConfigError) as failure:
            await bare.run(keeper("x"), "Go.")
    assert str(failure.value) == (
        "Agent 'keeper' needs dependencies of type Shop, and this runtime has none. Write "
        "Retinue(deps=Shop(...))."
    )
    async with Retinue(clock=VirtualClock(), deps=Bank(1.0)) as bank:
        lead = Agent("lead", model=Scripted(["x"]), staff=[keeper("x")])
        with pytest.raises(ConfigError, match=r"of type Shop, and this runtime has a Bank\."):
            await bank.spawn(lead, "Go.")
        assert (await bank.run(agent("plain", ["x"]), "Go.")).ok, "who needs none works anywhere"


def test_run_sync_takes_dependencies() -> None:
    one = keeper(call("price", item="apple"), "done")
    assert run_sync(one, "Go.", deps=Shop({"apple": 1.0})).unwrap() == "done"


@on_virtual_time
async def test_a_stored_id_gets_its_type_back() -> None:
    clerk = Agent("clerk", output=Invoice, model=submits({"number": "17"}))
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(clerk, "Go.")
        assert type(run) is str and type(RunId(run)) is str
        assert await retinue.find(str(run), clerk) == run
        with pytest.raises(ConfigError, match="is a run of 'clerk', not of 'other'"):
            await retinue.find(run, agent("other", ["x"]))
        with pytest.raises(NotFound):
            await retinue.find("nobody", clerk)


def test_the_types_can_be_written_where_python_reads_them() -> None:
    assert RunId[Invoice] is str
    assert str(Agent[Invoice]) == str(Agent[Invoice, object])
    assert Context[Shop].__origin__ is Context and Tool[Shop].__origin__ is Tool  # type: ignore[attr-defined]
    assert msgspec.convert("x", RunId[Any]) == "x"


def test_equal_agents_are_one_agent() -> None:
    def made(text: str = "Keep.") -> Agent[str, Shop]:
        fresh = tool(price.function, restart="pure")
        staff = [Agent("helper", "Help.", tools=["read"])]
        return Agent("keeper", text, deps_type=Shop, model="a:b", tools=[fresh], staff=staff)

    assert made() == made() and hash(made()) == hash(made())
    assert made() != made("Sell.") and made() != "keeper"
    ring, other = ([Agent("a", staff=(staff := [])), staff] for _ in range(2))
    for one, staff in (ring, other):
        staff.append(one)
    assert ring[0] == other[0], "an agent may be on its own staff"


@on_virtual_time
async def test_agents_made_anew_for_each_request_are_known_once() -> None:
    model = Scripted(["x"], name="m")
    async with Retinue(clock=VirtualClock()) as retinue:
        for _ in range(3):
            assert (await retinue.run(Agent("one", "Go on.", model=model), "Go.")).ok
        first = retinue._registry.agents["one"]
        await retinue.run(Agent("one", "Go on.", model=model), "Go.")
        assert retinue._registry.agents["one"] is first


@pytest.mark.parametrize(("on_cancel", "state"), [("keep", None), ("cancel", "cancelled")])
@on_virtual_time
async def test_cancelling_who_waits_ends_the_run_only_if_that_was_said(
    on_cancel: Any, state: str | None
) -> None:
    slow = agent("slow", ["x"], seconds=100)
    async with Retinue(clock=VirtualClock()) as retinue:
        waiting = asyncio.create_task(retinue.run(slow, "Go.", key="k", on_cancel=on_cancel))
        await asyncio.sleep(5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        outcome = await retinue.outcome(await retinue.spawn(slow, "Go.", key="k"))
        assert (outcome and outcome.state) == state


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_meta_is_stored_and_inherited(kind: str, tmp_path: Any) -> None:
    @tool
    def hire(ctx: Context) -> Any:
        """Hire a helper."""
        return ctx.spawn_actions("helper", "Whose?", meta={"part": "2"})

    helper = agent("helper", [call("whose"), "done"], tools=[whose])
    lead = agent("lead", [call("hire"), "done"], tools=[hire], staff=[helper])
    home = Home(kind, tmp_path)
    async with home.open(agents=[lead]) as retinue:
        run = await retinue.spawn(lead, "Go.", meta={"customer": "ada"})
        child = (await retinue.wait(run)).children[0].id
        assert [m.text for m in await retinue.messages(child)][2] == "ada"
    async with home.open(agents=[lead]) as retinue:
        assert (await retinue.record(run)).spec.meta == {"customer": "ada"}
        assert (await retinue.record(child)).spec.meta == {"customer": "ada", "part": "2"}
        again = await retinue.resume(run, meta={"page": "2"})
        assert (await retinue.record(again)).spec.meta == {"customer": "ada", "page": "2"}


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_runs_are_listed_by_what_is_asked_for(
    kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retinue.reads.PAGE", 2)
    one, slow = agent("one", ["x"]), agent("slow", ["x"], seconds=50)
    home = Home(kind, tmp_path)
    async with home.open(agents=[one, slow]) as retinue:
        ids = []
        for n in range(7):
            meta = {"customer": "ada" if n % 2 else "bob", "n": str(n)}
            origin = Origin(user="eve" if n < 3 else "")
            who = slow if n == 4 else one
            ids.append(await retinue.spawn(who, f"Task {n}.", meta=meta, origin=origin))
            await asyncio.sleep(10)

        async def listed(**choice: Any) -> list[int]:
            return [ids.index(r.id) async for r in retinue.runs(**choice)]

        began = datetime.fromtimestamp((await retinue.record(ids[5])).spec.created_at / 1000, UTC)
        assert await listed() == [6, 5, 4, 3, 2, 1, 0]
        assert await listed(limit=3) == [6, 5, 4] and await listed(limit=0) == []
        assert await listed(meta={"customer": "ada"}) == [5, 3, 1]
        assert await listed(meta={"customer": "ada", "n": "3"}, state="completed") == [3]
        assert await listed(user="eve") == [2, 1, 0] and await listed(agent="slow") == [4]
        assert await listed(since=began) == [6, 5]
        assert await listed(state="open") == [4] == await listed(state=["thinking", "failed"])
        assert await listed(state="ended", limit=2) == [6, 5]
        (line,) = [r async for r in retinue.runs(agent="slow")]
        assert (line.state, line.task, line.meta["n"]) == ("thinking", "Task 4.", "4")
        with pytest.raises(ConfigError, match=r"'complete'\) is not a state. Did you mean 'compl"):
            await listed(state="complete")


@on_virtual_time
async def test_a_tool_that_needs_dependencies_is_refused_where_there_are_none() -> None:
    clerk = Agent("clerk", tools=[price], model=Scripted(["done"], name="c"))
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(ConfigError, match="Tool 'price' needs dependencies of type Shop"):
            await retinue.run(clerk, "Go.")  # type: ignore[arg-type]


@on_virtual_time
async def test_a_result_may_be_none_and_one_of_another_type_is_a_mistake_of_the_program() -> None:
    store = MemoryStore()
    maybe: Any = int | None
    question: Agent[int | None] = Agent(
        "asked", model=Scripted([submit(None)], name="m"), output=maybe
    )
    async with Retinue(store, clock=VirtualClock()) as retinue:
        outcome = await retinue.run(question, "Is there a number?")
        assert outcome.ok and outcome.unwrap() is None
        counted = Agent("counter", model=Scripted([submit(3)], name="n"), output=int)
        run = (await retinue.run(counted, "Count.")).id
    changed = Agent("counter", model=Scripted([], name="n"), output=Shop)
    async with Retinue(store.survivor(), agents=[changed], clock=VirtualClock()) as retinue:
        with pytest.raises(ConfigError, match="Agent 'counter' has another output type"):
            await retinue.outcome(run)
    async with Retinue(store.survivor(), clock=VirtualClock()) as retinue:
        assert (await retinue.wait(run)).output == 3


@on_virtual_time
async def test_deliveries_and_runs_refuse_what_they_do_not_know() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        wrong: Any = "ded"
        with pytest.raises(ConfigError, match=r"'ded'.* is not a state. There are pending"):
            await anext(retinue.deliveries(state=wrong))
        with pytest.raises(ConfigError, match=r"runs\(\): meta is a dict of str to str"):
            await anext(retinue.runs(meta=wrong))
        with pytest.raises(ConfigError, match=r"runs\(\): since is a datetime"):
            await anext(retinue.runs(since=wrong))
        with pytest.raises(ConfigError, match=r"run\(\): agent is an Agent, not 'ded'"):
            await retinue.run(wrong, "Go.")
