"""Known secret values are taken out of what is written: as they are, and in the forms that encoders give them.

A form is a row of units, each the spellings of one character. The same rows make the pattern that replaces, the anchors
that tell at a glance that a text is clean, and the prefixes that a stream holds back.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

LEAST = 8
"""Shorter values are not taken: they occur in ordinary text ("true", "admin", "3306"), and each mark left in such a
place would tell a reader what the secret is."""
PIECE = 256
"""A longer value is looked for in pieces of this length: any text with the whole of it has all of them."""
RUN = 20
"""So many letters and digits in a row are rare in clean text and common in keys and their encodings."""

Units = tuple[tuple[str, ...], ...]

_HTML = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_JSON = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_URLSAFE = {"+": ("+", "-", "%2B", "%2b", r"\u002b", r"\u002B"), "/": ("/", "_", "%2F", "%2f", r"\/", r"\u002f")}
_CLASSES = bytes(120 if i < 128 and chr(i).isalnum() else 32 for i in range(256))
_IS_RUN = b"x" * RUN
_ARMOUR = re.compile(r"-----[A-Z0-9 ]+-----")

_SECRET = re.compile(
    r"KEY|SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|PRIVATE|BEARER|WEBHOOK|_PWD$|(?:^|_)(?:PASS|AUTH|PAT|DSN)(?:_|$)",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    r"(?:_(?:FILE|PATH|DIR|SOCK|HOME|NAME|HOST|PORT)|(?<!WEBHOOK)_UR[IL]|MAX_?TOKENS|TOKENS?_?LIMIT)$", re.IGNORECASE
)
_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s@:]*)(?::([^/?#\s]*))?@")
_IN_PAIRS = re.compile(
    r"(?i)\b(?:password|passwd|pwd|\w*key|\w*secret|\w*token|sig)\s*=\s*('[^']*'|\"[^\"]*\"|[^\s;&'\"]+)"
)


class Redactor:
    """Replaces secrets by `[redacted:NAME]`, or by `[redacted]` when they were given without names."""

    def __init__(self, values: Mapping[str, str] | Iterable[str]) -> None:
        pairs = values.items() if isinstance(values, Mapping) else (("", value) for value in values)
        named: dict[str, str] = {}
        for name, value in pairs:
            for piece in _pieces(value):
                named.setdefault(piece, name)
        self._named = named
        marks = [_mark(name.partition(" ")[0], named) for name in named.values()]
        self._texts = _Matcher([(mark, form) for mark, v in zip(marks, named, strict=True) for form in _forms(v)])
        self._bytes: _Matcher | None = None

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> Redactor:
        """Of everything in an environment that its name or its shape says is secret."""
        return cls(secrets_of(environ))

    def __repr__(self) -> str:
        return f"Redactor({len(self._named)} values)"

    def __bool__(self) -> bool:
        return bool(self._named)

    def clean(self, text: str) -> str:
        """The text without the secrets; the very same object when there are none in it."""
        return self._texts.clean(text) if self._texts.suspects(text) else text

    def clean_bytes(self, data: bytes) -> bytes:
        """The same for bytes that may be no text at all; secrets are looked for in UTF-8."""
        if self._bytes is None:
            self._bytes = self._texts.in_bytes()
        text = data.decode("latin-1")
        return self._bytes.clean(text).encode("latin-1") if self._bytes.suspects(text) else data

    def stream(self) -> Stream:
        """For a text that comes in pieces."""
        return Stream(self._texts)


class Stream:
    """Holds back the end of what it was fed as long as that may be the beginning of a secret."""

    def __init__(self, matcher: _Matcher) -> None:
        self._matcher = matcher
        self._held = ""

    def feed(self, piece: str) -> str:
        """As much as may be shown now."""
        text = self._held + piece
        done, rest = self._matcher.clean_start(text, self._matcher.open_at(text))
        self._held = rest
        return done

    def close(self) -> str:
        """What was held back: no more follows."""
        text, self._held = self._held, ""
        return self._matcher.clean(text)


class _Matcher:
    """All forms of all secrets, each with the mark that takes its place."""

    def __init__(self, forms: list[tuple[str, Units]]) -> None:
        self._forms = forms = sorted(forms, key=lambda form: -len(form[1]))
        self._pattern = re.compile("|".join(f"({_regex(units)})" for _, units in forms) or r"(?!)")
        self._rare, self._direct = _anchors([units for _, units in forms])
        self._by_first: dict[str, list[Units]] = {}
        for _, units in forms:
            for first in {spelling[0] for spelling in units[0]}:
                self._by_first.setdefault(first, []).append(units)
        starts = "".join(map(re.escape, sorted(self._by_first)))
        self._starts = re.compile(f"[{starts}]" if starts else r"(?!)")
        self._longest = max((sum(max(map(len, unit)) for unit in units) for _, units in forms), default=0)

    def in_bytes(self) -> _Matcher:
        """The same forms as they are in UTF-8, byte by byte."""
        return _Matcher([(mark, tuple(tuple(map(_as_latin, unit)) for unit in units)) for mark, units in self._forms])

    def suspects(self, text: str) -> bool:
        """False for nearly every text that is clean, and for none that is not. This is all that most texts cost."""
        for anchor in self._direct:
            if anchor in text:
                return True
        if self._rare and _IS_RUN in text.encode("utf-8", "replace").translate(_CLASSES):
            for anchor in self._rare:
                if anchor in text:
                    return True
        return False

    def clean(self, text: str) -> str:
        # What a mark joins may be a secret in its turn, though nobody but an attacker has such a one.
        for _ in range(LEAST):
            text, n = self._pattern.subn(self._replace, text)
            if not n:
                break
        return text

    def _replace(self, match: re.Match[str]) -> str:
        return self._forms[(match.lastindex or 1) - 1][0]

    def clean_start(self, text: str, stop: int) -> tuple[str, str]:
        """Cleaned up to `stop`, or to the end of a secret that began before it; and what is left."""
        out, at = [], 0
        if self.suspects(text):
            for match in self._pattern.finditer(text):
                if match.start() >= stop:
                    break
                out += [text[at : match.start()], self._replace(match)]
                at = match.end()
        stop = max(stop, at)
        out.append(text[at:stop])
        return "".join(out), text[stop:]

    def open_at(self, text: str) -> int:
        """The first place from which on the text may be the beginning of a form; its length when there is none."""
        at = max(0, len(text) - self._longest)
        while (match := self._starts.search(text, at)) is not None:
            at = match.start()
            if any(_may_begin(units, text, at) for units in self._by_first[text[at]]):
                return at
            at += 1
        return len(text)


def _may_begin(units: Units, text: str, at: int) -> bool:
    """Whether the text ends inside of a form that begins at `at`."""
    ends = {at}
    for unit in units:
        following = set()
        for start in ends:
            for spelling in unit:
                if text.startswith(spelling, start):
                    following.add(start + len(spelling))
                elif spelling.startswith(text[start:]):
                    return True
        if not following:
            return False
        ends = following
    return False


def _pieces(value: str) -> Iterator[str]:
    """What is looked for: the lines of a value, since logs are written by lines, and no more than `PIECE` at once."""
    lines = [line.strip() for line in value.splitlines()]
    long_enough = [line for line in lines if len(line) >= LEAST and not _ARMOUR.fullmatch(line)]
    for line in long_enough or [value.strip()]:
        while len(line) >= PIECE + LEAST:
            yield line[:PIECE]
            line = line[PIECE:]
        if len(line) >= LEAST and not _ARMOUR.fullmatch(line):
            yield line


def _mark(name: str, values: Iterable[str]) -> str:
    """The mark for a name: one in which no secret stands."""
    shown = re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)
    found = [f"[redacted:{shown}]", "[redacted]"] if name else ["[redacted]"]
    return next((mark for mark in found if not any(v in mark for v in values)), "***")


def _forms(value: str) -> Iterator[Units]:
    """Written out (also for URLs, JSON and HTML, in any mixture), in hexadecimal, and in base64."""
    data = value.encode("utf-8", "surrogateescape")
    yield tuple(_spellings(c) for c in value)
    yield tuple((d,) if d.isdigit() else (d, d.upper()) for d in data.hex())
    for n_before in range(3):
        yield _base64(data, n_before)


def _spellings(c: str) -> tuple[str, ...]:
    """One character as encoders write it. Letters and digits are left alone by all of them."""
    if c.isascii() and c.isalnum():
        return (c,)
    octets = c.encode("utf-8", "surrogateescape")
    out = [c, "".join(f"%{b:02X}" for b in octets), "".join(f"%{b:02x}" for b in octets)]
    out += [one.replace("%", "%25") for one in out[1:3]]
    if c == " ":
        out.append("+")
    escapes = [f"\\{_JSON[c]}"] if c in _JSON else []
    units = c.encode("utf-16-be", "surrogatepass")
    numbers = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
    escapes += ["".join(f"\\u{n}" for n in numbers), "".join(f"\\u{n.upper()}" for n in numbers)]
    out += escapes
    # JSON inside of JSON: what was escaped is escaped again.
    out += [one.replace("\\", "\\\\").replace('"', '\\"') for one in escapes]
    out += [f"&{name};" for name in (_HTML.get(c), f"#{ord(c)}", f"#x{ord(c):x}", f"#x{ord(c):X}") if name]
    return tuple(sorted(set(out), key=lambda one: (-len(one), one)))


def _base64(data: bytes, n_before: int) -> Units:
    """What base64 makes of the data when `n_before` bytes (mod 3) stand before it, whatever stands around.

    The first character that also depends on what stands before is left out; the last one, which also depends on what
    follows, is taken along in every spelling that it can have.
    """
    text = base64.b64encode(bytes(n_before) + data).decode().rstrip("=")
    whole = (n_before + len(data)) * 8 // 6
    units: list[tuple[str, ...]] = [_URLSAFE.get(c, (c,)) for c in text[(0, 2, 3)[n_before] : whole]]
    if len(text) > whole:
        known = _ALPHABET.index(text[whole])
        spread = 16 if (n_before + len(data)) % 3 == 1 else 4
        units.append(tuple(s for c in _ALPHABET[known : known + spread] for s in _URLSAFE.get(c, (c,))))
    return tuple(units)


def _regex(units: Units) -> str:
    return "".join(re.escape(u[0]) if len(u) == 1 else f"(?:{'|'.join(map(re.escape, u))})" for u in units)


def _anchors(forms: list[Units]) -> tuple[list[str], list[str]]:
    """Texts of which a form always has one: those that only a long run can have, and all others."""
    rare: dict[str, None] = {}
    direct: dict[str, None] = {}
    for units in forms:
        fixed = max(_fixed(units), key=len, default="")
        if len(fixed) >= RUN:
            rare[fixed[:32]] = None
        elif all(len(unit) <= 2 for unit in units):  # hexadecimal: in small letters or in capitals
            direct.update({"".join(unit[case] for unit in units[:32]): None for case in (0, -1)})
        elif len(fixed) >= 3:
            direct[fixed] = None
        else:
            unit = min(units, key=lambda unit: (-min(map(len, unit)), len(unit)))
            direct.update(dict.fromkeys(unit))
    if len(rare) <= 6:  # then asking for each costs no more than looking for runs
        direct, rare = {**rare, **direct}, {}
    return list(rare), list(direct)


def _fixed(units: Units) -> Iterator[str]:
    """Letters and digits that are written in one way only."""
    run = ""
    for unit in (*units, ()):
        if len(unit) == 1 and unit[0].isascii() and unit[0].isalnum():
            run += unit[0]
        else:
            yield run
            run = ""


def _as_latin(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def secret_names(environ: Mapping[str, str]) -> list[str]:
    """The variables of an environment that hold a secret, or an address or settings with one in them."""
    return sorted({name.partition(" ")[0] for name in secrets_of(environ)})


def secrets_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The secret values of an environment by the name of their variable. Of an address it is the password, or the user
    when there is no password, of a list of settings the values of those that are named so."""
    found: dict[str, str] = {}
    for name, value in environ.items():
        whole = [value] if _SECRET.search(name) and not _HARMLESS.search(name) else []
        for n, one in enumerate([*whole, *_inside(value)]):
            found[f"{name} {n}" if n else name] = one
    return {name: value for name, value in found.items() if any(_pieces(value))}


def _inside(value: str) -> Iterator[str]:
    """Passwords inside of addresses and of settings, as they stand there and decoded."""
    for user, password in _IN_URL.findall(value):
        one = password or user
        yield one
        if "%" in one:
            yield unquote(one, errors="surrogateescape")
    for one in _IN_PAIRS.findall(value):
        yield one.strip("'\"")
