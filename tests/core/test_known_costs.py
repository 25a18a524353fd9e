"""What was counted and what is only a bound are told apart, in a run and in all accounts above
it."""

from __future__ import annotations

import msgspec
import pytest

from retinue.core.account import SURE, Account
from retinue.core.events import ModelFailed, Replied
from retinue.core.messages import AssistantMessage, ModelReply
from retinue.core.model_price import charged
from retinue.core.notices import notice_fields
from retinue.core.state import Thinking
from retinue.core.values import Budget, ModelInfo, Usage
from retinue.formats.money import bound, money
from retinue.models.usage_checks import RequestSize, believed
from tests.core.driver import MODEL, Story, call, hand


def test_what_is_counted_is_known() -> None:
    story = Story()
    story.start()
    story.reply("root", "done", usage=Usage(input=90, output=20))
    assert story.run("root").usage.cost_is_known
    assert story.accounts["root"].guess == SURE


def test_a_lost_call_is_a_bound_in_the_run_and_above_it_whoever_pays() -> None:
    story = Story()
    story.start(budget=Budget(tokens=100_000))
    granted, picture = story.spawning("root", hand(budget=Budget(tokens=20_000)), hand())
    bounds = []
    for child in (granted, picture):
        state = story.state(child)
        assert isinstance(state, Thinking)
        bounds.append(state.hold[:2])
        story.cancel(child)
        usage = story.run(child).usage
        assert (usage.estimated, usage.nanos_estimated, usage.nanos) == (
            *state.hold[:2],
            state.hold[1],
        )
        assert not usage.cost_is_known
        assert story.accounts[child].guess == (*state.hold[:2], 0)
    total = tuple(map(sum, zip(*bounds, strict=True)))
    assert story.accounts["root"].guess == (*total, 0)
    assert story.accounts["root"].spent[1] > total[1], "the lead's own turn is known"


@pytest.mark.parametrize("nanos", [0, 5_000])
def test_of_a_call_that_broke_off_only_what_nobody_counted_is_a_bound(nanos: int) -> None:
    """The prompt was counted (90 at 1), the reply was not (50 at most, at 5; without a cost of its
    own, at 1)."""
    story = Story()
    story.start()
    text = Usage(input=90, estimated=50, nanos=nanos, nanos_estimated=nanos // 2)
    story.post(
        "root",
        ModelFailed(attempt=1, kind="network", message="it broke off", retry=True, usage=text),
    )
    usage = story.run("root").usage
    assert (usage.input, usage.estimated) == (90, 50)
    assert usage.nanos == (nanos or 140)
    assert usage.nanos_estimated == (nanos // 2 or 50)
    assert story.accounts["root"].guess == (50, usage.nanos_estimated, 0)


def test_a_provider_that_counts_nothing_leaves_a_bound() -> None:
    story = Story()
    story.start(task="x" * 1_000)
    story.reply("root", "y" * 500, call(), usage=Usage())
    usage = story.run("root").usage
    assert usage.nanos_estimated == usage.nanos > 0


def test_tokens_without_a_price_are_counted_apart() -> None:
    story = Story(model=ModelInfo(name="m"))
    story.start()
    story.reply("root", "done", usage=Usage(input=90, output=20))
    assert story.accounts["root"].guess == (0, 0, 110)


def test_what_a_broken_stream_did_not_count_is_priced_apart() -> None:
    info = ModelInfo(name="m", price_in=10, price_out=100)
    used = believed(
        Usage(input=80, output=5),
        100,
        RequestSize(size=400, max_output=50, info=info),
        is_whole=False,
    )
    assert (used.input, used.output, used.estimated) == (80, 5, 20)
    assert (used.nanos, used.nanos_estimated) == (80 * 10 + 5 * 100 + 20 * 100, 20 * 100)
    assert used.plus(used).nanos_estimated == 2 * used.nanos_estimated


def test_rows_of_older_versions_are_read_as_before() -> None:
    usage = msgspec.json.decode(b'{"input":90,"estimated":7,"nanos":500}', type=Usage)
    assert (usage.tokens, usage.nanos, usage.nanos_estimated) == (97, 500, 0)
    account = msgspec.json.decode(b'{"id":"a","spent":[5,6,1,0]}', type=Account)
    assert account.guess == SURE
    assert b"guess" not in msgspec.json.encode(account)


def test_templates_say_at_most() -> None:
    story = Story()
    story.start()
    story.cancel("root")
    run = story.run("root")
    fields = notice_fields(story.specs["root"], run, story.ending("root"))
    assert fields["cost"] == f"at most {run.usage.usd:.4f}"
    assert fields["tokens"] == f"at most {run.usage.tokens}"


def test_what_a_model_does_not_price_itself_costs_what_was_counted_and_no_more() -> None:
    """Writing to the cache costs more than reading from it: what was counted is not charged as if
    all of it were written."""
    story = Story(
        model=ModelInfo(name="m", price_in=4, price_out=9, price_cache_read=1, price_cache_write=5)
    )
    story.start()
    story.reply("root", "done", usage=Usage(input=90, cache_read=50, cache_write=10, output=20))
    usage = story.run("root").usage
    assert usage.nanos == 30 * 4 + 50 * 1 + 10 * 5 + 20 * 9
    assert usage.cost_is_known and story.accounts["root"].guess == SURE


def test_what_a_reply_says_to_cost_nothing_costs_nothing() -> None:
    story = Story()
    story.start()
    message = AssistantMessage(text="done")
    reply = ModelReply(message=message, usage=Usage(input=90, output=20), is_priced=True)
    story.post("root", Replied(attempt=1, reply=reply))
    assert story.run("root").usage.nanos == 0


def test_a_bound_is_said_in_one_way() -> None:
    assert money(0.18) == "$0.18" and money(0.18, is_bound=True) == "at most $0.18"
    assert bound("7", is_bound=False) == "7" and bound("7", is_bound=True, is_short=True) == "≤7"
    assert charged(MODEL, Usage(input=10, output=2)) == Usage(input=10, output=2, nanos=20)
