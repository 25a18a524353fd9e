"""What a client cannot decide, permissions and limits that ask, keeps its request waiting, and A2A
says so; it continues when someone has decided."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from retinue import Agent, Budget, Permissions, tool
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests.host.served import ALICE, Served, served
from tests.server.a2a_calls import Binding, message
from tests.server.openai_clients import client_of, says
from tests.waiting import SECONDS, until_here


@tool(restart="pure")
async def look() -> str:
    """Look around."""
    return "a garden"


@tool
async def dig() -> str:
    """Dig a hole."""
    return "a hole"


def boss(request: ModelRequest) -> Any:
    """Has the work done by another, who digs."""
    n = sum(type(m).__name__ == "ToolMessage" for m in request.messages)
    if "deep" in request.messages[0].text:
        return "Dug." if n else call("dig")
    tasks = [{"task": "deep", "mode": "work"}]
    return "It is dug." if n else call("spawn_agents", tasks=tasks)


def digger(name: str, script: Any) -> Agent:
    return Agent(
        name,
        model=Scripted(script, name=f"{name}'s"),
        tools=[dig],
        families=["fanout"],
        options={"permissions": Permissions(rules=("ask: dig",)), "questions": "ask"},
    )


AGENTS = [
    Agent(
        "limited",
        model=Scripted([call("look")] * 3 + ["A garden."], name="limited's"),
        tools=[look],
        budget=Budget(turns=2, on_limit="ask"),
    ),
    digger("careful", [call("dig"), "Dug."]),
    digger("boss", boss),
]
WANTED = {"limited": "A garden.", "careful": "Dug.", "boss": "It is dug."}


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(agents=AGENTS) as service:
        yield service


def state(api: Served, run: str) -> str:
    task = Binding(api, True).call("GetTask", id=run).result
    return str(task["status"]["state"])


def decide(api: Served, model: str) -> None:
    """As someone else does it."""
    (question,) = api.get("/questions", token=ALICE).json["questions"]
    assert question["kind"] == ("budget" if model == "limited" else "permission")
    root = question["root"]
    if model == "limited":
        reply = api.post(f"/runs/{root}/budget", {"turns": 9}, token=ALICE)
    else:
        answer = {"question": question["id"], "allow": True}
        reply = api.post(f"/runs/{root}/answer", answer, token=ALICE)
    assert reply.status == 200, reply


def is_asked(api: Served) -> bool:
    return bool(api.get("/questions", token=ALICE).json["questions"])


@pytest.mark.parametrize("model", WANTED)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_chat_waits_for_what_someone_else_decides(
    api: Served, model: str, is_streamed: bool
) -> None:
    texts: list[str] = []

    def chat() -> None:
        with client_of(api) as client:
            if not is_streamed:
                reply = client.chat.completions.create(model=model, messages=[says("go")])
                texts.append(reply.choices[0].message.content or "")
                return
            stream = client.chat.completions.create(model=model, messages=[says("go")], stream=True)
            texts.append("".join(c.choices[0].delta.content or "" for c in stream if c.choices))

    waiting = threading.Thread(target=chat, daemon=True)
    waiting.start()
    until_here(lambda: is_asked(api))
    assert not texts and waiting.is_alive()
    decide(api, model)
    waiting.join(SECONDS)
    assert texts == [WANTED[model]]


@pytest.mark.parametrize("model", WANTED)
def test_a_task_says_that_someone_else_has_to_decide(api: Served, model: str) -> None:
    binding = Binding(api, True)
    options = {"returnImmediately": True}
    reply = binding.call("SendMessage", message=message(), tenant=model, configuration=options)
    task = reply.result["task"]["id"]
    until_here(lambda: is_asked(api))
    assert state(api, task) == "TASK_STATE_AUTH_REQUIRED"
    decide(api, model)
    until_here(lambda: state(api, task) == "TASK_STATE_COMPLETED")
