"""Secrets that once were written down, or broke what was."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retinue import Agent, Limits, Permissions, Retinue, tool
from retinue.core.events import AgentRegistered, PermissionsRestricted, Requested
from retinue.core.redaction import Redactor
from retinue.core.spec import RunRequest
from retinue.core.values import Definition
from retinue.runtime.secret_filter import clean_event
from retinue.testing import Scripted, call
from tests.security.holes import SECRET, agent, results, talk


def test_the_same_key_and_task_start_one_run_also_with_a_secret_in_it() -> None:
    async def main() -> None:
        one = agent("one")
        async with Retinue(secrets={"TOKEN": SECRET}) as retinue:
            first = await retinue.spawn(one, f"Use {SECRET}.", key="k")
            await retinue.wait(first)
            assert await retinue.spawn(one, f"Use {SECRET}.", key="k") == first

    asyncio.run(main())


def test_an_agent_with_a_secret_in_its_instructions_is_registered_once(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(3):
            one = Agent("one", f"Use {SECRET}.", model=Scripted(talk(), name="m"))
            async with Retinue(
                tmp_path / "r.db", secrets={"TOKEN": SECRET}, agents=[one]
            ) as retinue:
                await retinue.run(one, "Go.")
                entries = await retinue._store.entries(0, limit=10_000)
        assert sum(isinstance(e.event, AgentRegistered) for _, e in entries) == 1

    asyncio.run(main())


def test_the_end_of_a_stream_that_might_have_become_a_secret_is_shown() -> None:
    async def main() -> None:
        one = Agent("one", model=Scripted(lambda _: f"It begins with {SECRET[:6]}", name="m"))
        async with Retinue(secrets={"TOKEN": SECRET}) as retinue:
            run = await retinue.spawn(one, "Go.")
            text = "".join(
                [
                    s.text
                    async for s in retinue.steps(run, tree=False, deltas=True)
                    if type(s).__name__ == "TextPiece"
                ]
            )
            outcome = await retinue.outcome(run)
            assert outcome is not None
            assert text == outcome.text

    asyncio.run(main())


def test_a_secret_at_the_place_of_a_cut_is_not_half_shown() -> None:
    @tool(name="leak", restart="pure")
    def leak() -> str:
        """Leak."""
        return "z" * 1_990 + SECRET + "q" * 500

    async def main() -> None:
        one = agent("one", call("leak"), tools=[leak])
        async with Retinue(secrets={"TOKEN": SECRET}, limits=Limits(text_cap=2_000)) as retinue:
            outcome = await retinue.run(one, "Go.")
            assert SECRET[:8] not in (await results(retinue, outcome.id))[0]

    asyncio.run(main())


@pytest.mark.parametrize(
    "word", ["capabilities", "isolation", "acceptEdits", "worktree", "instructions"]
)
def test_a_secret_that_is_a_word_of_the_format_changes_no_meaning(word: str) -> None:
    order = RunRequest(
        agent="a", task="t", isolation="worktree", permissions=Permissions(mode="acceptEdits")
    )
    events = (
        Requested(id="i", request=order, permissions=Permissions(tools=("x",), mode="plan")),
        AgentRegistered(definition=Definition(name="n", instructions="be kind")),
        PermissionsRestricted(permissions=Permissions(mode="acceptEdits")),
    )
    redactor = Redactor({"KEY": word})
    assert [clean_event(redactor, e) for e in events] == list(events)
