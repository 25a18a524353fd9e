"""The profile `meerkat` with keys alone: provider and name are enough for every model on its lists,
over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Retinue, run_sync
from retinue.models.catalog import Catalog
from retinue.testing import MemoryStore, call
from retinue.testing.fake_llm.dialect import ParsedRequest
from retinue.tools.families.profiles import family
from tests.cli.private_home import Llm, PrivateHome

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
OTHERS = ("ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY")
FIRST = {"anthropic": "claude-opus-5-5", "openai": "gpt-6.1-sol", "gemini": "gemini-3.8-flash"}
LISTED = [
    ("anthropic", "claude-opus-5-5"), ("anthropic", "claude-sonnet-5-5"),
    ("anthropic", "claude-haiku-5-5"), ("openai", "gpt-6.1-sol"), ("openai", "gpt-6.1-terra"),
    ("gemini", "gemini-3.8-flash"), ("gemini", "gemini-4-argon"),
]  # fmt: skip


class Talk:
    """A lead that starts a child with `args`, and children that say on which model they are."""

    def __init__(self) -> None:
        self.args: list[dict[str, Any]] = [{}]
        self.heard: list[tuple[str, str]] = []

    def __call__(self, request: ParsedRequest) -> Any:
        self.heard.append((request.dialect, request.model))
        if "agent_spawn" not in [t.name for t in request.tools]:
            return f"{request.model} was here"
        if request.turn == 0:
            return [
                call("agent_spawn", prompt=f"part {n}", **args) for n, args in enumerate(self.args)
            ]
        return "\n".join(m.text for m in request.messages if type(m).__name__ == "ToolMessage")


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def llm(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Llm]:
    with Llm(talk) as llm:
        for name in OTHERS:
            monkeypatch.delenv(name, raising=False)
        for name, value in urls(llm).items():
            monkeypatch.setenv(name, value)
        for name in KEYS:
            monkeypatch.setenv(name, "sk-very-secret")
        yield llm


def urls(llm: Llm) -> dict[str, str]:
    url = llm.llm.url
    return {
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "GOOGLE_GEMINI_BASE_URL": url,
    }


def lead(model: str = "openai:gpt-6.1-sol", **settings: Any) -> Agent:
    return Agent("lead", model=model, families=[family("meerkat", **settings)])


def replies(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_a_plain_spawn_works_with_keys_alone(llm: Llm, talk: Talk) -> None:
    store = MemoryStore()
    outcome = run_sync(lead(), "Go.", store=store)
    (child,) = outcome.children
    assert child.state == "completed"
    row = asyncio.run(store.row(child.id))
    assert row is not None and row.spec.model == "anthropic:claude-opus-5-5"
    assert ("anthropic", "claude-opus-5-5") in talk.heard


@pytest.mark.parametrize("parents", [f"{provider}:{model}" for provider, model in FIRST.items()])
def test_provider_and_name_are_enough_for_every_model_that_the_tool_offers(
    llm: Llm, talk: Talk, parents: str
) -> None:
    talk.args = [{"provider": provider, "model": model} for provider, model in LISTED]
    wide = {"max_children_per_agent": 100}
    outcome = run_sync(lead(parents, concurrency_limits=wide), "Go.")
    assert [c.state for c in outcome.children] == ["completed"] * len(LISTED)
    assert {model for _, model in talk.heard} == {model for _, model in LISTED}


def test_a_provider_alone_is_enough_too(llm: Llm, talk: Talk) -> None:
    talk.args = [{"provider": provider} for provider in FIRST]
    outcome = run_sync(lead(), "Go.")
    assert [c.state for c in outcome.children] == ["completed"] * 3
    assert {model for _, model in talk.heard} == set(FIRST.values())


def test_a_provider_without_a_key_is_said_to_have_none(
    llm: Llm, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    outcome = run_sync(lead(), "Go.")
    assert outcome.text.startswith(
        "Error: Failed to create LLM client: No API key for anthropic. Set ANTHROPIC_API_KEY"
    )
    assert not outcome.children


def test_a_catalog_may_allow_less_than_the_list(llm: Llm, talk: Talk) -> None:
    environ = {**urls(llm), **dict.fromkeys(KEYS, "sk-very-secret")}
    catalog = Catalog(environ, allow={"anthropic": ["claude-sonnet-*"]})
    outcome = run_sync(lead(), "Go.", runtime={"models": catalog})
    assert outcome.text.startswith(
        "Error: Failed to create LLM client: Model 'claude-opus-5-5' is not allowed"
    )


@pytest.mark.parametrize("name", ["mine", "mine | openai:gpt-6.1-sol", "claude:claude-opus-5-5"])
def test_what_is_inherited_is_what_the_parents_model_stands_for(
    llm: Llm, talk: Talk, name: str
) -> None:
    """The name of the lead's own model is an alias, a chain, or has its provider's other name."""
    environ = {**urls(llm), **dict.fromkeys(KEYS, "sk-very-secret")}
    catalog = Catalog(environ, aliases={"mine": "anthropic:claude-opus-5-5"})
    inherits = lead(name, default_provider="inherit", default_model="inherit")
    outcome = run_sync(inherits, "Go.", runtime={"models": catalog})
    assert [c.state for c in outcome.children] == ["completed"]
    assert {model for _, model in talk.heard} == {"claude-opus-5-5"}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_child_on_such_a_model_goes_on_after_a_restart(
    llm: Llm, talk: Talk, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start() -> str:
        async with Retinue(store) as retinue:
            run = await retinue.spawn(boss, "Go.")
            for _ in range(3_000):
                if (await retinue.tree(run)).children:
                    break
                await asyncio.sleep(0.01)
            return run

    async def go_on() -> list[str]:
        async with Retinue(again, agents=[boss]) as retinue:
            await asyncio.wait_for(retinue.settle(run), 30)
            return [c.state for c in (await retinue.tree(run)).children]

    boss = lead()
    store: Any = MemoryStore() if kind == "memory" else tmp_path / "log.db"
    run = asyncio.run(start())
    again = store.survivor() if kind == "memory" else store
    assert asyncio.run(go_on()) == ["completed"]


def test_on_the_command_line_keys_are_enough_too(talk: Talk, tmp_path: Path) -> None:
    talk.args = [{}, *({"provider": provider} for provider in FIRST)]
    with Llm(talk) as llm:
        home = PrivateHome(tmp_path, llm.llm, **urls(llm), **dict.fromkeys(KEYS, "sk-very-secret"))
        try:
            result = home.run("run", "--model", "openai:gpt-6.1-sol", "--family", "meerkat", "Go.")
            assert result.returncode == 0, result.stderr
            assert [r["model"] for r in replies(result.stdout)] == [
                FIRST["anthropic"],
                *FIRST.values(),
            ]
            assert {model for _, model in talk.heard} == set(FIRST.values())
        finally:
            home.run("host", "stop")
