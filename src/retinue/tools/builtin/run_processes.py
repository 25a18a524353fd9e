"""All processes that a runtime has started. One `Processes` belongs to one state directory; a
process ends with the run that started it, and with the runtime."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from retinue.core.ids import digest
from retinue.core.values import Permissions
from retinue.errors import NotFound, Refused
from retinue.formats.safe_text import clean
from retinue.sandbox.base import Command, CommandLimits, Sandbox
from retinue.sandbox.bwrap import find_sandbox
from retinue.sandbox.kept_aside import unreported
from retinue.sandbox.open_beneath import DIRECTORY, open_beneath
from retinue.sandbox.open_directories import OpenDirectory
from retinue.sandbox.path_checks import strip
from retinue.sandbox.paths import real_path
from retinue.sandbox.private_paths import Private
from retinue.sandbox.readonly_paths import beneath
from retinue.sandbox.resource_limits import find_groups
from retinue.sandbox.tagged_processes import kill_tagged
from retinue.tools.base import Context
from retinue.tools.builtin.command_record import CommandRecord, CommandStart, forget_old
from retinue.tools.builtin.live_command import LiveCommand

log = logging.getLogger("retinue.tools")
ENVIRONMENT = ("PATH", "HOME", "LANG", "TERM", "TZ")
KEEP_SECONDS = 3 * 24 * 3600.0
DAY = 24 * 3600.0
END_SECONDS = 30.0
"""How long a command that was killed is waited for; its sandbox needs a few seconds at most."""
LIMITS = CommandLimits()


class Processes:
    """`sandbox` is found when it is first needed; `private` is what it hides, by default the state
    directory; `environ` is what allowed names are looked up in."""

    def __init__(
        self,
        state: Path,
        *,
        sandbox: Sandbox | None = None,
        private: Private | None = None,
        environ: Mapping[str, str] | None = None,
        limits: CommandLimits = LIMITS,
        max_background: int = 8,
        background_seconds: float = DAY,
    ) -> None:
        self._folder, self._aside = (
            Path(os.path.abspath(state)) / "shell",
            Path(os.path.abspath(state)) / "taken",
        )
        self._private = private or Private(folders=(os.path.abspath(state),))
        self._untold: tuple[str, ...] = ()
        self._sandbox, self._environ, self.limits = sandbox, environ, limits
        self._max_background, self._background_seconds = max_background, background_seconds
        self._live: dict[str, LiveCommand] = {}
        self._mark = digest(self._folder)[:16]
        self._is_swept = False

    def sandbox(self) -> Sandbox:
        """What contains commands here, or `SandboxMissing` with what to do."""
        if self._sandbox is None:
            self._sandbox = find_sandbox(private=self._private, aside=str(self._aside))
        return self._sandbox

    def environment(self, capabilities: Permissions) -> dict[str, str]:
        source = os.environ if self._environ is None else self._environ
        names = (*ENVIRONMENT, *(capabilities.env or ()))
        return {name: source[name] for name in names if name in source}

    @contextmanager
    def command(
        self, context: Context, argv: tuple[str, ...], cwd: str, *, may_write: bool
    ) -> Iterator[Command]:
        """What a run's capabilities make of a command line. `cwd` is a directory in the run's own
        ("" for that one). Everything is opened here, and what was opened is what is mounted; it is
        closed with the context."""
        with context.opening() as (mine, holding), ExitStack() as closing:
            capabilities, root = mine.permissions, mine.root
            writable = (root,) if capabilities.write is None else capabilities.write
            write = writable if may_write else ()
            read = (root, *(capabilities.read or ()))
            if capabilities.read is not None and not beneath(
                root, (*capabilities.read, *(capabilities.write or ()))
            ):
                raise Refused(
                    "read", f"This run cannot read {root}, its working directory. Nothing was run."
                )
            opened = {root: _root(holding, root)}
            closing.callback(os.close, opened[root])
            for path in dict.fromkeys((*read, *write)):
                with suppress(NotFound):  # what is not there is not mounted
                    if path not in opened:
                        opened[path] = holding.open(path)
                        closing.callback(os.close, opened[path])
            inside, fd = _inside(opened[root], root, cwd)
            closing.callback(os.close, fd)
            opened.setdefault(inside, fd)
            yield Command(
                argv=argv,
                cwd=inside,
                write=tuple(write),
                read=read,
                env=self.environment(capabilities),
                network="*" in (capabilities.hosts or ()),
                limits=self.limits,
                opened=opened,
            )

    def record(self, key: str) -> CommandRecord:
        return CommandRecord(self._folder / digest("shell", key)[:16])

    async def start(
        self, context: Context, command: Command, command_text: str, *, background: bool
    ) -> LiveCommand:
        """Record it, then start it. What is refused leaves no record."""
        sandbox = self.sandbox()
        n = sum(live.background and live.run == context.run_id for live in self._live.values())
        if background and n >= self._max_background:
            raise Refused(
                "background",
                f"{n} processes are running in the background. Stop one with shell_stop first.",
            )
        record = self.record(context.key)
        live = LiveCommand(
            run=context.run_id,
            record=record,
            stream=context.redactor.byte_stream(),
            background=background,
        )
        tag = f"{self._mark}:{record.id}"
        command_text = context.redactor.clean(command_text)
        start = CommandStart(
            run=context.run_id,
            command=command_text,
            at=context.called_at / 1000,
            tag=tag,
            background=background,
        )
        await asyncio.to_thread(self._record, record, start)
        try:
            live.running = await sandbox.start(replace(command, tag=tag), live.sink)
        except BaseException:
            record.discard()
            raise
        self._live[record.id] = live
        live.notes, self._untold = self._untold, ()
        live.forget = lambda: self._live.pop(record.id, None)
        if background:
            live.watching = asyncio.get_running_loop().create_task(
                live.wait(self._background_seconds)
            )
        return live

    def find(self, run: str, id: str) -> LiveCommand | CommandRecord | None:
        """A command of that run: under way, or its record. Another run's is not found."""
        live = self._live.get(id)
        if live is not None:
            return live if live.run == run else None
        if not id.isalnum():
            return None
        record = CommandRecord(self._folder / id)
        start = record.start
        return record if start is not None and start.run == run else None

    def forsake(self, record: CommandRecord) -> None:
        """Before a call is answered for after a restart: nothing of it may still run."""
        kill_tagged(f"{self._mark}:{record.id}")

    def has(self, run: str) -> bool:
        """Whether a run has left something running."""
        return any(live.run == run for live in self._live.values())

    async def run_over(self, run: str) -> None:
        """A run has ended or was cancelled: so does everything that it had started."""
        await self._end([live for live in self._live.values() if live.run == run])

    async def close(self) -> None:
        """End everything."""
        await self._end(list(self._live.values()))

    async def _end(self, all_of: list[LiveCommand]) -> None:
        for live in all_of:
            if live.running is not None:
                live.running.stop()
        ends = [asyncio.ensure_future(live.over.wait()) for live in all_of]
        if ends:
            for late in (await asyncio.wait(ends, timeout=END_SECONDS))[1]:
                late.cancel()

    def _record(self, record: CommandRecord, start: CommandStart) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self._folder, 0o700)
        if not self._is_swept:
            # What an earlier runtime on this state left behind dies before anything new is started.
            self._is_swept = True
            kill_tagged(f"{self._mark}:")
            find_groups().sweep()
            forget_old(self._folder, KEEP_SECONDS)
            self._untold = tuple(
                _late(path, saved_path) for path, saved_path in unreported(self._aside)
            )
        record.create(start)


