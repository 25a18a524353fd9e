"""Which servers and definitions of tools were approved, by their hashes: what has changed since, or
is new, is withheld until it is approved too. A server that was approved with harmless tools cannot
put others in their place."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from retinue.core.values import Value
from retinue.errors import ConfigError
from retinue.formats.fair_cut import clip
from retinue.formats.safe_text import json_text, reveal
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_folder
from retinue.sandbox.regular_file import lock, open_regular

VERSION = 1
MAX_FILE = 32 << 20
MAX_SHOWN = 512 << 10
"""Characters of what was approved that are kept for one server, shared among its tools: the file
must stay readable whatever a server writes into its definitions. What decides is the hash, which is
of the whole."""
PARTS = ("name", "description", "inputSchema", "annotations")
"""What of a definition is shown to a model, or decides what the tool may be used for."""

State = Literal["approved", "new", "changed"]


def fingerprint(definition: Mapping[str, Any]) -> str:
    """A hash of the parts that count, whatever order their keys come in."""
    parts = {part: definition[part] for part in PARTS if definition.get(part) is not None}
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def page(definition: Mapping[str, Any]) -> str:
    """A definition as it is shown to the one who approves it: whole, and with nothing hidden."""
    words = definition.get("description")
    rest = {
        part: definition[part]
        for part in ("inputSchema", "annotations")
        if definition.get(part) is not None
    }
    heads = [
        f"{reveal(str(definition.get('name')), keep='')}",
        reveal(words) if isinstance(words, str) else "",
    ]
    return "\n".join([*heads, json_text(_laid_out(rest))])


def _laid_out(value: Any) -> str:
    """JSON over several lines, unless it is nested so that it would be many times as long as on
    one."""
    plain = json.dumps(value, sort_keys=True, ensure_ascii=False)
    n, room = 0, 4 * len(plain) + 1_000
    pieces = list[str]()
    for piece in json.JSONEncoder(indent=1, sort_keys=True, ensure_ascii=False).iterencode(value):
        n += len(piece)
        if n > room:
            return plain
        pieces.append(piece)
    return "".join(pieces)


class ApprovedServer(Value):
    """A server as it was approved: what was configured, and its tools' hashes. `shown` is what was
    approved, to be laid beside what is offered now."""

    identity: str
    tools: dict[str, str] = msgspec.field(default_factory=dict)
    shown: dict[str, str] = msgspec.field(default_factory=dict)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    servers: dict[str, ApprovedServer] = {}


class Approvals:
    """Kept in a file that only its owner may read (0600), or without `path` for as long as this
    object lives. Each change is made under a lock on what the file says by then, and replaces it
    whole: no process undoes another's."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._servers: dict[str, ApprovedServer] = {}
        self._stamp: tuple[int, int, int] | None = None

    def server(self, name: str) -> ApprovedServer | None:
        self._read()
        return self._servers.get(name)

    def state(self, server: str, tool: str, fingerprint: str) -> State:
        pinned = self.server(server)
        known = pinned.tools.get(tool) if pinned else None
        if known is None:
            return "new"
        return "approved" if known == fingerprint else "changed"

    def approve(
        self, server: str, identity: str, *definitions: Mapping[str, Any], whole: bool = False
    ) -> None:
        """Approve what is given. With `whole`, the server itself too, and nothing else of it stays
        approved."""
        with self._changing():
            before = self._servers.get(server)
            if before is None or whole:
                before = ApprovedServer(identity=identity)
            tools, shown = dict(before.tools), dict(before.shown)
            for definition in definitions:
                name = str(definition.get("name"))
                tools[name], shown[name] = fingerprint(definition), page(definition)
            room = MAX_SHOWN // max(1, len(shown))
            texts = {name: clip(text, room) for name, text in shown.items()}
            self._servers[server] = ApprovedServer(
                identity=before.identity, tools=tools, shown=texts
            )

    def forget(self, server: str) -> None:
        with self._changing():
            self._servers.pop(server, None)

    def _read(self) -> None:
        """What the file says now. One that cannot be read approves nothing, and is not written
        over."""
        if self.path is None:
            return
        try:
            fd = open_regular(self.path)
        except FileNotFoundError:
            self._servers, self._stamp = {}, None
            return
        except OSError as error:
            raise ConfigError(
                f"Cannot read the approvals in {self.path}: {error.strerror}"
            ) from None
        with os.fdopen(fd, "rb") as file:
            about = os.fstat(fd)
            if about.st_uid != os.geteuid() or about.st_mode & 0o022:
                raise ConfigError(
                    f"{self.path} is writable by other users, so its approvals are "
                    f"ignored. Check it, then run `chmod 600 {self.path}`."
                )
            stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
            if stamp == self._stamp:
                return
            data = file.read(MAX_FILE)
        try:
            content = msgspec.json.decode(data, type=_File)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(
                f"The approvals in {self.path} are damaged ({error}). The file was not "
                "changed. Move it away, then approve each server's tools again."
            ) from None
        if content.version != VERSION:
            raise ConfigError(
                f"The approvals in {self.path} were written by another version ({content.version})."
            )
        self._servers, self._stamp = content.servers, stamp

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        if self.path is None:
            yield
            return
        make_folder(str(self.path.parent))
        fd = os.open(
            self.path.with_name(f".{self.path.name}.lock"),
            os.O_CREAT | os.O_RDWR | os.O_CLOEXEC,
            0o600,
        )
        try:
            lock(fd)
            self._read()
            yield
            self._write(self.path)
        finally:
            os.close(fd)

    def _write(self, path: Path) -> None:
        data = msgspec.json.encode(_File(version=VERSION, servers=self._servers), order="sorted")
        write_file(path, data)
        about = path.stat()
        self._stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
