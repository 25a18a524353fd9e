"""Who waits for budget that others hold: nobody for ever, nobody in a circle, each in its turn."""

from __future__ import annotations

import pytest

from retinue.core.events import Asked, Recovered
from retinue.core.spec import Lane, Retry
from retinue.core.state import Short, Thinking
from retinue.core.values import Budget, Limits, ModelInfo, Usage
from tests.core.driver import Story, call, hand

RULES = Limits(min_output=50, final_output=50)
CHEAP = Usage(input=30, output=10)


def waiting(story: Story, *runs: str) -> list[str]:
    return [id for id in runs if isinstance(story.state(id), Short)]


def test_a_dollar_limit_just_too_low_is_noticed_where_writing_to_the_cache_costs_more() -> None:
    """The longest reply was computed from one price and asked for at another, and looked for for
    ever."""
    model = ModelInfo(
        name="m", max_output=1_000, price_in=100, price_out=500, price_cache_write=125
    )
    for nanos in range(20_000, 900_000, 7_919):
        story = Story(RULES, model)
        story.start(budget=Budget(usd=nanos / 1e9))
        assert story.is_("root") in ("Thinking", "Ended")
        if story.is_("root") == "Thinking" and not story.run("root").has_had_last_turn:
            story.reply("root", "x", call("look"), usage=Usage(input=40, output=10))
            story.tool("root")
            assert story.is_("root") in ("Thinking", "Ended")


def test_two_runs_with_grants_of_different_amounts_do_not_wait_for_each_other() -> None:
    story = Story(RULES)
    story.start(budget=Budget(tokens=6_000, turns=6))
    a, b = story.spawning(
        "root", hand("a", budget=Budget(tokens=3_000)), hand("b", budget=Budget(turns=4))
    )
    for _ in range(20):
        for id in (a, b):
            if story.is_(id) == "Thinking":
                story.reply(id, "", call("look"), usage=CHEAP)
                story.tool(id)
    assert [story.is_(id) for id in (a, b)] != ["Short", "Short"]
    assert "Ended" in [story.is_(id) for id in (a, b)]


def test_who_waits_for_one_amount_hears_when_another_came_back_that_it_lacks_by_then() -> None:
    """Below an account of its own in tokens a run waits for tokens, then for dollars that are held
    above."""
    story = Story(RULES)
    story.start(budget=Budget(usd=0.000_021))
    inner, outer = story.spawning("root", hand("i", budget=Budget(tokens=6_000)), hand("o" * 2_000))
    below = story.spawning(inner, hand("1" * 700), hand("2" * 700), hand("3" * 700))
    for _ in range(10):
        for id in (*below, outer):
            if story.is_(id) == "Thinking":
                story.reply(id, "x", usage=CHEAP)
    assert {story.ended(id) for id in (*below, outer)} == {("completed", "done")}


def test_a_grant_whose_runs_all_wait_for_mail_is_not_waited_for() -> None:
    story = Story(RULES)
    story.start(budget=Budget(tokens=11_000), children_on_end="cancel")
    (host,) = story.spawning(
        "root", hand("h", stay_open=True, join="none", budget=Budget(tokens=8_000))
    )
    story.reply("root", "", call("look"), usage=CHEAP)
    assert story.is_(host) == "Thinking"
    story.tool("root", text="y" * 800)
    assert story.is_("root") == "Short", "the host is at work: what it does not need comes back"
    story.reply(host, "ready", usage=CHEAP)
    assert story.is_(host) == "Waiting"
    assert story.is_("root") == "Thinking", "nobody would write to the host"


def test_a_run_that_asks_its_parent_is_not_waited_for_by_it() -> None:
    story = Story(RULES)
    story.start(budget=Budget(tokens=11_000), questions="deny")
    (child,) = story.spawning("root", hand("h", join="none", budget=Budget(tokens=8_000)))
    story.reply("root", "", call("look"), usage=CHEAP)
    story.tool("root", text="y" * 800)
    assert story.is_("root") == "Short"
    story.reply(child, "", call("look"), usage=CHEAP)
    story.post(child, Asked(question="which?", **story.address(child, 0)))
    assert story.is_(child) == "Asking"
    assert story.is_("root") == "Thinking"
    assert "which?" in story.texts("root")


