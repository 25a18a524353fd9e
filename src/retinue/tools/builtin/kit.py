"""The built-in tools by name, and what they share in one runtime: its private folder, the sandbox, the leases."""

from __future__ import annotations

import difflib
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.errors import ConfigError, SandboxMissing
from retinue.sandbox.worktree import Worktrees
from retinue.tools.base import Tool
from retinue.tools.builtin.artifacts import PAGE, ArtifactTool
from retinue.tools.builtin.writers import Writers

if TYPE_CHECKING:
    from retinue.tools.builtin.processes import Processes

NAMES = (
    "read",
    "list",
    "search",
    "find",
    "edit",
    "write",
    "shell",
    "shell_output",
    "shell_stop",
    "git",
    "fetch",
    "think",
    "tasks",
    "artifact",
    "ask",
)


class Kit:
    """Makes each tool once. `folder` is private to the runtime; without one it lasts as long as the kit."""

    def __init__(
        self,
        store: Any,
        folder: Path | None = None,
        *,
        page: int = PAGE,
        unsafe_bare: bool = False,
    ) -> None:
        self._store, self._folder, self._page = store, folder, page
        self._unsafe_bare = unsafe_bare
        self._made: dict[str, Tool] = {}
        self._temporary = folder is None
        self._leaving: set[str] = set()
        self._is_used: Callable[[str], bool] = lambda place: False
        self.writers = Writers()

    @cached_property
    def folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="retinue-")) if self._folder is None else self._folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @cached_property
    def worktrees(self) -> Worktrees:
        return Worktrees(self.folder / "worktrees")

    def tool(self, name: str) -> Tool:
        """The built-in tool of this name."""
        if name not in self._made:
            made = ArtifactTool(self._store.get_artifact, self._page) if name == "artifact" else self._make(name)
            if made is None:
                near = difflib.get_close_matches(name, NAMES, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"there is no built-in tool {name!r}.{hint} There is: {', '.join(NAMES)}")
            self._made[name] = made
        return self._made[name]

    def over(self, run: str, is_used: Callable[[str], bool]) -> Awaitable[None] | None:
        """A run has ended: what it held here is given back; what it left running is stopped. A copy stays as long as
        somebody works in it (`is_used`)."""
        self.writers.over(run)
        self._is_used = is_used
        processes = self.__dict__.get("processes")
        if (processes is None or not processes.has(run)) and not self.is_isolated(run) and not self._leaving:
            return None
        self._leaving.add(run)
        return self._tidy(is_used)

    def is_isolated(self, run: str) -> bool:
        return "worktrees" in self.__dict__ and self.worktrees.has(run)

    async def _tidy(self, is_used: Callable[[str], bool]) -> None:
        for run in sorted(self._leaving):
            if (processes := self.__dict__.get("processes")) is not None:
                await processes.run_over(run)
            if self.is_isolated(run):
                if is_used(str(self.worktrees.place(run))):
                    continue
                await self.worktrees.close(run)
            self._leaving.discard(run)

    async def sweep(self, open_runs: set[str], is_used: Callable[[str], bool]) -> None:
        """After a restart: the copies of runs that have ended go. (Their processes went with the last process.)"""
        if self._folder is not None and (self._folder / "worktrees").is_dir():
            self._leaving.update(set(self.worktrees.runs()) - open_runs)
            await self._tidy(is_used)

    async def close(self) -> None:
        if self._temporary and "worktrees" in self.__dict__:
            self._leaving.update(self.worktrees.runs())
        await self._tidy((lambda place: False) if self._temporary else self._is_used)
        if (processes := self.__dict__.get("processes")) is not None:
            await processes.close()
        # What could not be put on a branch is still in its copy: it is not thrown away with the folder.
        is_empty = "worktrees" not in self.__dict__ or not self.worktrees.runs()
        if self._temporary and "folder" in self.__dict__ and is_empty:
            shutil.rmtree(self.folder, ignore_errors=True)

    @cached_property
    def processes(self) -> Processes:
        from retinue.sandbox.bare import Unsandboxed
        from retinue.sandbox.bwrap import find_sandbox
        from retinue.tools.builtin.processes import Processes

        bare = None
        if self._unsafe_bare:
            try:
                find_sandbox()
            except SandboxMissing:
                bare = Unsandboxed(unsafe_bare=True)
        return Processes(self.folder, sandbox=bare)

    def _make(self, name: str) -> Tool | None:
        """What a tool needs is imported with it: few programs use all of them."""
        from retinue.tools.builtin import ask, edit, files, git, search, shell, tasks, think, web

        makers: dict[str, Callable[[], Tool]] = {
            "read": lambda: files.Read(),
            "list": lambda: files.List(),
            "find": lambda: files.Find(),
            "search": lambda: search.Search(),
            "edit": lambda: edit.Edit(),
            "write": lambda: edit.Write(),
            "shell": lambda: shell.ShellTool(self.processes, may_write=self.writers.take),
            "shell_output": lambda: shell.ShellOutputTool(self.processes),
            "shell_stop": lambda: shell.ShellStopTool(self.processes),
            "git": lambda: git.GitTool(self.processes),
            "fetch": lambda: web.Fetch(),
            "think": think.Think,
            "tasks": lambda: tasks.Tasks(self._store),
            "ask": ask.AskTool,
        }
        return makers[name]() if name in makers else None
