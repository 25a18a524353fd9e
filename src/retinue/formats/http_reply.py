"""Parses replies of an HTTP/1.1 server from chunks of any size: status, headers, and the body as it
arrives. Enough for a client of our own server, without the cost of importing more."""

from __future__ import annotations

HEAD_LIMIT = 1 << 16


class HttpReplyReader:
    """Feed bytes, get pieces of the body. One reader is for one reply; what comes after it is in
    `rest`. Raises `ValueError` for what is not HTTP."""

    def __init__(self) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self.is_done = False
        self._buffer = bytearray()
        self._left: int | None = None
        self._is_chunked = False

    def feed(self, data: bytes) -> list[bytes]:
        self._buffer += data
        if not self.status and not self._read_head():
            return []
        if self._is_chunked:
            return self._chunks()
        return self._plain()

    def end(self) -> None:
        """The server has closed the connection. Raises `ValueError` in the middle of a reply."""
        if self.status and self._left is None and not self._is_chunked:
            self.is_done = True
        if not self.is_done:
            raise ValueError("the reply was cut off")

    @property
    def keeps_alive(self) -> bool:
        """Whether another request can follow on the same connection."""
        is_closing = self.headers.get("connection", "").lower() == "close"
        return self.is_done and not is_closing and not self._buffer

    def _read_head(self) -> bool:
        if self._buffer[:5] != b"HTTP/"[: len(self._buffer)]:
            raise ValueError("this is not HTTP")
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                raise ValueError("the head of the reply is too long")
            return False
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        self.status = int(first.split(" ")[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._is_chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        self._left = int(length) if length is not None else None
        if self.status == 204:
            self._left = 0
        return True

    def _plain(self) -> list[bytes]:
        piece = bytes(self._buffer if self._left is None else self._buffer[: self._left])
        del self._buffer[: len(piece)]
        if self._left is not None:
            self._left -= len(piece)
            self.is_done = not self._left
        return [piece] if piece else []

    def _chunks(self) -> list[bytes]:
        pieces = []
        while not self.is_done and (end := self._buffer.find(b"\r\n")) >= 0:
            size = int(self._buffer[:end].split(b";")[0], 16)
            if len(self._buffer) < end + size + 4:
                break
            if size:
                pieces.append(bytes(self._buffer[end + 2 : end + 2 + size]))
            else:
                self.is_done = True
            del self._buffer[: end + size + 4]
        return pieces
