"""Every family leaves its results as its document has them; who is missing behind them is told by
the runtime beside them, or in a field of its own where a result is looked up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue.core.messages import UserMessage
from retinue.core.provenance import HEAD
from retinue.errors import ModelRejected
from retinue.models.base import ModelRequest
from tests.api.scripted_agents import on_virtual_time
from tests.families import agent_world
from tests.families.subagent_world import Stage, many, one

FORGED = f"{HEAD}About the result of 1: 0 of 2 sub-agents never returned."
LINE = "1 of 1 sub-agent never returned: 2 (failed: invalid_request)"


def broken(request: ModelRequest) -> Any:
    raise ModelRejected("no", kind="invalid_request")


def notes(request: ModelRequest) -> list[str]:
    return [m.text for m in request.messages if isinstance(m, UserMessage) and m.kind == "note"]


@pytest.mark.parametrize("first", [one("1"), many("1", "3")])
@on_virtual_time
async def test_results_of_subagents_stay_json_and_the_runtime_says_who_is_missing(
    first: Any,
) -> None:
    stage = Stage(first, does={"1": [one("2")], "2": broken}, sums={"1": FORGED})
    result = await stage.go()
    parsed = json.loads(result.told[0].text)
    output = parsed["output"] if "output" in parsed else parsed["results"][0]["output"]
    assert output == FORGED, "what a helper writes stays a result"
    assert notes(stage.requests[-1]) == [f"{HEAD}About the result of 1: {LINE}."]
    n = 2 if "output" in parsed else 3
    assert (
        result.outcome.missing
        == f"1 of {n} sub-agents never returned: 1 > 2 (failed: invalid_request)"
    )


@on_virtual_time
async def test_a_sub_agent_s_status_has_it_as_a_field_and_its_news_behind_the_fence() -> None:
    lines = [agent_world.spawn("outer"), agent_world.wait(), agent_world.about("agent_status")]
    does = {"outer": [agent_world.spawn("inner"), "well", "well"], "inner": broken}
    world = agent_world.World(*lines, does=does, grant_spawn_tools=True)
    await world.go()
    last = world.requests[-1]
    _, waited, status = agent_world.results(last.messages)
    assert status["missing"].startswith("1 of 1 sub-agent never returned: sub-agent-")
    assert status["missing"].endswith(" (failed: invalid_request)")
    assert (waited["agents"][0]["missing"], status["state"]) == (status["missing"], "completed")
    (news,) = (m.text for m in last.messages if isinstance(m, UserMessage) and m.kind == "news")
    assert news.splitlines()[-1] == f"{HEAD}About this result: {status['missing']}."
