"""The head of an answer in HTTP/1, and where its body ends (RFC 9112). What could be read in two
ways is not read."""

from __future__ import annotations

import re

MAX_HEAD = 128 << 10
"""Bytes of a head. Real ones have a few KiB; policies and cookies of gateways have been seen with
40."""
MAX_FIELDS = 256
UNTIL_CLOSED = -1
CHUNKED = -2
"""Lengths of bodies that are not known beforehand."""
END = re.compile(rb"\n\r?\n")
"""A line that ends in LF alone is one to most clients, and some servers at home send such."""
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?\n")
_FIELD = re.compile(r"^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:.*[^ \t\n])?)[ \t]*$", re.MULTILINE)
_FOLD = re.compile(r"[ \t]*\n[ \t]+")
_LENGTH = re.compile("[0-9]{1,15}")
_LIFE = re.compile("timeout=([0-9]{1,6})", re.IGNORECASE)


class NotHttp(Exception):
    """What came is not an answer in HTTP/1, or one that could be read in two ways."""


class AnswerHead:
    """The status of an answer, its `headers` by their names in lower case, and the `length` of its
    body. `is_kept` says whether the connection may be used again after it, for `life` seconds if
    known."""

    __slots__ = ("headers", "is_kept", "length", "life", "status")

    def __init__(self, data: bytes) -> None:
        """`data` is all of a head, with the empty line at its end."""
        text = data.decode("latin-1").replace("\r\n", "\n")
        match = _STATUS.match(text)
        if match is None:
            raise NotHttp("the answer does not start with HTTP/1")
        if "\r" in text or "\0" in text:
            raise NotHttp("the headers are invalid")
        version, status = match.groups()
        self.status = int(status)
        self.headers = headers = _headers(text[match.end() :])
        self.is_kept = version == "1"
        if "connection" in headers or version == "0":
            connection = headers.get("connection", "").lower()
            self.is_kept = (
                "close" not in connection if version == "1" else "keep-alive" in connection
            )
        self.length = self._length(headers)
        self.life = None
        if "keep-alive" in headers and (life := _LIFE.search(headers["keep-alive"])) is not None:
            self.life = float(life[1])

    def _length(self, headers: dict[str, str]) -> int:
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if coding is not None and (length is not None or coding.lower() != "chunked"):
            raise NotHttp("the answer gives its length in conflicting or unknown ways")
        if length is not None and not _LENGTH.fullmatch(length):
            raise NotHttp("the length of the answer is not a number, or is given more than once")
        if self.status < 200 or self.status in (204, 304):
            # 101 is not an answer either: whatever follows is not HTTP.
            return 0 if self.status != 101 else UNTIL_CLOSED
        if coding is not None:
            return CHUNKED
        return UNTIL_CLOSED if length is None else int(length)


def _headers(text: str) -> dict[str, str]:
    """`text` is what follows the first line: a line for each field, and the empty one."""
    if "\n " in text or "\n\t" in text:
        # A value that continues in the next line, as was once allowed.
        text = _FOLD.sub(" ", text)
    fields = _FIELD.findall(text)
    if len(fields) != text.count("\n") - 1:
        raise NotHttp("the headers are invalid")
    if len(fields) > MAX_FIELDS:
        raise NotHttp(f"the answer has more than {MAX_FIELDS} headers")
    out = {name.lower(): value for name, value in fields}
    if len(out) < len(fields):
        out.clear()
        for name, value in fields:
            name = name.lower()
            out[name] = f"{out[name]}, {value}" if name in out else value
    return out


def ends_at(data: bytes | bytearray, start: int = 0) -> int:
    """The length of the head that data begins with; 0 as long as its end is missing."""
    match = END.search(data, start)
    return match.end() if match is not None else 0
