"""A copy of the repository for one run: a git worktree on a branch of its own.

What the run changed is committed to the branch when it ends; then the copy goes. A branch without changes goes too, so
that all that is left of isolated work is branches with something on them. A note beside the copy is written before git
is asked for anything, so that a crash at any point leaves nothing that the next start would not find.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from retinue.errors import RetinueError

QUIET = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=", "-c", "commit.gpgSign=false", "-c", "gc.auto=0",
    "-c", "user.name=Retinue", "-c", "user.email=retinue@localhost",
)  # fmt: skip
MOST_DIFF = 8 * 1024 * 1024
TIME = 120.0


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What was done on a branch since `base`."""

    branch: str
    base: str
    commit: str
    files: int
    added: int
    removed: int
    diff: bytes


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    repository: str
    inside: str
    branch: str
    base: str


class Worktrees:
    """The copies of one runtime, each in `folder` under its run's id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    async def open(self, run: str, source: str) -> str:
        """The directory in which the run works instead of `source`; made on first use, found again after a restart."""
        async with self._lock(run):
            note = self._note(run)
            if note is None:
                note = await self._plan(run, source)
            path = self.folder / run
            if not await self._is_whole(path):
                await self._create(path, note)
            return str(path if note.inside == "." else path / note.inside)

    async def changes(self, run: str, message: str) -> Changes | None:
        """Commit what there is, and tell what the branch holds; None when the run has changed nothing."""
        async with self._lock(run):
            note, path = self._note(run), self.folder / run
            if note is None or not await self._is_whole(path):
                return None
            await _git(path, "add", "--all", "--", ".")
            if await _git(path, "status", "--porcelain", "--untracked-files=no"):
                await _git(path, "commit", "--quiet", "--no-verify", "-m", message[:2_000] or "Work of a run")
            commit = (await _git(path, "rev-parse", "HEAD")).strip().decode()
            if commit == note.base:
                return None
            told = ("--no-ext-diff", "--no-textconv", note.base, commit)
            numbers = [line.split(b"\t") for line in (await _git(path, "diff", "--numstat", *told)).splitlines()]
            diff = await _git(path, "diff", *told)
            return Changes(
                branch=note.branch,
                base=note.base,
                commit=commit,
                files=len(numbers),
                added=sum(int(n[0]) for n in numbers if n[0].isdigit()),
                removed=sum(int(n[1]) for n in numbers if n[1].isdigit()),
                diff=diff[:MOST_DIFF],
            )

    async def close(self, run: str, message: str = "") -> None:
        """The run is over: keep its changes on its branch, remove the copy, and the branch if it is empty."""
        with contextlib.suppress(RetinueError):
            await self.changes(run, message)
        async with self._lock(run):
            note = self._note(run)
            if note is None:
                return
            path = self.folder / run
            with contextlib.suppress(RetinueError):
                await _git(Path(note.repository), "worktree", "remove", "--force", "--force", str(path))
            await asyncio.to_thread(shutil.rmtree, path, True)
            with contextlib.suppress(RetinueError):
                await _git(Path(note.repository), "worktree", "prune")
                tip = (await _git(Path(note.repository), "rev-parse", "--verify", note.branch)).strip().decode()
                if tip == note.base:
                    await _git(Path(note.repository), "branch", "-D", note.branch)
            self._place_of(run).unlink(missing_ok=True)
        self._locks.pop(run, None)

    async def sweep(self, open_runs: set[str]) -> list[str]:
        """After a restart: the copies of runs that are over are closed. Returns whose they were."""
        if not self.folder.is_dir():
            return []
        left = sorted({p.stem for p in self.folder.glob("*.json")} - open_runs)
        for run in left:
            await self.close(run, "Work of a run that was interrupted")
        return left

    def has(self, run: str) -> bool:
        return self._note(run) is not None

    def _lock(self, run: str) -> asyncio.Lock:
        return self._locks.setdefault(run, asyncio.Lock())

    def _place_of(self, run: str) -> Path:
        return self.folder / f"{run}.json"

    def _note(self, run: str) -> _Note | None:
        try:
            return msgspec.json.decode(self._place_of(run).read_bytes(), type=_Note)
        except (OSError, msgspec.MsgspecError):
            return None

    async def _plan(self, run: str, source: str) -> _Note:
        try:
            top = (await _git(Path(source), "rev-parse", "--show-toplevel")).strip().decode()
            base = (await _git(Path(source), "rev-parse", "--verify", "HEAD^{commit}")).strip().decode()
        except RetinueError as error:
            raise RetinueError(
                f"isolation 'worktree' needs a git repository with a commit, and {source} is none ({error}). "
                "Nothing was done. Run `git init` and commit, or leave the isolation out."
            ) from None
        note = _Note(repository=top, inside=_inside(source, top), branch=f"retinue/{run}", base=base)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._place_of(run).with_suffix(".new")
        new.write_bytes(msgspec.json.encode(note))
        os.replace(new, self._place_of(run))
        return note

    async def _is_whole(self, path: Path) -> bool:
        """Whether git knows the copy as one. (A crash may have left half of it.)"""
        if not (path / ".git").is_file():
            return False
        try:
            return _is_same((await _git(path, "rev-parse", "--show-toplevel")).strip().decode(), path)
        except RetinueError:
            return False

    async def _create(self, path: Path, note: _Note) -> None:
        repository = Path(note.repository)
        await asyncio.to_thread(shutil.rmtree, path, True)
        await _git(repository, "worktree", "prune")
        try:
            await _git(repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{note.branch}")
            known = [note.branch]
        except RetinueError:
            known = ["-b", note.branch]
        start = [] if known == [note.branch] else [note.base]
        named = known if start else []
        await _git(repository, "worktree", "add", "--quiet", *named, str(path), *(start or known))


def _inside(source: str, top: str) -> str:
    return os.path.relpath(os.path.realpath(source), os.path.realpath(top))


def _is_same(a: str, b: Path) -> bool:
    try:
        return os.path.samefile(a, b)
    except OSError:
        return False


async def _git(where: Path, *args: str) -> bytes:
    """One git command, without hooks, signatures or the user's pager."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    process = await asyncio.create_subprocess_exec(
        "git", *QUIET, "-C", str(where), *args,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**environ, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
    )  # fmt: skip
    try:
        out, complaint = await asyncio.wait_for(process.communicate(), TIME)
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise
    if process.returncode:
        raise RetinueError(f"git {args[0]}: {complaint.decode('utf-8', 'replace').strip()[:500] or process.returncode}")
    return out