def test_a_grant_whose_results_are_being_put_into_words_is_waited_for() -> None:
    story = Story(RULES)
    story.start(budget=Budget(tokens=11_000))
    (child,) = story.spawning("root", hand("h", join="none", budget=Budget(tokens=8_000)))
    story.reply("root", "", call("look"), usage=CHEAP)
    (below,) = story.spawning(child, hand("b", format_results=True))
    story.reply(below, "x", usage=CHEAP)
    assert story.is_(child) == "Waiting"
    story.tool("root", text="y" * 800)
    assert story.is_("root") == "Short"
    story.format_results(child)
    story.reply(child, "done", usage=CHEAP)
    assert story.is_("root") == "Thinking"
    assert not story.run("root").told_short


def crowd(n: int = 6, tokens: int = 5_600, **fields: object) -> tuple[Story, list[str]]:
    story = Story(RULES)
    story.start(budget=Budget(tokens=tokens))
    return story, story.spawning("root", *(hand("y" * 300, **fields) for _ in range(n)))


def test_who_waits_keeps_its_place_while_it_waits_for_a_slot() -> None:
    lane = Lane(name="l", size=2)
    story, children = crowd(lanes=(lane,))
    order = []
    for _ in range(40):
        busy = [c for c in children if story.is_(c) == "Thinking"]
        if not busy:
            break
        story.reply(busy[-1], "x", usage=CHEAP)
        order.append(busy[-1])
    assert sorted(order) == sorted(children)
    assert {story.ended(c) for c in children} == {("completed", "done")}


def test_places_in_line_are_kept_by_a_restart() -> None:
    story, children = crowd(9)
    short = waiting(story, *children)
    assert len(short) >= 5
    for id in reversed(story.crash()):
        run = story.found[id]
        at = {"epoch": story.trees.shared.epoch, "turn": run.turn, "attempt": run.attempt}
        story.post(id, Recovered(**at, unsent=(run.attempt,)))
    went_on: list[str] = []
    while len(went_on) < len(short):
        went_on += [c for c in short if c not in went_on and story.is_(c) != "Short"]
        busy = next(c for c in children if story.is_(c) == "Thinking")
        story.reply(busy, "x", usage=CHEAP)
    assert went_on == short


@pytest.mark.parametrize("then", ["fail", "wait"])
def test_tries_are_counted_over_a_wait_for_budget(then: str) -> None:
    """A stream that breaks costs something; the next try holds it anew, and may have to wait for
    that."""
    story = Story(RULES)
    story.start(budget=Budget(tokens=3_500))
    retry = Retry(attempts=3, base_ms=1, cap_ms=1, then=then)  # type: ignore[arg-type]
    a, b = story.spawning("root", hand("a" * 300, retry=retry), hand("b" * 300))
    assert [story.is_(c) for c in (a, b)] == ["Thinking", "Short"]
    story.fail(a, retry=True, usage=Usage(input=20, output=5))
    story.wake(a)
    assert [story.is_(c) for c in (a, b)] == ["Short", "Thinking"]
    story.reply(b, "x", usage=CHEAP)
    state = story.state(a)
    assert isinstance(state, Thinking)
    assert state.tries == 1
    story.fail(a, retry=True)
    story.wake(a)
    story.fail(a, retry=True)
    state = story.state(a)
    if then == "fail":
        assert story.ended(a) == ("failed", "server_error")
    else:
        assert isinstance(state, Thinking)
        assert state.waits_kind == "server_error"


def test_who_waits_for_its_provider_holds_nothing_that_others_wait_for() -> None:
    story = Story(RULES)
    story.start(budget=Budget(tokens=3_500))
    retry = Retry(attempts=1, base_ms=1, cap_ms=1, then="wait")
    a, b = story.spawning("root", hand("a" * 300, retry=retry), hand("b" * 300))
    assert [story.is_(c) for c in (a, b)] == ["Thinking", "Short"]
    story.fail(a, "quota", retry=True)
    assert story.is_(b) == "Thinking"
    story.wake(a)
    assert story.is_(a) == "Short"
    story.reply(b, "x", usage=CHEAP)
    story.reply(a, "x", usage=CHEAP)
    assert {story.ended(c) for c in (a, b)} == {("completed", "done")}
