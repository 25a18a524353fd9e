"""Heads and chunks of answers, by themselves: what is read, what is refused, and that cutting the
bytes makes no difference. aiohttp's parser is the oracle."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import http_exceptions
from aiohttp.http_parser import HttpResponseParser
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.models.answer_head import (
    CHUNKED,
    MAX_FIELDS,
    UNTIL_CLOSED,
    AnswerHead,
    NotHttp,
    ends_at,
)
from retinue.models.chunked_body import MAX_LINE, MAX_TRAILERS, BrokenBody, Chunks


def head(*lines: str, end: str = "\r\n") -> AnswerHead:
    return AnswerHead(end.join([*lines, "", ""]).encode("latin-1"))


def test_a_head_tells_its_status_its_headers_and_the_length_of_its_body() -> None:
    text = head("HTTP/1.1 200 OK", "Content-Type: a/b", "X-A:1", "x-a:  2 \t", "Content-Length: 12")
    assert (text.status, text.length, text.is_kept, text.life) == (200, 12, True, None)
    assert text.headers == {"content-type": "a/b", "x-a": "1, 2", "content-length": "12"}


@pytest.mark.parametrize(
    ("lines", "length", "is_kept"),
    [
        (["HTTP/1.1 200"], UNTIL_CLOSED, True),
        (["HTTP/1.1 200 "], UNTIL_CLOSED, True),
        (["HTTP/1.1 200 OK", "Transfer-Encoding: Chunked"], CHUNKED, True),
        (["HTTP/1.1 200 OK", "connection: Close"], UNTIL_CLOSED, False),
        (["HTTP/1.1 200 OK", "connection: x, close"], UNTIL_CLOSED, False),
        (["HTTP/1.0 200 OK", "content-length: 0"], 0, False),
        (["HTTP/1.0 200 OK", "content-length: 0", "connection: Keep-Alive"], 0, True),
        (["HTTP/1.1 204 No", "content-length: 5"], 0, True),
        (["HTTP/1.1 304 No", "transfer-encoding: chunked"], 0, True),
        (["HTTP/1.1 101 Other"], UNTIL_CLOSED, True),
    ],
)
def test_the_end_of_a_body_is_told_in_one_of_the_known_ways(
    lines: list[str], length: int, is_kept: bool
) -> None:
    for end in ("\r\n", "\n"):
        text = head(*lines, end=end)
        assert (text.length, text.is_kept) == (length, is_kept)


@pytest.mark.parametrize(
    "lines",
    [
        ["HTTP/1.1 200 OK", "content-length: 1", "content-length: 2"],
        ["HTTP/1.1 200 OK", "content-length: 1", "content-length: 1"],
        ["HTTP/1.1 200 OK", "content-length: -1"],
        ["HTTP/1.1 200 OK", "content-length: +1"],
        ["HTTP/1.1 200 OK", "content-length: 0x10"],
        ["HTTP/1.1 200 OK", "content-length: 1_000"],
        ["HTTP/1.1 200 OK", "content-length: \u00b2"],
        ["HTTP/1.1 200 OK", "content-length:"],
        ["HTTP/1.1 200 OK", f"content-length: {'9' * 16}"],
        ["HTTP/1.1 200 OK", "content-length: 5", "transfer-encoding: chunked"],
        ["HTTP/1.1 200 OK", "transfer-encoding: gzip, chunked"],
        ["HTTP/1.1 200 OK", "transfer-encoding: chunked", "transfer-encoding: chunked"],
        ["HTTP/1.1 200 OK", "x: a\0b"],
        ["HTTP/1.1 200 OK", "x: a\rb"],
        ["HTTP/1.1 200 OK", "x : a"],
        ["HTTP/1.1 200 OK", ": a"],
        ["HTTP/1.1 200 OK", "no colon"],
        ["HTTP/1.1 200 OK", " folded: before any header"],
        ["HTTP/1.1 20 OK"],
        ["HTTP/1.1 2000 OK"],
        ["HTTP/1.1 099 OK"],
        ["HTTP/2.0 200 OK"],
        ["HTTP/1.1  200 OK"],
        ["http/1.1 200 OK"],
        ["ICY 200 OK"],
        ["HTTP/1.1 200 OK", *(f"x{i}: a" for i in range(MAX_FIELDS + 1))],
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(lines: list[str]) -> None:
    with pytest.raises(NotHttp):
        head(*lines)


def test_a_value_that_goes_on_in_the_next_line_is_one_value() -> None:
    assert head("HTTP/1.1 200 OK", "x: a", "  b", "\tc", "y: d").headers == {"x": "a b c", "y": "d"}


def test_how_long_a_connection_lives_may_be_told() -> None:
    assert head("HTTP/1.1 200 OK", "keep-alive: timeout=5, max=100").life == 5.0
    assert head("HTTP/1.1 200 OK", "keep-alive: timeout=x").life is None


def test_only_an_empty_line_ends_a_head() -> None:
    whole = b"HTTP/1.1 200 OK\r\nx: a\r\n\r\n"
    assert ends_at(whole + b"body") == len(whole) and not any(
        ends_at(whole[:n]) for n in range(len(whole))
    )
    assert ends_at(b"HTTP/1.1 200 OK\n\nbody\r\n\r\n") == 17


# the oracle


def by_aiohttp(data: bytes) -> Any:
    """Status and headers as aiohttp reads them, None when it refuses them, or does not see the
    end."""
    loop = Mock()
    parser = HttpResponseParser(Mock(), loop, 2**16, max_line_size=1 << 16, max_field_size=1 << 16)
    try:
        messages, _, _ = parser.feed_data(data)
    except http_exceptions.HttpProcessingError:
        return None
    if not messages:
        return None
    message = messages[0][0]
    return message.code, sorted((name.lower(), value) for name, value in message.headers.items())


names = st.sampled_from(
    ["x", "content-length", "transfer-encoding", "connection", "Keep-Alive", "x y", "", "Date"]
)
values = st.sampled_from(
    ["", "5", "05", "-1", "chunked", "gzip", "close", "a\tb", "a\0", " 7 ", "1,1", "\u00ff", "a:b"]
)
lines = st.lists(st.tuples(names, values), max_size=5)


@settings(max_examples=400, deadline=None)
@given(
    lines,
    st.sampled_from(["200", "204", "429", "99", "1000", "2x0"]),
    st.sampled_from(["\r\n", "\n"]),
)
def test_what_aiohttp_refuses_is_refused_and_what_is_read_is_read_alike(
    fields: list[tuple[str, str]], status: str, end: str
) -> None:
    data = end.join([f"HTTP/1.1 {status} Said", *(f"{n}: {v}" for n, v in fields), "", ""]).encode(
        "latin-1"
    )
    try:
        ours = AnswerHead(data)
    except NotHttp:
        return
    theirs = by_aiohttp(data)
    assert theirs is not None, "a head that aiohttp refuses"
    assert ours.status == theirs[0]
    if all(value.isascii() for _, value in fields):
        joined: dict[str, list[str]] = {}
        for name, value in fields:
            joined.setdefault(name.lower(), []).append(value.strip(" \t"))
        assert ours.headers == {name: ", ".join(result) for name, result in joined.items()}
        assert sorted(joined) == sorted({name for name, _ in theirs[1]})


# chunks


def fed(data: bytes, cuts: list[int]) -> tuple[bytes, bool, bytes]:
    chunks, out, places = (
        Chunks(),
        b"",
        sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)}),
    )
    for start, stop in itertools.pairwise(places):
        if chunks.is_done:
            return out, True, data[start - len(chunks.rest) :]
        out += b"".join(chunks.feed(data[start:stop]))
    return out, chunks.is_done, chunks.rest


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 1 << 12), max_size=12),
    st.sampled_from([b"\r\n", b"\n"]),
    st.sampled_from([b"", b";a=b", b"  ;x"]),
    st.sampled_from([b"", b"x: y\r\n"]),
    st.sampled_from([b"", b"more"]),
)
def test_chunks_are_the_same_however_they_are_cut(
    parts: list[bytes], cuts: list[int], end: bytes, extension: bytes, trailer: bytes, more: bytes
) -> None:
    data = b"".join(b"%x%b%b%b%b" % (len(p), extension, end, p, end) for p in parts)
    data += b"0" + end + trailer + end
    assert fed(data + more, cuts) == (b"".join(parts), True, more)
    assert fed(data[:-1], cuts)[1] is False


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"-1\r\n",
        b"\r\n5\r\nhello",
        b"0x5\r\nhello",
        b"5 5\r\nhello",
        b"5;\0\r\nhello",
        b"1" * 16 + b"\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhello5\r\nhello",
        b"5\r\nhello\r\r\n",
        b"5;" + b"x" * MAX_LINE,
        b"0\r\n" + b"x: y\r\n" * (MAX_TRAILERS // 6 + 1),
        b"0\r\n" + b"x" * (MAX_TRAILERS + 1),
    ],
)
def test_what_is_no_chunk_breaks_the_body(data: bytes) -> None:
    with pytest.raises(BrokenBody):
        Chunks().feed(data)
    with pytest.raises(BrokenBody):
        one = Chunks()
        for at in range(len(data)):
            one.feed(data[at : at + 1])
