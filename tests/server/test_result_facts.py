"""What the runtime knows of a result is beside it in every protocol, where no model writes: which
sub-agents never returned, and which tokens nobody has counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from retinue import Agent
from retinue.core.values import ModelInfo, Usage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests.host.served import ALICE, Served, served
from tests.server.a2a_calls import Binding, message
from tests.server.openai_clients import client_of, data_of, says

MISSING = "1 of 1 sub-agent never returned"
INFO = ModelInfo(name="lead's", price_in=1_000, price_out=1_000)
EACH = Usage(input=100, output=20, estimated=30)


def lead(request: ModelRequest) -> Any:
    """Has work done by one that fails, and says nothing about it."""
    if request.messages[0].text == "fail":
        return ValueError("no such planet")
    n = sum(type(m).__name__ == "ToolMessage" for m in request.messages)
    return "All is well." if n else call("spawn_agents", tasks=[{"task": "fail"}])


AGENTS = [
    Agent("lead", model=Scripted(lead, info=INFO, usage=EACH), families=["fanout"]),
    Agent("alone", model=Scripted(["Hi."], name="alone's")),
]


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(agents=AGENTS) as service:
        yield service


def of_chat(api: Served, model: str, *, is_streamed: bool) -> Any:
    body = {"model": model, "messages": [says("go")], "stream": is_streamed}
    body |= {"stream_options": {"include_usage": True}} if is_streamed else {}
    reply = api.call("POST", "/v1/chat/completions", body, token=ALICE)
    if not is_streamed:
        return reply.json
    chunks = data_of(reply.body)
    return {**{k: v for c in chunks for k, v in c.items()}, "usage": chunks[-1]["usage"]}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_has_them_beside_the_answer(api: Served, is_streamed: bool) -> None:
    whole = of_chat(api, "lead", is_streamed=is_streamed)
    assert whole["retinue"]["missing"].startswith(MISSING)
    usage = whole["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (
        200,
        40,
        240,
    )
    assert usage["estimated_tokens"] == 60
    plain = of_chat(api, "alone", is_streamed=is_streamed)
    assert "retinue" not in plain and "estimated_tokens" not in plain["usage"]


def test_a_response_has_them_beside_its_output(api: Served) -> None:
    with client_of(api) as client:
        response = client.responses.create(model="lead", input="go")
        assert response.output_text == "All is well."
        assert response.model_extra is not None and response.usage is not None
        assert response.model_extra["retinue"]["missing"].startswith(MISSING)
        assert (response.usage.input_tokens, response.usage.total_tokens) == (200, 240)
        assert json.loads(response.usage.to_json())["estimated_tokens"] == 60


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_task_has_an_artifact_of_the_runtime(api: Served, is_streamed: bool) -> None:
    binding = Binding(api, True)
    fields = {"tenant": "lead", "message": message("go")}
    if is_streamed:
        events = binding.call("SendStreamingMessage", **fields).events or []
        artifacts = [e["artifactUpdate"]["artifact"] for e in events if "artifactUpdate" in e]
    else:
        artifacts = binding.call("SendMessage", **fields).result["task"]["artifacts"]
    texts = {one["artifactId"]: one["parts"][0]["text"] for one in artifacts}
    assert texts["result"] == "All is well."
    assert texts["missing"].startswith(f"[From the runtime] About this result: {MISSING}")


def test_costs_and_budgets_say_what_of_them_is_only_a_bound(api: Served) -> None:
    run = api.finished("go")
    report = api.get("/costs").json
    (line,) = (line for line in report["runs"] if line["run"] == run)
    spending = api.get(f"/runs/{run}/budget").json["spending"]
    for text in (line, spending):
        assert text["tokens_estimated"] == 60
        assert text["usd_estimated"] == pytest.approx(60 * 1_000 / 1e9)
    assert line["usd"] == spending["spent"]["usd"] == pytest.approx(300 * 1_000 / 1e9)
    assert report["cost_is_known"] is False
    assert report["usd_estimated"] == pytest.approx(
        sum(line["usd_estimated"] for line in report["runs"])
    )
