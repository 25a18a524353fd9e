"""Attacks on permissions, copies, leases and secrets that once succeeded. Each states what holds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Caller, Capabilities, ConfigError, NotFound, Orders, Refused, Retinue, Rules, tool
from retinue.core import permits
from retinue.core.events import Asked, Narrowed, Registered, Requested
from retinue.core.orders import Order, Wait
from retinue.core.secrets import Redactor
from retinue.core.values import Call, Definition, Grant, Guard, Result
from retinue.models.base import Request
from retinue.runtime.redact import clean_event
from retinue.sandbox.worktree import Worktrees
from retinue.testing import Scripted, call
from tests.core.driver import Story, hand
from tests.core.driver import call as story_call
from tests.needs import needs

WRITE = Guard(risk="write", subject="path", guarded=True)
SHELL = Guard(risk="execute", subject="command", guarded=True)
FETCH = Guard(risk="network", subject="url", guarded=True)
FREE = Capabilities(mode="bypassPermissions")
SECRET = "s3cr3t-Value-12345"


def verdict(name: str, args: Any, guard: Guard, *rules: str, mode: str = "", grants: tuple[str, ...] = ()) -> str:
    text = args if isinstance(args, str) else json.dumps(args)
    chain = [("run", Capabilities(rules=rules, mode=mode))]
    return permits.rule_on(chain, Call(id="c", name=name, args=text), guard, [Grant(rule=g) for g in grants]).verdict


def talk(*turns: Any) -> Callable[[Request], object]:
    return lambda request: turns[request.turn] if request.turn < len(turns) else "done"


def agent(name: str, *turns: Any, **fields: Any) -> Agent:
    return Agent(name, model=Scripted(talk(*turns), name=name), **fields)


def hire(child: Agent, **options: Any) -> Any:
    @tool(name="hire", restart="keyed")
    async def hire(caller: Caller) -> Orders:
        """Hire."""
        return caller.spawn(child, "task", **options)

    return hire


async def results(retinue: Retinue, run: str) -> list[str]:
    return [m.text for m in await retinue.messages(run) if isinstance(m, Result)]


async def until(found: Callable[[], Awaitable[Any]]) -> Any:
    for _ in range(500):
        if value := await found():
            return value
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come")


def git(where: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", *who, "-C", str(where), *args], check=True, capture_output=True, text=True).stdout


def shown_by(where: Path, what: str) -> str:
    command = ["git", "-C", str(where), "show", what]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


def is_directory(path: str) -> bool:
    return os.path.isdir(path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repository"
    (top / "sub").mkdir(parents=True)
    (top / "a.txt").write_text("one\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    return top


def test_a_rule_sees_through_arguments_that_are_json_in_a_string() -> None:
    wrapped = json.dumps(json.dumps({"command": "rm -rf x"}))
    assert verdict("shell", wrapped, SHELL, "deny: shell(rm *)", mode="bypassPermissions") == "deny"


def test_a_rule_sees_through_half_a_surrogate_pair() -> None:
    args = '{"command":"rm -rf x \\ud800"}'
    assert verdict("shell", args, SHELL, "deny: shell(rm *)", mode="bypassPermissions") == "deny"


@pytest.mark.parametrize(
    ("guard", "args"), [(SHELL, {"command": ""}), (WRITE, {"path": "."}), (WRITE, {"path": "a/.."})]
)
def test_a_grant_for_an_empty_subject_is_not_one_for_the_whole_tool(guard: Guard, args: dict[str, str]) -> None:
    subject = permits.subject_of(Call(id="", name="t", args=json.dumps(args)), guard)
    granted = permits.rule_for("allow", "t", subject or "")
    assert verdict("t", {guard.subject: "other"}, guard, grants=(granted,)) == "ask"


def test_always_yes_to_an_empty_command_permits_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        one = agent("one", call("shell", command=""), call("shell", command="touch evil"), tools=["shell"])
        async with Retinue(workspace=tmp_path) as retinue:
            await retinue.spawn(one, "Go.", questions="ask")
            (first,) = await until(retinue.questions)
            await retinue.decide(first.id, True, always=True)

            async def second() -> bool:
                return any(q.id != first.id for q in await retinue.questions())

            await until(second)
            assert not (tmp_path / "evil").exists()

    asyncio.run(main())


PATCH = "*** Begin Patch\n*** Add File: src/evil.py\n+/tests/x\n*** End Patch"


@pytest.mark.parametrize("args", [{"patch": PATCH}, {"path": "", "patch": PATCH}])
@pytest.mark.parametrize("rule", ["allow: edit(**/tests/**)", "allow: edit(*)", "ask: edit(src/**)"])
def test_a_patch_is_not_taken_for_a_path(rule: str, args: dict[str, str]) -> None:
    mode = "acceptEdits" if rule.startswith("ask") else "manual"
    assert verdict("edit", args, WRITE, rule, mode=mode) == "ask"


@pytest.mark.parametrize("url", ["http://evil.test?@good.org/", "http://evil.test#@good.org/"])
def test_an_allowed_domain_is_the_one_that_is_asked(url: str) -> None:
    assert verdict("fetch", {"url": url}, FETCH, "allow: fetch(domain:good.org)") == "ask"


@pytest.mark.parametrize(
    "url",
    ["http://bad.org?@x/", "http://bad.org#@x", " http://bad.org/", "http://\uff42ad.org/", "http://bad\u3002org/"],
)
def test_a_denied_domain_is_denied_in_every_spelling(url: str) -> None:
    assert verdict("fetch", {"url": url}, FETCH, "deny: fetch(domain:bad.org)", mode="bypassPermissions") == "deny"


def test_a_rule_about_a_domain_does_not_permit_a_command() -> None:
    command = {"command": "a://x.org/;rm -rf ."}
    assert verdict("shell", command, SHELL, "allow: *(domain:x.org)") == "ask"
    assert verdict("shell", command, SHELL, grants=(permits.rule_for("allow", "shell", "domain:x.org"),)) == "ask"
    granted = permits.rule_for("allow", "fetch", "domain:x.org")
    assert verdict("fetch", {"url": "https://x.org/y"}, FETCH, grants=(granted,)) == "ask"


def test_a_path_is_asked_about_however_it_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        rules = Capabilities(mode="acceptEdits", rules=("ask: write(.env)",))
        for n, path in enumerate((f"{tmp_path}/.env", f"../{tmp_path.name}/.env")):
            one = agent(f"one{n}", call("write", path=path, content="x"), tools=["write"])
            async with Retinue(workspace=tmp_path) as retinue:
                await retinue.run(one, "Go.", access=rules)
            assert not (tmp_path / ".env").exists(), path

    asyncio.run(main())


def test_a_rule_about_a_directory_holds_for_a_child_that_works_in_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    async def main() -> None:
        child = agent("child", call("write", path="x", content="evil"), tools=["write"])
        lead = agent("lead", call("hire"), tools=[hire(child, cwd="sub"), "write"], staff=[child])
        held = Capabilities(mode="bypassPermissions", rules=("deny: write(sub/**)",))
        async with Retinue(workspace=tmp_path) as retinue:
            await retinue.run(lead, "Go.", access=held)
        assert os.listdir(tmp_path / "sub") == []

    asyncio.run(main())


def test_a_grant_for_a_command_holds_where_it_was_given(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    async def main() -> None:
        command = call("shell", command="touch done")
        x, y = agent("x", command, tools=["shell"]), agent("y", command, tools=["shell"])

        @tool(name="both", restart="keyed")
        async def both(caller: Caller, who: str) -> Orders:
            """Hire."""
            return caller.spawn(x if who == "a" else y, "task", cwd=who)

        lead = agent("lead", call("both", who="a"), call("both", who="b"), tools=[both], staff=[x, y])
        async with Retinue(workspace=tmp_path) as retinue:
            run = await retinue.spawn(lead, "Go.", questions="ask")
            (first,) = await until(retinue.questions)
            await retinue.decide(first.id, True, always=True)

            async def again() -> bool:
                asked = any(q.label == "y" for q in await retinue.questions())
                return asked or await retinue.outcome(run) is not None

            await until(again)
            assert not (tmp_path / "b" / "done").exists()

    asyncio.run(main())


@pytest.mark.parametrize("options", [{"access": Capabilities(mode="plan")}, {}], ids=["rules", "mode"])
def test_a_mistake_in_rules_or_modes_is_told_before_anything_runs(tmp_path: Path, options: dict[str, Any]) -> None:
    async def main() -> None:
        one = agent("one", call("shell", command="ls"), tools=["shell"])
        with pytest.raises((ConfigError, ValueError)):
            bad = {"access": Capabilities(rules=("nonsense",))} if options else {}
            rules = None if options else Rules(mode="nonsense")
            async with Retinue(tmp_path / "r.db", workspace=tmp_path, rules=rules) as retinue:
                await retinue.run(one, "Go.", **bad)
        async with Retinue(tmp_path / "r.db", workspace=tmp_path) as retinue:  # and nothing of it was recorded
            assert await retinue.list() == []

    asyncio.run(main())


def test_an_empty_mode_of_the_runtime_does_not_permit_everything() -> None:
    with pytest.raises((ConfigError, ValueError)):
        Retinue(rules=Rules(mode=""))


@pytest.mark.parametrize("by_run", [True, False])
def test_a_permission_is_not_given_by_a_name_that_may_mean_another_call(tmp_path: Path, by_run: bool) -> None:
    async def main() -> None:
        turns = call("write", path="seen", content="1"), call("write", path="unseen", content="2")
        async with Retinue(workspace=tmp_path) as retinue:
            run = await retinue.spawn(agent("one", *turns, tools=["write"]), "Go.", questions="ask")
            (first,) = await until(retinue.questions)
            await retinue.decide(first.id, False, by="somebody else")

            async def moved_on() -> bool:
                return any(q.id != first.id for q in await retinue.questions())

            await until(moved_on)
            with pytest.raises((NotFound, Refused)):
                await retinue.decide(run if by_run else "", True)
            assert not (tmp_path / "unseen").exists()

    asyncio.run(main())


def asking_child(**order: Any) -> tuple[Story, str]:
    story = Story()
    story.start()
    (child,) = story.spawning("root", hand(join="none", questions="deny", **order))
    return story, child


def test_a_parent_that_waits_for_a_run_is_not_asked_by_it() -> None:
    story, child = asking_child()
    story.reply("root", "", story_call("hire", "w"))
    story.order("root", wait=Wait(runs=(child,), timeout_ms=60_000, then="{}"))
    assert story.is_("root") == "Waiting"
    story.reply(child, "", story_call("look", "q"))
    story.post(child, Asked(question="which?", **story.address(child, 0)))
    assert story.is_(child) == "Thinking", "nobody can answer, so it goes on"


def test_a_question_to_a_parent_that_ends_is_answered_by_nobody() -> None:
    story, child = asking_child(bond="keep")
    story.reply(child, "", story_call("look", "q"))
    story.post(child, Asked(question="which?", **story.address(child, 0)))
    story.reply("root", "bye")
    if story.is_("root") != "Ended":  # it reads the question first
        story.reply("root", "bye")
    assert story.is_("root") == "Ended"
    assert story.is_(child) == "Thinking", "otherwise it waits for a day"


def test_a_call_that_was_never_permitted_is_not_said_to_have_perhaps_been_made() -> None:
    story = Story()
    story.define("boss", crew=("boss", "hand"), guards={"note": WRITE})
    story.start(questions="ask")
    story.reply("root", "", story_call("note", "c1", '{"path":"a"}'))
    story.mail_to("root", "stop", steer=True)
    (result,) = story.results("root")
    assert result.call_id == "c1"


@needs("git")
@needs("bwrap")
def test_a_repository_inside_of_the_copy_runs_nothing_outside_of_the_sandbox(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = (
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; mkdir nest; cd nest; "
        "git init -q . && echo hi > f && echo '* filter=x' > .gitattributes && git add . && git commit -qm x && "
        f"git config filter.x.clean 'touch {ran}; cat' && echo other > f"
    )

    async def main() -> None:
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            one = agent("one", call("shell", command=command), tools=["shell"])
            await retinue.run(one, "Go.", access=FREE, isolation="worktree")

    asyncio.run(main())
    assert not ran.exists()


@needs("git")
def test_a_copy_does_not_lead_out_through_a_link_of_the_last_commit(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / "d").symlink_to(outside)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "link")
    (repository / "d").unlink()
    (repository / "d").mkdir()

    async def main() -> None:
        child = agent("child", call("write", path="evil", content="x"), tools=["write"])
        lead = agent("lead", call("hire"), tools=[hire(child, cwd="d", isolation="worktree"), "write"], staff=[child])
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            await retinue.run(lead, "Go.", access=FREE)

    asyncio.run(main())
    assert os.listdir(outside) == []


def _lock(copy: Path) -> None:
    (Path((copy / ".git").read_text()[8:].strip()) / "index.lock").write_text("")


def _nested(copy: Path) -> None:
    (copy / "nest").mkdir()
    git(copy / "nest", "init", "-q")


def _other_branch(copy: Path) -> None:
    git(copy, "checkout", "-q", "-b", "other")


def _detached(copy: Path) -> None:
    git(copy, "checkout", "-q", "--detach")


def _encoding(copy: Path) -> None:
    (copy / ".gitattributes").write_text("* working-tree-encoding=UTF-16\n")


def _no_git(copy: Path) -> None:
    (copy / ".git").unlink()


@needs("git")
@pytest.mark.parametrize("spoil", [_lock, _nested, _other_branch, _detached, _encoding, _no_git])
def test_the_work_of_a_run_is_on_its_branch_or_still_in_its_copy(
    repository: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(repository)))
        (copy / "new.txt").write_text("precious\n")
        spoil(copy)
        await trees.close("r1", "task")
        shown = shown_by(repository, "retinue/r1:new.txt")
        assert shown == "precious\n" or (copy / "new.txt").exists()

    asyncio.run(main())


@needs("git")
@pytest.mark.parametrize("task", [" \n", "a\0b"])
def test_any_task_makes_a_commit(repository: Path, tmp_path: Path, task: str) -> None:
    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        (Path(await trees.open("r1", str(repository))) / "new.txt").write_text("precious\n")
        await trees.close("r1", task)
        assert git(repository, "show", "retinue/r1:new.txt") == "precious\n"

    asyncio.run(main())


@needs("git")
def test_a_cancel_while_git_is_at_work_loses_nothing(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "filter.slow.clean", "sleep 1; cat")
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("*.slow filter=slow\n")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        copy = Path(await trees.open("r1", str(repository)))
        (copy / "new.slow").write_text("precious\n")
        lock = tmp_path / "trees" / "r1.index.lock"
        work = asyncio.ensure_future(trees.changes("r1", "task"))

        async def is_locked() -> bool:
            return lock.exists()

        await until(is_locked)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await trees.close("r1", "task")
        assert git(repository, "show", "retinue/r1:new.slow") == "precious\n"

    asyncio.run(main())


@needs("git")
def test_a_runtime_in_memory_leaves_nothing_of_an_open_isolated_run_but_its_branch(repository: Path) -> None:
    async def main() -> None:
        held = asyncio.Event()

        @tool(name="rest", restart="pure")
        async def rest() -> str:
            """Wait."""
            held.set()
            await asyncio.sleep(600)
            return ""

        one = agent("one", call("write", path="n.txt", content="precious"), call("rest"), tools=["write", rest])
        async with Retinue(workspace=repository) as retinue:
            run = await retinue.spawn(one, "Go.", access=FREE, isolation="worktree")
            await held.wait()
        assert git(repository, "worktree", "list").count("\n") == 1
        assert git(repository, "show", f"retinue/{run}:n.txt") == "precious"

    asyncio.run(main())


@needs("git")
def test_a_directory_that_was_never_committed_is_there_in_the_copy(repository: Path, tmp_path: Path) -> None:
    (repository / "fresh").mkdir()

    async def main() -> None:
        assert is_directory(await Worktrees(tmp_path / "trees").open("r1", str(repository / "fresh")))

    asyncio.run(main())


@needs("git")
def test_a_child_that_outlives_its_isolated_parent_keeps_its_directory(repository: Path, tmp_path: Path) -> None:
    async def main() -> None:
        go = asyncio.Event()

        @tool(name="rest", restart="pure")
        async def rest() -> str:
            """Wait."""
            await go.wait()
            return ""

        child = agent("child", call("rest"), call("write", path="late", content="x"), tools=["write", rest])
        lead = agent("lead", call("hire"), tools=[hire(child, join="none", bond="keep"), "write"], staff=[child])
        async with Retinue(tmp_path / "r.db", workspace=repository) as retinue:
            run = await retinue.run(lead, "Go.", access=FREE, isolation="worktree")
            (node,) = (await retinue.tree(run.id)).children

            async def is_gone() -> bool:
                return not is_directory((await retinue._row(node.id)).spec.order.cwd)

            with contextlib.suppress(AssertionError, TimeoutError):
                await asyncio.wait_for(until(is_gone), 2)
            go.set()
            await retinue.wait(node.id)
            assert "Created late" in (await results(retinue, node.id))[1]

    asyncio.run(main())


def test_a_child_may_not_write_where_its_parent_may_only_read(tmp_path: Path) -> None:
    work, reference = tmp_path / "work", tmp_path / "reference"
    work.mkdir()
    reference.mkdir()

    async def main() -> None:
        child = agent("child", call("write", path="evil", content="x"), tools=["write"])
        lead = agent("lead", call("hire"), tools=[hire(child, cwd=str(reference)), "write"], staff=[child])
        held = Capabilities(mode="bypassPermissions", read=(str(reference), str(work)))
        async with Retinue(workspace=work) as retinue:
            await retinue.run(lead, "Go.", access=held)

    asyncio.run(main())
    assert os.listdir(reference) == []


def test_two_runs_that_share_a_writable_root_do_not_both_write_in_it(tmp_path: Path) -> None:
    for name in ("a", "b", "shared"):
        (tmp_path / name).mkdir()

    async def main() -> None:
        held = Capabilities(mode="bypassPermissions", write=(str(tmp_path / "shared"),), read=(str(tmp_path),))
        first, over = asyncio.Event(), asyncio.Event()

        @tool(name="rest", restart="pure")
        async def rest() -> str:
            """Wait."""
            first.set()
            await over.wait()
            return ""

        x = agent("x", call("write", path=f"{tmp_path}/shared/x", content=""), call("rest"), tools=["write", rest])
        y = agent("y", call("write", path=f"{tmp_path}/shared/y", content=""), tools=["write"])
        async with Retinue(workspace=tmp_path) as retinue:
            run = await retinue.spawn(x, "Go.", access=held, cwd=str(tmp_path / "a"))
            await first.wait()
            await retinue.run(y, "Go.", access=held, cwd=str(tmp_path / "b"))
            over.set()
            await retinue.wait(run)

    asyncio.run(main())
    assert os.listdir(tmp_path / "shared") == ["x"]


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
            async with Retinue(tmp_path / "r.db", secrets={"TOKEN": SECRET}, agents=[one]) as retinue:
                await retinue.run(one, "Go.")
                entries = await retinue._store.entries(0, limit=10_000)
        assert sum(isinstance(e.event, Registered) for _, e in entries) == 1

    asyncio.run(main())


def test_the_end_of_a_stream_that_might_have_become_a_secret_is_shown() -> None:
    async def main() -> None:
        one = Agent("one", model=Scripted(lambda _: f"It begins with {SECRET[:6]}", name="m"))
        async with Retinue(secrets={"TOKEN": SECRET}) as retinue:
            run = await retinue.spawn(one, "Go.")
            shown = "".join([s.text async for s in retinue.stream(run) if type(s).__name__ == "Delta"])
            outcome = await retinue.outcome(run)
            assert outcome is not None
            assert shown == outcome.text

    asyncio.run(main())


def test_a_secret_at_the_place_of_a_cut_is_not_half_shown() -> None:
    @tool(name="leak", restart="pure")
    def leak() -> str:
        """Leak."""
        return "z" * 1_990 + SECRET + "q" * 500

    async def main() -> None:
        one = agent("one", call("leak"), tools=[leak])
        async with Retinue(secrets={"TOKEN": SECRET}, rules=Rules(text_cap=2_000)) as retinue:
            outcome = await retinue.run(one, "Go.")
            assert SECRET[:8] not in (await results(retinue, outcome.id))[0]

    asyncio.run(main())


@pytest.mark.parametrize("word", ["capabilities", "isolation", "acceptEdits", "worktree", "instructions"])
def test_a_secret_that_is_a_word_of_the_format_changes_no_meaning(word: str) -> None:
    order = Order(agent="a", task="t", isolation="worktree", access=Capabilities(mode="acceptEdits"))
    events = (
        Requested(id="i", order=order, capabilities=Capabilities(tools=("x",), mode="plan")),
        Registered(definition=Definition(name="n", instructions="be kind")),
        Narrowed(access=Capabilities(mode="acceptEdits")),
    )
    redactor = Redactor({"KEY": word})
    assert [clean_event(redactor, e) for e in events] == list(events)


@needs("git")
def test_a_worktree_of_the_user_that_is_away_for_a_while_is_not_forgotten(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "theirs"))
    (tmp_path / "theirs").rename(tmp_path / "away")

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")
        await trees.open("r1", str(repository))
        await trees.close("r1")

    asyncio.run(main())
    (tmp_path / "away").rename(tmp_path / "theirs")
    assert git(tmp_path / "theirs", "status", "--short") == ""


@needs("git")
def test_many_copies_of_one_repository_are_made_and_closed_at_once(repository: Path, tmp_path: Path) -> None:
    """(Fails in about two of three tries today: git reads the entry of a worktree that another git is just writing.)"""

    async def main() -> None:
        trees = Worktrees(tmp_path / "trees")

        async def life(n: int) -> None:
            (Path(await trees.open(f"q{n}", str(repository))) / "n").write_text(str(n))
            await trees.close(f"q{n}", "task")

        for first in range(0, 75, 25):
            await asyncio.gather(*(life(first + n) for n in range(25)))

    asyncio.run(main())


def test_a_run_that_is_resumed_holds_no_more_than_before(tmp_path: Path) -> None:
    async def main() -> None:
        one = agent("one", tools=["write"])
        held = Capabilities(mode="plan", rules=("deny: write",))
        async with Retinue(workspace=tmp_path) as retinue:
            first = await retinue.run(one, "Go.", access=held)
            second = await retinue.resume(first.id)
            spec = (await retinue._row(second)).spec
            assert (spec.capabilities.mode, spec.capabilities.rules) == ("plan", ("deny: write",))

    asyncio.run(main())
