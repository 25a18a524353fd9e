"""Server-sent events, however they are cut."""

from __future__ import annotations

import pytest

from retinue.errors import ModelRejected
from retinue.formats.sse import SseParser
from retinue.models.reply_body import MAX_EVENT, event_parser

RAW = (
    b'\xef\xbb\xbf: comment\r\nevent: a\r\ndata: {"x"\r\ndata:1}\r\nid: 7\r\nretry: 5\r\n\r\n'
    b"data: b\n\ndata: c\r\rdata: z"
)
EVENTS = [("a", b'{"x"\n1}'), ("", b"b"), ("", b"c"), ("", b"z")]


def refused() -> None:
    raise AssertionError("an event was too large")


@pytest.mark.parametrize("size", range(1, len(RAW) + 1))
def test_events_are_the_same_however_the_bytes_are_cut(size: int) -> None:
    events = SseParser(1_000, refused)
    out = [e for n in range(0, len(RAW), size) for e in events.feed(RAW[n : n + size])]
    assert out + events.rest() == EVENTS
    assert (events.last_id, events.retry) == ("7", 0.005)


def test_an_event_without_data_is_none_and_its_name_is_forgotten() -> None:
    events = SseParser(1_000, refused)
    assert events.feed(b"event: ping\nid: 3\n\ndata: x\n\n") == [("", b"x")]
    assert events.last_id == "3"


def test_the_last_id_is_that_of_an_event_that_is_whole() -> None:
    events = SseParser(1_000, refused)
    events.feed(b"id: 1\ndata: x\n\nid: 2\ndata: y\n")
    assert events.last_id == "1"
    assert events.feed(b"\n") == [("", b"y")]
    assert events.last_id == "2"


@pytest.mark.parametrize("line", [b"id: a\0b", b"id: " + b"x" * 1_025, b"id"])
def test_an_id_that_cannot_be_sent_back_is_not_kept(line: bytes) -> None:
    events = SseParser(10_000, refused)
    events.feed(line + b"\ndata: x\n\n")
    assert events.last_id == ""


@pytest.mark.parametrize("value", [b"soon", b"-1", b"1.5", b"9" * 10, b""])
def test_a_pause_that_is_no_number_is_not_kept(value: bytes) -> None:
    events = SseParser(1_000, refused)
    events.feed(b"retry: " + value + b"\n\n")
    assert events.retry is None


LARGE = (
    b"id: 1\ndata: first\n\nid: 2\ndata:" + b"z" * 200 + b"\ndata: more\nid: 3\n\ndata: after\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 5, 7, len(LARGE)])
def test_of_an_event_that_is_too_large_nothing_is_kept_and_the_next_is_found(size: int) -> None:
    numbers: list[int] = []
    events = SseParser(100, lambda: numbers.append(1))
    out = [e for n in range(0, len(LARGE), size) for e in events.feed(LARGE[n : n + size])]
    assert out == [("", b"first"), ("", b"after")]
    assert numbers == [1]
    assert events.last_id == "3"


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_the_end_of_a_line_that_is_too_long_is_not_a_field(size: int) -> None:
    numbers: list[int] = []
    events = SseParser(50, lambda: numbers.append(1))
    raw = b"data: " + b"x" * 60 + b"id: 666" + b"\n\ndata: y\n\n"
    out = [e for n in range(0, len(raw), size) for e in events.feed(raw[n : n + size])]
    assert (out, numbers, events.last_id) == ([("", b"y")], [1], "")


@pytest.mark.parametrize("size", [1, 7, 1_000])
@pytest.mark.parametrize(("n", "n_told"), [(100, 0), (101, 1)])
def test_the_cap_is_the_same_however_the_bytes_are_cut(size: int, n: int, n_told: int) -> None:
    numbers: list[int] = []
    events = SseParser(100, lambda: numbers.append(1))
    raw = b"data: " + b"x" * n + b"\n\n"
    out = [e for k in range(0, len(raw), size) for e in events.feed(raw[k : k + size])]
    assert (len(out), len(numbers)) == (1 - n_told, n_told)


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"data: " + b"x" * 65_536 + b"\n"])
def test_an_event_that_is_too_long_is_refused_before_it_is_kept(piece: bytes) -> None:
    events = event_parser()
    with pytest.raises(ModelRejected, match="8 MiB"):
        for _ in range(2 * MAX_EVENT // len(piece)):
            events.feed(piece)


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length() -> None:
    events = event_parser()
    events.feed(b"data: ")
    for _ in range(200_000):
        events.feed(b"abcdefgh")
    ((_, data),) = events.feed(b"\n\n")
    assert len(data) == 1_600_000
