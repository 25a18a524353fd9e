"""Files as text: encoding, binary content and known image types; and back to the same bytes."""

from __future__ import annotations

import codecs
import difflib
import hashlib
from dataclasses import dataclass

SNIFF = 8_192
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
DIFF_LINES = 60
DIFF_CHARS = 4_000
DIFF_INPUT = 400


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def image_type(data: bytes) -> str:
    """The media type of a picture that models can see, or ""."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def is_binary(data: bytes) -> bool:
    return not data.startswith(tuple(bom for bom, _ in BOMS)) and b"\0" in data[:SNIFF]


@dataclass(frozen=True, slots=True)
class Text:
    """A file's text and what is needed to write it back: bytes that are not text in its encoding
    survive as lone surrogates where that is possible (UTF-8)."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""
    is_exact: bool = True

    @staticmethod
    def of(data: bytes) -> Text:
        bom, encoding = next((b for b in BOMS if data.startswith(b[0])), (b"", "utf-8"))
        body = data[len(bom) :]
        if encoding == "utf-8":
            return Text(body.decode("utf-8", "surrogateescape"), encoding, bom)
        try:
            return Text(body.decode(encoding), encoding, bom)
        except UnicodeDecodeError:
            return Text(body.decode(encoding, "replace"), encoding, bom, is_exact=False)

    def encode(self, text: str) -> bytes:
        errors = "surrogateescape" if self.encoding == "utf-8" else "strict"
        return self.bom + text.encode(self.encoding, errors)

    @property
    def is_crlf(self) -> bool:
        """Whether every line ends with CR LF."""
        n = self.text.count("\n")
        return n > 0 and self.text.count("\r\n") == n


def split_lines(text: str) -> list[str]:
    """Lines as editors and search count them: only a line feed ends one."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def displayable(text: str) -> str:
    """Without what cannot be stored: bytes that are not text and NUL become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text


def short_diff(old: str, new: str) -> str:
    """What changed, for a reader who knows the file: a unified diff that stays short whatever it is
    given."""
    a, b = split_lines(old), split_lines(new)
    n = min(len(a), len(b))
    start = next((i for i in range(n) if a[i] != b[i]), n)
    end = next((i for i in range(n - start) if a[-1 - i] != b[-1 - i]), n - start)
    before, after = a[start : len(a) - end], b[start : len(b) - end]
    if not before and not after:
        return "" if old == new else "[only the line end of the last line changed]"
    if max(len(before), len(after)) > DIFF_INPUT:
        return f"[from line {start + 1}: {len(before)} lines were replaced by {len(after)}]"
    first = max(0, start - 2)
    pieces = difflib.unified_diff(
        a[first : len(a) - end + 2] if end >= 2 else a[first:],
        b[first : len(b) - end + 2] if end >= 2 else b[first:],
        n=2,
        lineterm="",
    )
    lines = [_renumbered(line, first)[:300] for line in list(pieces)[2:]]
    text = "\n".join(lines[:DIFF_LINES])[:DIFF_CHARS]
    n_hidden = len(lines) - DIFF_LINES
    return displayable(
        f"{text}\n[{n_hidden} more lines of the diff are hidden]" if n_hidden > 0 else text
    )


def _renumbered(line: str, add: int) -> str:
    if not line.startswith("@@"):
        return line.rstrip("\r")
    sides = []
    for side in line.split()[1:3]:
        first, comma, count = side[1:].partition(",")
        sides.append(f"{side[0]}{int(first) + add}{comma}{count}")
    return f"@@ {' '.join(sides)} @@"
