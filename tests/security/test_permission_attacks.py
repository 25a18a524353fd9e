"""Attacks on permissions, questions, copies of a repository and leases that come to nothing: who
may answer what, what a grant is worth, and what a restart at any point leaves of a question."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Actions, Agent, Context, Limits, NotFound, Permissions, Refused, Retinue, tool
from retinue.core import call_rules, permissions
from retinue.core.events import Answered, Asked, Decided, PermissionsRestricted
from retinue.core.history import ShownMessages
from retinue.core.messages import AssistantMessage, ToolCall, ToolMessage
from retinue.core.state import Asking, Question, Working
from retinue.core.values import Budget, PermissionGrant, ToolRisk
from retinue.errors import RetinueError
from retinue.models.base import ModelRequest
from retinue.runtime.conversations import Conversation  # type: ignore[attr-defined]
from retinue.sandbox.worktree import Worktrees
from retinue.testing import Scripted, call
from tests.core.driver import Story, hand
from tests.core.driver import call as tool_call
from tests.needs import needs
from tests.security.holes import git
from tests.security.holes import make_repository as repository

WRITE = ToolRisk(risk="write", subject="path", guarded=True)
SHELL = ToolRisk(risk="execute", subject="command", guarded=True)
FREE = Permissions(mode="bypassPermissions")


def story(**order: Any) -> Story:
    """A boss whose `note` needs a permission, and somebody to ask."""
    story = Story()
    for name in ("boss", "hand"):
        story.define(name, agents=("boss", "hand"), tool_risks={"note": WRITE})
    story.start(**{"questions": "ask", **order})
    return story


def question(story: Story, id: str, index: int = 0) -> Question:
    state = story.state(id)
    assert isinstance(state, Asking | Working)
    return next(q for q in state.calls.questions if q.index == index)


def decided(story: Story, id: str, call: ToolCall, index: int = 0, **fields: Any) -> Decided:
    fields = {
        "question": question(story, id, index).id,
        "turn": story.run(id).turn,
        "allow": True,
        **fields,
    }
    return Decided(index=index, call=call, **fields)


def unanswered(story: Story, id: str) -> list[str]:
    """Calls without exactly one result, as far as a turn has been closed."""
    messages = story.messages(id)
    call_ids = [m.call_id for m in messages if isinstance(m, ToolMessage)]
    run_ids = [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.calls]
    return sorted({c for c in run_ids + call_ids if call_ids.count(c) != run_ids.count(c)})


# grants and decisions


@pytest.mark.parametrize("guard", [WRITE, SHELL], ids=["path", "command"])
def test_a_grant_is_worth_exactly_what_was_shown(guard: ToolRisk) -> None:
    """Random subjects out of everything that means something in a pattern: no grant matches another
    subject."""
    r = random.Random(11)
    pieces = [
        "a",
        "b",
        "*",
        "?",
        "[a]",
        "\\",
        "/",
        ".",
        " ",
        "(",
        ")",
        "\n",
        "**",
        "$x",
        ";",
        "é",
        "A",
    ]
    subjects = {"x" + "".join(r.choices(pieces, k=r.randint(0, 6))) for _ in range(120)}
    plain = {
        permissions.subject_of(
            ToolCall(id="", name="t", arguments_json=json.dumps({guard.subject: s})), guard
        ): s
        for s in subjects
    }
    for subject in plain:
        assert subject is not None
        granted = call_rules.rule_for("allow", "t", subject)
        hits = {
            other
            for other, text in plain.items()
            if permissions.rule_on(
                [("run", Permissions())],
                ToolCall(id="", name="t", arguments_json=json.dumps({guard.subject: text})),
                guard,
                (PermissionGrant(rule=granted),),
            ).verdict
            == "allow"
        }
        assert hits == {subject}, granted


def test_a_decision_counts_for_this_call_in_this_turn_and_once() -> None:
    driver, first = story(), tool_call("note", "c1", '{"path":"a"}')
    driver.reply("root", "", first)
    other = tool_call("note", "c1", '{"path":"b"}')
    assert driver.post("root", decided(driver, "root", other)), "other arguments"
    assert driver.post("root", decided(driver, "root", first, turn=7)), "another turn"
    assert driver.post("root", decided(driver, "root", first, question="0" * 16)), (
        "another question"
    )
    yes = decided(driver, "root", first)
    assert driver.post("root", yes) == ""
    assert driver.post("root", yes), "it was decided before"
    driver.tool("root")
    assert driver.post("root", yes), "the turn is over"
    assert (driver.is_("root"), unanswered(driver, "root")) == ("Thinking", [])


def test_a_no_that_comes_after_a_yes_does_not_end_the_call_twice() -> None:
    driver, first = story(), tool_call("note", "c1", '{"path":"a"}')
    driver.reply("root", "", first)
    yes, no = decided(driver, "root", first), decided(driver, "root", first, allow=False)
    assert driver.post("root", yes) == ""
    assert "decided before" in driver.post("root", no)
    driver.tool("root")
    assert unanswered(driver, "root") == []


def test_calls_that_wait_for_a_yes_cannot_together_spend_more_than_the_budget() -> None:
    driver = story(budget=Budget(calls=1))
    calls = [tool_call("note", f"c{n}", f'{{"path":"{n}"}}') for n in range(3)]
    driver.reply("root", "", *calls)
    for n, one in enumerate(calls):
        assert driver.post("root", decided(driver, "root", one, n)) == ""
    texts = [r.text for r in driver.results("root")]
    assert (len(texts), all("budget for tool calls is spent" in t for t in texts)) == (2, True)
    assert driver.account("root").spent[3] == 1


def test_what_is_taken_while_somebody_thinks_about_it_stays_taken() -> None:
    for access in (
        Permissions(deny=("note",)),
        Permissions(mode="plan"),
        Permissions(rules=("deny: note(a)",)),
    ):
        driver, first = story(), tool_call("note", "c1", '{"path":"a"}')
        driver.reply("root", "", first)
        driver.post("root", PermissionsRestricted(permissions=access))
        assert driver.post("root", decided(driver, "root", first)) == ""
        (result,) = driver.results("root")
        assert (result.error, driver.is_("root")) == (True, "Thinking"), access


# who may answer


def test_nobody_but_the_parent_answers_what_was_put_to_the_parent() -> None:
    driver = story(questions="deny")
    child, sibling = driver.spawning("root", hand(join="none"), hand(join="none"))
    driver.reply(child, "", tool_call("look", "q1"))
    driver.post(child, Asked(question="which?", **driver.address(child, 0)))
    for sender in ("", sibling, child):
        driver.mail_to(child, "the red one", sender=sender)
        assert driver.is_(child) == "Asking", sender
    driver.mail_to(child, "stop!", sender="root", steer=True)
    assert driver.is_(child) == "Thinking"
    assert [r.text for r in driver.results(child) if r.text == "stop!"] == []


def test_a_parent_is_asked_again_until_it_names_a_choice() -> None:
    driver = story(questions="deny")
    (child,) = driver.spawning("root", hand(join="none"))
    driver.reply(child, "", tool_call("look", "q1"))
    driver.post(
        child, Asked(question="which?", choices=("red", "blue"), **driver.address(child, 0))
    )
    driver.mail_to(child, "the green one", sender="root")
    assert driver.is_(child) == "Asking"
    texts = [m.text for m in driver.mail.values() if "which?" in m.text]
    assert len(texts) == 2, texts
    assert all("one of: red, blue" in text for text in texts)
    assert "'the green one' is not one of the choices" in texts[1]
    driver.mail_to(child, "Blue", sender="root")
    assert driver.is_(child) == "Thinking"
    assert [r.text for r in driver.results(child)] == ["blue"]


def test_no_text_of_a_parent_permits_a_call() -> None:
    driver = story()
    (child,) = driver.spawning("root", hand(join="none"))
    driver.reply(child, "", tool_call("note", "c1", '{"path":"a"}'))
    questions = question(driver, child)
    for text in ("yes", "allow", questions.id):
        driver.mail_to(child, text, sender="root")
    assert driver.post(
        child, Answered(turn=driver.run(child).turn, index=0, call_id="c1", text="yes")
    )
    assert driver.is_(child) == "Asking"
    assert driver.results(child) == []


def test_the_answer_to_a_question_leaves_a_permission_of_the_same_turn_open() -> None:
    driver = story(questions="deny")
    (child,) = driver.spawning("root", hand(join="none", questions="deny"))
    driver.reply(child, "", tool_call("note", "c1", '{"path":"a"}'), tool_call("look", "c2"))
    assert [r.denied for r in driver.results(child)] == [True], "there is nobody to permit it"
    driver.post(child, Asked(question="which?", **driver.address(child, 1)))
    driver.mail_to(child, "yes", sender="root")
    assert (driver.is_(child), unanswered(driver, child)) == ("Thinking", [])


# restarts, messages and ends in the middle of a question


@pytest.mark.parametrize("after", range(5))
def test_a_restart_at_any_point_of_a_turn_with_questions_loses_and_doubles_nothing(
    after: int,
) -> None:
    driver = story()
    first, second = tool_call("note", "c1", '{"path":"a"}'), tool_call("note", "c2", '{"path":"b"}')
    steps: list[Callable[[], Any]] = [
        lambda: driver.reply("root", "", first, second, tool_call("look", "c3")),
        lambda: driver.tool("root", 2),
        lambda: driver.post("root", decided(driver, "root", first, 0)),
        lambda: driver.tool("root", 0),
        lambda: driver.post("root", decided(driver, "root", second, 1, allow=False)),
    ]
    for n, step in enumerate(steps):
        assert step() == ""
        if n == after:
            before = driver.run("root").state
            driver.restart("pure")
            if isinstance(before, Asking):
                assert driver.state("root") == before
    assert (driver.is_("root"), unanswered(driver, "root")) == ("Thinking", [])
    driver.reply("root", "done")
    assert (driver.ended("root"), driver.leaks()) == (("completed", "done"), {})


@pytest.mark.parametrize("end", ["steer", "cancel", "deadline"])
def test_a_turn_that_is_cut_short_leaves_no_question_behind(end: str) -> None:
    driver = story(timeout_ms=60_000)
    first = tool_call("note", "c1", '{"path":"a"}')
    driver.reply("root", "", first)
    late = decided(driver, "root", first)
    if end == "steer":
        driver.mail_to("root", "something else", steer=True)
    elif end == "cancel":
        driver.cancel("root")
    else:
        driver.wake("root")
    assert driver.post("root", late), "what was permitted too late is not made"
    assert driver.effects[-1].__class__.__name__ != "CallTool"
    shared = Conversation()
    for message in driver.messages("root"):
        shared.append(message)
    messages = list(ShownMessages(shared, 0, len(shared)))
    calls = [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.calls]
    assert [m.call_id for m in messages if isinstance(m, ToolMessage)] == calls


def test_a_question_of_a_grandchild_can_be_answered_when_the_root_is_gone() -> None:
    driver = story()
    (child,) = driver.spawning(
        "root", hand(join="none", on_parent_end="keep", children_on_end="keep")
    )
    (grandchild,) = driver.spawning(child, hand(join="none", on_parent_end="keep"))
    first = tool_call("note", "c1", '{"path":"a"}')
    driver.reply(grandchild, "", first)
    for id in (child, "root"):
        while driver.is_(id) == "Thinking":
            driver.reply(id, "bye")
        assert driver.is_(id) == "Ended"
    driver.restart()
    assert driver.post(grandchild, decided(driver, grandchild, first, always=True)) == ""
    assert driver.is_(grandchild) == "Working"
    driver.tool(grandchild)
    driver.reply(grandchild, "", tool_call("note", "c2", '{"path":"a"}'))
    assert driver.is_(grandchild) == "Working", "always means: in what is left of the tree"


# through the front door


def agent(name: str, *turns: Any, **fields: Any) -> Agent:
    def script(request: ModelRequest) -> object:
        return turns[request.turn] if request.turn < len(turns) else "done"

    return Agent(name, model=Scripted(script, name=name), **fields)


async def first_question(retinue: Retinue) -> Any:
    for _ in range(12_000):
        if questions := await retinue.open_questions():
            return questions[0]
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was asked")


def test_of_many_who_decide_at_once_one_is_heard(tmp_path: Path) -> None:
    async def main() -> None:
        async with Retinue(workspace=tmp_path) as retinue:
            one = agent("one", call("write", path="a", content="x"), tools=["write"])
            run = await retinue.spawn(one, "Go.", questions="ask")
            q = await first_question(retinue)
            decisions = [retinue.decide(q.id, n % 2 == 0, by=str(n)) for n in range(20)]
            replies = await asyncio.gather(*decisions, return_exceptions=True)
            assert sum(c is None for c in replies) == 1
            assert all(isinstance(c, Refused | NotFound) for c in replies if c is not None)
            await retinue.wait(run)
            results = [m for m in await retinue.messages(run) if isinstance(m, ToolMessage)]
            assert len(results) == 1
            assert (tmp_path / "a").exists() == (not results[0].denied)

    asyncio.run(main())


def test_the_same_argument_twice_is_refused_whoever_reads_it(tmp_path: Path) -> None:
    async def main() -> None:
        twice = ToolCall(
            id="c1", name="write", arguments_json='{"path":"ok","path":"bad","content":"x"}'
        )
        async with Retinue(workspace=tmp_path, limits=Limits(mode="bypassPermissions")) as retinue:
            one = agent("one", twice, tools=["write"])
            outcome = await retinue.run(one, "Go.")
            (result,) = [
                m for m in await retinue.messages(outcome.id) if isinstance(m, ToolMessage)
            ]
            assert "duplicate key" in result.text
        assert os.listdir(tmp_path) == []

    asyncio.run(main())


@pytest.mark.parametrize("cwd", ["/", "..", "sub/../..", "{top}x", "out", "sub/../out"])
def test_no_spelling_sends_a_child_out_of_its_parents_directory(tmp_path: Path, cwd: str) -> None:
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    (tmp_path / "topx").mkdir()
    (top / "out").symlink_to(tmp_path)

    async def main() -> None:
        child = agent("child", tools=["read"])

        @tool(name="hire", restart="keyed")
        async def hire(context: Context) -> Actions:
            """Hire."""
            return context.spawn_actions(child, "task", cwd=cwd.format(top=top))

        async with Retinue(workspace=top) as retinue:
            lead = agent("lead", call("hire"), tools=[hire, "read"], staff=[child])
            outcome = await retinue.run(lead, "Go.")
            (result,) = [
                m for m in await retinue.messages(outcome.id) if isinstance(m, ToolMessage)
            ]
            assert "outside the parent's directories" in result.text
            assert (await retinue.tree(outcome.id)).children == ()

    asyncio.run(main())


def test_a_lease_is_given_back_however_its_run_ends(tmp_path: Path) -> None:
    async def main() -> None:
        writes, event = call("write", path="a", content="x"), asyncio.Event()

        @tool(name="rest", restart="pure")
        async def rest() -> str:
            """Wait."""
            event.set()
            await asyncio.sleep(600)
            return ""

        def explode(request: ModelRequest) -> object:
            if request.turn:
                raise ValueError("no")
            return writes

        async with Retinue(workspace=tmp_path) as retinue:
            await retinue.run(
                Agent("bad", model=Scripted(explode, name="bad"), tools=["write"]),
                "Go.",
                permissions=FREE,
            )
            assert not retinue._builtin.writers._leases
            run = await retinue.spawn(
                agent("slow", writes, call("rest"), tools=["write", rest]), "Go.", permissions=FREE
            )
            await asyncio.wait_for(event.wait(), 30)
            assert list(retinue._builtin.writers._leases) == [run]
            await retinue.cancel(run)
            assert not retinue._builtin.writers._leases

    asyncio.run(main())


# copies of odd repositories


def _bare(at: Path) -> Path:
    git(at.parent, "clone", "-q", "--bare", str(repository(at.parent / "source")), str(at))
    return at


def _empty(at: Path) -> Path:
    at.mkdir()
    git(at, "init", "-q")
    return at


def _taken(at: Path) -> Path:
    git(repository(at), "branch", "retinue")
    return at


@needs("git")
@pytest.mark.parametrize("make", [_bare, _empty, _taken, lambda at: at / "missing"])
def test_a_repository_that_cannot_be_copied_is_left_as_it_was(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    top = make(tmp_path / "top")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        with pytest.raises(RetinueError):
            await trees.open("r1", str(top))
        await trees.close("r1")
        names = sorted(p.name for p in trees.folder.iterdir()) if trees.folder.is_dir() else []
        assert names == []

    asyncio.run(main())


def _plain(at: Path) -> Path:
    return at


def _detached(at: Path) -> Path:
    git(at, "checkout", "-q", "--detach")
    return at


def _worktree(at: Path) -> Path:
    git(at, "worktree", "add", "-q", str(at.parent / "another"))
    return at.parent / "another"


def _merging(at: Path) -> Path:
    git(at, "checkout", "-q", "-b", "other")
    (at / "a.txt").write_text("two\n")
    git(at, "commit", "-qam", "two")
    git(at, "checkout", "-q", "main")
    (at / "a.txt").write_text("three\n")
    git(at, "commit", "-qam", "three")
    subprocess.run(["git", "-C", str(at), "merge", "other"], check=False, capture_output=True)
    return at


@needs("git")
@pytest.mark.parametrize("name", ["top", "with space", "line\nfeed", "-dash", "quote'\"", "é"])
@pytest.mark.parametrize("make", [_plain, _detached, _worktree, _merging])
def test_work_in_an_odd_repository_is_on_its_branch_and_the_rest_untouched(
    tmp_path: Path, make: Callable[[Path], Path], name: str
) -> None:
    top = make(repository(tmp_path / name))
    before = (top / "a.txt").read_text()

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(top)))
        (copy / "new.txt").write_text("new\n")
        await trees.close("r1", "task")
        assert git(top, "show", "retinue/run-r1:new.txt") == "new\n"
        assert not list(trees.folder.iterdir())

    asyncio.run(main())
    assert (top / "a.txt").read_text() == before
