"""A tree is recorded once, with delays, and played back without: the same answers in the same
order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from retinue import Actions, Agent, ConfigError, Context, ModelUnavailable, Outcome, Retinue, tool
from retinue.core.events import (
    ActionsReturned,
    ChildEnded,
    LogEntry,
    Replied,
    Requested,
    TextReturned,
)
from retinue.core.messages import Message, ToolMessage, UserMessage
from retinue.core.spec import SendMessage
from retinue.models.base import Model, ModelRequest
from retinue.testing import (
    Cassette,
    CassetteError,
    MemoryStore,
    Scripted,
    VirtualClock,
    call,
    run_virtual,
)

Log = list[tuple[int, LogEntry]]
CHILDREN, TURNS = 5, 3


def last(request: ModelRequest) -> Message:
    return request.messages[-1]


def a_tree(
    cassette: Cassette, model: Callable[[Model], Model], seed: int = 0, **extra: object
) -> Agent:
    """A lead with five readers of three turns each, whose models and tools take random times when
    they are real."""
    chance = random.Random(seed)

    @tool(restart="pure")
    async def look(page: int) -> str:
        """Look at a page."""
        await asyncio.sleep(chance.random())
        return f"page {page}"

    async def read(request: ModelRequest) -> object:
        await asyncio.sleep(chance.random() * 5)
        return "read it" if request.turn == TURNS - 1 else call("look", page=request.turn)

    reader = Agent(
        "reader", "You read.", model=model(Scripted(read, name="r")), tools=[cassette.tool(look)]
    )

    @tool(restart="keyed")
    async def hand_out(context: Context, tasks: list[str]) -> Actions:
        """Start one reader for each task."""
        return context.spawn_actions(reader, *tasks)

    def lead(request: ModelRequest) -> object:
        if isinstance(last(request), ToolMessage):
            return "all read"
        return call("hand_out", tasks=[f"part {n}" for n in range(CHILDREN)])

    lead_model = model(Scripted(lead, name="l"))
    tools = [cassette.tool(hand_out)]
    return Agent("lead", "You lead.", model=lead_model, tools=tools, staff=[reader], **extra)  # type: ignore[arg-type]


def play(agent: Agent, task: str = "Read it all.") -> tuple[Outcome, Log]:
    async def main() -> tuple[Outcome, Log]:
        store = MemoryStore()
        async with Retinue(store, clock=VirtualClock()) as retinue:
            outcome = await retinue.run(agent, task)
            return outcome, await store.entries()

    return run_virtual(main())


def record(path: Path, seed: int = 0) -> tuple[Outcome, Log]:
    cassette = Cassette(path)
    return play(a_tree(cassette, cassette.record, seed))


def replay(path: Path) -> tuple[Outcome, Log, Cassette]:
    cassette = Cassette(path)
    outcome, log = play(a_tree(cassette, lambda model: cassette.replay(model.info)))
    return outcome, log, cassette


def interleaving(log: Log) -> list[str]:
    """Who did what in which order; ids are replaced by the order in which the runs appear, times
    are left out."""
    names: dict[str, int] = {}
    out = []
    for _, entry in log:
        run = names.setdefault(entry.run, len(names)) if entry.run else "-"
        event = entry.event
        detail = ""
        if isinstance(event, Replied):
            detail = event.reply.message.text or event.reply.message.calls[0].arguments_json
        elif isinstance(event, TextReturned):
            detail = event.text
        elif isinstance(event, ChildEnded):
            detail = str(names[event.child])
        out.append(f"{run} {type(event).__name__} {detail}")
    return out


@pytest.mark.parametrize("seed", range(4))
def test_a_tree_is_played_back_in_the_recorded_order_and_each_time_alike(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "tree.jsonl"
    first, recorded = record(path, seed)
    assert first.text == "all read" and len(first.children) == CHILDREN
    logs = []
    for _ in range(3):
        outcome, log, cassette = replay(path)
        assert outcome.text == first.text
        assert cassette.unused() == []
        cassette.check()
        assert interleaving(log) == interleaving(recorded)
        logs.append(msgspec.json.encode(log))
    assert logs[0] == logs[1] == logs[2]
    assert recorded[-1][1].at - recorded[0][1].at > 5_000, "the recording has delays"
    assert log[-1][1].at == log[0][1].at, "the replay has none"


def test_different_recordings_have_different_orders(tmp_path: Path) -> None:
    orders = {tuple(interleaving(record(tmp_path / f"{seed}.jsonl", seed)[1])) for seed in range(4)}
    assert len(orders) == 4


def test_a_cassette_is_json_lines_with_a_header_and_numbered_answers(tmp_path: Path) -> None:
    path = tmp_path / "tree.jsonl"
    record(path)
    header, *lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert header == {"cassette": 1}
    assert [line["n"] for line in lines] == list(range(len(lines)))
    assert len(lines) == 2 + 1 + CHILDREN * (TURNS + TURNS - 1)
    assert lines[0]["key"] == "0 turn 0 turn #0"
    assert lines[1]["key"] == "0 turn 1 call 0 hand_out #0"


def test_a_changed_task_is_named_as_the_first_difference(tmp_path: Path) -> None:
    path = tmp_path / "tree.jsonl"
    record(path)
    cassette = Cassette(path)
    outcome, _ = play(a_tree(cassette, lambda m: cassette.replay(m.info)), "Read nothing.")
    assert outcome.state == "failed"
    assert "'0 turn 0 turn #0' differs in message 1 of 1" in outcome.error
    assert "was 'user: Read it all.' and is 'user: Read nothing.'" in outcome.error
    with pytest.raises(CassetteError, match="differs in message 1"):
        cassette.check()


def one_agent(cassette: Cassette, model: Model, **fields: object) -> Agent:
    @tool(restart="pure")
    async def weigh(thing: str) -> str:
        """Weigh a thing."""
        return f"{thing}: 3 kg"

    defaults: dict[str, object] = {"instructions": "Weigh.", "tools": [cassette.tool(weigh)]}
    return Agent("one", model=model, **{**defaults, **fields})  # type: ignore[arg-type]


def record_one(path: Path, script: object) -> tuple[Outcome, Log]:
    cassette = Cassette(path)
    return play(one_agent(cassette, cassette.record(Scripted(script, name="m"))))  # type: ignore[arg-type]


WEIGH = [call("weigh", thing="a stone"), "3 kg"]
INFO = Scripted(["never said"], name="m").info


def test_changed_instructions_are_named(tmp_path: Path) -> None:
    record_one(tmp_path / "c", WEIGH)
    cassette = Cassette(tmp_path / "c")
    outcome, _ = play(one_agent(cassette, cassette.replay(INFO), instructions="Guess."))
    assert outcome.error == "c: '0 turn 0 turn #0' has other instructions than when it was recorded"


def test_another_agent_is_named(tmp_path: Path) -> None:
    record_one(tmp_path / "c", WEIGH)
    cassette = Cassette(tmp_path / "c")
    outcome, _ = play(Agent("two", model=cassette.replay(INFO)))
    assert (
        outcome.error == "c: '0 turn 0 turn #0' is asked by agent 'two'; it was recorded for 'one'"
    )


def test_changed_tools_are_named(tmp_path: Path) -> None:
    record_one(tmp_path / "c", WEIGH)
    cassette = Cassette(tmp_path / "c")
    outcome, _ = play(one_agent(cassette, cassette.replay(INFO), tools=[]))
    assert "has other tools: without ['artifact', 'weigh'], with []" in outcome.error


def test_a_tool_that_answers_differently_is_found_at_the_next_request(tmp_path: Path) -> None:
    record_one(tmp_path / "c", WEIGH)

    @tool(restart="pure")
    async def weigh(thing: str) -> str:
        """Weigh a thing."""
        return f"{thing}: 4 kg"

    cassette = Cassette(tmp_path / "c")
    outcome, _ = play(one_agent(cassette, cassette.replay(INFO), tools=[weigh]))
    assert "'0 turn 1 turn #0' differs in message 3 of 3" in outcome.error
    assert "was 'result: a stone: 3 kg' and is 'result: a stone: 4 kg'" in outcome.error
    assert cassette.unused() == ["0 turn 1 call 0 weigh #0", "0 turn 1 turn #0"]


def test_a_request_that_was_not_recorded_is_named_with_what_was(tmp_path: Path) -> None:
    record_one(tmp_path / "c", ["done"])
    lines = (
        (tmp_path / "c").read_text(encoding="utf-8").replace("0 turn 0 turn #0", "0 turn 7 turn #0")
    )
    (tmp_path / "c").write_text(lines, encoding="utf-8")
    cassette = Cassette(tmp_path / "c")
    outcome, _ = play(one_agent(cassette, cassette.replay(INFO)))
    assert (
        outcome.error
        == "c: no recorded answer for '0 turn 0 turn'; recorded for '0': '0 turn 7 turn #0'"
    )
    assert cassette.unused() == ["0 turn 7 turn #0"]


def test_an_answer_is_given_out_once(tmp_path: Path) -> None:
    record_one(tmp_path / "c", ["done"])
    cassette = Cassette(tmp_path / "c")
    agent = one_agent(cassette, cassette.replay(INFO))

    async def main() -> tuple[Outcome, Outcome]:
        async with Retinue(clock=VirtualClock()) as retinue:
            return await retinue.run(agent, "Read it all."), await retinue.run(
                agent, "Read it all."
            )

    first, second = run_virtual(main())
    assert first.text == "done"
    assert second.error.endswith(
        "no recorded answer for '0 turn 0 turn'; all its answers were already used"
    )


def test_answers_that_nobody_asks_for_break_the_replay_instead_of_stopping_it(
    tmp_path: Path,
) -> None:
    record_one(tmp_path / "c", WEIGH)
    with (tmp_path / "c").open("rb") as file:
        header, first, *others = file.read().splitlines()
    second, third = others
    foreign = first.replace(b'"0 turn 0 turn #0"', b'"0/9 turn 0 turn #0"')
    (tmp_path / "c").write_bytes(
        b"\n".join([header, foreign, *_renumber([first, second, third])]) + b"\n"
    )
    cassette = Cassette(tmp_path / "c")
    outcome, _ = play(one_agent(cassette, cassette.replay(INFO)))
    assert (
        "'0 turn 0 turn #0' waits for '0/9 turn 0 turn #0', which was recorded before it and is "
        "not requested now" in outcome.error
    )
    assert cassette.unused() == [
        "0/9 turn 0 turn #0",
        "0 turn 1 call 0 weigh #0",
        "0 turn 1 turn #0",
    ]


def _renumber(lines: list[bytes]) -> list[bytes]:
    return [
        msgspec.json.encode({**msgspec.json.decode(line), "n": n})
        for n, line in enumerate(lines, 1)
    ]


def test_failures_and_retries_are_played_back(tmp_path: Path) -> None:
    tries = iter([ModelUnavailable("busy", "overloaded", 2.0), ValueError("odd"), "never"])
    first, recorded = record_one(tmp_path / "c", lambda request: next(tries))
    assert (first.state, first.error) == ("failed", "ValueError: odd")
    cassette = Cassette(tmp_path / "c")
    outcome, log = play(one_agent(cassette, cassette.replay(INFO)))
    assert (outcome.state, outcome.error) == (first.state, first.error)
    assert interleaving(log) == interleaving(recorded)
    cassette.check()


def test_a_tool_that_raised_raises_again_without_being_run(tmp_path: Path) -> None:
    def agent(cassette: Cassette, model: Model) -> Agent:
        @tool(restart="pure")
        async def weigh(thing: str) -> str:
            """Weigh a thing."""
            raise LookupError(thing)

        return one_agent(cassette, model, tools=[cassette.tool(weigh)])

    cassette = Cassette(tmp_path / "c")
    _, recorded = play(agent(cassette, cassette.record(Scripted([WEIGH[0], "none"], name="m"))))
    cassette = Cassette(tmp_path / "c")
    outcome, log = play(one_agent(cassette, cassette.replay(INFO)))
    assert outcome.text == "none"
    for entries in (recorded, log):
        texts = [e.event.text for _, e in entries if isinstance(e.event, TextReturned)]
        assert texts == ["The tool failed: LookupError: a stone"]


def test_run_ids_in_answers_are_those_of_the_replay(tmp_path: Path) -> None:
    """A background child is named by its id in a tool's answer; the model writes to that id, and
    hears of its end."""

    def tree(cassette: Cassette, model: Callable[[Model], Model], seconds: float) -> Agent:
        async def work(request: ModelRequest) -> object:
            await asyncio.sleep(3 * seconds)
            texts = " ".join(m.text for m in request.messages)
            return "with sugar" if "sugar" in texts else "plain"

        child = Agent("cook", model=model(Scripted(work, name="c")))

        @tool(restart="keyed")
        async def start(context: Context) -> Actions:
            """Start a cook."""
            return context.spawn_actions(
                child, "cook", join="none", answer=f"started {context.child_id()}"
            )

        @tool(restart="keyed")
        async def write(to: str, text: str) -> Actions:
            """Write to a cook."""
            return Actions(sends=(SendMessage(to=to, text=text),), answer="sent", pause=True)

        async def lead(request: ModelRequest) -> object:
            await asyncio.sleep(seconds)
            if isinstance(last(request), UserMessage):
                return call("start") if request.turn == 0 else last(request).text.splitlines()[1]
            text = last(request).text
            return (
                call("write", to=text.split()[1], text="sugar")
                if text.startswith("started")
                else "waiting"
            )

        tools = [cassette.tool(start), cassette.tool(write)]
        return Agent("lead", model=model(Scripted(lead, name="l")), tools=tools, staff=[child])

    cassette = Cassette(tmp_path / "c")
    first, _ = play(tree(cassette, cassette.record, 5.0))
    assert first.text == "with sugar"
    cassette = Cassette(tmp_path / "c")
    again, _ = play(tree(cassette, lambda m: cassette.replay(m.info), 0.0))
    cassette.check()
    assert again.text == "with sugar"
    assert again.children[0].id != first.children[0].id
    text = (tmp_path / "c").read_text(encoding="utf-8")
    assert first.children[0].id not in text and "<retinue:run:" in text


def test_a_call_that_was_cancelled_is_cancelled_again(tmp_path: Path) -> None:
    async def slow(request: ModelRequest) -> object:
        await asyncio.sleep(100)
        return "never"

    def agent(cassette: Cassette, model: Model) -> Agent:
        return one_agent(cassette, model, timeout=10)

    cassette = Cassette(tmp_path / "c")
    first, recorded = play(agent(cassette, cassette.record(Scripted(slow, name="m"))))
    cassette = Cassette(tmp_path / "c")
    again, log = play(agent(cassette, cassette.replay(INFO)))
    assert first.state == again.state == "timed_out"
    assert interleaving(log) == interleaving(recorded)
    cassette.check()


def test_two_roots_with_equal_paths_are_told_apart_by_their_tasks(tmp_path: Path) -> None:
    async def slow(request: ModelRequest) -> object:
        await asyncio.sleep(3 if request.messages[0].text == "first" else 1)
        return f"did the {request.messages[0].text}"

    def play_two(agent: Agent, *tasks: str) -> dict[str, str]:
        async def main() -> dict[str, str]:
            async with Retinue(clock=VirtualClock()) as retinue:
                ended = await retinue.gather(agent, *tasks)
                return {t: end.text for t, end in zip(tasks, ended, strict=True)}

        return run_virtual(main())

    cassette = Cassette(tmp_path / "c")
    play_two(Agent("one", model=cassette.record(Scripted(slow, name="m"))), "first", "second")
    cassette = Cassette(tmp_path / "c")
    texts = play_two(Agent("one", model=cassette.replay(INFO)), "second", "first")
    assert texts == {"first": "did the first", "second": "did the second"}
    cassette.check()


def test_what_is_not_a_cassette_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("hello\n", encoding="utf-8")
    with pytest.raises(CassetteError, match="c is not a cassette"):
        Cassette(tmp_path / "c").replay(INFO)
    (tmp_path / "c").write_text('{"cassette": 99}\n', encoding="utf-8")
    with pytest.raises(CassetteError, match="has version 99; this version of Retinue supports 1"):
        Cassette(tmp_path / "c").replay(INFO)
    with pytest.raises(CassetteError, match=r"Cannot read nothing \(.+\)\. Record it first\."):
        Cassette(tmp_path / "nothing").replay(INFO)
    record_one(tmp_path / "c", WEIGH)
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:-20])
    with pytest.raises(CassetteError, match="Line 4 of c is damaged"):
        Cassette(tmp_path / "c").replay(INFO)


def test_a_cassette_records_or_replays(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "c")
    cassette.record(Scripted(["x"]))
    with pytest.raises(ConfigError, match="cannot both record and replay"):
        cassette.replay(INFO)


def test_the_recorded_orders_are_those_that_were_given(tmp_path: Path) -> None:
    path = tmp_path / "tree.jsonl"
    record(path)
    _, log, _ = replay(path)
    (orders,) = [e.event.actions for _, e in log if isinstance(e.event, ActionsReturned)]
    assert [o.task for o in orders.spawns] == [f"part {n}" for n in range(CHILDREN)]
    assert sum(isinstance(e.event, Requested) for _, e in log) == 1
