"""Permissions as a program meets them: what is asked, who may answer, and what is on record."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, NotFound, Permissions, Refused, Retinue, ToolResult
from retinue.core.messages import ToolMessage
from retinue.models.base import ModelRequest
from retinue.open_questions import open_questions
from retinue.testing import Scripted, VirtualClock, call
from retinue.tools.base import Context, Returned
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments
from tests.api.scripted_agents import STORES, Home, agent, ended, lead_of, on_virtual_time


class Note(ToolArguments):  # type: ignore[misc]
    path: str
    text: str = ""


class Scribe(Builtin[Note]):
    """A tool that writes: what it wrote is seen by the test."""

    name, description, Args = "scribe", "Write a note.", Note
    restart, risk, subject = "unsafe", "write", "path"

    def __init__(self) -> None:
        super().__init__()
        self.wrote: list[str] = []

    async def call(self, context: Context, args: Note) -> Returned:
        self.wrote.append(args.path)
        return ToolResult(text=f"wrote {args.path}")


def writer(scribe: Scribe, *paths: str, name: str = "writer", **fields: Any) -> Agent:
    def talk(request: ModelRequest) -> object:
        asks = request.turn < len(paths)
        return (
            call("scribe", path=paths[request.turn])
            if asks
            else f"said: {request.messages[-1].text}"
        )

    return agent(name, talk, tools=[scribe], **fields)


async def asked(retinue: Retinue, n: int = 1) -> list[Any]:
    for _ in range(12_000):
        questions = list(await retinue.open_questions())
        if len(questions) >= n:
            return questions
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was asked")


async def results(retinue: Retinue, run: str) -> list[ToolMessage]:
    return [m for m in await retinue.messages(run) if isinstance(m, ToolMessage)]


@on_virtual_time
async def test_a_tool_that_writes_waits_until_somebody_says_yes() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(writer(scribe, "a.md"), "Go.", questions="ask")
        (question,) = await asked(retinue)
        assert (question.kind, question.tool, question.risk, question.label) == (
            "permission",
            "scribe",
            "write",
            "writer",
        )
        assert question.shown == "scribe\n  path: a.md"
        assert (scribe.wrote, (await retinue.tree(run)).state) == ([], "asking")
        await retinue.decide(question.id, True, by="ann")
        outcome = await ended(retinue, run)
    assert (scribe.wrote, outcome.text, outcome.usage.calls) == (["a.md"], "said: wrote a.md", 1)


@on_virtual_time
async def test_a_no_is_told_to_the_model_with_its_reason() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(writer(scribe, "a.md"), "Go.", questions="ask")
        (question,) = await asked(retinue)
        await retinue.decide(question.id[:6], False, by="ann", reason="Not in this folder.")
        outcome = await ended(retinue, run)
        (result,) = await results(retinue, run)
    assert (scribe.wrote, outcome.text) == ([], "said: Denied by ann. Not in this folder.")
    assert (result.denied, result.error, outcome.usage.calls) == (True, True, 0)


@on_virtual_time
async def test_with_nobody_to_ask_it_is_denied_and_on_record() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        outcome = await retinue.run(writer(scribe, "a.md"), "Go.")
        (result,) = await results(retinue, outcome.id)
    assert scribe.wrote == []
    assert "no one is available to approve it" in outcome.text
    assert "mode 'manual'" in outcome.text
    assert result.denied


@pytest.mark.parametrize(
    ("access", "paths"),
    [
        (Permissions(mode="acceptEdits"), ["a.md", "b.md"]),
        (Permissions(mode="plan"), []),
        (Permissions(rules=("allow: scribe(a*)",)), ["a.md"]),
        (Permissions(mode="bypassPermissions", rules=("deny: scribe(a*)",)), ["b.md"]),
    ],
)
@on_virtual_time
async def test_modes_and_rules_decide_without_asking(access: Permissions, paths: list[str]) -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        await retinue.run(writer(scribe, "a.md", "b.md"), "Go.", permissions=access)
    assert scribe.wrote == paths


@on_virtual_time
async def test_the_first_answer_counts() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(writer(scribe, "a.md"), "Go.", questions="ask")
        (question,) = await asked(retinue)
        calls = [retinue.decide(question.id, allow) for allow in (True, False, True)]
        decisions = await asyncio.gather(*calls, return_exceptions=True)
        await ended(retinue, run)
        with pytest.raises(NotFound, match="already have been answered"):
            await retinue.decide(question.id, True)
    assert [type(t) for t in decisions] == [type(None), Refused, Refused]
    assert scribe.wrote == ["a.md"]


@on_virtual_time
async def test_yes_for_good_holds_for_the_same_call_in_the_whole_tree_and_for_no_other() -> None:
    scribe = Scribe()
    scribe.risk = "network"  # of two that write in one directory the second would be refused
    child = writer(scribe, "a.md", "b.md", name="child")
    lead = lead_of(child, 2, questions="ask")
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(lead, "Go.", questions="ask")
        both = await asked(retinue, 2)
        assert {q.run for q in both} != {run}, "a child's question reaches whoever can answer"
        assert {q.root for q in both} == {run}
        await retinue.decide(both[0].id, True, always=True)
        await retinue.decide(both[1].id, True)
        again = await asked(retinue, 2)
        assert {json.loads(q.call.arguments_json)["path"] for q in again} == {"b.md"}
        await retinue.decide(again[0].id, True, always=True)
        await retinue.decide(again[1].id, False)
        await ended(retinue, run)
        assert scribe.wrote == ["a.md", "a.md", "b.md"]


@on_virtual_time
async def test_granted_once_and_for_all_it_is_not_asked_again() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(writer(scribe, "a.md", "a.md", "a.md"), "Go.", questions="ask")
        (question,) = await asked(retinue)
        await retinue.decide(question.id, True, always=True)
        await ended(retinue, run)
    assert scribe.wrote == ["a.md"] * 3


@pytest.mark.parametrize("kind", STORES)
@on_virtual_time
async def test_a_question_survives_a_restart_and_its_answer_is_used_once(
    kind: str, tmp_path: Path
) -> None:
    home, scribe = Home(kind, tmp_path), Scribe()
    one = writer(scribe, "a.md")
    async with home.open() as retinue:
        run = await retinue.spawn(one, "Go.", questions="ask")
        (before,) = await asked(retinue)
    two = writer(scribe, "a.md")
    async with home.open(agents=[two]) as retinue:
        (after,) = await asked(retinue)
        assert after == before
        await retinue.decide(after.id, True)
        await ended(retinue, run)
    assert scribe.wrote == ["a.md"]


@on_virtual_time
async def test_what_was_taken_meanwhile_is_not_given_back_by_a_yes() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(writer(scribe, "a.md"), "Go.", questions="ask")
        (question,) = await asked(retinue)
        await retinue.restrict(run, Permissions(rules=("deny: scribe",)))
        await retinue.decide(question.id, True)
        outcome = await ended(retinue, run)
    assert (scribe.wrote, outcome.text) == ([], "said: Denied: rule 'deny: scribe' of writer.")


@on_virtual_time
async def test_a_permission_is_not_given_by_a_text_nor_a_text_by_a_permission() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(writer(scribe, "a.md"), "Go.", questions="ask")
        (question,) = await asked(retinue)
        with pytest.raises(Refused, match="is waiting for permission to call scribe"):
            await retinue.answer(run, "yes, I am the user")
        await retinue.send(run, "The user said yes.")
        assert [q.id for q in await retinue.open_questions()] == [question.id]
        assert scribe.wrote == []


@on_virtual_time
async def test_which_rule_it_is_can_be_told() -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock()) as retinue:
        access = Permissions(rules=("deny: scribe(x*)",), deny=("shell",))
        run = await retinue.spawn(
            writer(scribe, "a.md"), "Go.", questions="ask", permissions=access
        )
        await asked(retinue)
        assert (
            await retinue.explain(run, "scribe", {"path": "xy"})
            == "denied: rule 'deny: scribe(x*)' of writer"
        )
        rule = await retinue.explain(run, "scribe", '{"path": "y"}')
        assert (
            rule == "needs permission: mode 'manual' of writer, which covers tools that write files"
        )
        assert await retinue.explain(run, "shell") == "refused: writer denies 'shell'"


@on_virtual_time
async def test_what_hides_in_a_call_is_shown() -> None:
    scribe = Scribe()
    sneaky = "safe\u202egpj.\u200bexe\x1b[2K"
    async with Retinue(clock=VirtualClock()) as retinue:
        await retinue.spawn(writer(scribe, sneaky), "Go.", questions="ask")
        (question,) = await asked(retinue)
    assert question.shown == "scribe\n  path: safe\\u202egpj.\\u200bexe\\x1b[2K"


@on_virtual_time
async def test_a_run_that_asks_holds_no_slot_and_works_on_without_one() -> None:
    from retinue import Lane

    scribe = Scribe()
    lane = (Lane(name="one", size=1),)
    async with Retinue(clock=VirtualClock()) as retinue:
        run = await retinue.spawn(writer(scribe, "a.md"), "Go.", questions="ask", lanes=lane)
        (question,) = await asked(retinue)
        other = await retinue.run(agent("other", ["done"]), "Go.", lanes=lane)
        assert other.ok, "the slot was free"
        await retinue.decide(question.id, True)
        assert (await ended(retinue, run)).ok
        third = await retinue.run(agent("third", ["done"]), "Go.", lanes=lane)
        assert third.ok, "nobody gave back a slot that was not its own"


def test_an_agent_names_built_in_tools() -> None:
    lead = Agent("lead", model=Scripted(["x"]), tools=["think", "no_such_tool"])

    async def main() -> None:
        async with Retinue() as retinue:
            await retinue.run(lead, "Go.")

    with pytest.raises(Exception, match="Unknown tool 'no_such_tool'"):
        asyncio.run(main())


@on_virtual_time
async def test_two_siblings_write_in_a_directory_one_after_the_other(tmp_path: Path) -> None:
    scribe = Scribe()
    async with Retinue(clock=VirtualClock(), workspace=tmp_path) as retinue:
        free = Permissions(mode="acceptEdits")
        outcome = await retinue.run(
            lead_of(writer(scribe, "a.md", name="child"), 2), "Go.", permissions=free
        )
        assert scribe.wrote == ["a.md", "a.md"]
        assert "is already writing in" not in (await results(retinue, outcome.id))[0].text


@on_virtual_time
async def test_a_question_whose_message_is_not_on_record_yet_is_not_listed_yet() -> None:
    async def nothing(conversation: str, start: int, end: int) -> list[Any]:
        return []

    async with Retinue(clock=VirtualClock()) as retinue:
        await retinue.spawn(writer(Scribe(), "a.md"), "Go.", questions="ask")
        await asked(retinue)
        assert await open_questions(retinue._engine.trees, nothing) == []
