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
from tests.core.driver import call as made
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
            ToolCall(id="", name="t", args=json.dumps({guard.subject: s})), guard
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
                ToolCall(id="", name="t", args=json.dumps({guard.subject: text})),
                guard,
                (PermissionGrant(rule=granted),),
            ).verdict
            == "allow"
        }
        assert hits == {subject}, granted


def test_a_decision_counts_for_this_call_in_this_turn_and_once() -> None:
    text, first = story(), made("note", "c1", '{"path":"a"}')
    text.reply("root", "", first)
    other = made("note", "c1", '{"path":"b"}')
    assert text.post("root", decided(text, "root", other)), "other arguments"
    assert text.post("root", decided(text, "root", first, turn=7)), "another turn"
    assert text.post("root", decided(text, "root", first, question="0" * 16)), "another question"
    yes = decided(text, "root", first)
    assert text.post("root", yes) == ""
    assert text.post("root", yes), "it was decided before"
    text.tool("root")
    assert text.post("root", yes), "the turn is over"
    assert (text.is_("root"), unanswered(text, "root")) == ("Thinking", [])


def test_a_no_that_comes_after_a_yes_does_not_end_the_call_twice() -> None:
    text, first = story(), made("note", "c1", '{"path":"a"}')
    text.reply("root", "", first)
    yes, no = decided(text, "root", first), decided(text, "root", first, allow=False)
    assert text.post("root", yes) == ""
    assert "decided before" in text.post("root", no)
    text.tool("root")
    assert unanswered(text, "root") == []


def test_calls_that_wait_for_a_yes_cannot_together_spend_more_than_the_budget() -> None:
    text = story(budget=Budget(calls=1))
    calls = [made("note", f"c{n}", f'{{"path":"{n}"}}') for n in range(3)]
    text.reply("root", "", *calls)
    for n, one in enumerate(calls):
        assert text.post("root", decided(text, "root", one, n)) == ""
    texts = [r.text for r in text.results("root")]
    assert (len(texts), all("budget for tool calls is spent" in t for t in texts)) == (2, True)
    assert text.account("root").spent[3] == 1


def test_what_is_taken_while_somebody_thinks_about_it_stays_taken() -> None:
    for access in (
        Permissions(deny=("note",)),
        Permissions(mode="plan"),
        Permissions(rules=("deny: note(a)",)),
    ):
        text, first = story(), made("note", "c1", '{"path":"a"}')
        text.reply("root", "", first)
        text.post("root", PermissionsRestricted(permissions=access))
        assert text.post("root", decided(text, "root", first)) == ""
        (result,) = text.results("root")
        assert (result.error, text.is_("root")) == (True, "Thinking"), access


# who may answer


def test_nobody_but_the_parent_answers_what_was_put_to_the_parent() -> None:
    text = story(questions="deny")
    child, sibling = text.spawning("root", hand(join="none"), hand(join="none"))
    text.reply(child, "", made("look", "q1"))
    text.post(child, Asked(question="which?", **text.address(child, 0)))
    for sender in ("", sibling, child):
        text.mail_to(child, "the red one", sender=sender)
        assert text.is_(child) == "Asking", sender
    text.mail_to(child, "stop!", sender="root", steer=True)
    assert text.is_(child) == "Thinking"
    assert [r.text for r in text.results(child) if r.text == "stop!"] == []


def test_a_parent_is_asked_again_until_it_names_a_choice() -> None:
    story_told = story(questions="deny")
    (child,) = story_told.spawning("root", hand(join="none"))
    story_told.reply(child, "", made("look", "q1"))
    story_told.post(
        child, Asked(question="which?", choices=("red", "blue"), **story_told.address(child, 0))
    )
    story_told.mail_to(child, "the green one", sender="root")
    assert story_told.is_(child) == "Asking"
    texts = [m.text for m in story_told.mail.values() if "which?" in m.text]
    assert len(texts) == 2, texts
    assert all("one of: red, blue" in text for text in texts)
    assert "'the green one' is not one of the choices" in texts[1]
    story_told.mail_to(child, "Blue", sender="root")
    assert story_told.is_(child) == "Thinking"
    assert [r.text for r in story_told.results(child)] == ["blue"]


