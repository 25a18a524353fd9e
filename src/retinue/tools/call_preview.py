"""Previews a call for the person who decides about it: computed by the code that would make it,
from its real input, never from a model's description. Nothing is changed by looking."""

from __future__ import annotations

from typing import Literal

from retinue.core.values import Value


class FilePreview(Value):
    """One file that would change. `diff` is a unified diff without the secrets that are known; of a
    long one `n_hidden` lines are omitted. `note` says why a file is not shown."""

    path: str
    kind: Literal["create", "change", "delete", "move"] = "change"
    to: str = ""
    added: int = 0
    removed: int = 0
    diff: str = ""
    n_hidden: int = 0
    note: str = ""


class CommandPreview(Value):
    """What would be enforced when a command runs: where, with which `sandbox` ("" for none), with a
    `network` or without, what it `may_write`, and when it is stopped. `read_only` says why it may
    write nothing."""

    command: str
    directory: str
    sandbox: str = ""
    network: bool = False
    may_write: tuple[str, ...] = ()
    read_only: str = ""
    stops_after_seconds: float | None = None
    is_background: bool = False


class CallPreview(Value):
    """What a call would do to files, or which command it would run. `problem` is how it would fail,
    as things are now. `isolated`: it works in a copy of the run's own, not in the user's tree."""

    files: tuple[FilePreview, ...] = ()
    command: CommandPreview | None = None
    problem: str = ""
    directory: str = ""
    isolated: bool = False
