"""Everything that a runtime has running outside itself. One `Processes` belongs to one state directory; a process ends
with the run that started it, and with the runtime.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from retinue.core.text import clean, digest
from retinue.core.values import Capabilities
from retinue.errors import Refused
from retinue.sandbox.base import Command, Ended, Limits, Running, Sandbox
from retinue.sandbox.bwrap import find_sandbox
from retinue.sandbox.limits import find_groups
from retinue.sandbox.running import sweep
from retinue.sandbox.shield import beneath, clear_places
from retinue.tools.base import Caller
from retinue.tools.builtin.spool import End, Spool, Start, forget_old

ENVIRONMENT = ("PATH", "HOME", "LANG", "TERM", "TZ")
KEEP_SECONDS = 3 * 24 * 3600.0
DAY = 24 * 3600.0
LIMITS = Limits()


@dataclass
class Live:
    """A command under way. `over` is set when its end is on disk; `news` whenever there is more output."""

    run: str
    spool: Spool
    background: bool = False
    running: Running | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    watching: asyncio.Task[End] | None = None
    forget: Callable[[], object] = lambda: None

    def sink(self, data: bytes) -> None:
        self.spool.write(data)
        self.news.set()

    async def wait(self, seconds: float | None) -> End:
        """Until nothing of it is left; then its end is on disk, however this came about."""
        assert self.running is not None
        try:
            ended = await self.running.wait(seconds)
        except asyncio.CancelledError:
            # In a task of its own: whoever cancels twice does not get rid of the record.
            self.watching = asyncio.get_running_loop().create_task(self._conclude())
            await asyncio.shield(self.watching)
            raise
        return self._note(ended)

    async def _conclude(self) -> End:
        assert self.running is not None
        return self._note(await self.running.wait())

    def _note(self, ended: Ended) -> End:
        end = self.spool.finish(ended)
        self.forget()
        self.over.set()
        self.news.set()
        return end


class Processes:
    """`sandbox` is found when it is first needed; `environ` is what allowed names are looked up in."""

    def __init__(
        self,
        state: Path,
        *,
        sandbox: Sandbox | None = None,
        environ: Mapping[str, str] | None = None,
        limits: Limits = LIMITS,
        max_background: int = 8,
        background_seconds: float = DAY,
    ) -> None:
        self._folder = Path(os.path.abspath(state)) / "shell"
        self._sandbox, self._environ, self.limits = sandbox, environ, limits
        self._max_background, self._background_seconds = max_background, background_seconds
        self._live: dict[str, Live] = {}
        self._mark = digest(self._folder)[:16]
        self._is_swept = False

    def sandbox(self) -> Sandbox:
        """What contains commands here, or `SandboxMissing` with what to do."""
        if self._sandbox is None:
            self._sandbox = find_sandbox(hide=(str(self._folder.parent),))
        return self._sandbox

    def environment(self, held: Capabilities) -> dict[str, str]:
        source = os.environ if self._environ is None else self._environ
        names = (*ENVIRONMENT, *(held.env or ()))
        return {name: source[name] for name in names if name in source}

    def command(self, caller: Caller, argv: tuple[str, ...], cwd: str, *, may_write: bool) -> Command:
        """What a run's capabilities make of a command line."""
        held, root = caller.held, os.path.realpath(caller.root)
        write = ((root,) if held.write is None else held.write) if may_write else ()
        read = (root, *(held.read or ()))
        if held.read is not None and not beneath(root, map(os.path.realpath, (*held.read, *(held.write or ())))):
            raise Refused("read", f"this run may not read {root}, where it would work; nothing was run.")
        return Command(
            argv=argv,
            cwd=cwd,
            write=tuple(write),
            read=read,
            env=self.environment(held),
            network="*" in (held.hosts or ()),
            limits=self.limits,
        )

    def spool(self, key: str) -> Spool:
        return Spool(self._folder / digest("shell", key)[:16])

    async def start(self, caller: Caller, command: Command, shown: str, *, background: bool) -> Live:
        """Record it, then start it. What is refused leaves no record."""
        sandbox = self.sandbox()
        n = sum(live.background and live.run == caller.id for live in self._live.values())
        if background and n >= self._max_background:
            raise Refused("background", f"{n} processes are running in the background; stop one with shell_stop first.")
        spool = self.spool(caller.key)
        live = Live(run=caller.id, spool=spool, background=background)
        tag = f"{self._mark}:{spool.id}"
        start = Start(run=caller.id, command=shown, at=caller.at / 1000, tag=tag, background=background)
        await asyncio.to_thread(self._record, spool, start)
        try:
            live.running = await sandbox.start(replace(command, tag=tag), live.sink)
        except BaseException:
            spool.discard()
            raise
        self._live[spool.id] = live
        live.forget = lambda: self._live.pop(spool.id, None)
        if background:
            live.watching = asyncio.get_running_loop().create_task(live.wait(self._background_seconds))
        return live

    def find(self, run: str, id: str) -> Live | Spool | None:
        """A command of that run: under way, or its record. Another run's is not found."""
        live = self._live.get(id)
        if live is not None:
            return live if live.run == run else None
        if not id.isalnum():
            return None
        spool = Spool(self._folder / id)
        start = spool.start
        return spool if start is not None and start.run == run else None

    def forsake(self, spool: Spool) -> None:
        """Before a call is answered for after a restart: nothing of it may still run."""
        sweep(f"{self._mark}:{spool.id}")

    def has(self, run: str) -> bool:
        """Whether a run has left something running."""
        return any(live.run == run for live in self._live.values())

    async def run_over(self, run: str) -> None:
        """A run has ended or was cancelled: so does everything that it had started."""
        await self._end([live for live in self._live.values() if live.run == run])

    async def close(self) -> None:
        """End everything, and leave nothing behind in the directories where it ran."""
        await self._end(list(self._live.values()))
        clear_places()

    async def _end(self, all_of: list[Live]) -> None:
        for live in all_of:
            if live.running is not None:
                live.running.stop()
        await asyncio.gather(*(live.over.wait() for live in all_of))

    def _record(self, spool: Spool, start: Start) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self._folder, 0o700)
        if not self._is_swept:
            # What an earlier runtime on this state left behind dies before anything new is started.
            self._is_swept = True
            sweep(f"{self._mark}:")
            find_groups().sweep()
            forget_old(self._folder, KEEP_SECONDS)
        spool.create(start)


def directory(root: str, cwd: str = "") -> str:
    """Where a command runs: the root of a run, or a directory in it."""
    if not os.path.isabs(root) or not os.path.isdir(root):
        raise Refused("cwd", f"this run has no directory to work in ({root or 'none was given'}); nothing was run.")
    real = os.path.realpath(root)
    if "\0" in cwd:
        raise Refused("cwd", "Invalid parameters: cwd contains a NUL character.")
    found = os.path.realpath(os.path.join(real, clean(cwd)))
    if not beneath(found, (real,)):
        raise Refused("cwd", f"Invalid parameters: cwd {cwd!r} is outside of {root}; nothing was run.")
    if not os.path.isdir(found):
        raise Refused("cwd", f"Invalid parameters: cwd {cwd!r} is not a directory; nothing was run.")
    return found
