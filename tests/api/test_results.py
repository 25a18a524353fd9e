"""What comes back: typed results, long results, and mistakes that become results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from retinue import (
    Actions,
    Agent,
    ConfigError,
    Context,
    Limits,
    Retinue,
    Submission,
    ToolCall,
    ToolMessage,
    json_schema,
    tool,
)
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, VirtualClock, call
from tests.api.scripted_agents import STORES, Home, agent, ended, last, lead_of, on_virtual_time


class Verdict(msgspec.Struct):
    grade: Literal["good", "bad"]
    reasons: list[str]


SCHEMA = {
    "type": "object",
    "properties": {
        "grade": {"enum": ["good", "bad"]},
        "reasons": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["grade", "reasons"],
}
RIGHT = {"grade": "good", "reasons": ["short"]}


def submit(result: object) -> object:
    return call("submit_result", result=result)


@on_virtual_time
async def test_a_result_of_the_wrong_type_is_asked_for_again() -> None:
    texts: list[str] = []
    script = [submit({"grade": "fair", "reasons": []}), submit({"grade": "good"}), submit(RIGHT)]

    def talk(request: ModelRequest) -> object:
        texts.append(last(request))
        return script[request.turn]

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("judge", talk, output=Verdict), "Judge.")
    assert (outcome.state, outcome.stop) == ("completed", "submitted")
    assert outcome.output == outcome.unwrap() == Verdict(grade="good", reasons=["short"])
    assert outcome.usage.turns == 3
    assert 'does not match its schema: grade: expected one of "good", "bad"' in texts[1]
    assert "reasons: this field is required" in texts[2]


@on_virtual_time
async def test_a_result_that_never_fits_is_asked_for_three_times_and_then_fails() -> None:
    n_asked = [0]

    def talk(request: ModelRequest) -> object:
        n_asked[0] += 1
        return submit({"grade": f"wrong {n_asked[0]}", "reasons": []})

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("judge", talk, output=Verdict), "Judge.")
        assert (outcome.state, outcome.stop) == ("failed", "rejected_result")
        assert n_asked == [4]
        assert outcome.error.startswith("the result was rejected 4 times, at last: ")
        assert 'got "wrong 4"' in outcome.error
        results = [m for m in await retinue.messages(outcome.id) if isinstance(m, ToolMessage)]
        assert len(results) == 4, "each call has its result, so that the run can be resumed"
    for limits, n in ((Limits(rejected_results=0), 1), (Limits(rejected_results=None), 7)):
        n_asked[0] = 0
        async with Retinue(clock=VirtualClock(), limits=limits) as retinue:
            outcome = await retinue.run(agent("j", talk, output=Verdict, max_turns=7), "Judge.")
        assert n_asked == [n]
        assert outcome.state == ("failed" if n == 1 else "incomplete")


@on_virtual_time
async def test_a_text_is_not_taken_for_a_typed_result() -> None:
    """Models forget to hand in. They are asked to; one that never does has not completed its
    task."""
    async with Retinue(clock=VirtualClock()) as retinue:
        forgetful = agent("forgetful", ["I think it is good.", submit(RIGHT)], output=Verdict)
        outcome = await retinue.run(forgetful, "Judge.")
        assert outcome.output == Verdict(grade="good", reasons=["short"])
        stubborn = agent("stubborn", ["I think it is good."], output=Verdict)
        outcome = await retinue.run(stubborn, "Judge.")
        assert outcome.output is None and outcome.text == "I think it is good."
        assert not outcome.ok, "unwrap() would give a text to a program that asked for a Verdict"


@on_virtual_time
async def test_a_json_schema_is_checked_as_a_type_is() -> None:
    texts: list[str] = []
    script = [submit({"grade": "fair", "reasons": []}), submit(RIGHT)]

    def talk(request: ModelRequest) -> object:
        texts.append(last(request))
        return script[request.turn]

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("judge", talk, output=json_schema(SCHEMA)), "Judge.")
    assert outcome.output == RIGHT
    assert "$.grade: 'fair' is not one of ['good', 'bad']" in texts[1]


@on_virtual_time
async def test_the_schema_of_a_result_is_shown_to_the_model() -> None:
    rows: dict[str, object] = {}

    def talk(request: ModelRequest) -> object:
        rows.update({t.name: t.parameters for t in request.tools})
        return submit(3)

    async with Retinue(clock=VirtualClock()) as retinue:
        assert (await retinue.run(agent("counter", talk, output=int), "Count.")).output == 3
    assert set(rows) == {"submit_result", "submit_error", "artifact"}
    result = rows["submit_result"]["properties"]["result"]  # type: ignore[index]
    assert result.pop("description").startswith("Everything the agent that gave you the task needs")
    assert result == {"type": "integer"}


@on_virtual_time
async def test_a_child_can_say_that_its_task_cannot_be_done() -> None:
    child = agent(
        "judge", [call("submit_error", error="there is nothing to judge")], output=Verdict
    )
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead_of(child), "Go.")
        (end,) = outcome.children
    assert (end.state, end.stop) == ("failed", "sub_agent_error")
    assert "there is nothing to judge" in outcome.text


@on_virtual_time
async def test_a_submission_beside_other_calls_is_not_taken() -> None:
    script = [[submit(RIGHT), call("submit_error", error="?")], submit(RIGHT)]
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("judge", script, output=Verdict), "Judge.")
        refusals = [m.text for m in (await retinue.messages(outcome.id))[2:4]]
    assert outcome.output == Verdict(grade="good", reasons=["short"])
    assert all("must be the only call in a reply" in text for text in refusals)


@on_virtual_time
async def test_the_typed_results_of_children_reach_their_parent() -> None:
    child = agent("judge", [submit(RIGHT)], output=Verdict)
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead_of(child), "Go.")
    assert msgspec.json.decode(outcome.text) == RIGHT


@on_virtual_time
async def test_a_tool_may_put_its_childrens_outcomes_into_its_own_words() -> None:
    child = agent("child", lambda q: f"did {last(q)}")

    @tool(restart="keyed", format_results=lambda ends: " and ".join(e.ending.text for e in ends))
    async def hire(context: Context, tasks: list[str]) -> Actions:
        """Hire."""
        return context.spawn_actions(child, *tasks, format_results=True)

    script = Scripted(lambda q: last(q) if q.turn else call("hire", tasks=["a", "b"]), name="lead")
    lead = Agent("lead", model=script, tools=[hire], staff=[child])
    async with Retinue(clock=VirtualClock()) as retinue:
        assert (await retinue.run(lead, "Go.")).text == "did a and did b"


BIG = "".join(f"line {n:06d} of a long report\n" for n in range(7_000))[:200_000]


def pager(whole: list[str]) -> Scripted:
    """A lead's model that reads what was cut through the `artifact` tool, page by page."""
    id = ""

    def script(request: ModelRequest) -> object:
        nonlocal id
        if request.turn == 0:
            return call("hire", tasks=["write a long report"])
        if request.turn == 1:
            id = re.search(r"full text in artifact (\w+)\]", last(request))[1]  # type: ignore[index]
            return call("artifact", id=id)
        page, note = last(request).rsplit("\n[bytes ", 1)
        whole.append(page)
        more = re.search("continue with offset (\\d+)", note)
        return call("artifact", id=id, offset=int(more[1])) if more else "read it all"

    return Scripted(script, name="lead")


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_long_result_is_cut_for_the_parent_and_kept_whole(
    kind: str, tmp_path: Path
) -> None:
    home, pages = Home(kind, tmp_path), list[str]()
    child = agent("child", [BIG])
    lead = lead_of(child)
    lead = Agent("lead", model=pager(pages), tools=lead.tools, staff=[child])
    async with home.open() as retinue:
        outcome = await retinue.run(lead, "Go.")
        reply_text = (await retinue.messages(outcome.id))[2].text
        part = await retinue.outcome(outcome.children[0].id)
        assert part is not None
        (artifact,) = part.artifacts
        assert (artifact.size, len(part.text) < 66_000) == (200_000, True)
        assert await retinue.artifact(artifact.sha256) == BIG.encode()
        assert await retinue.artifact(artifact.sha256, 100, 50) == BIG[100:150].encode()
    assert outcome.text == "read it all"
    assert len(reply_text) < 66_000 and reply_text.startswith(BIG[:65_000])
    assert f"full text in artifact {artifact.sha256}" in reply_text
    assert "".join(pages) == BIG


