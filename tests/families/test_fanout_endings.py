"""How a sub-agent of `spawn_agents` can end, what its lead is told of it, and what a restart
changes: nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from retinue import Budget, Context, Retinue, Retry
from retinue.core.events import ChildEnded
from retinue.core.messages import AssistantMessage, ModelReply
from retinue.errors import ModelRejected, ModelUnavailable
from retinue.models.base import ModelRequest
from retinue.runtime.bus import Step
from retinue.testing import call
from retinue.tools.families.family_states import KINDS
from retinue.tools.families.fanout.spawn_agents import SpawnAgents
from tests.api.scripted_agents import STORES, Home, on_virtual_time
from tests.families.fanout_world import (
    Cast,
    failure,
    lead,
    play,
    played,
    reader,
    results,
    spawn,
    success,
    task_of,
    writer,
)

both = pytest.mark.parametrize("kind", STORES)


def saying(text: str, *calls: Any) -> AssistantMessage:
    return AssistantMessage(text=text, calls=tuple(calls))


async def alone(child: Any, task: Any = "a", **settings: Any) -> Any:
    """One sub-agent that behaves like `child`."""
    return await play(lead(Cast([spawn(task), "thanks"], child), **settings))


def looking_on(text: str = "") -> Any:
    """A child that never stops calling its tool, and says something once."""
    return lambda q: saying(text if q.turn == 0 else "", call("look"))


@on_virtual_time
async def test_a_submitted_error_is_a_failure_in_the_childs_own_words() -> None:
    def child(request: ModelRequest) -> Any:
        return (
            saying("Hm.", call("look"))
            if request.turn == 0
            else call("submit_error", error="too large to analyze")
        )

    scene = await alone(child)
    assert failure(scene) == ("too large to analyze", "sub_agent_error")
    assert [c.state for c in scene.outcome.children] == ["failed"]
    assert scene.outcome.text == "thanks", "a failed child does not fail its lead"


@on_virtual_time
async def test_one_failure_does_not_touch_the_others() -> None:
    def child(request: ModelRequest) -> Any:
        bad = task_of(request) == "bad"
        return call("submit_error", error="no") if bad else call("submit_result", result="yes")

    scene = await play(lead(Cast([spawn("good", "bad", "fine"), "thanks"], child)))
    assert [list(r["outcome"]) for r in scene.json] == [["success"], ["failure"], ["success"]]


@on_virtual_time
async def test_a_text_without_a_submission_counts_as_success() -> None:
    assert success(await alone(lambda q: "Here it is.")) == "Here it is."


@on_virtual_time
async def test_a_child_that_submits_is_not_asked_again() -> None:
    cast = Cast([spawn("a"), "thanks"])
    await play(lead(cast))
    assert len(cast.of_children) == 1


@pytest.mark.parametrize(
    "mix",
    [
        [call("submit_result", result="early"), call("look")],
        [call("look"), call("submit_error", error="early")],
        [call("submit_result", result="early"), call("submit_result", result="twice")],
    ],
)
@on_virtual_time
async def test_a_submission_beside_other_calls_is_asked_again(mix: list[Any]) -> None:
    requests: list[str] = []

    def child(request: ModelRequest) -> Any:
        requests.extend(m.text for m in request.messages[2:])
        return mix if request.turn == 0 else call("submit_result", result="late")

    assert success(await alone(child)) == "late"
    assert len(requests) == 2
    assert all("must be the only call in a reply" in text for text in requests), (
        "every call of that reply is refused"
    )


@pytest.mark.parametrize(
    "args", [{}, {"result": 7}, {"result": None}, {"result": "x", "note": "y"}, {"error": "x"}]
)
@on_virtual_time
async def test_a_malformed_submission_can_be_corrected(args: dict[str, Any]) -> None:
    def child(request: ModelRequest) -> Any:
        return (
            call("submit_result", **args)
            if request.turn == 0
            else call("submit_result", result="right")
        )

    assert success(await alone(child)) == "right"


@on_virtual_time
async def test_nothing_is_no_success() -> None:
    for child in (lambda q: "", lambda q: call("submit_result", result="  ")):
        error, kind = failure(await alone(child))
        assert "no text" in error or "without any output" in error
        assert kind == "sub_agent_error"


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ModelRejected("bad key", kind="auth"), "auth"),
        (ModelRejected("bad schema", kind="invalid_request"), "invalid_request"),
        (ModelRejected("too long", kind="context_exhausted"), "context_exhausted"),
        (ModelRejected("not that", kind="content_filter"), "content_filter"),
        (ModelUnavailable("slow down", kind="rate_limit"), "rate_limit"),
        (ModelUnavailable("no route", kind="network"), "network"),
        (ModelUnavailable("oops", kind="server_error"), "server_error"),
        (ModelUnavailable("too slow", kind="timed_out"), "timed_out"),
        (ModelUnavailable("busy", kind="overloaded"), "server_error"),
        (ModelRejected("paid out", kind="quota"), "rate_limit"),
        (ModelRejected("unheard of", kind="gremlins"), "sub_agent_error"),
        (ValueError("a bug"), "server_error"),
        (
            ModelReply(message=AssistantMessage(text="I will not."), stop="refusal"),
            "content_filter",
        ),
    ],
)
@on_virtual_time
async def test_a_failure_has_a_typed_kind(raised: Any, kind: str) -> None:
    error, result = failure(await alone(lambda q: raised))
    assert result == kind
    assert result in KINDS
    assert str(raised) in error or error == "I will not."


@on_virtual_time
async def test_what_may_pass_is_tried_three_times() -> None:
    cast = Cast([spawn("a"), "thanks"], lambda q: ModelUnavailable("no route", kind="network"))
    scene = await play(lead(cast))
    assert failure(scene) == ("Failed after 3 attempts: no route", "network")
    assert len(cast.of_children) == 3
    assert scene.outcome.ended_ms - scene.outcome.created_ms <= 1_000 + 2_000
    cast = Cast([spawn("a"), "thanks"], lambda q: ModelUnavailable("no route", kind="network"))
    scene = await play(lead(cast, attempts=1))
    assert failure(scene)[0] == "Failed after 1 attempts: no route"


@on_virtual_time
async def test_what_a_failed_child_had_said_is_kept() -> None:
    def child(request: ModelRequest) -> Any:
        return (
            saying("Half of it.", call("look"))
            if request.turn == 0
            else ModelRejected("bad key", kind="auth")
        )

    assert failure(await alone(child)) == ("bad key\nText so far: Half of it.", "auth")


def endless(text: str = "") -> Any:
    async def child(request: ModelRequest) -> Any:
        if request.turn == 0 and text:
            return saying(text, call("look"))
        await asyncio.sleep(100_000)
        return "too late"

    return child


@on_virtual_time
async def test_a_child_has_twenty_minutes_and_no_more() -> None:
    scene = await alone(endless())
    assert failure(scene) == ("Timed out: the deadline passed", "timed_out")
    (end,) = scene.ends.values()
    assert end.state == "timed_out"
    assert end.ended_ms - end.created_ms == 1_200_000
    assert scene.outcome.text == "thanks", "the lead goes on"


@on_virtual_time
async def test_a_timeout_is_its_own_outcome_and_keeps_what_was_said() -> None:
    scene = await alone(endless("I have found two."), timeout_seconds=5)
    assert failure(scene) == (
        "Timed out: the deadline passed\nText so far: I have found two.",
        "timed_out",
    )
    assert scene.outcome.ended_ms - scene.outcome.created_ms == 5_000


@on_virtual_time
async def test_a_child_that_is_cancelled_is_a_failure_of_its_own_kind() -> None:
    async def stop(retinue: Retinue, run: str) -> None:
        await asyncio.sleep(1)
        first, second = (c.id for c in (await retinue.tree(run)).children)
        assert (await retinue.cancel(first)).state == "cancelled"
        assert (await retinue.cancel(first)).state == "cancelled", "a second cancel changes nothing"
        await retinue.cancel(second, "not needed any more")

    scene = await play(lead(Cast([spawn("a", "b"), "thanks"], endless("Half."))), stop)
    errors = [r["outcome"]["failure"] for r in scene.json]
    assert errors == [
        {
            "error": "Cancelled: cancelled by the user\nText so far: Half.",
            "error_kind": "cancelled",
        },
        {"error": "Cancelled: not needed any more\nText so far: Half.", "error_kind": "cancelled"},
    ]
    assert scene.outcome.text == "thanks"


@pytest.mark.parametrize(("mode", "turns"), [("explore", 20), ("work", 50)])
@on_virtual_time
async def test_turns_are_limited_by_mode_and_there_is_one_of_grace(mode: str, turns: int) -> None:
    cast = Cast([spawn({"task": "a", "mode": mode}), "thanks"], looking_on())
    scene = await play(lead(cast))
    assert failure(scene) == ("Sub-agent exceeded turn limit with no output", "sub_agent_error")
    assert [q.purpose for q in cast.of_children] == ["turn"] * turns + ["grace"]


@on_virtual_time
async def test_a_task_may_have_its_own_number_of_turns() -> None:
    cast = Cast(
        [spawn({"task": "a", "max_turns": 1}, {"task": "b", "max_turns": 3}), "thanks"],
        looking_on(),
    )
    await play(lead(cast))
    turns = {t: sum(task_of(q) == t for q in cast.of_children) for t in "ab"}
    assert turns == {"a": 2, "b": 4}


@on_virtual_time
async def test_a_turn_limited_child_with_text_is_a_success_with_that_text() -> None:
    scene = await alone(looking_on("Three so far."), {"task": "a", "max_turns": 2})
    assert success(scene) == "Three so far."
    assert [c.state for c in scene.outcome.children] == ["incomplete"]


@pytest.mark.parametrize(
    ("last_line", "expected"),
    [
        (call("submit_result", result="just in time"), {"success": {"result": "just in time"}}),
        ("in plain words", {"success": {"result": "in plain words"}}),
        (
            call("submit_error", error="cannot"),
            {"failure": {"error": "cannot", "error_kind": "sub_agent_error"}},
        ),
    ],
)
@on_virtual_time
async def test_the_grace_turn_asks_for_the_result_and_takes_it(
    last_line: Any, expected: Any
) -> None:
    questions: list[str] = []

    def child(request: ModelRequest) -> Any:
        questions.append(request.messages[-1].text)
        return last_line if request.purpose == "grace" else call("look")

    scene = await alone(child, {"task": "a", "max_turns": 2})
    assert scene.json[0]["outcome"] == expected
    assert "Submit your result now" in questions[2]


@on_virtual_time
async def test_grace_can_be_turned_off_and_turns_set() -> None:
    cast = Cast([spawn("a", {"task": "b", "mode": "work"}), "thanks"], looking_on())
    await play(lead(cast, grace_turns=0, explore_turns=2, work_turns=3))
    assert [q.purpose for q in cast.of_children] == ["turn"] * 5


@on_virtual_time
async def test_any_other_limit_is_a_failure_that_keeps_the_text() -> None:
    reply = ModelReply(message=AssistantMessage(text="It begins"), stop="length")
    assert failure(await alone(lambda q: reply)) == (
        "Incomplete: stopped by a limit (length)\nText so far: " + "It begins" * 9,
        "sub_agent_error",
    )
    cast = Cast([spawn("a"), "thanks"], looking_on("Some."))
    scene = await play(lead(cast), budget=Budget(turns=5))
    error, _ = failure(scene)
    assert error.startswith("Incomplete: stopped by a limit (") and "Some." in error


@on_virtual_time
async def test_equal_failures_in_a_row_stop_the_next_spawn_for_a_while() -> None:
    lines = [*(spawn(letter) for letter in "abcde"), spawn("again"), "thanks"]
    scene = await play(lead(Cast(lines, lambda q: ModelRejected("bad key", kind="auth"))))
    assert [r.error for r in scene.told] == [False] * 5 + [True]
    assert "The last 5 children failed with the same error (auth: bad key)" in scene.told[5].text


@on_virtual_time
async def test_equal_failures_of_one_call_do_not_stop_the_next() -> None:
    lines = [spawn(*"abcdefgh"), [spawn("i"), spawn("j")], spawn("again"), "thanks"]
    scene = await play(lead(Cast(lines, lambda q: ModelRejected("bad key", kind="auth"))))
    assert [r.error for r in scene.told] == [False] * 4


@on_virtual_time
async def test_what_a_sub_agent_is_ordered_with() -> None:
    contexts: list[Context] = []
    cast = Cast([spawn("a"), "thanks"], lambda q: call("look") if q.turn == 0 else "done")
    await play(lead(cast, tools=[reader(contexts)]))
    order = contexts[0].spec.request
    assert (order.join, order.result_order, order.format_results) == ("turn", "completion", True)
    assert (order.report, order.must_submit) == ("submit", False)
    assert (order.timeout_ms, order.timeout_from) == (1_200_000, "created"), (
        "the wait is bounded from the spawn on"
    )
    assert order.retry == Retry(attempts=3, base_ms=1_000, cap_ms=4_000, then="fail")
    assert (order.on_parent_end, order.on_restart, order.retention) == ("wait", "resume", "keep")
    assert (contexts[0].spec.parent, contexts[0].spec.depth) == (contexts[0].spec.root, 1)


def part(seconds: float = 10) -> Any:
    async def child(request: ModelRequest) -> Any:
        await asyncio.sleep(seconds * (1 + "abc".index(task_of(request))))
        return call("submit_result", result=f"did {task_of(request)}")

    return child


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
@both
@on_virtual_time
async def test_a_fan_in_survives_a_restart_and_each_result_arrives_once(
    kind: str, tmp_path: Path, clean: bool
) -> None:
    home, cast = Home(kind, tmp_path), Cast([[spawn("b", "a"), spawn("c")], "thanks"], part())
    agent = lead(cast)
    async with AsyncExitStack() as first:
        retinue = await first.enter_async_context(home.open())
        run = await retinue.spawn(agent, "Go.")
        await asyncio.sleep(15)
        ids = [c.id for c in (await retinue.tree(run)).children]
        if clean:
            await first.aclose()
        async with home.open(agents=[agent]) as second:
            scene = await played(second, run)
            steps = [s.entry async for s in second.steps(run, tree=False) if isinstance(s, Step)]
    ends = [e.event.child for e in steps if isinstance(e.event, ChildEnded) and not e.stale]
    assert (len(ends), set(ends)) == (3, set(ids))
    rows = [
        [(one["agent_id"], one["task"]) for one in results(r)]
        for r in sorted(scene.told, key=lambda r: r.call_id)
    ]
    assert rows == [[(ids[1], "a"), (ids[0], "b")], [(ids[2], "c")]]
    assert sum(task_of(q) == "a" for q in cast.of_children) == 1, "who was back is not run again"
    assert len(cast.of_lead) == 2


@both
@on_virtual_time
async def test_a_deadline_that_passes_while_nothing_runs_is_a_timeout(
    kind: str, tmp_path: Path
) -> None:
    home, agent = Home(kind, tmp_path), lead(Cast([spawn("a"), "thanks"], endless("Half.")))
    async with home.open() as retinue:
        run = await retinue.spawn(agent, "Go.")
        await asyncio.sleep(10)
    await asyncio.sleep(5_000)
    async with home.open(agents=[agent]) as retinue:
        scene = await played(retinue, run)
    assert failure(scene) == ("Timed out: the deadline passed\nText so far: Half.", "timed_out")
    assert scene.outcome.text == "thanks"


@both
@on_virtual_time
async def test_children_may_be_told_not_to_survive_a_restart(kind: str, tmp_path: Path) -> None:
    home, agent = (
        Home(kind, tmp_path),
        lead(Cast([spawn("a", "b"), "thanks"], part()), on_restart="fail"),
    )
    async with home.open() as retinue:
        run = await retinue.spawn(agent, "Go.")
        await asyncio.sleep(15)
    async with home.open(agents=[agent]) as retinue:
        scene = await played(retinue, run)
    assert [r["outcome"] for r in scene.json] == [
        {"success": {"result": "did a"}},
        {
            "failure": {
                "error": "Interrupted: the process crashed while the run was open",
                "error_kind": "sub_agent_error",
            }
        },
    ]


@both
@on_virtual_time
async def test_after_a_restart_explorers_still_only_look(kind: str, tmp_path: Path) -> None:
    work = {"task": "a", "mode": "work"}
    cast = Cast([spawn(work, "b"), spawn(work), "thanks"], part(20))
    home, agent = Home(kind, tmp_path), lead(cast, tools=[reader(), writer()])
    async with home.open() as retinue:
        run = await retinue.spawn(agent, "Go.")
        await asyncio.sleep(5)
    cast.asked.clear()
    async with home.open(agents=[agent]) as retinue:
        await asyncio.sleep(1)
        await retinue.send(run, "Hurry.", steer=True)
        scene = await played(retinue, run)
    assert not [r.text for r in scene.told if r.error]
    offered = {task_of(q): {t.name for t in q.tools} for q in cast.of_children}
    assert offered["a"] - offered["b"] == {"write"}


def test_a_spawn_that_was_cut_short_by_a_crash_may_be_run_again() -> None:
    assert SpawnAgents.restart == "pure", (
        "it starts nobody itself: until its orders are on record nothing has happened"
    )
