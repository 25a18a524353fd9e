"""What a caller or a tool does wrong is told to whoever did it; it never stops the others, and
never waits for ever."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Actions,
    Agent,
    ConfigError,
    Hooks,
    Limits,
    Permissions,
    Refused,
    Retinue,
    RetinueError,
    Submission,
    ToolResult,
    run_sync,
    tool,
)
from retinue.core.messages import ToolMessage
from retinue.core.spec import RunRequest
from retinue.core.values import ModelInfo, ToolSchema
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import STORES, Home, agent, ended, last, on_virtual_time, texts

both = pytest.mark.parametrize("kind", STORES)


async def still_works(retinue: Retinue) -> None:
    """Others go on as if nothing had happened."""
    assert retinue.blocked_reason == ""
    outcome = await asyncio.wait_for(retinue.run(agent("somebody else", ["fine"]), "Go."), 60)
    assert outcome.text == "fine"


@pytest.mark.parametrize(
    "options",
    [
        {"max_turns": "3"},
        {"timeout_ms": "5000"},
        {"budget": 5_000},
        {"lanes": 3},
        {"retry": 5},
        {"permissions": Permissions(tools="read")},  # type: ignore[arg-type]
        {"join": "sometimes"},
        {"report": "poem"},
    ],
    ids=lambda options: " ".join(options),
)
@on_virtual_time
async def test_an_option_of_the_wrong_type_is_refused_and_stops_nobody(
    options: dict[str, Any],
) -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(ConfigError):
            await asyncio.wait_for(retinue.run(agent("one", ["x"]), "Go.", **options), 60)
        await still_works(retinue)


@on_virtual_time
async def test_lists_are_taken_for_sets_of_capabilities_or_refused() -> None:
    """`deny=[...]` is what anybody would write."""
    async with Retinue(clock=VirtualClock()) as retinue:
        try:
            access = Permissions(deny=["rest"])  # type: ignore[arg-type]
            outcome = await asyncio.wait_for(
                retinue.run(agent("one", ["x"]), "Go.", permissions=access), 60
            )
            assert outcome.text == "x"
        except (ConfigError, TypeError):
            pass
        await still_works(retinue)


@on_virtual_time
async def test_a_list_in_narrow_stops_nobody() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=5), "Go.")
        try:
            access = Permissions(deny=["rest"])  # type: ignore[arg-type]
            await asyncio.wait_for(retinue.restrict(run, access), 60)
        except (ConfigError, TypeError):
            pass
        await still_works(retinue)
        assert (await ended(retinue, run)).text == "x"


@on_virtual_time
async def test_orders_of_the_wrong_type_are_the_tools_mistake() -> None:
    child = agent("child", ["x"])

    @tool
    async def hire() -> Actions:
        """Hire."""
        return Actions(spawns=(RunRequest(agent="child", task="Go.", max_turns="3"),))  # type: ignore[arg-type]

    async with Retinue(clock=VirtualClock()) as retinue:
        lead = agent("lead", [call("hire"), "I see."], tools=[hire], staff=[child])
        outcome = await asyncio.wait_for(retinue.run(lead, "Go."), 60)
        assert outcome.text == "I see."
        await still_works(retinue)


class Bare:
    """A model that does not keep its contract."""

    name = "bare"

    def __init__(self, returned: object) -> None:
        self.returned, self.info = returned, ModelInfo()

    async def complete(self, request: ModelRequest, on_delta: object) -> Any:
        return self.returned


@pytest.mark.parametrize(
    ("returned", "words"),
    [(None, "None"), ("hello", "a value of the type str"), (3, "a value of the type int")],
)
@on_virtual_time
async def test_a_model_that_returns_no_reply_is_told_what_it_returns(
    returned: object, words: str
) -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        model: Any = Bare(returned)
        outcome = await retinue.run(Agent("one", model=model), "Go.")
        assert outcome.state == "failed"
        assert outcome.error.startswith(f"The model returned {words}. `complete` returns a ")
        await still_works(retinue)


@pytest.mark.parametrize("n", range(6))
@pytest.mark.parametrize("option", ["hooks", "agents"])
def test_what_is_no_list_of_hooks_or_agents_is_named(option: str, n: int) -> None:
    wrong: list[object] = [Hooks[None](), 5, None, "text", [5], Agent("one")]
    fields: dict[str, Any] = {option: wrong[n]}
    with pytest.raises(ConfigError, match=rf"Retinue\({option}=.*(Hooks|Agent)\(\.\.\.\), not "):
        Retinue(**fields)


class Odd:
    """A tool that does not keep its contract."""

    restart = "pure"

    def __init__(self, returned: Any) -> None:
        self.schema = ToolSchema(name="odd", description="", parameters={"type": "object"})
        self.returned = returned

    async def run(self, caller: Any, args: dict[str, Any]) -> Any:
        if isinstance(self.returned, BaseException):
            raise self.returned
        return self.returned

    def format_results(self, outcomes: Any) -> str:
        return ""


@pytest.mark.parametrize("returned", [None, "text", 3, asyncio.CancelledError()], ids=repr)
@on_virtual_time
async def test_a_tool_that_breaks_its_contract_gives_an_error_result(returned: Any) -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(
            agent("one", [call("odd"), "I see."], tools=[Odd(returned)]), "Go."
        )
        outcome = await retinue.wait(run, timeout=60)
        assert outcome is not None, "the call is open for ever"
        assert outcome.text == "I see."


@both
@on_virtual_time
async def test_a_result_that_is_not_json_is_the_tools_mistake(kind: str, tmp_path: Path) -> None:
    async with Home(kind, tmp_path).open() as retinue:
        odd = Odd(Submission(text="x", data=object()))
        run = await retinue.spawn(agent("one", [call("odd"), "I see."], tools=[odd]), "Go.")
        outcome = await retinue.wait(run, timeout=60)
        assert outcome is not None, "the call is open for ever"
        assert outcome.text == "I see."
        await still_works(retinue)


@on_virtual_time
async def test_a_model_whose_call_is_cancelled_from_inside_fails_its_run() -> None:
    async def broken(request: ModelRequest) -> str:
        raise asyncio.CancelledError

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", broken), "Go.")
        outcome = await retinue.wait(run, timeout=60)
        assert outcome is not None, "the run would think for ever"
        assert outcome.state == "failed"


def cancel_own_task(when: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    if when == "now":
        task.cancel()
    else:
        asyncio.get_running_loop().call_soon(task.cancel)


class Cancelling(Odd):
    """A tool that cancels the task in which it is called, and returns or waits."""

    async def run(self, caller: Any, args: dict[str, Any]) -> Any:
        when, waits = self.returned
        cancel_own_task(when)
        if waits:
            await asyncio.sleep(5)
        return ToolResult(text="done")


@pytest.mark.parametrize("hooks", [(), (Hooks(after_tool=lambda ctx, call, result: None),)])
@pytest.mark.parametrize("when", ["now", "soon"])
@pytest.mark.parametrize("waits", [True, False])
@on_virtual_time
async def test_a_tool_that_cancels_its_own_task_gives_an_error_result(
    when: str, waits: bool, hooks: tuple[Hooks[None], ...]
) -> None:
    async with Retinue(clock=VirtualClock(), hooks=hooks) as retinue:
        tools = [Cancelling((when, waits))]
        run = await retinue.spawn(agent("one", [call("odd"), "I see."], tools=tools), "Go.")
        outcome = await retinue.wait(run, timeout=60)
        assert outcome is not None, "the call is open for ever"
        assert outcome.text == "I see."
        results = [m for m in await retinue.messages(run) if isinstance(m, ToolMessage)]
        if waits or when == "now":
            assert [m.text for m in results] == ["The tool failed: CancelledError: "]
        await still_works(retinue)


@pytest.mark.parametrize("waits", [True, False])
@on_virtual_time
async def test_a_model_that_cancels_its_own_task_fails_its_run(waits: bool) -> None:
    async def broken(request: ModelRequest) -> str:
        cancel_own_task("now")
        if waits:
            await asyncio.sleep(5)
        return "done"

    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", broken), "Go.")
        outcome = await retinue.wait(run, timeout=60)
        assert outcome is not None, "the run would think for ever"
        assert outcome.state == "failed"
        assert "cancelled from inside" in outcome.error


@on_virtual_time
async def test_a_hook_that_cancels_its_own_task_is_contained() -> None:
    hooks = Hooks[None](before_tool=lambda ctx, call: cancel_own_task("now"))
    async with Retinue(clock=VirtualClock(), hooks=[hooks]) as retinue:
        tools = [Odd(ToolResult(text="done"))]
        run = await retinue.spawn(agent("one", [call("odd"), "I see."], tools=tools), "Go.")
        outcome = await retinue.wait(run, timeout=60)
        assert outcome is not None, "the run would think for ever"
        assert outcome.text == "I see."


@pytest.mark.parametrize("way", ["close", "all tasks"])
@on_virtual_time
async def test_a_call_that_is_interrupted_by_the_end_of_the_program_is_not_recorded(
    way: str, tmp_path: Path
) -> None:
    """A program that ends closes its runtime, or cancels all tasks there are."""
    home, started = Home("sqlite", tmp_path), asyncio.Event()

    @tool(restart="pure")
    async def patient() -> str:
        """Wait."""
        if started.is_set():
            return "done"
        started.set()
        await asyncio.sleep(1_000)
        return "late"

    one = agent("one", [call("patient"), "I see."], tools=[patient])
    retinue = home.open()
    await retinue.__aenter__()
    run = await retinue.spawn(one, "Go.")
    await started.wait()
    if way == "all tasks":
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.1)
    await retinue.__aexit__(None, None, None)
    async with home.open(agents=[one]) as retinue:
        outcome = await retinue.wait(run, timeout=60)
        assert outcome is not None and outcome.text == "I see."
        results = [m for m in await retinue.messages(run) if isinstance(m, ToolMessage)]
        assert [m.text for m in results] == ["done"]


@both
@on_virtual_time
async def test_a_conversation_is_resumed_from_its_end_or_not_at_all(
    kind: str, tmp_path: Path
) -> None:
    """The conversation of `first` has grown since: going on from its middle would overwrite what
    stands there."""
    async with Home(kind, tmp_path).open() as retinue:
        one = agent("one", lambda q: " > ".join(texts(q)))
        first = await retinue.run(one, "a")
        second = await ended(retinue, await retinue.resume(first.id, "b"))
        before = await retinue.messages(second.id)
        try:
            third = await asyncio.wait_for(retinue.resume(first.id, "c"), 60)
            assert (await asyncio.wait_for(ended(retinue, third), 60)).text.endswith("c")
        except Refused:
            pass
        assert await retinue.messages(second.id) == before, "what was recorded is not overwritten"
        await still_works(retinue)


@both
@on_virtual_time
async def test_a_conversation_in_use_is_not_forgotten(kind: str, tmp_path: Path) -> None:
    async with Home(kind, tmp_path).open() as retinue:
        one = agent("one", last, seconds=5)
        first = await retinue.run(one, "a")
        second = await retinue.resume(first.id, "b")
        with pytest.raises(Refused):
            await asyncio.wait_for(retinue.forget(first.id), 60)
        await still_works(retinue)
        assert (await ended(retinue, second)).text == "b"


@on_virtual_time
async def test_a_runtime_that_is_not_open_says_so() -> None:
    retinue, one = Retinue(clock=VirtualClock()), agent("one", ["x"])
    with pytest.raises(RetinueError):
        await asyncio.wait_for(retinue.spawn(one, "Go."), 60)
    async with Retinue(clock=VirtualClock()) as retinue:
        await retinue.run(one, "Go.")
    with pytest.raises(RetinueError):
        await asyncio.wait_for(retinue.spawn(one, "Go."), 60)


def test_a_runtime_that_could_not_start_lets_go_of_its_store(tmp_path: Path) -> None:
    async def main() -> None:
        twice = [agent("one", ["x"]), Agent("one", model=Scripted(["y"], name="other"))]
        with pytest.raises(ConfigError, match="Two different agents"):
            async with Retinue(tmp_path / "log.db", agents=twice):
                pass
        async with Retinue(tmp_path / "log.db") as retinue:
            await still_works(retinue)

    asyncio.run(main())


@on_virtual_time
async def test_an_agent_that_was_refused_can_be_put_right() -> None:
    """Registration is all or nothing: a staff with a fault leaves no half of it behind."""
    async with Retinue(clock=VirtualClock()) as retinue:
        one_name = [Scripted(["x"], name="m"), Scripted(["y"], name="m")]
        with pytest.raises(ConfigError, match="Two different models are named 'm'"):
            await retinue.run(
                Agent("lead", model=one_name[0], staff=[Agent("child", model=one_name[1])]), "Go."
            )
        right = Agent(
            "lead", model=Scripted(["fine"], name="n"), staff=[Agent("child", model=one_name[1])]
        )
        assert (await retinue.run(right, "Go.")).text == "fine"


@on_virtual_time
async def test_rules_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(ConfigError):
        async with Retinue(clock=VirtualClock(), limits=Limits(text_cap="many")) as retinue:  # type: ignore[arg-type]
            await asyncio.wait_for(retinue.run(agent("one", ["x"]), "Go."), 60)


@on_virtual_time
async def test_run_sync_says_what_to_do_inside_a_loop() -> None:
    with warnings.catch_warnings(record=True) as failure:
        warnings.simplefilter("always")
        with pytest.raises(RetinueError, match="await"):
            run_sync(agent("one", ["x"]), "Go.")
    assert failure == [], "no coroutine is left behind"


@on_virtual_time
async def test_looking_at_a_run_again_and_again_leaves_nothing_behind() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(agent("one", ["x"], seconds=1_000), "Go.")
        before = futures()
        for _ in range(200):
            with pytest.raises(TimeoutError):
                await retinue.wait(run, timeout=1)
        assert futures() - before < 20


def futures() -> int:
    gc.collect()
    return sum(isinstance(thing, asyncio.Future) for thing in gc.get_objects())
