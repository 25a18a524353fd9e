"""An announcement on its way out, step by step; and what may be forgotten."""

from __future__ import annotations

import pytest

from retinue.core.delivery import step_delivery
from retinue.core.effects import ScheduleDelivery, SendDelivery
from retinue.core.events import Acked, Bounced, Dropped, Forgotten, Requeued, Sent
from retinue.core.values import Delivery, Limits, Origin
from retinue.errors import InvalidTransition
from tests.core.driver import Story, hand

EVENTS = {
    "sent": Sent(key="k"),
    "acked": Acked(key="k"),
    "bounced": Bounced(key="k", error="no"),
    "requeued": Requeued(key="k"),
    "dropped": Dropped(key="k"),
}
TAKEN = {
    "pending": {"sent": "sent", "dropped": "suppressed"},
    "sent": {"sent": "sent", "acked": "acked", "bounced": "pending"},
    "acked": {},
    "suppressed": {},
    "dead": {"requeued": "pending", "dropped": "suppressed"},
}


@pytest.mark.parametrize("state", list(TAKEN))
@pytest.mark.parametrize("event", list(EVENTS))
def test_each_state_takes_its_events_and_no_others(state: str, event: str) -> None:
    delivery = Delivery(key="k", run="r", origin=Origin(), text="x", state=state, attempts=1)
    if event in TAKEN[state]:
        assert step_delivery(delivery, EVENTS[event], 0, Limits()).state == TAKEN[state][event]
    else:
        with pytest.raises(InvalidTransition):
            step_delivery(delivery, EVENTS[event], 0, Limits())


def announced() -> tuple[Story, str]:
    story = Story(Limits(delivery_tries=3, delivery_base_ms=100, delivery_cap_ms=1_000))
    story.start(announce=True, origin=Origin(channel="chat"))
    story.reply("root", "done")
    (key,) = story.deliveries
    return story, key


def test_an_announcement_is_due_at_once_and_gone_when_it_is_acked() -> None:
    story, key = announced()
    assert ScheduleDelivery(key=key, at=story.now) in story.effects
    story.post("", Sent(key=key))
    assert story.effects[-1] == SendDelivery(key=key)
    story.post("", Acked(key=key))
    assert story.deliveries[key].state == "acked"
    assert story.trees.index.deliveries == {}
    assert "not open" in story.post("", Acked(key=key))


def test_a_bounce_waits_longer_each_time_and_then_is_dead() -> None:
    story, key = announced()
    for tries in (1, 2):
        story.post("", Sent(key=key))
        story.post("", Bounced(key=key, error="busy"))
        delivery = story.deliveries[key]
        assert (delivery.state, delivery.attempts) == ("pending", tries)
        assert story.now <= delivery.next_at <= story.now + 100 * 2**tries
        assert story.effects[-1] == ScheduleDelivery(key=key, at=delivery.next_at)
    story.post("", Sent(key=key))
    story.post("", Bounced(key=key, error="gone"))
    assert (story.deliveries[key].state, story.deliveries[key].error) == ("dead", "gone")
    assert key in story.trees.index.deliveries


def test_a_dead_one_can_be_sent_again_or_dropped() -> None:
    story, key = announced()
    for _ in range(3):
        story.post("", Sent(key=key))
        story.post("", Bounced(key=key, error="busy"))
    assert story.post("", Requeued(key=key)) == ""
    assert (story.deliveries[key].state, story.deliveries[key].bounces) == ("pending", 0)
    assert story.post("", Dropped(key=key)) == ""
    assert story.deliveries[key].state == "suppressed"
    assert story.trees.index.deliveries == {}


def test_one_completion_has_one_key_whatever_is_tried() -> None:
    one, key = announced()
    _, other = announced()
    assert key == other
    one.post("", Sent(key=key))
    one.post("", Bounced(key=key, error="x"))
    assert list(one.deliveries) == [key]


def test_a_delivery_survives_a_restart() -> None:
    story, key = announced()
    story.post("", Sent(key=key))
    story.restart()
    assert story.post("", Sent(key=key)) == ""
    assert story.post("", Acked(key=key)) == ""


def test_an_unknown_delivery_is_refused() -> None:
    story = Story()
    for event in EVENTS.values():
        assert "not open" in story.post("", event)


def test_an_open_root_cannot_be_forgotten() -> None:
    story = Story()
    story.start(children_on_end="keep")
    (child,) = story.spawning("root", hand(join="none"))
    assert "still open" in story.post("", Forgotten(root="root"))
    story.reply("root", "done")
    assert "still open" in story.post("", Forgotten(root="root"))
    story.reply(child, "x")
    assert story.post("", Forgotten(root="root")) == ""
    assert story.forgotten == ["root"]


def test_what_still_has_to_be_announced_cannot_be_forgotten() -> None:
    story, key = announced()
    assert story.post("", Forgotten(root="root")) != ""
    story.post("", Sent(key=key))
    story.post("", Acked(key=key))
    assert story.post("", Forgotten(root="root")) == ""
