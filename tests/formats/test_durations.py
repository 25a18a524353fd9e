"""Lengths of time: what is taken in every place where one is written, and what is refused."""

import pytest

from retinue.config.value_checks import duration
from retinue.formats.durations import seconds

TAKEN = {
    "90": 90,
    "1.5s": 1.5,
    "45s": 45,
    "10m": 600,
    "10 min": 600,
    "1.5h": 5_400,
    "1h30m": 5_400,
    "1h 30m": 5_400,
    "1m30": 90,
    "2d": 172_800,
    "1d2h3m4s5ms": 93_784.005,
    "250ms": 0.25,
    " 2H ": 7_200,
}
REFUSED = (
    "",
    "s",
    "1x",
    "h1",
    "30m1h",
    "1h1h",
    "-5s",
    "1..5s",
    "1e3",
    "9" * 10,
    "10 minutes",
    "1s ms",
    "∞",
)


@pytest.mark.parametrize("text", TAKEN)
def test_a_length_of_time_is_taken(text: str) -> None:
    assert seconds(text) == pytest.approx(TAKEN[text])
    assert duration(text) == pytest.approx(TAKEN[text])


@pytest.mark.parametrize("text", REFUSED)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration. Use e.g. 90, 45s, 10m, 1h30m or 2d"):
        seconds(text)


def test_a_huge_text_is_not_repeated_whole() -> None:
    with pytest.raises(ValueError) as refused:
        seconds("9" * 100_000)
    assert len(str(refused.value)) < 200
