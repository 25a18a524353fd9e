"""Git for Retinue's own purposes; it runs nothing that a repository configures.

Filters, drivers, aliases, credential programs and included files can have any name, so no list of
settings switches them off. Instead git is given a git directory of ours: its `objects` lead to
those of the repository, its references are copies, its settings are written by us, with the few of
the repository's that only say how files are to be read. There are no hooks in it, and what git
would fetch, ask or show in a pager is off. A repository that is made of links to elsewhere, or
takes its objects from elsewhere, is refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from retinue.errors import RetinueError
from retinue.sandbox import git_refs
from retinue.sandbox.git_copy import Repository, build_copy, discard, ignored_by_user, kept_settings
from retinue.sandbox.git_process import LONG_SECONDS, SECONDS, base, home, program, run
from retinue.sandbox.regular_file import read_small

__all__ = ["Git", "Repository", "opened", "program"]


@dataclass(frozen=True, slots=True)
class Git:
    """Commands on one repository. `folder` is the git directory of ours, `borrowed` where objects
    are that the repository takes from elsewhere."""

    repository: Repository
    folder: str
    environ: dict[str, str] = field(default_factory=dict)
    borrowed: tuple[str, ...] = ()

    async def run(
        self,
        *args: str,
        index: str = "",
        top: str = "",
        fed: bytes = b"",
        is_long: bool = False,
        most: int = 0,
        good: tuple[int, ...] = (0,),
    ) -> bytes:
        """One command in `top`, or in the directory of the repository; `index` is used instead of
        its own. It sees that directory and what belongs to git. `good` are the exit codes of an
        answer."""
        where = top or self.repository.top
        environ = {**self.environ, "GIT_WORK_TREE": where}
        if index:
            environ["GIT_INDEX_FILE"] = index
        sees = (where, self.folder, self.repository.common, self.repository.own, *self.borrowed)
        seconds = LONG_SECONDS if is_long else SECONDS
        how = {"seconds": seconds, "sees": sees, "most": most, "good": good}
        return await run(args, environ, cwd=where, fed=fed, **how)  # type: ignore[arg-type]

    async def text(self, *args: str, index: str = "", top: str = "") -> str:
        return os.fsdecode((await self.run(*args, index=index, top=top)).rstrip(b"\n"))

    async def point(self, reference: str, commit: str) -> None:
        """Have a reference of the repository name a commit."""
        await asyncio.to_thread(_changed, git_refs.write, self.repository.common, reference, commit)

    async def drop(self, reference: str, commit: str) -> None:
        """Take a reference away, if that is what it names."""
        await asyncio.to_thread(
            _changed, git_refs.delete, self.repository.common, reference, commit
        )


def _changed(
    change: Callable[[str, str, str], None], common: str, reference: str, commit: str
) -> None:
    try:
        change(common, reference, commit)
    except OSError as error:
        raise RetinueError(f"{common}/{reference} cannot be changed: {error.strerror}") from None


@contextlib.asynccontextmanager
async def opened(
    repository: Repository, *, folders: tuple[str, ...] = (), logs: bool = False
) -> AsyncIterator[Git]:
    """A git directory of ours for a repository, for as long as it is needed. `given` are
    directories from which it may take objects; `logs`, whether the history of its references is to
    be seen: only by what cannot write to it."""
    try:
        settings = await asyncio.to_thread(read_small, f"{repository.common}/config")
        own_settings, ignored = await kept_settings(settings), await ignored_by_user(home())
        task = asyncio.create_task(
            asyncio.to_thread(build_copy, repository, own_settings, ignored, folders, logs)
        )
        try:
            folder, lock, borrowed = await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_give_up)
            raise
    except OSError as error:
        where = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        raise RetinueError(f"{repository.top} is not a readable git repository ({where})") from None
    try:
        index = f"{repository.own}/index"
        own = {"GIT_DIR": folder, "GIT_WORK_TREE": repository.top, "GIT_INDEX_FILE": index}
        yield Git(repository, folder, {**base(), **own}, borrowed)
    finally:
        await asyncio.to_thread(discard, folder, lock)


def _give_up(task: asyncio.Task[tuple[str, int, tuple[str, ...]]]) -> None:
    """No one wants it."""
    if not task.cancelled() and task.exception() is None:
        folder, lock, _ = task.result()
        discard(folder, lock)
