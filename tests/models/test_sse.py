"""Server-sent events, however they are cut."""

from __future__ import annotations

import pytest

from retinue.errors import ModelRejected
from retinue.formats.sse import MAX_EVENT, SseParser

RAW = (
    b'\xef\xbb\xbf: comment\r\nevent: a\r\ndata: {"x"\r\ndata:1}\r\nid: 7\r\nretry: 5\r\n\r\n'
    b"data: b\n\ndata: c\r\rdata: z"
)
EVENTS = [("a", b'{"x"\n1}'), ("", b"b"), ("", b"c"), ("", b"z")]


@pytest.mark.parametrize("size", range(1, len(RAW) + 1))
def test_events_are_the_same_however_the_bytes_are_cut(size: int) -> None:
    events = SseParser()
    out = [e for n in range(0, len(RAW), size) for e in events.feed(RAW[n : n + size])]
    assert out + events.rest() == EVENTS


def test_an_event_without_data_is_none_and_its_name_is_forgotten() -> None:
    assert SseParser().feed(b"event: ping\n\ndata: x\n\n") == [("", b"x")]


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"data: " + b"x" * 65_536 + b"\n"])
def test_an_event_that_is_too_long_is_refused_before_it_is_kept(piece: bytes) -> None:
    events = SseParser()
    with pytest.raises(ModelRejected, match="8 MiB"):
        for _ in range(2 * MAX_EVENT // len(piece)):
            events.feed(piece)


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length() -> None:
    events = SseParser()
    events.feed(b"data: ")
    for _ in range(200_000):
        events.feed(b"abcdefgh")
    ((_, data),) = events.feed(b"\n\n")
    assert len(data) == 1_600_000
