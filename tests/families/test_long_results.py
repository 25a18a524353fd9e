"""Long results in every family: the room is shared, everybody is seen with its state, the text
stays valid whatever is cut, and each cut names where the whole is."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from retinue import Agent, Context, Limits, Retinue, tool
from retinue.core.messages import AssistantMessage, ToolMessage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import on_virtual_time
from tests.families import agent_world, delegate_world, fanout_world, sessions_world, subagent_world

REPORT = "0123456789abcdef " * 460  # 7.8 KB
WHOLE = re.compile(r"artifact ([0-9a-f]{64})")
HOSTILE = [
    '"' * 20_000,
    "\\" * 20_000,
    "\x00\x01\n" * 7_000,
    "😀" * 20_000,
    "e\u0301" * 10_000,
    "```\nopen\n" * 2_000,
]


async def fetch(retinue: Retinue, text: str) -> str:
    """What the cut in a text says that it was cut from."""
    match = WHOLE.search(text)
    assert match is not None, text[-200:]
    return (await retinue.artifact(match[1])).decode()


async def fan(texts: list[str], rules: Limits | None = None) -> tuple[str, list[Any], list[str]]:
    """The result of a call with a child for each text; its rows; and the artifacts that they name,
    read."""

    def child(request: ModelRequest) -> Any:
        return call("submit_result", result=texts[int(fanout_world.task_of(request))])

    cast = fanout_world.Cast([fanout_world.spawn(*map(str, range(len(texts)))), "thanks"], child)
    async with Retinue(clock=VirtualClock(), limits=rules) as retinue:
        run = await retinue.spawn(fanout_world.lead(cast, max_tasks=200), "Go.")
        scene = await fanout_world.played(retinue, run)
        rows = scene.json
        wholes = [
            await fetch(retinue, result)
            for r in rows
            if "[truncated: " in (result := r["outcome"]["success"]["result"])
        ]
    return scene.told[0].text, rows, wholes


@on_virtual_time
async def test_ten_reports_of_a_fan_are_all_there_in_valid_json() -> None:
    text, rows, wholes = await fan([REPORT] * 10)
    assert len(rows) == 10 and len(text) <= 65_536
    counts = [len(r["outcome"]["success"]["result"]) for r in rows]
    assert max(counts) - min(counts) <= 2 and min(counts) > 6_000, "each gets the same"
    assert wholes == [REPORT] * 10


@on_virtual_time
async def test_hostile_reports_of_a_fan_stay_valid_json_and_short_ones_whole() -> None:
    _, rows, wholes = await fan([*HOSTILE, "short"])
    by_task = {r["task"]: r["outcome"]["success"]["result"] for r in rows}
    assert by_task[str(len(HOSTILE))] == "short"
    assert sorted(wholes) == sorted(HOSTILE)


@pytest.mark.parametrize("cap", [1, 64, 3_000])
@on_virtual_time
async def test_a_fan_in_the_smallest_room_is_valid_json(cap: int) -> None:
    cast = fanout_world.Cast([fanout_world.spawn("a", "b", "c"), "thanks"])
    async with Retinue(clock=VirtualClock(), limits=Limits(text_cap=cap)) as retinue:
        run = await retinue.spawn(fanout_world.lead(cast), "Go.")
        scene = await fanout_world.played(retinue, run)
    value = json.loads(scene.told[0].text)
    assert len(value["sub_agent_results"]) + value.get("cut", {}).get("not_shown", 0) == 3


@on_virtual_time
async def test_a_fan_of_sixty_shows_everybody_with_its_state() -> None:
    texts = [REPORT if n % 2 else f"short {n}" for n in range(60)]
    _, rows, wholes = await fan(texts)
    assert len(rows) == 60 and len(wholes) == 30
    assert [r["outcome"]["success"]["result"] for r in rows if r["task"] == "0"] == ["short 0"]


@on_virtual_time
async def test_errors_of_a_fan_are_cut_like_results() -> None:
    cast = fanout_world.Cast(
        [fanout_world.spawn("a", "b", "c"), "thanks"],
        lambda q: call("submit_error", error="no " * 20_000),
    )
    scene = await fanout_world.play(fanout_world.lead(cast))
    assert [list(r["outcome"]) for r in scene.json] == [["failure"]] * 3


@on_virtual_time
async def test_ten_delegated_reports_are_all_there_under_their_names() -> None:
    ids = [f"t{n}" for n in range(10)]
    world = delegate_world.World(
        delegate_world.parallel(*(delegate_world.task(i, f"say {REPORT}") for i in ids))
    )
    await world.go()
    (text,) = world.results
    assert re.findall(r"^### (\w+) \(completed\)$", text, re.MULTILINE) == ids
    assert len(text) <= 65_536 and len(WHOLE.findall(text)) == 10


@on_virtual_time
async def test_a_delegated_report_that_is_cut_in_its_code_hides_nobody() -> None:
    tasks = [delegate_world.task(f"t{n}", f"say ```\n{text}") for n, text in enumerate(HOSTILE)]
    world = delegate_world.World(delegate_world.parallel(*tasks))
    await world.go()
    text, is_open, records = world.results[0], False, []
    for line in text.splitlines():
        is_open ^= line.strip() == "```"
        if not is_open and line.startswith("### "):
            records.append(line)
    assert records == [f"### t{n} (completed)" for n in range(len(HOSTILE))] and not is_open


@on_virtual_time
async def test_the_summary_of_background_tasks_says_where_the_whole_is() -> None:
    ids, hook = [f"t{n}" for n in range(10)], delegate_world.Recorder()
    world = delegate_world.World(
        delegate_world.background(*(delegate_world.task(i, f"say {REPORT}{i}") for i in ids)),
        "gone",
    )
    async with Retinue(clock=VirtualClock(), channels={"hook": hook}) as retinue:
        await retinue.run(world.lead, "Go.")
        await asyncio.sleep(10_000)
        summary = next(text for text in hook.texts if text.startswith("All 10 tasks"))
        assert re.findall(r"^### (\w+) \(completed\)$", summary, re.MULTILINE) == ids
        wholes = [(await retinue.artifact(sha)).decode() for sha in WHOLE.findall(summary)]
    assert wholes == [REPORT + i for i in ids]


@pytest.mark.parametrize("text", ["x" * 60_000, *HOSTILE])
@on_virtual_time
async def test_a_long_status_is_still_final(text: str) -> None:
    world = agent_world.World(
        agent_world.spawn("long"),
        agent_world.wait(),
        agent_world.about("agent_status"),
        does={"long": text},
    )
    async with world.open() as retinue:
        await retinue.run(world.lead, "Go.")
        waited, status = world.results[1:3]
        for agent in (waited["agents"][0], status):
            assert (agent["state"], agent["is_final"]) == ("completed", True)
            if agent["output"] != text:
                assert await fetch(retinue, agent["output"]) == text


@on_virtual_time
async def test_waiting_for_five_long_ones_shows_all_five() -> None:
    world = agent_world.World(
        [agent_world.spawn(f"say {n}{REPORT * 3}") for n in range(5)], agent_world.wait()
    )
    await world.go()
    waited = world.results[5]
    assert [a["state"] for a in waited["agents"]] == ["completed"] * 5
    assert all(WHOLE.search(a["output"]) for a in waited["agents"])


@on_virtual_time
async def test_a_notice_that_is_cut_says_where_the_whole_is() -> None:
    text = "é" * 40_000
    world = sessions_world.World(sessions_world.spawn(f"say {text}"), profile="openclaw")
    async with world.open() as retinue:
        await retinue.run(world.lead, "Go.", origin=sessions_world.CHAT)
        (events,) = world.events
        assert events["status"] == "ok"
        assert await fetch(retinue, events["result"]) == text


@on_virtual_time
async def test_a_session_that_was_waited_for_answers_in_valid_json() -> None:
    text = '"\\' * 40_000
    world = sessions_world.World(
        sessions_world.spawn("long", timeoutSeconds=60), does={"long": text}
    )
    async with world.open() as retinue:
        await retinue.run(world.lead, "Go.", origin=sessions_world.CHAT)
        (reply,) = world.results
        assert reply["status"] == "ok"
        assert await fetch(retinue, reply["reply"]) == text


@on_virtual_time
async def test_a_long_history_is_valid_json_with_its_newest_messages() -> None:
    async def chatter(request: ModelRequest) -> Any:
        return (
            call("bash", command=f"{request.turn} " + "y" * 3_000)
            if request.turn < 40
            else "the end"
        )

    world = sessions_world.World(
        sessions_world.spawn("talk", cleanup="keep"),
        sessions_world.pause(50, sessions_world.history(0, limit=500, includeTools=True)),
        does={"talk": chatter},
    )
    await world.go()
    messages = world.results[-1]["messages"]
    assert messages[-3]["text"] == "the end" and messages[-1]["text"] == "I talk"


@on_virtual_time
async def test_two_hundred_parallel_subagents_are_all_in_the_answer() -> None:
    labels = [f"t{n}" for n in range(200)]
    stage = subagent_world.Stage(
        subagent_world.many(*labels, max_concurrent=50), sums=dict.fromkeys(labels, REPORT)
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await subagent_world.played(retinue, await retinue.spawn(stage.lead, "Go."))
    lines = output.result["results"]
    assert [line["label"] for line in lines] == labels
    assert all(line["success"] for line in lines) and output.result["successful"] == 200


@on_virtual_time
async def test_an_output_that_has_to_be_cut_for_its_quotes_is_told_as_truncated() -> None:
    text = '"' * 60_000
    stage = subagent_world.Stage(subagent_world.one("p"), sums={"p": text}, output_max_size=1 << 20)
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await subagent_world.played(retinue, await retinue.spawn(stage.lead, "Go."))
        assert output.result["truncated"] is True and "\n... (truncated)" in output.result["output"]
        assert await fetch(retinue, output.result["output"]) == text


@on_virtual_time
async def test_a_label_as_long_as_a_book_does_not_break_the_answer() -> None:
    label = '"\\\n' * 40_000
    stage = subagent_world.Stage(subagent_world.one("p", label=label))
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await subagent_world.played(retinue, await retinue.spawn(stage.lead, "Go."))
    assert output.result["success"] is True and output.result["output"] == "sum of p"


@on_virtual_time
async def test_a_letter_that_is_too_long_for_a_mailbox_says_where_the_whole_is() -> None:
    text = "é" * 40_000
    lines = (
        agent_world.spawn("after 5 say x", budget={"max_tokens": 1_000_000}),
        agent_world.about("agent_send", message=text),
        agent_world.wait(),
    )
    world = agent_world.World(
        *lines,
        does={"after 5 say x": [agent_world.pause(5, agent_world.call("look_up", word="w")), "ok"]},
    )
    async with world.open() as retinue:
        await retinue.run(world.lead, "Go.")
        letters = [
            m.text
            for q in world.requests
            if q.path != "0"
            for m in q.messages
            if "[Message from" in m.text
        ]
        assert letters and await fetch(retinue, letters[-1]) == text


@on_virtual_time
async def test_whoever_may_delegate_further_can_read_on_though_its_list_does_not_say_so() -> None:
    tools = ["look_up", "delegate_tasks"]
    world = delegate_world.World(
        delegate_world.parallel(
            delegate_world.task("t", "deep", tools), delegate_world.task("u", "flat", ["look_up"])
        ),
        allow_nesting=True,
    )
    await world.go()
    assert {t.name for t in world.of("deep")[0].tools} == {*tools, "artifact"}
    assert {t.name for t in world.of("flat")[0].tools} == {"look_up"}


@on_virtual_time
async def test_plain_staff_that_is_joined_shares_the_room_too() -> None:
    async def send(context: Context) -> Any:
        """Send them."""
        return context.spawn_actions("worker", *(f"{n}" for n in range(10)))

    worker = Agent("worker", model=Scripted(lambda q: REPORT, name="small"))
    lead = Agent(
        "lead",
        model=Scripted([call("send"), "done"], name="big"),
        tools=[tool(restart="pure")(send)],
        staff=[worker],
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead, "Go.")
        await retinue.wait(run)
        (result,) = [m for m in await retinue.messages(run) if isinstance(m, ToolMessage)]
    assert len(re.findall(r"^## worker \(completed\)$", result.text, re.MULTILINE)) == 10
    assert len(WHOLE.findall(result.text)) == 10


@on_virtual_time
async def test_whoever_reads_a_cut_can_read_on_with_its_tool() -> None:
    def read_on(request: ModelRequest) -> Any:
        rows = json.loads(request.messages[-1].text)["sub_agent_results"]
        match = WHOLE.search(rows[-1]["outcome"]["success"]["result"])
        assert match is not None
        return call("artifact", id=match[1], offset=0, limit=20)

    def say(request: ModelRequest) -> Any:
        if request.agent != "lead":
            return call("submit_result", result=REPORT)
        return (fanout_world.spawn(*map(str, range(10))), read_on, "done")[request.turn]

    def talk(request: ModelRequest) -> Any:
        line = say(request)
        return line(request) if callable(line) else line

    agent = Agent(
        "lead", model=Scripted(talk, name="big"), tools=[fanout_world.reader()], families=["fanout"]
    )
    scene = await fanout_world.play(agent)
    assert scene.told[1].text.startswith(REPORT[:20])


# what was cut before


@pytest.mark.parametrize("cap", [4_096, 65_536])
@on_virtual_time
async def test_a_second_cut_counts_what_the_first_has_left_out(cap: int) -> None:
    """A reply that is longer than an answer is cut when it is taken in, and again to fit into the
    answer."""
    text = "x" * (cap + 4_464)
    world = agent_world.World(
        agent_world.spawn("long"),
        agent_world.wait(),
        agent_world.about("agent_status"),
        does={"long": text},
    )
    await world.go(rules=Limits(text_cap=cap))
    _, waited, status = world.results
    for texts in (waited["agents"][0]["output"], status["output"]):
        output, rest, whole = _cut_in(texts)
        assert text.startswith(output) and whole == len(text) == rest + len(output)


@on_virtual_time
async def test_a_second_cut_counts_it_in_markdown_and_behind_an_error() -> None:
    text = "x" * 70_000
    tasks = [delegate_world.task(name, name, ["look_up"]) for name in "ab"]

    async def loop(request: ModelRequest) -> Any:
        return AssistantMessage(text=text, calls=(call("look_up", word="y"),))

    world = delegate_world.World(delegate_world.parallel(*tasks), does={"a": text, "b": loop})
    await world.go(seconds=1)
    first, second = world.results[0].split("\n\n### b (failed)\n")
    output, rest, whole = _cut_in(first.removeprefix("## Results\n\n### a (completed)\n"))
    assert text.startswith(output) and whole == len(text) == rest + len(output)
    assert second.startswith("Error: Tool loop exceeded maximum iterations\n\nText so far:\nxxx")
    output, rest, whole = _cut_in(second)
    assert whole == rest + len(output) == len(text) + second.index("xxx")


def _cut_in(text: str) -> tuple[str, int, int]:
    match = re.search(
        r"\n\[truncated: (\d+) of (\d+) characters hidden; full text in artifact \w+\]\Z", text
    )
    assert match is not None, text[-200:]
    assert text.count("[truncated: ") == 1
    return text[: match.start()], int(match[1]), int(match[2])
