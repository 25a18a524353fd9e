"""What every client is tried with, without a terminal: it delegates, stops, and gets the answer
whoever was killed on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.mcp.clients.stage import ANSWER, COLLECT, DELEGATE, MANY, N_MANY, STOP, Stage


class HeadlessClient(Protocol):
    env: dict[str, str]

    def headless(self, prompt: str) -> list[str]: ...


Scenario = Callable[[Stage, HeadlessClient], None]


def delegates(stage: Stage, client: HeadlessClient) -> None:
    stage.gate.opened.set()
    out = stage.wait(stage.run(client.headless(DELEGATE), client.env))
    assert f"The agent says: {ANSWER}" in out, out[-2000:]
    assert any(ANSWER in text for text in stage.script.said)
    assert stage.state() == "completed"


def delegates_many(stage: Stage, client: HeadlessClient) -> None:
    """Clients have limits for the ids of tasks, which name all of their agents."""
    stage.gate.opened.set()
    out = stage.wait(stage.run(client.headless(MANY), client.env))
    assert f"The agent says: {ANSWER}" in out, out[-2000:]
    assert max(text.count(ANSWER) for text in stage.script.said) >= N_MANY, stage.script.said
    assert [run["state"] for run in stage.home.runs()] == ["completed"] * N_MANY


def survives_its_host(stage: Stage, client: HeadlessClient) -> None:
    """The host is killed while the client waits: it gets the answer, and the work is done once."""
    process = stage.run(client.headless(DELEGATE), client.env)
    stage.reached()
    stage.kill_host()
    stage.gate.opened.set()
    out = stage.wait(process)
    assert f"The agent says: {ANSWER}" in out, out[-2000:]
    assert stage.state() == "completed"


def comes_back(stage: Stage, client: HeadlessClient) -> None:
    """The client is killed with its server; a new one finds the agent and collects its answer."""
    process = stage.run(client.headless(DELEGATE), client.env)
    stage.reached()
    stage.kill(process)
    stage.gate.opened.set()
    stage.until_state("completed")
    out = stage.wait(stage.run(client.headless(COLLECT), client.env))
    assert f"The agent says: {ANSWER}" in out, out[-2000:]
    assert stage.state() == "completed"


def cancels(stage: Stage, client: HeadlessClient) -> None:
    process = stage.run(client.headless(DELEGATE), client.env)
    stage.reached()
    stage.kill(process)
    out = stage.wait(stage.run(client.headless(STOP), client.env))
    assert "The agents are stopped." in out, out[-2000:]
    stage.until_state("cancelled")


SCENARIOS: dict[str, Scenario] = {
    "delegates": delegates,
    "delegates_many": delegates_many,
    "survives_its_host": survives_its_host,
    "comes_back": comes_back,
    "cancels": cancels,
}
