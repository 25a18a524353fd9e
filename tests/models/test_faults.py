"""A sample of `make faults`, and what else must hold when a provider fails: endings, secrets,
cancels, siblings."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue import Actions, Agent, Context, Retinue, tool
from retinue.core.messages import AssistantMessage, Message, ModelReply, ToolMessage
from retinue.core.spec import Retry
from retinue.core.state import Thinking
from retinue.models.anthropic import AnthropicCodec
from retinue.models.governor import Governor
from retinue.models.http import ConnectionPool
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FAULTS, FakeLLM, ParsedRequest
from tests.models.faults_main import RETRY, Case, Story, cases, main, play, play_all, tell
from tests.models.http_world import (
    CODECS,
    DIALECTS,
    FAST,
    KEY,
    QUICK,
    at_rest,
    http_model,
    talking,
    url_of,
)
from tests.waiting import SECONDS, until

ALL = list(cases())
QUOTA = Retry(attempts=6, base_ms=10, cap_ms=80)


def sample() -> list[Case]:
    """Each fault in each of its dialects once, the roles and the calls in turn."""
    rest, out = [("lead", "first"), ("helper", "later"), ("lead", "later"), ("helper", "first")], []
    pairs = list(dict.fromkeys((c.fault, c.dialect) for c in ALL))
    for n, (fault, dialect) in enumerate(pairs):
        mine = [c for c in ALL if (c.fault, c.dialect) == (fault, dialect)]
        case_names = [c for c in mine if (c.role, c.when) == rest[(n + n // 4) % 4]]
        out.append((case_names or mine)[0])
    return out


def test_the_cases_are_each_fault_for_both_roles_and_both_calls_in_every_dialect() -> None:
    assert len(ALL) == len(set(ALL)) >= 500
    assert {c.fault for c in ALL} >= set(FAULTS) | {"F17", "F17b", "F17c"}
    assert {c.dialect for c in ALL} == set(DIALECTS)


@pytest.mark.parametrize("part", range(4))
def test_each_fault_in_each_dialect_ends_as_it_should(part: int) -> None:
    async def story() -> list[str]:
        mine = sample()[part::4]
        # Time limits are fractions of a second here, and a busy machine can miss them; alone a case
        # must not.
        late = [case async for case, result in play_all(mine, at_once=4) if result]
        return [f"{case}: {'; '.join(result)}" for case in late if (result := await play(case))]

    assert asyncio.run(story()) == []


def test_the_program_prints_one_line_that_says_how_it_went(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        assert main(["--only", "F3,F10", "--dialect", "gemini"]) == 0
    finally:
        logging.disable(logging.NOTSET)
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and '"cases": 10' in line and '"ok": true' in line


# what goes on failing


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_stays_too_long_is_shortened_and_then_given_up(dialect: str) -> None:
    async def story() -> Any:
        story = Story(Case("F12", dialect, "lead", "later"), always=True)
        async with FakeLLM(story.script, faults=story.faults, settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            outcome = (
                await tell(
                    story, story.agents(http_model(url_of(llm, dialect), dialect, client=client))
                )
            ).root
            await client.close()
            assert llm.violations == []
            return outcome

    outcome = asyncio.run(story())
    assert (outcome.state, outcome.stop) == ("failed", "context_exhausted")


def failing_for_ever(fault: str, retry: Retry, seconds: float = 1.0, least: int = 1) -> Any:
    """A run whose every call fails: its outcome if it has one in that time, and the calls that it
    made; when it has none, what it says that it waits for, once it has made at least so many."""

    async def story() -> Any:
        async with talking(faults=lambda request, n: fault) as (llm, model), Retinue() as retinue:
            model.governor.probe_seconds, model.governor.spent_seconds = 0.05, 0.05
            run = await retinue.spawn(Agent("one", model=model), "Go.", retry=retry)
            outcome = None
            with contextlib.suppress(TimeoutError):
                outcome = await retinue.wait(run, timeout=seconds)
            waits, n = "", llm.n_requests

            def says() -> str:
                state = retinue._engine.trees.run(run).state
                return (
                    state.waits_for
                    if isinstance(state, Thinking) and llm.n_requests >= least
                    else ""
                )

            if outcome is None:
                waits = await until(says)
                assert (await retinue.cancel(run)).state == "cancelled"
            assert at_rest(model.governor)
            return outcome, waits, n

    return asyncio.run(story())


def test_after_its_tries_a_run_dies_or_waits_and_says_for_what() -> None:
    outcome, _, n = failing_for_ever(
        "F6", Retry(attempts=3, base_ms=5, cap_ms=20, then="fail"), SECONDS
    )
    assert (outcome.state, outcome.stop, n) == ("failed", "server_error", 3)
    assert outcome.error.startswith("Failed after 3 attempts: ")
    outcome, waits, n = failing_for_ever("F6", Retry(attempts=3, base_ms=5, cap_ms=200), least=4)
    assert outcome is None and waits.startswith("server_error: ") and n <= 8


def test_a_spent_account_is_not_hammered() -> None:
    outcome, waits, n = failing_for_ever("F2", Retry(attempts=6, base_ms=1, cap_ms=400))
    assert outcome is None and waits.startswith("quota: ") and n <= 3


def test_one_rate_limit_cools_all_siblings_and_kills_none() -> None:
    at: list[float] = []
    too_early = 0

    class Watched(Governor):
        def _start(self, turn: Any) -> None:
            nonlocal too_early
            too_early += self.seconds() < self.cool_until
            super()._start(turn)

    governor = Watched(width=3)

    def faults(request: ParsedRequest, n: int) -> str | None:
        at.append(asyncio.get_running_loop().time())
        return "F1" if n == 12 else None

    async def story() -> None:
        settings = replace(QUICK, retry_after_seconds=0.5)
        async with (
            talking(script, faults=faults, settings=settings, governor=governor, seconds=0.02) as (
                llm,
                model,
            ),
            Retinue() as retinue,
        ):
            outcome = await retinue.run(
                hiring(model, 30), "Go.", retry=Retry(attempts=1, then="fail")
            )
            assert outcome.ok and {c.state for c in outcome.children} == {"completed"}
            assert too_early == 0, "nobody leaves after the limit was heard"
            assert max(at) >= at[11] + 0.48
            assert llm.n_requests == 30 + 2 + 1

    def script(request: ParsedRequest) -> Any:
        if "help" in request.system:
            return "Helped."
        return call("hire") if request.turn == 0 else "Done."

    asyncio.run(story())


def hiring(model: Any, n: int) -> Agent:
    helper = Agent("helper", "You help.", model=model)

    @tool
    async def hire(context: Context) -> Actions:
        """Hires helpers."""
        return context.spawn_actions(helper, *(f"Task {i}." for i in range(n)), retry=RETRY)

    return Agent("lead", "You lead.", model=model, tools=[hire], staff=[helper])


# cancels


@pytest.mark.parametrize("dialect", DIALECTS)
def test_cancelling_a_tree_is_seen_by_the_provider_and_nothing_more_is_sent(dialect: str) -> None:
    def script(request: ParsedRequest) -> Any:
        return "F20" if "help" in request.system else call("hire")

    async def story() -> None:
        times = replace(FAST, idle=30.0, content=30.0)
        async with talking(script, dialect, times=times) as (llm, model), Retinue() as retinue:
            run = await retinue.spawn(hiring(model, 20), "Go.")
            await until(lambda: llm.open == 20)
            assert (await retinue.cancel(run)).state == "cancelled"
            await until(lambda: llm.disconnects == 20 and llm.open == 0)
            n = llm.n_requests
            await asyncio.sleep(0.3)
            assert llm.n_requests == n == 21
            assert at_rest(model.governor)

    asyncio.run(story())


def test_cancelling_runs_that_wait_for_a_provider_sends_nothing_at_all() -> None:
    async def story() -> None:
        async with talking(faults=lambda request, n: "F3") as (llm, model), Retinue() as retinue:
            agent = Agent("one", model=model)
            runs = [await retinue.spawn(agent, f"Task {i}.", retry=RETRY) for i in range(30)]
            await until(lambda: model.governor.is_broken)
            await until(lambda: model.governor.in_flight == 0)
            n = llm.n_requests
            assert {(await retinue.cancel(run)).state for run in runs} == {"cancelled"}
            await until(lambda: at_rest(model.governor))
            assert llm.n_requests <= n + 1

    asyncio.run(story())


# secrets


def haystacks(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in folder.rglob("*"):
        if file.is_file():
            yield file.name, file.read_bytes()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_key_is_in_no_file_no_row_no_log_and_no_transcript(
    dialect: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mixed = ["F10", "F10b", "F6", "F35", "F36", "F19", "F23", "F28", "F16", "F14", "F2"]
    hearsay: list[Any] = [call("tell", what=f"the key {KEY}"), f"Your key is {KEY}, is it not?"]
    texts: list[str] = []

    @tool(name="tell")
    async def tell_it(what: str) -> str:
        """Tells something."""
        texts.append(what)
        return what

    async def story() -> None:
        logging.getLogger("asyncio").setLevel(logging.DEBUG)
        for fault in [*mixed, ""]:
            script: list[Any] = hearsay if not fault else ["Hello."]
            faults = [fault] if fault else []
            async with FakeLLM(script, faults=faults, settings=QUICK) as llm:
                client = ConnectionPool(FAST)
                model = http_model(
                    url_of(llm, dialect),
                    dialect,
                    client=client,
                    governor=Governor(spent_seconds=0.05),
                )
                async with Retinue(tmp_path / "log.db") as retinue:
                    agent = Agent("one", model=model, tools=[tell_it])
                    # Nobody brings another key here: who waits for one fails instead.
                    retry = (
                        msgspec.structs.replace(QUOTA, then="fail")
                        if fault.startswith("F10")
                        else QUOTA
                    )
                    outcome = await retinue.run(agent, f"Go {fault}.", retry=retry)
                    records: list[Any] = [outcome, *await retinue.messages(outcome.id)]
                    records += [
                        item async for item in retinue.steps(outcome.id, tree=False, deltas=True)
                    ]
                    texts.extend(map(repr, records))
                await client.close()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(story())
    assert any("[redacted:key]" in text for text in texts), (
        "where somebody repeated it, it is hidden"
    )
    assert [name for name, data in haystacks(tmp_path) if KEY.encode() in data] == []
    assert KEY not in caplog.text and KEY not in "\n".join(texts)


# the checker itself


def without_results(
    codec: AnthropicCodec, messages: Sequence[Message], *, mark: bool = False
) -> bytes:
    return ORIGINAL(codec, [m for m in messages if not isinstance(m, ToolMessage)], mark=mark)


class Half(AnthropicCodec):
    """A codec that takes what was half-received for a reply."""

    def decoder(self, options: Any) -> Any:
        decoder = super().decoder(options)
        finish = decoder.finish
        decoder.finish = lambda: (
            finish() if decoder.done else ModelReply(message=AssistantMessage(text="half"))
        )  # type: ignore[method-assign]
        return decoder


ORIGINAL = AnthropicCodec.unit


def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(AnthropicCodec, "unit", without_results)
        result = asyncio.run(play(Case("F3", "anthropic", "lead", "first")))
        assert any(words.startswith("violation") for words in result)
    with monkeypatch.context() as patch:
        patch.setitem(CODECS, "anthropic", Half)
        result = asyncio.run(play(Case("F23", "anthropic", "lead", "later")))
        assert result == ["-4 more requests than without the fault"]
    with monkeypatch.context() as patch:
        patch.setattr(Governor, "_left", lambda self, turn: None)
        assert any(
            "left" in words for words in asyncio.run(play(Case("F3", "gemini", "helper", "later")))
        )
