"""How far a project is trusted, and what has changed since then."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from typing import Literal

import msgspec

from retinue.config.trusted_files import content_of, home_of, relative
from retinue.core.values import Value
from retinue.formats.safe_text import one_line

State = Literal["trusted", "new", "changed", "empty"]


class TrustedProject(Value):
    """What was trusted: hashes by path, and when, in milliseconds. `refused` was there, and is not
    trusted."""

    files: dict[str, str]
    refused: tuple[str, ...] = ()
    at: int = 0


class ProjectTrust(Value):
    """The trust in a project. `files` are the hashes of what is there now, by path beneath the root
    ("" where nothing was read, since nothing was ever trusted); the three lists are what differs
    from what was trusted. `refused` are files that cannot be trusted, with the reason."""

    root: str
    state: State
    files: dict[str, str]
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    refused: dict[str, str] = msgspec.field(default_factory=dict)
    at: int = 0

    @property
    def is_trusted(self) -> bool:
        return self.state == "trusted"

    def trusts(self, path: str | os.PathLike[str]) -> bool:
        """Whether this file, as it is now, is one that was trusted. For loaders that ask about each
        file."""
        return self.read(path) is not None

    def read(self, path: str | os.PathLike[str]) -> bytes | None:
        """The content of a file if it is the one that was trusted, else None. What is returned is
        what was hashed: there is no moment in between."""
        full = os.path.abspath(os.fspath(path))
        folder, base = os.path.split(full)
        for way in (full, os.path.join(os.path.realpath(folder), base)):
            name = relative(way, self.root)
            digest = self.files.get(name) if self.is_trusted else None
            if digest is not None:
                with contextlib.suppress(OSError):
                    data = content_of(os.path.join(self.root, name), self.root)
                    return data if hashlib.sha256(data).hexdigest() == digest else None
        return None

    def why(self) -> str:
        """What has to be done, in a sentence; "" when it is trusted or there is nothing to
        trust."""
        todo = (
            "Run `retinue trust` to review and use them."
            if self.state == "new"
            else "Run `retinue trust` to review them."
        )
        return f"{problem}. {todo}" if (problem := self.problem()) else ""

    def problem(self) -> str:
        """Why the project is not trusted; "" when it is, or there is nothing to trust."""
        if self.state in ("trusted", "empty"):
            return ""
        if self.state == "new":
            return f"This project's files are not trusted ({_some(self.files or self.refused)})"
        differences = [("changed", self.changed), ("new", self.added), ("gone", self.removed)]
        parts = [f"{word}: {_some(names)}" for word, names in differences if names]
        return f"This project's files have changed since you trusted it ({'; '.join(parts)})"


def _some(names: Iterable[str], most: int = 3) -> str:
    listed = sorted(names)
    lines = [one_line(name, 120) for name in listed[:most]]
    return ", ".join(lines) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def compare_trust(
    root: str,
    record: TrustedProject | None,
    contents: tuple[dict[str, str], dict[str, str]],
    looked: set[str] | None,
) -> ProjectTrust:
    files, refused = contents
    if record is None:
        return ProjectTrust(
            root=root, state="new" if files or refused else "empty", files=files, refused=refused
        )
    known_hashes = {n: h for n, h in record.files.items() if looked is None or home_of(n) in looked}
    changed = tuple(sorted(n for n in files if n in known_hashes and files[n] != known_hashes[n]))
    added = tuple(
        sorted(
            (
                *(n for n in files if n not in known_hashes),
                *(n for n in refused if n not in record.refused),
            )
        )
    )
    removed = tuple(sorted(n for n in known_hashes if n not in files))
    state: State = "changed" if changed or added or removed else "trusted"
    return ProjectTrust(
        root=root,
        state=state,
        files=files,
        changed=changed,
        added=added,
        removed=removed,
        refused=refused,
        at=record.at,
    )