def test_no_text_of_a_parent_permits_a_call() -> None:
    texts = story()
    (child,) = texts.spawning("root", hand(join="none"))
    texts.reply(child, "", made("note", "c1", '{"path":"a"}'))
    questions = question(texts, child)
    for text in ("yes", "allow", questions.id):
        texts.mail_to(child, text, sender="root")
    assert texts.post(
        child, Answered(turn=texts.run(child).turn, index=0, call_id="c1", text="yes")
    )
    assert texts.is_(child) == "Asking"
    assert texts.results(child) == []


def test_the_answer_to_a_question_leaves_a_permission_of_the_same_turn_open() -> None:
    text = story(questions="deny")
    (child,) = text.spawning("root", hand(join="none", questions="deny"))
    text.reply(child, "", made("note", "c1", '{"path":"a"}'), made("look", "c2"))
    assert [r.denied for r in text.results(child)] == [True], "there is nobody to permit it"
    text.post(child, Asked(question="which?", **text.address(child, 1)))
    text.mail_to(child, "yes", sender="root")
    assert (text.is_(child), unanswered(text, child)) == ("Thinking", [])


# restarts, messages and ends in the middle of a question


@pytest.mark.parametrize("after", range(5))
def test_a_restart_at_any_point_of_a_turn_with_questions_loses_and_doubles_nothing(
    after: int,
) -> None:
    text = story()
    first, second = made("note", "c1", '{"path":"a"}'), made("note", "c2", '{"path":"b"}')
    steps: list[Callable[[], Any]] = [
        lambda: text.reply("root", "", first, second, made("look", "c3")),
        lambda: text.tool("root", 2),
        lambda: text.post("root", decided(text, "root", first, 0)),
        lambda: text.tool("root", 0),
        lambda: text.post("root", decided(text, "root", second, 1, allow=False)),
    ]
    for n, step in enumerate(steps):
        assert step() == ""
        if n == after:
            before = text.run("root").state
            text.restart("pure")
            if isinstance(before, Asking):
                assert text.state("root") == before
    assert (text.is_("root"), unanswered(text, "root")) == ("Thinking", [])
    text.reply("root", "done")
    assert (text.ended("root"), text.leaks()) == (("completed", "done"), {})


@pytest.mark.parametrize("end", ["steer", "cancel", "deadline"])
def test_a_turn_that_is_cut_short_leaves_no_question_behind(end: str) -> None:
    text = story(timeout_ms=60_000)
    first = made("note", "c1", '{"path":"a"}')
    text.reply("root", "", first)
    late = decided(text, "root", first)
    if end == "steer":
        text.mail_to("root", "something else", steer=True)
    elif end == "cancel":
        text.cancel("root")
    else:
        text.wake("root")
    assert text.post("root", late), "what was permitted too late is not made"
    assert text.effects[-1].__class__.__name__ != "CallTool"
    shared = Conversation()
    for message in text.messages("root"):
        shared.append(message)
    messages = list(ShownMessages(shared, 0, len(shared)))
    calls = [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.calls]
    assert [m.call_id for m in messages if isinstance(m, ToolMessage)] == calls


def test_a_question_of_a_grandchild_can_be_answered_when_the_root_is_gone() -> None:
    text = story()
    (child,) = text.spawning(
        "root", hand(join="none", on_parent_end="keep", children_on_end="keep")
    )
    (grandchild,) = text.spawning(child, hand(join="none", on_parent_end="keep"))
    first = made("note", "c1", '{"path":"a"}')
    text.reply(grandchild, "", first)
    for id in (child, "root"):
        while text.is_(id) == "Thinking":
            text.reply(id, "bye")
        assert text.is_(id) == "Ended"
    text.restart()
    assert text.post(grandchild, decided(text, grandchild, first, always=True)) == ""
    assert text.is_(grandchild) == "Working"
    text.tool(grandchild)
    text.reply(grandchild, "", made("note", "c2", '{"path":"a"}'))
    assert text.is_(grandchild) == "Working", "always means: in what is left of the tree"


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
        twice = ToolCall(id="c1", name="write", args='{"path":"ok","path":"bad","content":"x"}')
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
