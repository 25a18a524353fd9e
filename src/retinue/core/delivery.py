"""The states of an announcement: pending, sent, acked; or dead after a limited number of tries,
which a user can undo."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from retinue.core.events import Acked, Bounced, Dropped, Requeued, Sent
from retinue.core.ids import digest
from retinue.core.values import Delivery, Limits
from retinue.errors import InvalidTransition


def step_delivery(
    delivery: Delivery, event: Sent | Acked | Bounced | Requeued | Dropped, at: int, limits: Limits
) -> Delivery:
    match event:
        case Sent():
            _must(delivery, event, "pending", "sent")
            text, note = delivery.text or event.text, delivery.note or event.note
            return replace(
                delivery, state="sent", text=text, note=note, attempts=delivery.attempts + 1
            )
        case Acked():
            _must(delivery, event, "sent")
            return replace(delivery, state="acked", error="")
        case Bounced():
            _must(delivery, event, "sent")
            # What was sent again after a crash was not refused: only refusals use up the tries.
            delivery = replace(delivery, bounces=delivery.bounces + 1, error=event.error)
            if delivery.bounces >= limits.delivery_tries:
                return replace(delivery, state="dead")
            ceiling = min(
                limits.delivery_cap_ms, limits.delivery_base_ms << min(delivery.attempts, 20)
            )
            wait = int(digest(delivery.key, delivery.attempts)[:8], 16) % (max(0, ceiling) + 1)
            return replace(delivery, state="pending", next_at=at + wait)
        case Requeued():
            _must(delivery, event, "dead")
            return replace(delivery, state="pending", bounces=0, next_at=at)
        case Dropped():
            _must(delivery, event, "dead", "pending")
            return replace(delivery, state="suppressed")
        case _:
            assert_never(event)


def _must(delivery: Delivery, event: object, *states: str) -> None:
    if delivery.state not in states:
        raise InvalidTransition(f"{type(event).__name__} for a delivery that is {delivery.state}")