def _late(path: str, saved_path: str) -> str:
    text = (
        f"a command of an earlier process, which was killed, had created {path}. It is "
        f"protected and was saved as {saved_path}"
    )
    log.warning("%s", text)
    return text


def _root(holding: OpenDirectory, root: str) -> int:
    try:
        return holding.open(root)
    except NotFound:
        place = root or "none was set"
        raise Refused(
            "cwd", f"This run has no working directory ({place}). Nothing was run."
        ) from None


def _inside(root_fd: int, root: str, cwd: str) -> tuple[str, int]:
    """Where a command runs, by its true path, and that directory, open."""
    folder = clean(cwd)
    if "\0" in folder:
        raise Refused("cwd", "Invalid parameters: cwd contains a NUL character.")
    rest = strip(folder, root) if folder.startswith("/") else folder
    if rest is None:
        raise Refused(
            "cwd", f"Invalid parameters: cwd {cwd!r} is outside of {root}. Nothing was run."
        )
    try:
        fd = open_beneath(root_fd, rest or ".", DIRECTORY)
    except OSError as error:
        is_out = error.errno in (errno.EXDEV, errno.ELOOP)
        why = f"is outside of {root}" if is_out else "is not a directory"
        raise Refused("cwd", f"Invalid parameters: cwd {cwd!r} {why}. Nothing was run.") from None
    mine = strip(real_path(fd), real_path(root_fd))
    if mine is None:
        os.close(fd)
        raise Refused(
            "cwd", f"Invalid parameters: cwd {cwd!r} was moved out of {root}. Nothing was run."
        )
    return (f"{root.rstrip('/')}/{mine}" if mine else root), fd
