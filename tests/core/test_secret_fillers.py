"""What may stand between the letters of a secret: sequences of terminals, what nobody sees, breaks
of base64."""

from __future__ import annotations

import base64
import json

import pytest

from retinue.core.redaction import Redactor
from retinue.formats.safe_text import several_lines

KEY = "cnryQw7Zx9Lm2Np4Rt6Yv8Bk3Jd5Hf1Gs0Ac"
LONG = "sk-ant-api03-" + "Qw7Zx9Lm2Np4Rt6Yv8Bk3Jd5Hf1Gs0Ac" * 2
FILLERS = {
    "sgr0": "\x1b(B\x1b[m",
    "shift in": "\x0f",
    "a link": "\x1b]8;;http://x\x1b\\",
    "a title": "\x1b]0;title\x07",
    "csi of 8 bits": "\x9b31m",
    "keypad": "\x1b=",
    "zero width": "\u200b",
    "joiner": "\u2060",
    "soft hyphen": "\u00ad",
    "direction": "\u202e",
    "tag": "\U000e0041",
    "NUL": "\0",
    "delete": "\x7f",
}


@pytest.mark.parametrize("filler", FILLERS.values(), ids=FILLERS)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_secret_is_seen_through_what_is_taken_away_before_it_is_shown(
    filler: str, size: int
) -> None:
    redactor = Redactor({"K": KEY})
    for text in (
        f"a {KEY[:4]}{filler}{KEY[4:]} b",
        f"{filler.join(KEY)} {filler}",
        f"ś{filler}{KEY[:9]}{filler}{KEY[9:]}",
    ):
        assert KEY not in several_lines(redactor.clean(text)) and "[redacted:K]" in redactor.clean(
            text
        )
        data, stream = text.encode(), redactor.byte_stream()
        out = (
            b"".join(stream.feed(data[i : i + size]) for i in range(0, len(data), size))
            + stream.close()
        )
        assert KEY not in several_lines(out.decode("utf-8", "replace")) and b"[redacted:K]" in out
    assert KEY not in json.loads(redactor.clean(json.dumps({"a": KEY[:4] + filler + KEY[4:]})))[
        "a"
    ].replace(filler, "")


def test_a_secret_inside_of_a_sequence_is_found_too() -> None:
    redactor = Redactor({"K": KEY})
    for text in (
        f"\x1b]0;{KEY}\x07{KEY[:5]}\x1b[m{KEY[5:]}",
        f"\x1b]8;;http://{KEY}\x1b\\x",
        f"\x1bP{KEY}",
        f"é{KEY}",
    ):
        assert KEY not in redactor.clean(text)


NUMBERED = {
    "diff": "+{line}",
    "removed": "-{line}",
    "context": " {line}",
    "graph": "| | +{line}",
    "cat -n": "{n:>6}\t{line}",
    "grep -n": "{n}:{line}",
    "search": "src/s.yaml:{n}:{line}",
    "blame": "^1a2b3c{n} (Ada Lovelace 2026-01-0{n} 10:00:00 +0000 {n:>3}) {line}",
    "blame -s": "1a2b3c{n}f {n}) {line}",
    "commented": "# {line}",
    "plain": "{line}",
}


@pytest.mark.parametrize("form", NUMBERED.values(), ids=NUMBERED)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_wrapped_base64_is_seen_through_what_stands_before_its_lines(form: str, end: str) -> None:
    redactor = Redactor({"K": LONG})
    for n_before in range(20, 60, 3):
        lines = (
            base64.encodebytes(b"x" * n_before + LONG.encode() + b"y" * 30).decode().splitlines()
        )
        text = end.join(form.format(n=n + 1, line=line) for n, line in enumerate(lines)) + end
        cleaned = redactor.clean(text)
        assert "[redacted:K]" in cleaned and cleaned.count("\n") == text.count("\n"), n_before
        assert lines[1][:20] not in cleaned, n_before
        for size in (1, 7, 50, 1000):
            data, stream = text.encode(), redactor.byte_stream()
            out = (
                b"".join(stream.feed(data[i : i + size]) for i in range(0, len(data), size))
                + stream.close()
            )
            assert out.decode() == cleaned, (n_before, size)


def test_what_only_looks_like_it_stays() -> None:
    redactor = Redactor({"K": LONG})
    text = "".join(f"{n}:{'QUJD' * 19}\n" for n in range(50)) + "ś\x9b a\u200bb\x1b[31mred\x1b[m\n"
    assert redactor.clean(text) is text
