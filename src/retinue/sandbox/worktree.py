"""A copy of the repository for one run: a git worktree on a branch of its own.

What the run changed is put on the branch when it ends; then the copy goes. A branch without changes goes too, so that
all that is left of isolated work is branches with something on them. A note beside the copy is written before git is
asked for anything, so that a crash at any point leaves nothing that the next start would not find. Nothing in the copy
is believed: git is told where its data is, has an index of our own, and repositories inside of the copy are made plain
files first, for their settings could have git run something.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from pathlib import Path

import msgspec

from retinue.errors import RetinueError

QUIET = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=", "-c", "commit.gpgSign=false", "-c", "gc.auto=0",
    "-c", "submodule.recurse=false",
    "-c", "user.name=Retinue", "-c", "user.email=retinue@localhost",
)  # fmt: skip
log = logging.getLogger("retinue")
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
    """`admin` is where git keeps the data of the copy, "" until it is made."""

    repository: str
    inside: str
    branch: str
    base: str
    admin: str = ""


class Worktrees:
    """The copies of one runtime, each in `folder` under its run's id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[str, asyncio.Lock] = {}

    async def open(self, run: str, source: str) -> str:
        """The directory in which the run works instead of `source`; made on first use, found again after a restart."""
        async with self._lock(run):
            note = self._note(run) or await self._plan(run, source)
            path = self.place(run)
            if not note.admin or not _is_there(path, note):
                async with self._lock(note.repository):
                    note = await self._create(run, path, note)
            return await asyncio.to_thread(_enter, path, note.inside)

    async def changes(self, run: str, message: str) -> Changes | None:
        """Put what there is on the branch, and tell what it holds; None when the run has changed nothing."""
        async with self._lock(run):
            note = self._note(run)
            return None if note is None or not note.admin else await self._record(run, note, message)

    async def close(self, run: str, message: str = "") -> None:
        """The run is over: keep its changes on its branch, remove the copy, and the branch if it is empty. When they
        cannot be kept, the copy stays where it is."""
        async with self._lock(run):
            note = self._note(run)
            if note is None:
                return
            if note.admin and self.place(run).is_dir():
                try:
                    await self._record(run, note, message)
                except RetinueError as error:
                    log.warning("the work of run %s stays in %s: %s", run, self.place(run), error)
                    return
            async with self._lock(note.repository):
                await self._remove(run, note)
        self._locks.pop(run, None)

    def place(self, run: str) -> Path:
        return self.folder / run

    def runs(self) -> list[str]:
        """Whose copies there are."""
        return sorted(p.stem for p in self.folder.glob("*.json")) if self.folder.is_dir() else []

    def has(self, run: str) -> bool:
        return self._note(run) is not None

    def _lock(self, run: str) -> asyncio.Lock:
        return self._locks.setdefault(run, asyncio.Lock())

    def _note(self, run: str) -> _Note | None:
        try:
            return msgspec.json.decode((self.folder / f"{run}.json").read_bytes(), type=_Note)
        except (OSError, msgspec.MsgspecError):
            return None

    def _keep(self, run: str, note: _Note) -> _Note:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.folder / f"{run}.new"
        new.write_bytes(msgspec.json.encode(note))
        os.replace(new, self.folder / f"{run}.json")
        return note

    async def _plan(self, run: str, source: str) -> _Note:
        try:
            top = (await _git("-C", source, "rev-parse", "--show-toplevel")).rstrip(b"\n")
            base = (await _git("-C", source, "rev-parse", "--verify", "HEAD^{commit}")).strip().decode()
        except RetinueError as error:
            raise RetinueError(
                f"isolation 'worktree' needs a git repository with a commit, and {source} is none ({error}). "
                "Nothing was done. Run `git init` and commit, or leave the isolation out."
            ) from None
        repository = os.fsdecode(top)
        note = _Note(repository=repository, inside=_inside(source, repository), branch=f"retinue/{run}", base=base)
        return self._keep(run, note)

    async def _create(self, run: str, path: Path, note: _Note) -> _Note:
        """Make the copy, or make it again when only half of it is there. What stands there is not thrown away."""
        if note.admin and _point(path, note.admin):
            return note
        await asyncio.to_thread(shutil.rmtree, path, True)
        repository = ("-C", note.repository)
        try:
            await _git(*repository, "rev-parse", "--verify", "--quiet", f"refs/heads/{note.branch}")
            what = [str(path), note.branch]
        except RetinueError:
            what = ["-b", note.branch, str(path), note.base]
        await _git(*repository, "worktree", "add", "--quiet", "--force", "--force", *what)
        admin = (await _git("-C", str(path), "rev-parse", "--absolute-git-dir")).rstrip(b"\n")
        return self._keep(run, msgspec.structs.replace(note, admin=os.fsdecode(admin)))

    async def _record(self, run: str, note: _Note, message: str) -> Changes | None:
        """A commit of everything in the copy on top of where its run has got to, by git's inner commands alone."""
        path = self.place(run)
        await asyncio.to_thread(_make_plain, path)
        where = (f"--git-dir={note.admin}", f"--work-tree={path}")
        index = self.folder / f"{run}.index"
        for stale in (index, self.folder / f"{run}.index.lock"):
            stale.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            shutil.copyfile(os.path.join(note.admin, "index"), index)
        try:
            head = (await _git(*where, "rev-parse", "--verify", "HEAD^{commit}")).strip().decode()
            await _stage(where, index, path)
            tree = (await _git(*where, "write-tree", index=index)).strip().decode()
            known = (await _git(*where, "rev-parse", f"{head}^{{tree}}")).strip().decode()
            commit = head
            if tree != known:
                said = message.replace("\0", "").strip()[:2_000] or "Work of a run"
                made = await _git(*where, "commit-tree", tree, "-p", head, "-m", said)
                commit = made.strip().decode()
            if commit == note.base:
                return None
            await _git(*where, "update-ref", f"refs/heads/{note.branch}", commit)
            return await _told(where, note, commit)
        finally:
            index.unlink(missing_ok=True)

    async def _remove(self, run: str, note: _Note) -> None:
        path, repository = self.place(run), ("-C", note.repository)
        with contextlib.suppress(RetinueError):
            await _git(*repository, "worktree", "remove", "--force", "--force", str(path))
        await asyncio.to_thread(shutil.rmtree, path, True)
        if os.path.basename(os.path.dirname(note.admin)) == "worktrees":
            await asyncio.to_thread(shutil.rmtree, note.admin, True)
        with contextlib.suppress(RetinueError):
            tip = (await _git(*repository, "rev-parse", "--verify", f"refs/heads/{note.branch}")).strip().decode()
            if tip == note.base:
                await _git(*repository, "branch", "-D", note.branch)
        (self.folder / f"{run}.json").unlink(missing_ok=True)