@on_virtual_time
async def test_a_long_result_in_any_script_can_be_paged_without_loss() -> None:
    big, pages = "Grüße, 世界 🙂. " * 12_000, list[str]()
    child = agent("child", [big])
    lead = Agent("lead", model=pager(pages), tools=lead_of(child).tools, staff=[child])
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(lead, "Go.")
    assert outcome.text == "read it all"
    assert "\ufffd" not in "".join(pages), "a character was torn between two pages"
    assert "".join(pages) == big


@on_virtual_time
async def test_a_page_of_an_artifact_is_not_cut_again_where_texts_are_short() -> None:
    pages: list[str] = []
    child = agent("child", [BIG[:9_000]])
    lead = Agent("lead", model=pager(pages), tools=lead_of(child).tools, staff=[child])
    async with Retinue(clock=VirtualClock(), limits=Limits(text_cap=1_000)) as retinue:
        outcome = await retinue.run(lead, "Go.")
    assert outcome.text == "read it all", outcome.error
    assert "".join(pages) == BIG[:9_000]


@on_virtual_time
async def test_a_long_tool_result_and_a_long_submission_are_kept_whole() -> None:
    @tool
    async def dump() -> str:
        """Dump."""
        return BIG

    script = [call("dump"), submit(BIG)]
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", script, tools=[dump], output=str), "Go.")
        text = (await retinue.messages(outcome.id))[2].text
        sha = re.search(r"artifact (\w+)\]", text)[1]  # type: ignore[index]
        assert await retinue.artifact(sha) == BIG.encode()
        (artifact,) = outcome.artifacts
        assert await retinue.artifact(artifact.sha256) == BIG.encode()
    assert len(text) < 66_000 and len(outcome.text) < 66_000


