"""The spellings in which a secret may be written."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

Units = tuple[tuple[bytes, ...], ...]
_HTML = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_JSON = {
    "\n": "n",
    "\r": "r",
    "\t": "t",
    "\b": "b",
    "\f": "f",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
}
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_URLSAFE = {
    "+": ("+", "-", "%2B", "%2b", r"\u002b", r"\u002B"),
    "/": ("/", "_", "%2F", "%2f", r"\/", r"\u002f"),
}


def regex(units: Units) -> bytes:
    return b"".join(
        re.escape(u[0]) if len(u) == 1 else b"(?:" + b"|".join(map(re.escape, u)) + b")"
        for u in units
    )


def forms(value: str) -> Iterator[Units]:
    """Written out (also for URLs, JSON, HTML, shells and the like, in any mixture), in hexadecimal,
    and in base64."""
    data = value.encode("utf-8", "surrogateescape")
    yield tuple(_spellings(c) for c in value)
    for digits in (data.hex(), data.hex().upper()):
        yield tuple((d.encode(),) for d in digits)
    for n_before in range(3):
        yield _base64(data, n_before)


def _spellings(c: str) -> tuple[bytes, ...]:
    """One character as encoders write it. Letters and digits are left alone by all of them."""
    if c.isascii() and c.isalnum():
        return (c.encode(),)
    octets = c.encode("utf-8", "surrogateescape")
    out = ["".join(f"%{b:02X}" for b in octets), "".join(f"%{b:02x}" for b in octets)]
    out += [one.replace("%", "%25") for one in out[:2]]
    if c == " ":
        out.append("+")
    if c == "=":
        out.append("=3D")
    escapes = [f"\\{_JSON[c]}"] if c in _JSON else []
    if (
        c.isascii() and c.isprintable()
    ):  # as shells, regular expressions, Markdown and strings of programs have it
        escapes += [f"\\{c}", f"\\x{ord(c):02x}", f"\\x{ord(c):02X}"]
    if c == "'":
        out += ["'\\''", "'\"'\"'"]
    units = c.encode("utf-16-be", "surrogatepass")
    numbers = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
    escapes += ["".join(f"\\u{n}" for n in numbers), "".join(f"\\u{n.upper()}" for n in numbers)]
    out += escapes
    # JSON inside of JSON: what was escaped is escaped again.
    out += [one.replace("\\", "\\\\").replace('"', '\\"') for one in escapes]
    out += [
        f"&{name};"
        for name in (_HTML.get(c), f"#{ord(c)}", f"#x{ord(c):x}", f"#x{ord(c):X}")
        if name
    ]
    # A text keeps a byte that is none as half a surrogate pair; written out, it is that byte.
    forms = {one.encode("ascii") for one in out} | {octets, c.encode("utf-8", "surrogatepass")}
    return tuple(sorted(forms, key=lambda one: (-len(one), one)))


def _base64(data: bytes, n_before: int) -> Units:
    """What base64 makes of the data when `n_before` bytes (mod 3) come before it, whatever is
    around it.

    The first character, which also depends on what comes before, is omitted; the last one, which
    also depends on what follows, is taken along in every spelling that it can have."""
    text = base64.b64encode(bytes(n_before) + data).decode().rstrip("=")
    whole = (n_before + len(data)) * 8 // 6
    units: list[tuple[str, ...]] = [
        _URLSAFE.get(c, (c,)) for c in text[(0, 2, 3)[n_before] : whole]
    ]
    if len(text) > whole:
        index = ALPHABET.index(text[whole])
        spread = 16 if (n_before + len(data)) % 3 == 1 else 4
        units.append(
            tuple(s for c in ALPHABET[index : index + spread] for s in _URLSAFE.get(c, (c,)))
        )
    return tuple(tuple(one.encode() for one in unit) for unit in units)


def fixed(units: Units) -> bytes:
    """The longest row of letters and digits that a form has whatever the encoder."""
    longest = run = b""
    for unit in units:
        run = run + unit[0] if len(unit) == 1 and unit[0].isalnum() else b""
        longest = run if len(run) > len(longest) else longest
    return longest
