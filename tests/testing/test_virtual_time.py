"""Time that jumps, and scripts that keep no state."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from retinue import Agent, ModelReply, Retinue, Usage
from retinue.core.events import Replied
from retinue.core.messages import AssistantMessage
from retinue.store.sqlite.sqlite_store import SqliteStore
from retinue.testing import Cassette, Scripted, VirtualClock, VirtualLoop, call, run_virtual


def test_a_day_takes_no_time_and_is_exact() -> None:
    async def main() -> tuple[float, int]:
        clock, loop = VirtualClock(), asyncio.get_running_loop()
        before, at = clock.now(), loop.time()
        await asyncio.sleep(86_400)
        return loop.time() - at, clock.now() - before

    started = time.process_time()
    assert run_virtual(main()) == (86_400, 86_400_000)
    assert time.process_time() - started < 1


def test_timers_fire_in_their_order() -> None:
    async def main() -> list[int]:
        fired: list[int] = []

        async def after(seconds: int) -> None:
            await asyncio.sleep(seconds)
            fired.append(seconds)

        await asyncio.gather(*(after(n) for n in (5, 1, 3, 2, 4)))
        return fired

    assert run_virtual(main()) == [1, 2, 3, 4, 5]


def test_what_would_run_in_a_thread_runs_at_once_and_its_errors_are_kept() -> None:
    async def main() -> None:
        assert isinstance(asyncio.get_running_loop(), VirtualLoop)
        assert await asyncio.to_thread(lambda: 3) == 3
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    run_virtual(main())


def test_a_timeout_is_a_timeout() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.sleep(3_600)

    run_virtual(main())


def test_names_are_counted_so_that_two_runs_of_a_program_are_alike() -> None:
    assert [VirtualClock().chance() for _ in range(2)] == [VirtualClock().chance()] * 2
    clock = VirtualClock()
    assert clock.chance() != clock.chance()


def say(script: object, **fields: object) -> ModelReply:
    """The first reply of a scripted model."""

    async def main() -> ModelReply:
        replies: list[ModelReply] = []
        model = Scripted(script, **fields)  # type: ignore[arg-type]
        complete = model.complete

        async def keep(request: object, emit: object) -> ModelReply:
            replies.append(await complete(request, emit))  # type: ignore[arg-type]
            return replies[-1]

        model.complete = keep  # type: ignore[assignment,method-assign]
        async with Retinue(clock=VirtualClock()) as retinue:
            await retinue.run(Agent("one", model=model), "Go.", max_turns=1)
        return replies[0]

    return run_virtual(main())


def test_a_line_may_be_a_text_a_call_several_calls_or_a_whole_reply() -> None:
    assert say(["hello"]).message == AssistantMessage(text="hello")
    one = say([call("look", at="me")])
    assert [(c.id, c.name, c.arguments_json) for c in one.message.calls] == [
        ("c0_0", "look", '{"at":"me"}')
    ]
    assert one.stop == "calls"
    assert [c.id for c in say([[call("a"), call("b")]]).message.calls] == ["c0_0", "c0_1"]
    whole = ModelReply(
        message=AssistantMessage(text="x"), usage=Usage(input=7, output=1), model="m-2"
    )
    assert say([whole]) == whole
    assert say(["x"], usage=Usage(input=5, output=5)).usage.tokens == 10


def test_a_script_goes_on_from_the_conversation_and_repeats_its_last_line() -> None:
    async def main() -> list[str]:
        one = Agent("one", model=Scripted(["first", "second"]))
        async with Retinue(clock=VirtualClock()) as retinue:
            outcome = await retinue.run(one, "Go.")
            texts = [outcome.text]
            for _ in range(2):
                run = await retinue.resume(outcome.id)
                ended = await retinue.wait(run)
                assert ended is not None
                outcome = ended
                texts.append(outcome.text)
        return texts

    assert run_virtual(main()) == ["first", "second", "second"]


def test_a_cassette_plays_on_a_real_loop_and_a_real_file_too(tmp_path: Path) -> None:
    async def slow(request: object) -> str:
        task = request.messages[0].text  # type: ignore[attr-defined]
        await asyncio.sleep(0.6 if task == "first" else 0.02)
        return f"did the {task}"

    async def play(model: object, name: str) -> list[str]:
        one, store = Agent("one", model=model), SqliteStore(tmp_path / name)  # type: ignore[arg-type]
        async with Retinue(store) as retinue:
            await retinue.gather(one, "first", "second", "third")
            log = [entry.event for _, entry in await store.entries()]
        return [event.reply.message.text for event in log if isinstance(event, Replied)]

    cassette = Cassette(tmp_path / "tape.jsonl")
    real = Scripted(slow, name="real")  # type: ignore[arg-type]
    recorded = asyncio.run(play(cassette.record(real), "a.db"))
    assert recorded[-1] == "did the first"
    cassette = Cassette(tmp_path / "tape.jsonl")
    assert asyncio.run(play(cassette.replay(real), "b.db")) == recorded
    cassette.check()
