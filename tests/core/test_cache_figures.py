"""Price tags in the machine: what a child is expected to read from the provider's cache, and what
is counted after."""

from __future__ import annotations

from typing import Any

from retinue.core.cache_figures import LASTS_MS, Cached, Tag
from retinue.core.spec import History, RunRequest
from retinue.core.values import ModelInfo, Usage
from tests.core.driver import Story, call

PRICED = ModelInfo(
    name="m",
    window=1_000_000,
    max_output=1_000,
    price_in=10,
    price_out=50,
    price_cache_read=1,
    price_cache_write=12,
    cache_tokens=1_000,
    shared_tokens=2_000,
)
INSTRUCTIONS = "x" * 12_000
"""Three thousand tokens."""


def story(model: ModelInfo = PRICED) -> Story:
    story = Story(model=model)
    for name in ("boss", "hand"):
        story.define(
            name, agents=("boss", "hand"), instructions=INSTRUCTIONS, prompt_bytes=len(INSTRUCTIONS)
        )
    return story


def hired(story: Story, *spawns: RunRequest, prompt: int = 50_000, **usage: Any) -> list[Tag]:
    """The tags of children that the root hires after a reply to so long a prompt."""
    story.reply("root", "", call("hire"), usage=Usage(input=prompt, output=500, **usage))
    before = set(story.specs)
    assert story.order("root", *spawns) == ""
    return [
        tag
        for id, spec in story.specs.items()
        if id not in before and (tag := spec.tag) is not None
    ]


def forks(n: int, **order: Any) -> list[RunRequest]:
    return [
        RunRequest(agent="boss", task="", history=History(kind="fork"), **order) for _ in range(n)
    ]


def test_a_fork_of_what_was_just_sent_reads_all_of_it() -> None:
    driver = story()
    driver.start()
    tags = hired(driver, *forks(3))
    assert tags == [Tag(prompt=50_000, cached=50_000, nanos=50_000, plain_nanos=500_000)] * 3


def test_a_fork_after_the_cache_has_forgotten_writes_once() -> None:
    driver = story()
    driver.start()
    driver.reply("root", "", call("hire"), usage=Usage(input=50_000, output=500))
    driver.later(LASTS_MS)
    driver.order("root", *forks(3))
    first, *others = [spec.tag for spec in driver.specs.values() if spec.parent]
    assert first == Tag(prompt=50_000, cached=0, nanos=600_000, plain_nanos=500_000)
    assert others == [Tag(prompt=50_000, cached=50_000, nanos=50_000, plain_nanos=500_000)] * 2


def test_a_fork_to_another_agent_shares_nothing_with_its_parent_but_with_its_siblings() -> None:
    driver = story()
    driver.start()
    spawns = [RunRequest(agent="hand", task="", history=History(kind="fork")) for _ in range(3)]
    assert [tag.cached for tag in hired(driver, *spawns)] == [0, 50_000, 50_000]


def test_a_fork_with_other_instructions_is_not_what_was_sent() -> None:
    driver = story()
    driver.start()
    assert [tag.cached for tag in hired(driver, *forks(2, instructions="Be brief."))] == [0, 47_002]


def test_children_of_one_agent_share_their_instructions_over_several_calls() -> None:
    driver = story()
    driver.start()
    driver.reply("root", "", call("hire"), call("hire"), usage=Usage(input=50_000, output=500))
    hand = RunRequest(agent="hand", task="y" * 400)
    driver.order("root", hand, index=0)
    driver.order("root", hand, index=1)
    first, second = [spec.tag for spec in driver.specs.values() if spec.parent]
    assert first == Tag(prompt=3_100, cached=0, nanos=3_100 * 12, plain_nanos=31_000)
    assert second == Tag(prompt=3_100, cached=3_000, nanos=3_000 + 100 * 12, plain_nanos=31_000)


def test_what_nobody_waits_for_is_not_expected() -> None:
    driver = story(ModelInfo(**{**_fields(), "shared_tokens": 3_001}))
    driver.start()
    assert [tag.cached for tag in hired(driver, *[RunRequest(agent="hand", task="")] * 3)] == [
        0,
        0,
        0,
    ]


def test_without_a_cache_the_price_is_the_same() -> None:
    driver = story(ModelInfo(**{**_fields(), "cache_tokens": 0, "shared_tokens": 0}))
    driver.start()
    assert hired(driver, *forks(1)) == [Tag(prompt=50_000, nanos=500_000, plain_nanos=500_000)]


def test_an_unknown_price_is_none() -> None:
    driver = story(ModelInfo(name="m", max_output=1_000, cache_tokens=1_000, shared_tokens=0))
    driver.start()
    assert hired(driver, *forks(1)) == [Tag(prompt=50_000, cached=50_000)]
    (child,) = driver.children("root")
    driver.reply(
        child, "done", usage=Usage(input=50_000, output=5, cache_read=49_000, cache_write=1_000)
    )
    assert driver.run(child).cache == Cached(
        expected=50_000, read=49_000, written=1_000, unpriced=50_000
    )


def test_what_was_expected_and_what_came_is_counted_for_everybody_above() -> None:
    driver = story()
    driver.start()
    hired(driver, *forks(2), cache_write=50_000)
    hit, missed = driver.children("root")
    driver.reply(hit, "done", usage=Usage(input=50_000, output=5, cache_read=50_000))
    driver.reply(missed, "done", usage=Usage(input=50_000, output=5, cache_write=50_000))
    assert driver.run(hit).cache == Cached(
        expected=50_000, read=50_000, expected_nanos=450_000, saved_nanos=450_000
    )
    assert driver.run(missed).cache == Cached(
        expected=50_000, written=50_000, expected_nanos=450_000, saved_nanos=-100_000
    )
    first = Cached(written=50_000, expected_nanos=-100_000, saved_nanos=-100_000)
    assert driver.run("root").cache == first, "the first prompt of all is written"
    total = first.plus(driver.run(hit).cache).plus(driver.run(missed).cache)
    assert driver.account("root").cache == total


def test_the_next_turn_reads_what_the_last_has_sent() -> None:
    driver = story()
    driver.start()
    driver.reply("root", "", call("look"), usage=Usage(input=5_000, output=10))
    driver.tool("root")
    driver.reply("root", "", call("look"), usage=Usage(input=6_000, output=10, cache_read=5_000))
    assert driver.run("root").cache.expected == driver.run("root").cache.read == 5_000
    driver.later(LASTS_MS)
    driver.tool("root")
    driver.reply("root", "done", usage=Usage(input=7_000, output=10))
    assert driver.run("root").cache.expected == 5_000, "after so long nothing is expected"


def test_a_call_that_broke_off_counts_as_far_as_it_came() -> None:
    driver = story()
    driver.start()
    hired(driver, *forks(1))
    (child,) = driver.children("root")
    driver.fail(child, retry=True, usage=Usage(input=50_000, output=1, cache_read=50_000))
    assert driver.run(child).cache == Cached(
        expected=50_000, read=50_000, expected_nanos=450_000, saved_nanos=450_000
    )


def test_no_more_is_expected_than_there_is() -> None:
    driver = story()
    driver.start()
    hired(driver, *forks(1))
    (child,) = driver.children("root")
    driver.reply(child, "done", usage=Usage(input=40_000, output=5, cache_read=40_000))
    assert driver.run(child).cache.expected == 40_000


def _fields() -> dict[str, Any]:
    return {name: getattr(PRICED, name) for name in PRICED.__struct_fields__}
