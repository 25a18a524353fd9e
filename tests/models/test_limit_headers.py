"""What the headers of providers say: how long to wait, what is used up, and what is asked for."""

from __future__ import annotations

import pytest

from retinue.models.limit_headers import asked_for, limits_in, until, used_up
from tests.models.governor_world import NOW


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360.0),
        ("1.5s", 1.5),
        ("120ms", 0.12),
        ("1h2m3s", 3723.0),
        ("7", 7.0),
        ("-3", 0.0),
        ("2026-11-16T12:00:30Z", 30.0),
        ("2026-11-16T13:00:30+01:00", 30.0),
        ("Mon, 16 Nov 2026 12:01:00 GMT", 60.0),
        ("2020-01-01T00:00:00Z", 0.0),
        ("inf", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("5s; drop", 0.0),
    ],
)
def test_a_time_to_wait_is_read_in_every_form(text: str, seconds: float) -> None:
    assert until(text, {"date": NOW}) == pytest.approx(seconds)


def test_what_is_used_up_and_what_is_asked_for_is_found_in_headers() -> None:
    headers = {
        "X-RateLimit-Limit-Tokens": "1000",
        "X-RateLimit-Remaining-Tokens": "0",
        "X-RateLimit-Reset-Tokens": "6m0s",
        "X-RateLimit-Limit-Requests": "nonsense",
        "Retry-After-Ms": "1500",
        "Retry-After": "9",
    }
    assert limits_in(headers) == {"tokens": (1000.0, 0.0, 360.0)}
    assert used_up(headers) == 360.0
    assert asked_for(headers) == 1.5
    assert asked_for({"retry-after": "9"}) == 9.0
    assert asked_for({}) == used_up({}) == 0.0
