"""Rules, grants and questions that once let something through. Each test states what holds."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from retinue import (
    Actions,
    ConfigError,
    Context,
    Limits,
    NotFound,
    Permissions,
    Refused,
    Retinue,
    tool,
)
from retinue.core import call_rules, permissions
from retinue.core.events import Asked
from retinue.core.messages import ToolCall
from retinue.core.spec import WaitForRuns
from retinue.core.values import ToolRisk
from retinue.testing import call
from tests.core.driver import Story, hand
from tests.core.driver import call as story_call
from tests.security.holes import FETCH, SHELL, WRITE, agent, hire, until, verdict


def test_a_rule_sees_through_arguments_that_are_json_in_a_string() -> None:
    wrapped = json.dumps(json.dumps({"command": "rm -rf x"}))
    assert verdict("shell", wrapped, SHELL, "deny: shell(rm *)", mode="bypassPermissions") == "deny"


def test_a_rule_sees_through_half_a_surrogate_pair() -> None:
    args = '{"command":"rm -rf x \\ud800"}'
    assert verdict("shell", args, SHELL, "deny: shell(rm *)", mode="bypassPermissions") == "deny"


@pytest.mark.parametrize(
    ("guard", "args"), [(SHELL, {"command": ""}), (WRITE, {"path": "."}), (WRITE, {"path": "a/.."})]
)
def test_a_grant_for_an_empty_subject_is_not_one_for_the_whole_tool(
    guard: ToolRisk, args: dict[str, str]
) -> None:
    subject = permissions.subject_of(
        ToolCall(id="", name="t", arguments_json=json.dumps(args)), guard
    )
    granted = call_rules.rule_for("allow", "t", subject or "")
    assert verdict("t", {guard.subject: "other"}, guard, grants=(granted,)) == "ask"


def test_always_yes_to_an_empty_command_permits_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        one = agent(
            "one", call("shell", command=""), call("shell", command="touch evil"), tools=["shell"]
        )
        async with Retinue(workspace=tmp_path) as retinue:
            await retinue.spawn(one, "Go.", questions="ask")
            (first,) = await until(retinue.open_questions)
            await retinue.decide(first.id, True, always=True)

            async def second() -> bool:
                return any(q.id != first.id for q in await retinue.open_questions())

            await until(second)
            assert not (tmp_path / "evil").exists()

    asyncio.run(main())


PATCH = "*** Begin Patch\n*** Add File: src/evil.py\n+/tests/x\n*** End Patch"


@pytest.mark.parametrize("args", [{"patch": PATCH}, {"path": "", "patch": PATCH}])
@pytest.mark.parametrize(
    "rule", ["allow: edit(**/tests/**)", "allow: edit(*)", "ask: edit(src/**)"]
)
def test_a_patch_is_not_taken_for_a_path(rule: str, args: dict[str, str]) -> None:
    mode = "acceptEdits" if rule.startswith("ask") else "manual"
    assert verdict("edit", args, WRITE, rule, mode=mode) == "ask"


@pytest.mark.parametrize("url", ["http://evil.test?@good.org/", "http://evil.test#@good.org/"])
def test_an_allowed_domain_is_the_one_that_is_asked(url: str) -> None:
    assert verdict("fetch", {"url": url}, FETCH, "allow: fetch(domain:good.org)") == "ask"


@pytest.mark.parametrize(
    "url",
    [
        "http://bad.org?@x/",
        "http://bad.org#@x",
        " http://bad.org/",
        "http://\uff42ad.org/",
        "http://bad\u3002org/",
    ],
)
def test_a_denied_domain_is_denied_in_every_spelling(url: str) -> None:
    assert (
        verdict(
            "fetch", {"url": url}, FETCH, "deny: fetch(domain:bad.org)", mode="bypassPermissions"
        )
        == "deny"
    )


def test_a_rule_about_a_domain_does_not_permit_a_command() -> None:
    command = {"command": "a://x.org/;rm -rf ."}
    assert verdict("shell", command, SHELL, "allow: *(domain:x.org)") == "ask"
    assert (
        verdict(
            "shell",
            command,
            SHELL,
            grants=(call_rules.rule_for("allow", "shell", "domain:x.org"),),
        )
        == "ask"
    )
    granted = call_rules.rule_for("allow", "fetch", "domain:x.org")
    assert verdict("fetch", {"url": "https://x.org/y"}, FETCH, grants=(granted,)) == "ask"


def test_a_path_is_asked_about_however_it_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        rules = Permissions(mode="acceptEdits", rules=("ask: write(.env)",))
        for n, path in enumerate((f"{tmp_path}/.env", f"../{tmp_path.name}/.env")):
            one = agent(f"one{n}", call("write", path=path, content="x"), tools=["write"])
            async with Retinue(workspace=tmp_path) as retinue:
                await retinue.run(one, "Go.", permissions=rules)
            assert not (tmp_path / ".env").exists(), path

    asyncio.run(main())


def test_a_rule_about_a_directory_holds_for_a_child_that_works_in_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    async def main() -> None:
        child = agent("child", call("write", path="x", content="evil"), tools=["write"])
        lead = agent("lead", call("hire"), tools=[hire(child, cwd="sub"), "write"], staff=[child])
        amount = Permissions(mode="bypassPermissions", rules=("deny: write(sub/**)",))
        async with Retinue(workspace=tmp_path) as retinue:
            await retinue.run(lead, "Go.", permissions=amount)
        assert os.listdir(tmp_path / "sub") == []

    asyncio.run(main())


def test_a_grant_for_a_command_holds_where_it_was_given(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    async def main() -> None:
        command = call("shell", command="touch done")
        x, y = agent("x", command, tools=["shell"]), agent("y", command, tools=["shell"])

        @tool(name="both", restart="keyed")
        async def both(context: Context, who: str) -> Actions:
            """Hire."""
            return context.spawn_actions(x if who == "a" else y, "task", cwd=who)

        lead = agent(
            "lead", call("both", who="a"), call("both", who="b"), tools=[both], staff=[x, y]
        )
        async with Retinue(workspace=tmp_path) as retinue:
            run = await retinue.spawn(lead, "Go.", questions="ask")
            (first,) = await until(retinue.open_questions)
            await retinue.decide(first.id, True, always=True)

            async def again() -> bool:
                is_asked = any(q.label == "y" for q in await retinue.open_questions())
                return is_asked or await retinue.outcome(run) is not None

            await until(again)
            assert not (tmp_path / "b" / "done").exists()

    asyncio.run(main())


@pytest.mark.parametrize(
    "options", [{"permissions": Permissions(mode="plan")}, {}], ids=["rules", "mode"]
)
def test_a_mistake_in_rules_or_modes_is_told_before_anything_runs(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    async def main() -> None:
        one = agent("one", call("shell", command="ls"), tools=["shell"])
        with pytest.raises((ConfigError, ValueError)):
            bad = {"permissions": Permissions(rules=("nonsense",))} if options else {}
            rules = None if options else Limits(mode="nonsense")
            async with Retinue(tmp_path / "r.db", workspace=tmp_path, limits=rules) as retinue:
                await retinue.run(one, "Go.", **bad)
        async with Retinue(
            tmp_path / "r.db", workspace=tmp_path
        ) as retinue:  # and nothing of it was recorded
            assert [r async for r in retinue.runs()] == []

    asyncio.run(main())


def test_an_empty_mode_of_the_runtime_does_not_permit_everything() -> None:
    with pytest.raises((ConfigError, ValueError)):
        Retinue(limits=Limits(mode=""))


@pytest.mark.parametrize("by_run", [True, False])
def test_a_permission_is_not_given_by_a_name_that_may_mean_another_call(
    tmp_path: Path, by_run: bool
) -> None:
    async def main() -> None:
        turns = call("write", path="seen", content="1"), call("write", path="unseen", content="2")
        async with Retinue(workspace=tmp_path) as retinue:
            run = await retinue.spawn(agent("one", *turns, tools=["write"]), "Go.", questions="ask")
            (first,) = await until(retinue.open_questions)
            await retinue.decide(first.id, False, by="somebody else")

            async def moved_on() -> bool:
                return any(q.id != first.id for q in await retinue.open_questions())

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
    story.order("root", wait=WaitForRuns(runs=(child,), timeout_ms=60_000, then="{}"))
    assert story.is_("root") == "Waiting"
    story.reply(child, "", story_call("look", "q"))
    story.post(child, Asked(question="which?", **story.address(child, 0)))
    assert story.is_(child) == "Thinking", "nobody can answer, so it goes on"


def test_a_question_to_a_parent_that_ends_is_answered_by_nobody() -> None:
    story, child = asking_child(on_parent_end="keep")
    story.reply(child, "", story_call("look", "q"))
    story.post(child, Asked(question="which?", **story.address(child, 0)))
    story.reply("root", "bye")
    if story.is_("root") != "Ended":  # it reads the question first
        story.reply("root", "bye")
    assert story.is_("root") == "Ended"
    assert story.is_(child) == "Thinking", "otherwise it waits for a day"


def test_a_call_that_was_never_permitted_is_not_said_to_have_perhaps_been_made() -> None:
    story = Story()
    story.define("boss", agents=("boss", "hand"), tool_risks={"note": WRITE})
    story.start(questions="ask")
    story.reply("root", "", story_call("note", "c1", '{"path":"a"}'))
    story.mail_to("root", "stop", steer=True)
    (result,) = story.results("root")
    assert result.call_id == "c1"


def test_a_child_may_not_write_where_its_parent_may_only_read(tmp_path: Path) -> None:
    work, reference = tmp_path / "work", tmp_path / "reference"
    work.mkdir()
    reference.mkdir()

    async def main() -> None:
        child = agent("child", call("write", path="evil", content="x"), tools=["write"])
        lead = agent(
            "lead", call("hire"), tools=[hire(child, cwd=str(reference)), "write"], staff=[child]
        )
        amount = Permissions(mode="bypassPermissions", read=(str(reference), str(work)))
        async with Retinue(workspace=work) as retinue:
            await retinue.run(lead, "Go.", permissions=amount)

    asyncio.run(main())
    assert os.listdir(reference) == []


def test_two_runs_that_share_a_writable_root_do_not_both_write_in_it(tmp_path: Path) -> None:
    for name in ("a", "b", "shared"):
        (tmp_path / name).mkdir()

    async def main() -> None:
        amount = Permissions(
            mode="bypassPermissions", write=(str(tmp_path / "shared"),), read=(str(tmp_path),)
        )
        first, over = asyncio.Event(), asyncio.Event()

        @tool(name="rest", restart="pure")
        async def rest() -> str:
            """Wait."""
            first.set()
            await over.wait()
            return ""

        x = agent(
            "x",
            call("write", path=f"{tmp_path}/shared/x", content=""),
            call("rest"),
            tools=["write", rest],
        )
        y = agent("y", call("write", path=f"{tmp_path}/shared/y", content=""), tools=["write"])
        async with Retinue(workspace=tmp_path) as retinue:
            run = await retinue.spawn(x, "Go.", permissions=amount, cwd=str(tmp_path / "a"))
            await first.wait()
            await retinue.run(y, "Go.", permissions=amount, cwd=str(tmp_path / "b"))
            over.set()
            await retinue.wait(run)

    asyncio.run(main())
    assert os.listdir(tmp_path / "shared") == ["x"]


def test_a_run_that_is_resumed_holds_no_more_than_before(tmp_path: Path) -> None:
    async def main() -> None:
        one = agent("one", tools=["write"])
        amount = Permissions(mode="plan", rules=("deny: write",))
        async with Retinue(workspace=tmp_path) as retinue:
            first = await retinue.run(one, "Go.", permissions=amount)
            second = await retinue.resume(first.id)
            spec = (await retinue._row(second)).spec
            assert (spec.permissions.mode, spec.permissions.rules) == ("plan", ("deny: write",))

    asyncio.run(main())


def verdict_in_ws(name: str, guard: ToolRisk, rule: str, **args: object) -> str:
    amount = Permissions(rules=(rule,), mode="bypassPermissions")
    call = ToolCall(id="c", name=name, arguments_json=json.dumps(args))
    return permissions.rule_on([("run", amount)], call, guard, (), "", ["/ws"]).verdict


@pytest.mark.parametrize("pattern", ["**/.env", "**", "**/*v"])
def test_a_pattern_that_begins_with_two_stars_denies_in_every_root_of_the_run(pattern: str) -> None:
    assert verdict_in_ws("write", WRITE, f"deny: write({pattern})", path="/other/.env") == "deny"
    assert call_rules.barred_path(
        [("/ws", (f"deny: write({pattern})",))], ("write",), "/other/.env"
    )


@pytest.mark.parametrize("path", ["/../etc/passwd", "../../etc/passwd"])
def test_there_is_nothing_above_the_top(path: str) -> None:
    assert verdict_in_ws("write", WRITE, "deny: write(/etc/**)", path=path) == "deny"


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("http://de\u00adnied.com/", "denied.com"),
        ("http://de\u200bnied.com/", "denied.com"),
        ("http://xn--bcher-kva.de/", "b\u00fccher.de"),
        ("http://b\u00fccher.de/", "xn--bcher-kva.de"),
        ("http://[::1]/", "[::1]"),
    ],
)
def test_a_denied_domain_is_compared_as_the_client_asks_for_it(url: str, domain: str) -> None:
    assert verdict_in_ws("fetch", FETCH, f"deny: fetch(domain:{domain})", url=url) == "deny"
