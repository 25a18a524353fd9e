"""Finds secrets in bytes, in any spelling."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from retinue.core import secret_forms, secret_spellings
from retinue.core.secret_spellings import Units

LEAST = 8
"""Shorter values are not taken: they occur in ordinary text ("true", "admin", "3306"), and each
mark left in such a place would tell a reader what the secret is."""
GRAM = 8
RUN = 2 * GRAM - 1
"""So many letters and digits in a row are rare in clean text and common in keys and their
encodings. Wherever one that is longer is divided into parts of `GRAM`, one of them lies inside of
it."""
FILLED = 32
"""Behind so many times the longest form, with something between its letters, its beginning is not
looked for."""
DENSE = 1_024
"""With more than one such row in so many bytes, one look at all bytes is faster than one at each
row."""
_CLASSES = bytes(120 if i < 128 and chr(i).isalnum() else 32 for i in range(256))
_ROW = b" " + b"x" * RUN


class SecretMatcher:
    """All forms of all secrets, each with the mark that takes its place."""

    def __init__(self, named: Mapping[str, str]) -> None:
        marks = {name: _mark(name.partition(" ")[0], named).encode() for name in named.values()}
        forms = [
            (marks[name], units)
            for value, name in named.items()
            for units in secret_spellings.forms(value)
        ]
        self._forms = sorted(forms, key=lambda form: -len(form[1]))
        self._grams: dict[bytes, set[int]] = {}
        self._needles: dict[bytes, set[int]] = {}
        self._by_start: dict[bytes, list[Units]] = {}
        self._longest = 0
        self._patterns: dict[int, re.Pattern[bytes]] = {}
        for n, (_, units) in enumerate(self._forms):
            self._add_anchor(n, units)
            for start in _starts(units):
                self._by_start.setdefault(start, []).append(units)
            self._longest = max(self._longest, sum(max(map(len, unit)) for unit in units))
        self._numbers = frozenset(int.from_bytes(gram, sys.byteorder) for gram in self._grams)

    def _add_anchor(self, n: int, units: Units) -> None:
        """Data with this form has one of the grams in a long row, or one of the needles."""
        anchor = secret_spellings.fixed(units)
        if len(anchor) >= RUN:
            for i in range(GRAM):
                self._grams.setdefault(anchor[i : i + GRAM], set()).add(n)
        elif len(anchor) >= 3:
            self._needles.setdefault(anchor, set()).add(n)
        else:
            for spelling in min(units, key=lambda unit: (-min(map(len, unit)), len(unit))):
                self._needles.setdefault(spelling, set()).add(n)

    def _candidates(self, data: bytes) -> tuple[set[int], bool]:
        """The forms that may be in the data, all of them if any is; and whether there may be
        wrapped base64."""
        forms_here: set[int] = set()
        for needle, forms in self._needles.items():
            if needle in data:
                forms_here |= forms
        if not self._grams:
            return forms_here, False
        many, is_maybe = 2 + len(data) // DENSE, False
        for n, (start, stop) in enumerate(_rows(data)):
            if n == many and self._is_free(data):
                return forms_here, secret_forms.is_wrapped(data)
            for i in range(start, stop - GRAM + 1, GRAM):
                gram = data[i : i + GRAM]
                if gram in self._grams:
                    forms_here |= self._grams[gram]
            is_maybe = is_maybe or secret_forms.may_wrap(data, stop)
        return forms_here, is_maybe and secret_forms.is_wrapped(data)

    def _is_free(self, data: bytes) -> bool:
        """Whether no gram is in the data at every `GRAM`th position, and so none of the long rows
        in full."""
        return self._numbers.isdisjoint(memoryview(data)[: len(data) // GRAM * GRAM].cast("Q"))

    def _spans(self, data: bytes, start: int) -> Iterator[tuple[int, int, int]]:
        """The positions of forms from `start` on, with the form; of those that begin at the same
        place, the longest."""
        suspects, filled = self._suspected(data)
        if not suspects:
            return
        spans = [
            (m.start(), -m.end(), n)
            for n in suspects
            for m in self._pattern(n).finditer(data, start)
        ]
        if filled:
            whole = secret_forms.Squeezed(data, start)
            matches = (
                (m.start(), m.end(), n)
                for n in suspects
                for m in self._pattern(n).finditer(whole.data)
            )
            spans += [
                (whole.place(begin), -whole.place(end - 1) - 1, n) for begin, end, n in matches
            ]
        at = start
        for begin, minus_end, n in sorted(spans):
            if begin >= at:
                at = -minus_end
                yield begin, at, n

    def _pattern(self, n: int) -> re.Pattern[bytes]:
        """Made when it is needed: most forms are never seen."""
        if n not in self._patterns:
            self._patterns[n] = re.compile(secret_spellings.regex(self._forms[n][1]))
        return self._patterns[n]

    def _suspected(self, data: bytes) -> tuple[set[int], bool]:
        """The forms that may be in the data, and whether there may be something between their
        characters."""
        suspects, is_wrapped = self._candidates(data)
        if not self._forms or not (is_wrapped or secret_forms.has_unseen(data)):
            return suspects, False
        more = self._candidates(secret_forms.bare(data))[0]
        return suspects | more, bool(more)

    def suspects(self, data: bytes) -> bool:
        return bool(self._suspected(data)[0])

    def clean(self, data: bytes) -> bytes:
        # What a mark joins may be a secret in its turn, though only an attacker has such a value.
        for _ in range(LEAST):
            cleaned, _ = self.clean_part(data, 0, len(data))
            if cleaned is data:
                break
            data = cleaned
        return data

    def clean_part(self, data: bytes, start: int, stop: int) -> tuple[bytes, int]:
        """Cleaned from `start` to `stop`, or to the end of a secret that began before it; and where
        that is."""
        out: list[bytes] = []
        for begin, end, n in self._spans(data, start):
            if begin >= stop:
                break
            # Line ends stay, so that lines keep their numbers.
            out += [data[start:begin], self._forms[n][0], b"\n" * data.count(b"\n", begin, end)]
            start = end
        stop = max(stop, start)
        if not out and stop - start == len(data):
            return data, stop
        return b"".join([*out, data[start:stop]]), stop

    def open_at(self, data: bytes, start: int) -> int:
        """The first place from which on the data may be the beginning of a form; its length when
        there is none."""
        if not self._forms:
            return len(data)
        first = max(start, len(data) - 2 * self._longest)
        opened = first + self._begun(data[first:])
        wide = max(start, len(data) - FILLED * self._longest)
        tail = data[wide:]
        if not secret_forms.has_unseen(tail):
            wide = first
        elif not secret_forms.is_wrapped(tail) and self._begun(
            bare := secret_forms.bare(tail)
        ) == len(bare):
            return opened
        end = secret_forms.Squeezed(data, wide, is_open=True)
        at = self._begun(end.data)
        return min(opened, end.place(at)) if at < len(end.data) else opened

    def _begun(self, tail: bytes) -> int:
        """The first place from which on it may be the beginning of a form; its length when there is
        none."""
        for at in range(max(0, len(tail) - self._longest), len(tail)):
            if any(
                _may_begin(units, tail, at) for units in self._by_start.get(tail[at : at + 2], ())
            ):
                return at
        return len(tail)


def _starts(units: Units) -> set[bytes]:
    """The one or two bytes with which a form, or the beginning of one, can begin."""
    twos = {(first + second)[:2] for first in units[0] for second in units[1]}
    return twos | {two[:1] for two in twos}


def _rows(data: bytes) -> Iterator[tuple[int, int]]:
    """Where letters and digits form long rows. From the end: so it is the space that is looked for
    first, which is twice as fast."""
    classes = data.translate(_CLASSES)
    stop = len(classes)
    while (at := classes.rfind(_ROW, 0, stop)) >= 0:
        end = classes.find(b" ", at + RUN + 1)
        yield at + 1, len(data) if end < 0 else end
        stop = at
    if classes.startswith(_ROW[1:]):
        end = classes.find(b" ")
        yield 0, len(data) if end < 0 else end


def _may_begin(units: Units, data: bytes, at: int) -> bool:
    """Whether the data ends inside of a form that begins at `at`."""
    ends = {at}
    for unit in units:
        following = set()
        for start in ends:
            for spelling in unit:
                if data.startswith(spelling, start):
                    following.add(start + len(spelling))
                elif spelling.startswith(data[start:]):
                    return True
        if not following:
            return False
        ends = following
    return False


def _mark(name: str, values: Iterable[str]) -> str:
    """The mark for a name: one that contains no secret."""
    label = re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)
    marks = [f"[redacted:{label}]", "[redacted]"] if name else ["[redacted]"]
    return next((mark for mark in marks if not any(v in mark for v in values)), "***")
