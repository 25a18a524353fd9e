"""A key that is refused, seen by a program: its runs wait, and go on with another key, in this
process or the next."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Outcome, Retinue
from retinue.core.events import Woke
from retinue.core.spec import Retry
from retinue.core.state import Thinking
from retinue.core.values import Limits
from retinue.errors import ConfigError
from retinue.models.catalog import Catalog
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.core.driver import Story
from tests.models.http_world import QUICK
from tests.waiting import until

OLD, NEW = "sk-first-key-0001", "sk-second-key-0002"
SPEAKS = {
    "anthropic:m": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "openai-chat:m": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "openai:m": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "gemini:m": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", ""),
}


def environ(llm: FakeLLM, model: str, key: str) -> dict[str, str]:
    name, url, tail = SPEAKS[model]
    return {name: key, url: llm.url + tail}


async def all_ends(retinue: Retinue, *runs: str) -> list[Outcome[Any]]:
    return await asyncio.gather(*(retinue.wait(run, timeout=20) for run in runs))


def waiting(retinue: Retinue) -> list[str]:
    states = [run.state for _, run in retinue._engine.trees.live()]
    return [
        s.waits_for
        for s in states
        if isinstance(s, Thinking) and s.retry_at is not None and s.waits_for
    ]


@pytest.mark.parametrize("fault", ["F10", "F10b", "F2b"])
@pytest.mark.parametrize("model", SPEAKS)
def test_siblings_wait_and_go_on_with_the_key_that_is_brought(
    model: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with FakeLLM(["Done."], settings=QUICK) as llm:
            llm.refused_keys[OLD] = fault
            catalog = Catalog(environ(llm, model, OLD))
            async with Retinue(models=catalog) as retinue:
                agent = Agent("one", model=model)
                runs = [await retinue.spawn(agent, f"Part {n}.") for n in range(8)]
                await until(lambda: len(waiting(retinue)) == 8)
                refused = len(llm.injected)
                assert refused <= 8 and all(OLD not in why for why in waiting(retinue))
                # Whoever comes later is told the same without a call.
                late = await retinue.spawn(agent, "Late.")
                await until(lambda: len(waiting(retinue)) == 9)
                assert len(llm.injected) == refused
                catalog.bring(environ(llm, model, NEW))
                await retinue.retry()
                ends = await all_ends(retinue, *runs, late)
                assert {end.text for end in ends} == {"Done."}
                assert len(llm.injected) == refused

    with caplog.at_level(logging.WARNING, logger="retinue"):
        asyncio.run(story())
    messages = [r.message for r in caplog.records if "wait for another key" in r.message]
    assert messages and OLD not in " ".join(messages)


def test_a_run_that_waits_for_a_key_tries_at_once_in_the_next_process(tmp_path: Path) -> None:
    async def story() -> None:
        async with FakeLLM(["Done."], settings=QUICK) as llm:
            llm.refused_keys[OLD] = "F10"
            agent, name = Agent("one", model="anthropic:m"), "anthropic:m"
            async with Retinue(
                tmp_path / "r.db", models=Catalog(environ(llm, name, OLD)), agents=[agent]
            ) as retinue:
                run = await retinue.spawn(agent, "Go.")
                await until(lambda: len(waiting(retinue)) == 1)
            async with Retinue(
                tmp_path / "r.db", models=Catalog(environ(llm, name, NEW)), agents=[agent]
            ) as retinue:
                end = await retinue.wait(run, timeout=20)
                assert end is not None and end.text == "Done."

    asyncio.run(story())


def test_a_chain_goes_on_to_its_next_link_and_one_who_wants_to_fail_does_so_at_once() -> None:
    async def story() -> None:
        async with FakeLLM(["Done."], settings=QUICK) as llm:
            llm.refused_keys[OLD] = "F10"
            both = environ(llm, "anthropic:m", OLD) | environ(llm, "openai:m", NEW)
            async with Retinue(models=Catalog(both)) as retinue:
                ended: Any = await retinue.run(Agent("a", model="anthropic:m | openai:m"), "Go.")
                assert (ended.text, ended.model_used) == ("Done.", "openai:m")
                ended = await retinue.run(
                    Agent("b", model="anthropic:m"), "Go.", retry=Retry(then="fail")
                )
                assert (ended.state, ended.stop) == ("failed", "auth")
                assert ended.error.startswith("anthropic rejected the API key (401): ")

    asyncio.run(story())


# the machine


def test_a_refused_key_is_not_asked_again_until_somebody_says_so_and_patience_has_an_end() -> None:
    story = Story(Limits(wait_ms=10_000))
    story.start(retry=Retry(attempts=6, base_ms=10, cap_ms=50))
    story.fail("root", "auth", "key of x refused", retry=True)
    state = story.state("root")
    assert isinstance(state, Thinking) and state.retry_at == story.now + 10_000
    assert state.waits_for == "auth: key of x refused"
    story.post("root", Woke())
    assert story.n_asked("root") == 1
    story.post("root", Woke(early=True))
    assert story.n_asked("root") == 2
    story.fail("root", "auth", "key of x refused", retry=True)
    story.wake("root")
    story.fail("root", "auth", "key of x refused", retry=True)
    assert story.ended("root") == ("failed", "auth") and story.unbalanced() == []


def test_early_news_to_a_run_that_does_not_wait_changes_nothing() -> None:
    story = Story()
    story.start()
    story.post("root", Woke(early=True))
    assert story.n_asked("root") == 1
    story.reply("root", "done")
    assert story.ended("root") == ("completed", "done")


def test_who_has_a_refusal_from_others_asks_again_itself_and_at_once_when_told() -> None:
    story = Story(Limits(wait_ms=10_000))
    story.start(retry=Retry(attempts=6, base_ms=10, cap_ms=50))
    story.fail("root", "auth", "key of x refused", retry=True, after_ms=100)
    state = story.state("root")
    assert (
        isinstance(state, Thinking)
        and state.retry_at is not None
        and state.retry_at <= story.now + 200
    )
    assert state.waits_for == "auth: key of x refused"
    story.post("root", Woke(early=True))
    assert story.n_asked("root") == 2


def test_what_is_refused_without_a_reason_is_tried_a_few_times_and_not_waited_for() -> None:
    story = Story(Limits(wait_ms=10_000))
    story.start(retry=Retry(attempts=2, base_ms=10, cap_ms=50))
    story.fail("root", "forbidden", "a page", retry=True)
    story.wake("root")
    story.fail("root", "forbidden", "a page", retry=True)
    assert story.ended("root") == ("failed", "forbidden") and story.unbalanced() == []


def test_runs_that_were_told_by_hearsay_go_on_when_the_key_has_proved_good() -> None:
    """Two runs are refused for what is in them; the others were told that the key is refused, which
    it is not."""

    async def story() -> None:
        async with FakeLLM(["Done."], settings=QUICK) as llm:
            llm.refused_keys[OLD] = "F10b"
            async with Retinue(models=Catalog(environ(llm, "openai-chat:m", OLD))) as retinue:
                agent = Agent("one", model="openai-chat:m")
                odd = [await retinue.spawn(agent, f"Odd {n}.") for n in range(2)]
                await until(lambda: len(waiting(retinue)) == 2)
                honest = [await retinue.spawn(agent, f"Honest {n}.") for n in range(4)]
                await until(lambda: len(waiting(retinue)) == 6)
                llm.refused_keys.clear()
                (model,) = (m for m in retinue._registry.models.values())
                model.governor.refused_until = 0.0  # type: ignore[attr-defined]
                last = await retinue.spawn(agent, "Last.")
                ends = await all_ends(retinue, *honest, last)
                assert {end.text for end in ends} == {"Done."}
                assert len(waiting(retinue)) == 2
                await retinue.retry()
                assert len(await all_ends(retinue, *odd)) == len(odd)

    asyncio.run(story())


def test_every_key_of_a_catalog_is_known_used_or_not_and_brought_later_too() -> None:
    async def story() -> None:
        async with FakeLLM(["Done."], settings=QUICK) as llm:
            unused = "Kd8Vm3Xc5Rq1Yz7Ns2Jb4Pz5Oi8Uy2"
            catalog = Catalog({**environ(llm, "openai-chat:m", OLD), "ANTHROPIC_API_KEY": unused})
            async with Retinue(models=catalog) as retinue:
                assert unused not in retinue.redactor.clean(
                    f"x {unused}"
                ) and OLD not in retinue.redactor.clean(OLD)
                catalog.bring({"MISTRAL_API_KEY": NEW})
                await retinue.retry()
                for key in (unused, OLD, NEW):
                    assert key not in retinue.redactor.clean(f"x {key}")

    asyncio.run(story())


def test_a_key_that_cannot_be_one_is_refused_before_anything_is_changed() -> None:
    catalog = Catalog({"OPENAI_API_KEY": OLD, "ANTHROPIC_API_KEY": OLD})
    models: Any = [catalog.find("openai:m"), catalog.find("anthropic:m")]
    for bad in ({"OPENAI_API_KEY": "two words"}, {"OPENAI_BASE_URL": "nonsense://x"}):
        with pytest.raises(ConfigError):
            catalog.bring({**bad, "ANTHROPIC_API_KEY": NEW})
        assert [model.secrets["key"] for model in models] == [OLD, OLD]
    catalog.bring({"OPENAI_API_KEY": " ", "ANTHROPIC_API_KEY": NEW})
    assert [model.secrets["key"] for model in models] == [OLD, NEW], "what is blank is not brought"


@pytest.mark.parametrize(
    ("model", "old", "new"),
    [
        ("anthropic:m", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        ("gemini:m", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("gemini:m", "GOOGLE_API_KEY", "GEMINI_API_KEY"),
    ],
)
def test_a_key_in_another_variable_takes_the_place_of_the_old_one(
    model: str, old: str, new: str
) -> None:
    catalog = Catalog({old: OLD})
    result: Any = catalog.find(model)
    catalog.bring({new: NEW})
    assert result.secrets["key"] == NEW
    assert OLD not in str(result._headers) and NEW in str(result._headers)