@on_virtual_time
async def test_an_artifact_that_does_not_exist_is_a_result_for_the_model() -> None:
    script = [
        [call("artifact", id="0" * 64), call("artifact", id=7), call("artifact", id="x", limit=0)],
        "ok",
    ]

    @tool
    async def nothing() -> None:
        """Nothing."""

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", script, tools=[nothing]), "Go.")
        results = (await retinue.messages(outcome.id))[2:5]
    assert outcome.text == "ok"
    assert [m.error for m in results] == [True] * 3  # type: ignore[union-attr]
    assert "not found" in results[0].text


@tool
async def divide(a: int, b: int = 2) -> float:
    """Divide."""
    return a / b


def written(args: str) -> ToolCall:
    """A call whose arguments are this text."""
    return ToolCall(id="", name="divide", arguments_json=args)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (call("divide", a=1, b=0), "The tool failed: ZeroDivisionError: division by zero"),
        (call("devide", a=1), "Unknown tool 'devide'. Did you mean 'divide'?"),
        (
            call("divide", a="one"),
            'Invalid parameters: a: expected an integer, got "one". Example: {"a":1}',
        ),
        (
            call("divide"),
            'Invalid parameters: a: this parameter is required: an integer. Example: {"a":1}',
        ),
        (
            call("divide", a=1, c=2),
            "c: there is no such parameter; the parameters are a, b. Example: ",
        ),
        (written('{"a": 1'), "the arguments are not valid JSON"),
        (written("[1]"), "the arguments must be a JSON object"),
        (written('{"a":1,"a":2}'), "duplicate key"),
        (written('{"a": NaN}'), "NaN is not a JSON number"),
    ],
)
@on_virtual_time
async def test_what_goes_wrong_with_a_call_is_told_to_the_model(
    question: object, text: str
) -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", [question, "I see."], tools=[divide]), "Go.")
        result = (await retinue.messages(outcome.id))[2]
    assert (outcome.state, outcome.text) == ("completed", "I see.")
    assert text in result.text
    assert result.error is True  # type: ignore[union-attr]


@on_virtual_time
async def test_a_tool_of_ones_own_may_hand_in_the_result() -> None:
    @tool
    async def finish(text: str) -> Submission:
        """Finish."""
        return Submission(text=text, data={"said": text})

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(
            agent("one", [call("finish", text="bye")], tools=[finish]), "Go."
        )
    assert (outcome.state, outcome.text, outcome.output) == ("completed", "bye", {"said": "bye"})


@on_virtual_time
async def test_silence_is_asked_again_and_then_admitted() -> None:
    requests: list[str] = []

    def silent(request: ModelRequest) -> str:
        requests.append(last(request))
        return ""

    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(agent("one", silent), "Speak.")
    assert requests == [
        "Speak.",
        "Your reply was empty. Answer now.",
        "Your reply was empty. Answer now.",
    ]
    assert (outcome.state, outcome.stop) == ("failed", "empty")


@on_virtual_time
async def test_a_report_can_be_a_turn_of_its_own() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:
        one = agent("one", lambda q: f"{q.purpose}: {last(q)}")
        how: dict[str, Any] = {"report": "summary", "report_prompt": "Sum it up."}
        outcome = await retinue.run(one, "Work.", **how)
    assert outcome.text == "summary: Sum it up."


@on_virtual_time
async def test_turns_run_out_with_what_was_said_and_grace_allows_one_more() -> None:
    async with Retinue(clock=VirtualClock()) as retinue:

        def script(request: ModelRequest) -> object:
            if request.purpose == "grace":
                return submit(RIGHT)
            return call("divide", a=1)

        hard = await retinue.run(
            agent("hard", [call("divide", a=1)], tools=[divide], max_turns=3), "Go."
        )
        assert (hard.state, hard.stop, hard.usage.turns) == ("incomplete", "turn_limit", 3)
        kind = agent(
            "kind", script, tools=[divide], max_turns=3, output=Verdict, options={"grace_turns": 1}
        )
        outcome = await retinue.run(kind, "Go.")
        assert (outcome.state, outcome.usage.turns) == ("completed", 4)


def test_an_output_that_cannot_be_shown_as_a_schema_is_refused_at_once() -> None:
    with pytest.raises((ConfigError, TypeError)):
        _ = Agent("one", model=Scripted(["x"]), output=object()).own_tools


@on_virtual_time
async def test_a_child_that_fails_is_told_to_its_parent_in_words() -> None:
    child = agent("child", [ValueError("no luck")])
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead_of(child, 2), "Go.")
        outcome = await ended(retinue, run)
        result = (await retinue.messages(run))[2]
    assert outcome.state == "completed"
    assert [c.state for c in outcome.children] == ["failed", "failed"]
    assert result.text.count("child failed (server_error): ValueError: no luck") == 2
