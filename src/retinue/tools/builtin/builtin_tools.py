"""The built-in tools by name, and what they share in one runtime: a private folder, the sandbox,
write leases."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.merges import BranchMerge, WriterCopy
from retinue.errors import ConfigError, RetinueError, SandboxMissing
from retinue.formats.suggestion import did_you_mean
from retinue.sandbox import folder_operations as folders
from retinue.sandbox import git_folders
from retinue.sandbox.private_paths import TEMPORARY, Private
from retinue.sandbox.worktree import Worktrees
from retinue.sandbox.writer_merges import WriterMerges, snapshot
from retinue.tools.base import Tool
from retinue.tools.builtin.artifacts import PAGE, ArtifactTool
from retinue.tools.builtin.builtin_names import NAMES
from retinue.tools.builtin.write_leases import WriteLeases

if TYPE_CHECKING:
    from retinue.tools.builtin.run_processes import Processes

log = logging.getLogger("retinue.tools")
SWEEP_SECONDS = 3.0
FINISH_SECONDS = 20.0


class BuiltinTools:
    """Makes each tool once. `folder` is private to the runtime; without one it lasts as long as
    these tools. `cache` is where facts about source trees are kept, None for nowhere. `threads` is
    how many plain functions can work in parallel."""

    def __init__(
        self,
        store: Any,
        folder: Path | None = None,
        *,
        page: int = PAGE,
        unsafe_no_sandbox: bool = False,
        private: Private | None = None,
        threads: int = 32,
        cache: Path | None = None,
    ) -> None:
        self._store, self._folder, self._page = store, folder, max(64, min(PAGE, page))
        self._unsafe_no_sandbox, self._private, self._n_threads = (
            unsafe_no_sandbox,
            private,
            threads,
        )
        self.cache = cache
        self._made: dict[str, Tool] = {}
        self._temporary = folder is None
        self._leaving: set[str] = set()
        self._sweeping: asyncio.Future[None] | None = None
        self._is_used: Callable[[str], bool] = lambda place: False
        self.writers = WriteLeases()

    @cached_property
    def threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._n_threads, thread_name_prefix="retinue-tool")

    @cached_property
    def folder(self) -> Path:
        folder = (
            Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}-")) if self._folder is None else self._folder
        )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @cached_property
    def worktrees(self) -> Worktrees:
        return Worktrees(self.folder / "worktrees")

    @cached_property
    def merges(self) -> WriterMerges:
        return WriterMerges(self.worktrees)

    async def snapshot(self, place: str) -> str:
        """A commit of the files in a directory as they are, for copies of them; "" where there can
        be none: then writers take turns."""
        try:
            return await snapshot(place)
        except (RetinueError, OSError) as error:
            log.info("writers take turns in %s: %s", place, error)
            return ""

    async def merge(self, key: str, copies: Sequence[WriterCopy]) -> tuple[BranchMerge, ...]:
        """What became of the copies of writers that worked in parallel. Asked again, it says the
        same."""
        return await self.merges.merge(key, copies, self._is_used)

    def tool(self, name: str) -> Tool:
        """The built-in tool of this name."""
        if name not in self._made:
            instance = (
                ArtifactTool(self._store.get_artifact, self._page)
                if name == "artifact"
                else self._make(name)
            )
            if instance is None:
                hint = did_you_mean(name, NAMES)
                raise ConfigError(f"Unknown tool {name!r}.{hint} Known: {', '.join(NAMES)}")
            self._made[name] = instance
        return self._made[name]

    def over(self, run: str, is_used: Callable[[str], bool]) -> Awaitable[None] | None:
        """A run has ended: what it held here is given back; what it left running is stopped. A copy
        stays as long as someone works in it (`is_used`)."""
        self.writers.over(run)
        self._is_used = is_used
        if "merges" in self.__dict__:
            self.merges.forget(run)
        processes = self.__dict__.get("processes")
        if (
            (processes is None or not processes.has(run))
            and not self.is_isolated(run)
            and not self._leaving
        ):
            return None
        self._leaving.add(run)
        return self._tidy(is_used)

    def is_isolated(self, run: str) -> bool:
        return "worktrees" in self.__dict__ and self.worktrees.has(run)

    async def _tidy(self, is_used: Callable[[str], bool]) -> None:
        for run in sorted(self._leaving):
            try:
                if await self._let_go(run, is_used):
                    self._leaving.discard(run)
            except (
                Exception
            ) as error:  # what one run has left behind must not end the others, nor the host
                self._leaving.discard(run)
                log.warning(
                    "cannot clean up after run %s; its files stay where they are: %s",
                    run,
                    error,
                )

    async def _let_go(self, run: str, is_used: Callable[[str], bool]) -> bool:
        """Whether nothing of it is left to do: in a copy of its own someone else may still work."""
        if (processes := self.__dict__.get("processes")) is not None:
            await processes.run_over(run)
        if self.is_isolated(run):
            if is_used(str(self.worktrees.place(run))):
                return False
            await self.worktrees.close(run)
        return True

    async def sweep(self, open_runs: set[str], is_used: Callable[[str], bool]) -> None:
        """After a restart: the copies of runs that have ended go, and what git was given by a
        process that was killed. (Their processes went with the last process.) However much a run
        has left, the start waits only a moment."""
        self._is_used = is_used
        await asyncio.to_thread(git_folders.sweep)
        if self._folder is not None and (self._folder / "worktrees").is_dir():
            await self.worktrees.sweep()
            self.merges.sweep(open_runs)
            self._leaving.update(set(self.worktrees.runs()) - open_runs)
            self._sweeping = asyncio.ensure_future(self._tidy(is_used))
            await asyncio.wait([self._sweeping], timeout=SWEEP_SECONDS)

    async def forget_runs(self, known: Callable[[Iterable[str]], Awaitable[set[str]]]) -> None:
        """Runs were forgotten: the records of their commands go too. `known` are those that are
        still on record."""
        folder = None if self._folder is None else self._folder / "shell"
        if folder is None or not folder.is_dir():
            return
        from retinue.tools.builtin.command_record import discard_all, owners

        owned = await asyncio.to_thread(owners, folder)
        runs = await known(set(owned.values()))
        ids = [id for id, run in owned.items() if run not in runs]
        if ids:
            await asyncio.to_thread(discard_all, folder, ids)

    async def close(self) -> None:
        if (threads := self.__dict__.pop("threads", None)) is not None:
            threads.shutdown(wait=False, cancel_futures=True)
        if self._temporary and "worktrees" in self.__dict__:
            self._leaving.update(self.worktrees.runs())
        await self._finish()
        if (processes := self.__dict__.get("processes")) is not None:
            await processes.close()
        self.writers.close()
        # What could not be put on a branch is still in its copy: it is not thrown away with the
        # folder.
        is_empty = "worktrees" not in self.__dict__ or not self.worktrees.runs()
        if self._temporary and "folder" in self.__dict__ and is_empty:
            await asyncio.to_thread(folders.remove, self.folder)

    async def _finish(self) -> None:
        """Tidy up for the last time: in a folder that stays, the next start does what takes too
        long now."""
        is_used = (lambda place: False) if self._temporary else self._is_used
        works: list[asyncio.Future[None]] = [asyncio.ensure_future(self._tidy(is_used))]
        works += [self._sweeping] if self._sweeping is not None else []
        _, late = await asyncio.wait(works, timeout=None if self._temporary else FINISH_SECONDS)
        for work in late:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    @cached_property
    def processes(self) -> Processes:
        from retinue.sandbox.bwrap import find_sandbox
        from retinue.sandbox.unsandboxed import Unsandboxed
        from retinue.tools.builtin.run_processes import Processes

        bare = None
        if self._unsafe_no_sandbox:
            try:
                find_sandbox()
            except SandboxMissing:
                bare = Unsandboxed(unsafe_no_sandbox=True)
        return Processes(self.folder, sandbox=bare, private=self._private)

    def _make(self, name: str) -> Tool | None:
        """What a tool needs is imported with it: few programs use all of them."""
        from retinue.tools.builtin import (
            ask,
            edit,
            fetch,
            git,
            list_find_tools,
            read_tool,
            search,
            shell,
            symbols,
            task_list_tool,
            think,
            write_tool,
        )

        makers: dict[str, Callable[[], Tool]] = {
            "read": lambda: read_tool.ReadTool(),
            "list": lambda: list_find_tools.ListFilesTool(),
            "find": lambda: list_find_tools.FindTool(),
            "search": lambda: search.SearchTool(),
            "symbols": lambda: symbols.SymbolsTool(self.cache),
            "edit": lambda: edit.EditTool(),
            "write": lambda: write_tool.WriteTool(),
            "shell": lambda: shell.ShellTool(
                self.processes, may_write=self.writers.take, blocked_by=self.writers.refusal
            ),
            "shell_output": lambda: shell.ShellOutputTool(self.processes),
            "shell_stop": lambda: shell.ShellStopTool(self.processes),
            "git": lambda: git.GitTool(self.processes),
            "fetch": lambda: fetch.FetchTool(),
            "think": think.ThinkTool,
            "tasks": lambda: task_list_tool.TasksTool(self._store),
            "ask": ask.AskTool,
        }
        return makers[name]() if name in makers else None
