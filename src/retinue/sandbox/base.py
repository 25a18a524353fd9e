"""The port to a sandbox: takes a command, returns running processes, and can always end all of
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

MIB = 1 << 20
GIB = 1 << 30

Why = Literal["", "timeout", "stopped", "cancelled", "output", "disk", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """What one command may use; 0 means no limit of ours. What holds each of them, and where:
    docs/sandbox.md."""

    processes: int = 256  # in all
    memory: int = 2 * GIB  # bytes, in all where there is a cgroup, else for each process
    file_size: int = GIB  # bytes, for each file
    cpu_seconds: int = 3600  # for each process
    open_files: int = 4096  # for each process
    temporary: int = 512 * MIB  # bytes in each of the private directories for temporary files
    output: int = (
        GIB  # bytes on standard output and error; what is kept of them is decided elsewhere
    )
    free_disk: int = 512 * MIB  # bytes that a command must leave free where it writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to run. `env` is all of the environment that it gets; `write` and `read` are all that it
    sees of the disk beyond the system's programs; `tag` names it in its environment, so that a
    leftover can be found. `opened` are directories among them that were opened before: what the
    command gets at such a path is what is behind the descriptor. They belong to the code that made
    the command, and stay open until `start` has returned."""

    argv: tuple[str, ...]
    cwd: str
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    limits: CommandLimits = CommandLimits()
    tag: str = ""
    opened: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandExit:
    """How a command ended. `code` is None if it is unknown; `why` is "" if the command ended by
    itself; `lost` means that its sandbox died; `notes` list the limits that it reached."""

    code: int | None
    why: Why = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


Sink = Callable[[bytes], None]


class Running(Protocol):
    """A command that was started."""

    async def wait(self, seconds: float | None = None) -> CommandExit:
        """Until it has ended and nothing of it is left. After `seconds`, and when this is
        cancelled, it is killed."""

    def stop(self, why: Why = "stopped") -> None:
        """Kill all of it immediately; `wait` tells when that is done."""


class Guarantee(NamedTuple):
    """One thing that a sandbox guarantees, as text for users. `is_weak`: another machine could
    offer more."""

    text: str
    is_weak: bool = False


class Sandbox(Protocol):
    """Contract: `start` either runs the command contained or raises `SandboxMissing` or `Refused`
    (nothing was run); it is called on the loop's own thread. Output goes to `sink` as it comes,
    standard error among it."""

    @property
    def name(self) -> str: ...

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """What the sandbox guarantees on this machine."""

    async def start(self, command: Command, sink: Sink) -> Running: ...
