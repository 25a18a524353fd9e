"""One blocking call: a task, then a summary of it; what comes back, and what is said about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue import Agent, ModelUnavailable, Permissions, Retinue, Retry, family
from retinue.core.messages import AssistantMessage, ModelReply, UserMessage
from retinue.core.values import Usage
from retinue.testing import MemoryStore, Scripted, VirtualClock, call
from retinue.tools.families.subagent.helper_starter import SUMMARY
from tests.api.scripted_agents import on_virtual_time
from tests.families.subagent_world import HELPER, Stage, one, pause, played, results


@on_virtual_time
async def test_a_call_returns_the_summary_of_the_task_and_facts_about_it_as_texts() -> None:
    stage = Stage(one("read the logs", "logs"), sums={"read the logs": "three errors"})
    result = await stage.go()
    usage = result.below["logs"].usage
    assert result.result == {
        "success": True,
        "output": "three errors",
        "truncated": False,
        "metadata": {
            "subagent_label": "logs",
            "recursion_depth": "1",
            "completion_status": "complete",
            "turns_used": "2",
            "tokens_used": str(usage.input + usage.output),
            "prompt_tokens": str(usage.input),
            "completion_tokens": str(usage.output),
        },
    }
    assert result.outcome.text == "done"


@on_virtual_time
async def test_the_task_is_followed_by_one_turn_with_the_summary_prompt_and_no_tools() -> None:
    stage = Stage(
        one("find it", summary_prompt="Where was it? "), does={"find it": ["here, after much ado"]}
    )
    await stage.go()
    first, second = stage.of("find it")
    assert [m.text for m in first.messages] == ["find it"]
    assert [m.text for m in second.messages] == ["find it", "here, after much ado", "Where was it?"]
    assert (first.purpose, second.purpose, second.tools) == ("turn", "summary", ())


@pytest.mark.parametrize("values", [{}, {"summary_prompt": None}, {"summary_prompt": " \n"}])
@on_virtual_time
async def test_without_a_summary_prompt_a_concise_summary_is_asked_for(
    values: dict[str, Any],
) -> None:
    stage = Stage(one("find it", **values))
    await stage.go()
    assert stage.of("find it")[1].messages[-1].text == SUMMARY
    assert "concisely" in SUMMARY


@on_virtual_time
async def test_a_child_has_a_conversation_of_its_own_and_its_parent_gets_one_message() -> None:
    work = [call("look_up", word="secret"), "I looked it up."]
    stage = Stage("Let me think.", does={"look": work})
    stage.lines = (one("look"), lambda q: f"{len(q.messages)} messages")
    async with Retinue(clock=VirtualClock()) as retinue:
        output = await played(retinue, await retinue.spawn(stage.lead, "Go."))
        messages = await retinue.messages(output.outcome.id)
    assert output.outcome.text == "3 messages"
    assert [type(m).__name__ for m in messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
    ]
    assert not any("secret" in m.text for m in messages)
    assert not any("Go." in m.text for q in stage.of("look") for m in q.messages)
    assert stage.of("look")[0].instructions == "Lead.", "the guide is for those who delegate"


@on_virtual_time
async def test_a_call_blocks_until_its_child_has_ended_and_holds_nothing_meanwhile() -> None:
    stage = Stage(one("sleep"), does={"sleep": pause(3_600, "slept")})

    async def look(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(1_800)
        assert len([q for q in stage.requests if q.path == "0"]) == 1
        assert (await retinue.tree(run)).state == "waiting"

    result = await stage.go(look)
    assert result.outcome.ended_ms - result.outcome.created_ms == 3_600_000


@on_virtual_time
async def test_children_use_the_model_of_their_parent_unless_the_settings_name_another() -> None:
    stage = Stage(one("a"))
    await stage.go()
    assert {q.model for q in stage.of("a")} == {"big"}
    small = Scripted(lambda q: f"small {q.purpose}", name="small")
    other = Stage(one("a"), model="small")
    result = await other.go(agents=[Agent("x", model=small)])
    assert result.result["output"] == "small summary", (
        "the model counts also when no provider is named beside it"
    )


@on_virtual_time
async def test_a_model_that_is_not_known_fails_the_start() -> None:
    stage = Stage(one("a"), model="huge")
    assert (await stage.go()).refusal == (
        "Subagent initialization failed: model 'huge' cannot be used (known: big)"
    )


@on_virtual_time
async def test_a_model_that_the_lead_may_not_use_fails_the_start_too() -> None:
    small = Scripted(["x"], name="small")
    result = await Stage(one("a"), model="small").go(
        agents=[Agent("x", model=small)], permissions=Permissions(models=("big",))
    )
    assert result.refusal.startswith("Subagent initialization failed: model 'small' cannot be used")


@on_virtual_time
async def test_a_tool_that_fails_is_an_error_result_for_the_child_which_goes_on() -> None:
    work = [call("break_down"), lambda q: f"heard: {q.messages[-1].text}"]
    stage = Stage(one("try"), does={"try": work}, sums={"try": lambda q: q.messages[-2].text})
    result = await stage.go()
    assert result.result["success"] is True
    assert "the disk is gone" in result.result["output"]
    assert result.result["metadata"]["completion_status"] == "complete"
    (failed,) = [m for m in stage.of("try")[1].messages if m.text.startswith("The tool failed")]
    assert getattr(failed, "error", None) is True


@on_virtual_time
async def test_a_tool_that_is_not_there_is_an_error_result_for_the_child_too() -> None:
    stage = Stage(one("try"), does={"try": [call("lookup", word="x"), "never mind"]})
    assert (await stage.go()).result["output"] == "sum of try"
    assert "Did you mean 'look_up'?" in stage.of("try")[1].messages[-1].text


def working(turns: int, says: str = "") -> list[Any]:
    """So many turns with a call in each, and perhaps something said beside it."""
    return [
        AssistantMessage(text=f"{says} {n}" if says else "", calls=(_look(n),))
        for n in range(turns)
    ]


def _look(n: int) -> Any:
    line: Any = call("look_up", word="x")
    return type(line)(id=f"c{n}", name=line.name, arguments_json=line.arguments_json)


@on_virtual_time
async def test_a_child_out_of_turns_returns_what_it_has_as_incomplete() -> None:
    def work(request: Any) -> Any:
        return "found half of it" if request.purpose == "grace" else working(9)[request.turn]

    stage = Stage(one("dig", "digger", max_turns=3), does={"dig": work})
    result = await stage.go()
    assert result.result["success"] is True
    assert result.result["output"] == "found half of it"
    assert result.result["metadata"] | {
        "tokens_used": "",
        "prompt_tokens": "",
        "completion_tokens": "",
    } == {
        "subagent_label": "digger",
        "recursion_depth": "1",
        "completion_status": "incomplete",
        "turns_used": "2",
        "max_turns_reached": "true",
        "max_turns": "3",
        "stop_reason": "turn_limit",
        "tokens_used": "",
        "prompt_tokens": "",
        "completion_tokens": "",
    }
    assert [q.purpose for q in stage.of("dig")] == ["turn"] * 3 + ["grace"]


@on_virtual_time
async def test_a_child_out_of_turns_is_asked_with_the_summary_prompt_too() -> None:
    def work(request: Any) -> Any:
        return "two errors" if request.purpose == "grace" else working(9)[request.turn]

    stage = Stage(
        one("dig", max_turns=2, summary_prompt="Only the number of errors."), does={"dig": work}
    )
    assert (await stage.go()).result["output"] == "two errors"
    last = stage.of("dig")[-1].messages[-1].text
    assert last.startswith("You have no turns left.") and last.endswith(
        "\nOnly the number of errors."
    )


@on_virtual_time
async def test_a_child_that_does_not_stop_even_then_returns_what_it_said_last() -> None:
    stage = Stage(one("dig", max_turns=2), does={"dig": working(20, "so far")})
    result = await stage.go()
    assert (result.result["success"], result.result["output"]) == (True, "so far 2")
    assert result.result["metadata"]["completion_status"] == "incomplete"
    assert len(stage.of("dig")) == 3


@on_virtual_time
async def test_a_child_out_of_turns_that_never_said_anything_is_no_success() -> None:
    stage = Stage(one("dig", max_turns=2), does={"dig": working(20)})
    result = await stage.go()
    assert (result.result["success"], result.result["output"]) == (False, "")
    assert result.result["error"] == "Subagent task execution failed: turn_limit"
    assert result.result["metadata"]["max_turns_reached"] == "true"


@pytest.mark.parametrize(
    ("settings", "most"),
    [({}, 10), ({"default_max_turns": 3}, 3), ({"default_max_turns": 100}, 100)],
)
@on_virtual_time
async def test_a_child_may_take_ten_turns_unless_the_settings_say_otherwise(
    settings: Any, most: int
) -> None:
    stage = Stage(one("dig"), does={"dig": working(200, "so far")}, **settings)
    result = await stage.go()
    assert len([q for q in stage.of("dig") if q.purpose == "turn"]) == most
    assert result.result["metadata"]["max_turns"] == str(most)


@pytest.mark.parametrize("turns", [1, 2, 50])
@on_virtual_time
async def test_a_child_that_ends_within_its_turns_is_complete_however_few_they_are(
    turns: int,
) -> None:
    stage = Stage(one("dig", max_turns=turns), does={"dig": working(turns - 1)})
    result = await stage.go()
    metadata = result.result["metadata"]
    assert (metadata["completion_status"], metadata["turns_used"]) == ("complete", "2")
    assert "max_turns_reached" not in metadata and "max_turns" not in metadata
    assert result.result["output"] == "sum of dig"


@on_virtual_time
async def test_a_child_whose_model_fails_is_reported_with_the_cause() -> None:
    stage = Stage(
        one("dig"),
        does={
            "dig": [AssistantMessage(text="a start", calls=(_look(0),)), RuntimeError("no more")]
        },
    )
    result = await stage.go()
    assert result.result["success"] is False
    assert result.result["error"] == "Subagent task execution failed: RuntimeError: no more"
    assert result.result["output"] == "a start", "what there was is not lost"
    assert result.result["metadata"]["completion_status"] == "incomplete"
    assert result.result["metadata"]["turns_used"] == "1"
    assert result.outcome.state == "completed", "the parent goes on"


@on_virtual_time
async def test_a_model_that_is_overloaded_for_a_while_costs_no_result() -> None:
    tries: list[int] = []

    def work(request: Any) -> Any:
        tries.append(request.attempt)
        return ModelUnavailable("busy", retry_after=30) if len(tries) < 3 else "did it"

    assert Retry().attempts >= 3
    assert (await Stage(one("dig"), does={"dig": work}).go()).result["output"] == "sum of dig"


@pytest.mark.parametrize("text", ["", " \n "])
@on_virtual_time
async def test_a_summary_without_any_text_is_no_success(text: str) -> None:
    result = await Stage(one("dig"), does={"dig": text}, sums={"dig": text}).go()
    assert result.result["success"] is False
    assert result.result["error"].startswith("Subagent task execution failed: ")
    assert result.result["metadata"]["completion_status"] == "incomplete"


@on_virtual_time
async def test_a_summary_turn_that_calls_tools_instead_leaves_the_text_of_the_task() -> None:
    result = await Stage(one("dig"), sums={"dig": call("look_up", word="x")}).go()
    assert (result.result["success"], result.result["output"]) == (True, "did dig")
    assert result.result["metadata"]["stop_reason"] == "no_report"
    assert result.result["metadata"]["turns_used"] == "2"


@on_virtual_time
async def test_a_cancelled_child_is_reported_with_its_text_and_the_parent_goes_on() -> None:
    stage = Stage(one("dig"), does={"dig": [working(1, "began")[0], pause(1_000, "late")]})

    async def cancel(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(10)
        (child,) = (await retinue.tree(run)).children
        assert (await retinue.cancel(child.id, "not needed")).state == "cancelled"

    result = await stage.go(cancel)
    assert (result.result["success"], result.result["output"]) == (False, "began 0")
    assert result.result["error"] == "Subagent task execution failed: not needed"
    assert result.result["metadata"]["stop_reason"] == "cancelled"
    assert result.outcome.text == "done"


@on_virtual_time
async def test_tokens_are_told_when_they_are_known() -> None:
    reply = ModelReply(message=AssistantMessage(text="x"), usage=Usage(input=1_000, output=50))
    metadata = (await Stage(one("a"), does={"a": reply}, sums={"a": reply}).go()).result["metadata"]
    assert (metadata["tokens_used"], metadata["prompt_tokens"], metadata["completion_tokens"]) == (
        "2100",
        "2000",
        "100",
    )


@on_virtual_time
async def test_a_child_that_never_ran_has_no_tokens_to_tell() -> None:
    result = await Stage(one("a"), max_total_tokens=5).go()
    assert result.result["error"].startswith("Resource quota exceeded: one turn needs up to ")
    assert result.result["error"].endswith(" for the reply); the budget has 5 left")
    assert not {"tokens_used", "prompt_tokens", "completion_tokens"} & set(
        result.result["metadata"]
    )


@on_virtual_time
async def test_two_calls_of_one_turn_work_at_the_same_time_and_each_has_its_own_result() -> None:
    stage = Stage([one("a"), one("b"), one("c")], does={p: pause(60, p) for p in "abc"})
    result = await stage.go()
    assert sorted(r["output"] for r in results(result.told)) == ["sum of a", "sum of b", "sum of c"]
    assert result.outcome.ended_ms - result.outcome.created_ms == 60_000


@on_virtual_time
async def test_the_profile_is_the_family_with_its_own_defaults() -> None:
    lead = Agent("lead", model=Scripted([one("a"), "end"]), families=["xzatoma"])
    async with Retinue(MemoryStore()) as retinue:
        outcome = await retinue.run(lead, "Go.")
        messages = (await retinue.messages(outcome.id))[2]
    assert results([messages])[0]["success"] is True  # type: ignore[list-item]
    assert family("xzatoma").settings == family("subagent").settings


@on_virtual_time
async def test_the_helpers_of_a_lead_are_runs_of_its_helper_agent_and_labelled() -> None:
    stage = Stage(one("a", "first look"))
    result = await stage.go()
    assert [(c.label, c.state) for c in result.outcome.children] == [("first look", "completed")]
    assert {q.agent for q in stage.of("a")} == {HELPER}
    assert isinstance(stage.of("a")[0].messages[0], UserMessage)
