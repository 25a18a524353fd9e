"""Secrets in data that comes in pieces, between what nobody reads, and those that are learned
late."""

from __future__ import annotations

import base64
import random
import textwrap

import pytest

from retinue.core.redaction import Redactor
from retinue.core.secret_values import secrets_of

KEY = "sk-live-4fQz81xY7LmN0pRsT2uV5wX9"
OTHER = "Zr8kWq3nT6vB1mX5cD9fG2hJ7pL4sA0e"
MARK = b"[redacted:KEY]"


def cut_everywhere(data: bytes, redactor: Redactor) -> list[bytes]:
    """What a stream shows of the data when it is cut in two, at each place; and byte by byte."""
    rows = []
    for position in range(len(data) + 1):
        stream = redactor.byte_stream()
        rows.append(stream.feed(data[:position]) + stream.feed(data[position:]) + stream.close())
    stream = redactor.byte_stream()
    rows.append(b"".join(stream.feed(data[i : i + 1]) for i in range(len(data))) + stream.close())
    return rows


@pytest.mark.parametrize("before", [b"", b"a", b"ab"])
def test_no_cut_shows_a_part_of_a_secret_or_of_its_base64(before: bytes) -> None:
    redactor = Redactor({"KEY": KEY})
    for data in (
        KEY.encode(),
        base64.b64encode(before + KEY.encode() + b"!"),
        KEY.encode().hex().encode(),
    ):
        for pieces in cut_everywhere(b"\xff<" + data + b">\x80", redactor):
            assert pieces.startswith(b"\xff<") and pieces.endswith(b">\x80")
            assert MARK in pieces and len(pieces) < len(MARK) + 12


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_base64_that_is_wrapped_hides_nothing(width: int, end: str) -> None:
    redactor, chance = Redactor({"KEY": KEY}), random.Random(3)
    for n_before in range(90):
        data = chance.randbytes(n_before) + KEY.encode() + chance.randbytes(60)
        whole = base64.b64encode(data).decode()
        text = end.join(textwrap.wrap(whole, width)).encode()
        stream = redactor.byte_stream()
        pieces = (
            b"".join(stream.feed(text[i : i + 7]) for i in range(0, len(text), 7)) + stream.close()
        )
        for output in (redactor.clean_bytes(text), redactor.clean(text.decode()).encode(), pieces):
            rest = b"".join(output.replace(MARK, b"-").split())
            assert MARK in output, (n_before, text)
            assert KEY[3:-3].encode() not in base64.b64decode(
                rest.partition(b"-")[0][: len(rest) // 4 * 4] + b"=="
            )


@pytest.mark.parametrize("form", ["utf-16-le", "utf-16-be"])
def test_a_secret_in_utf_16_is_found(form: str) -> None:
    redactor = Redactor({"KEY": KEY})
    data = f"key={KEY}\r\n".encode(form)
    for output in [redactor.clean_bytes(data), *cut_everywhere(data, redactor)]:
        assert MARK in output
        assert KEY[4:12].encode() not in output.replace(b"\0", b"")


def test_colours_inside_of_a_secret_do_not_hide_it() -> None:
    redactor = Redactor({"KEY": KEY})
    data = f"\x1b[35m.env\x1b[m:KEY=\x1b[01;31m\x1b[K{KEY[:7]}\x1b[m\x1b[K{KEY[7:]}\n".encode()
    for output in [redactor.clean_bytes(data), *cut_everywhere(data, redactor)]:
        assert MARK in output
        assert KEY[7:15].encode() not in output


def test_what_cannot_become_a_secret_is_shown_at_once() -> None:
    stream = Redactor({"KEY": KEY}).byte_stream()
    assert stream.feed(b"Listening on port 8080.\n") == b"Listening on port 8080.\n"
    assert stream.feed(b"a prompt: ") == b"a prompt: "


def test_a_redactor_learns_while_it_is_used_and_forgets_nothing() -> None:
    redactor = Redactor({"KEY": KEY})
    stream = redactor.byte_stream()
    assert stream.feed(b"one ") == b"one "
    redactor.learn({"OTHER": OTHER, "SHORT": "abc"})
    events = stream.feed(f"{OTHER} and {KEY}.".encode()) + stream.close()
    assert events == b"[redacted:OTHER] and [redacted:KEY]."
    assert redactor.clean(f"{OTHER}{KEY}") == "[redacted:OTHER][redacted:KEY]"
    assert redactor.clean("abc") == "abc"


def test_many_long_rows_without_a_secret_do_not_hide_one_that_is_there() -> None:
    chance = random.Random(5)
    for before in range(16):
        rows = [chance.randbytes(20).hex() for _ in range(400)]
        text = "x" * before + " " + "\n".join([*rows[:200], KEY, *rows[200:]])
        cleaned = Redactor({"KEY": KEY}).clean(text)
        assert KEY not in cleaned and MARK.decode() in cleaned


def test_the_secret_of_a_header_is_known_with_and_without_its_scheme() -> None:
    basic = base64.b64encode(b"ada:correct-horse-battery").decode()
    secrets = set(
        secrets_of({"AUTHORIZATION": f"Bearer {OTHER}", "PROXY_AUTH": f"Basic {basic}"}).values()
    )
    assert {OTHER, basic, "correct-horse-battery"} <= secrets