async def _stage(where: tuple[str, ...], index: Path, path: Path) -> None:
    """Everything in the copy into our index, but not what stands in the place of a submodule: git would look into it by
    that one's own settings. What a filter of the repository cannot take is taken as it is."""
    known = await _git(*where, "ls-files", "-s", "-z", index=index)
    links = [os.fsdecode(e.split(b"\t", 1)[1]) for e in known.split(b"\0") if e.startswith(b"160000")]
    others = [f":(exclude,top,literal){name}" for name in links]
    try:
        await _git(*where, "add", "--all", "--", ".", *others, index=index, cwd=path)
        return
    except RetinueError:
        listed = await _git(*where, "ls-files", "-z", "-m", "-o", "--exclude-standard", index=index, cwd=path)
    for name in {os.fsdecode(n) for n in listed.split(b"\0") if n} - set(links):
        file = path / name
        if file.is_symlink() or not file.is_file():
            await _git(*where, "update-index", "--add", "--remove", "--", name, index=index, cwd=path)
            continue
        blob = (await _git(*where, "hash-object", "-w", "--no-filters", "--", name, cwd=path)).strip().decode()
        mode = "100755" if os.access(file, os.X_OK) else "100644"
        entry = f"{mode},{blob},{name}"
        await _git(*where, "update-index", "--add", "--cacheinfo", entry, index=index, cwd=path)


async def _told(where: tuple[str, ...], note: _Note, commit: str) -> Changes:
    told = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", note.base, commit)
    numbers = [line.split(b"\t") for line in (await _git(*where, "diff-tree", "-r", "--numstat", *told)).splitlines()]
    diff = await _git(*where, "diff-tree", "-r", "-p", *told)
    return Changes(
        branch=note.branch,
        base=note.base,
        commit=commit,
        files=len(numbers),
        added=sum(int(n[0]) for n in numbers if n[0].isdigit()),
        removed=sum(int(n[1]) for n in numbers if len(n) > 1 and n[1].isdigit()),
        diff=diff[:MOST_DIFF],
    )


def _make_plain(path: Path) -> None:
    """A repository inside of the copy becomes a folder like any other; what it knew is kept beside it."""
    for top, folders, files in os.walk(path, onerror=_cannot):
        if top != str(path) and ".git" in (*folders, *files):
            try:
                os.rename(os.path.join(top, ".git"), os.path.join(top, "dot-git"))
            except OSError as error:
                _cannot(error)
        folders[:] = [f for f in folders if f != ".git" and not os.path.islink(os.path.join(top, f))]


def _cannot(error: OSError) -> None:
    raise RetinueError(f"the copy cannot be read safely: {error}")


def _enter(path: Path, inside: str) -> str:
    """The folder of the copy that stands for the one that the run was sent to."""
    place = path if inside == "." else path / inside
    real, top = os.path.realpath(place), os.path.realpath(path)
    if real != top and not real.startswith(f"{top}/"):
        raise RetinueError(f"{inside} leads out of the copy of the repository by a link; nothing was done there")
    os.makedirs(real, exist_ok=True)
    return str(place)


def _is_there(path: Path, note: _Note) -> bool:
    """Whether the copy still belongs to the data that git keeps of it. (A crash, or its run, may have changed that.)"""
    try:
        return (path / ".git").read_text() == f"gitdir: {note.admin}\n"
    except OSError:
        return False


def _point(path: Path, admin: str) -> bool:
    """Have the copy know again where its data is, if both are there."""
    if not path.is_dir() or not os.path.isdir(admin):
        return False
    pointer = path / ".git"
    if pointer.is_dir() and not pointer.is_symlink():
        pointer.rename(path / "dot-git")
    pointer.unlink(missing_ok=True)
    pointer.write_text(f"gitdir: {admin}\n")
    return True


def _inside(source: str, top: str) -> str:
    return os.path.relpath(os.path.realpath(source), os.path.realpath(top))


async def _git(*args: str, index: Path | None = None, cwd: Path | None = None) -> bytes:
    """One git command, without hooks, signatures or the user's pager."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environ |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    if index is not None:
        environ["GIT_INDEX_FILE"] = str(index)
    process = await asyncio.create_subprocess_exec(
        "git", *QUIET, *args,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
        cwd=cwd,
    )  # fmt: skip
    try:
        out, complaint = await asyncio.wait_for(process.communicate(), TIME)
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise
    if process.returncode:
        said = complaint.decode("utf-8", "replace").strip()[:500] or process.returncode
        raise RetinueError(f"git {next((a for a in args if not a.startswith('-')), '')}: {said}")
    return out
