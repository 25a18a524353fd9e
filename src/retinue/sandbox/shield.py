"""What a command may not change inside the directory that it may write: files that other programs run or trust.

Existing ones are bound read-only, with every directory above them pinned by a mount, since a directory that merely
holds a mount can be renamed away. Missing ones get an empty directory as a place to mount on: git does not see it,
whatever is on it vanishes with the sandbox, and it is removed by `rmdir`, which cannot remove anything else.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from retinue.errors import Refused
from retinue.sandbox import protected

# In a git directory that is itself writable, so that one can commit: what makes git run or trust something else.
GIT_PARTS = ("hooks", "config", "modules", "worktrees")
# The same, but git stumbles over an empty directory of that name: these are looked at when the command has ended.
GIT_WATCHED = ("commondir", "config.worktree")
HOOKS_PATH = re.compile(rb"^\s*hooksPath\s*=\s*\"?([^\"\r\n;#]+)", re.IGNORECASE | re.MULTILINE)
# The time on an empty directory by which a later process knows it for one of these.
MARK_NS = 1_000_025_725_000_000_000
LOCK_TRIES, LOCK_PAUSE = 400, 0.005
LINGER_SECONDS = 1.0


class Places:
    """The empty directories of one root. They outlive a command by a moment, since commands come in rows; while anybody
    holds the shared lock on the root, in this process or another, they stay: a mount on one would go with it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.made: set[str] = set()
        self._n_users = 0
        self._lock = -1
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def enter(cls, root: str) -> Places:
        for _ in range(LOCK_TRIES):
            places = _places.setdefault(root, cls(root))
            if places._locked():
                places._n_users += 1
                if places._timer is not None:
                    places._timer.cancel()
                return places
            await asyncio.sleep(LOCK_PAUSE)
        raise Refused("sandbox", f"another process keeps {root} locked; nothing was run. Try again when it has ended.")

    def _locked(self) -> bool:
        if self._lock >= 0:
            return True
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock = fd
        return True

    def make(self, path: str) -> bool:
        """False when it cannot be made by us, and so not by the command."""
        try:
            os.mkdir(path, 0o755)
            os.utime(path, ns=(MARK_NS, MARK_NS))
        except FileExistsError:
            pass  # by another process, at this moment
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                return False
            raise Refused("sandbox", f"{path} cannot be protected ({error.strerror}); nothing was run.") from error
        self.made.add(path)
        return True

    def leave(self) -> None:
        self._n_users -= 1
        if self._n_users == 0:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.clear)

    def clear(self) -> None:
        """Remove them, unless another process still needs them: then the last to leave does it."""
        if self._n_users or self._lock < 0:
            return
        _places.pop(self.root, None)
        lock, self._lock = self._lock, -1
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in self.made:
                with contextlib.suppress(OSError):
                    if is_place(os.lstat(path)):
                        os.rmdir(path)
        except OSError:
            pass
        finally:
            os.close(lock)


_places: dict[str, Places] = {}


@atexit.register
def clear_places() -> None:
    """Remove the empty directories of all roots in which nothing runs."""
    for places in list(_places.values()):
        places.clear()


@dataclass
class Shield:
    """The mounts for one writable directory. `release` must be called when the command has ended."""

    root: str
    places: Places
    args: list[tuple[str, list[str]]] = field(default_factory=list)
    _watched: dict[str, str | None] = field(default_factory=dict)
    _is_released: bool = False

    @classmethod
    async def raise_for(cls, root: str) -> Shield:
        shield = cls(root, await Places.enter(root))
        try:
            for path in protected_paths(root):
                shield._protect(path)
        except BaseException:
            shield.release()
            raise
        return shield

    def _protect(self, path: str) -> None:
        parts = os.path.relpath(path, self.root).split("/")
        at = self.root
        for i, part in enumerate(parts):
            at, is_last = f"{at}/{part}", i == len(parts) - 1
            try:
                found = os.lstat(at)
            except FileNotFoundError:
                if is_last and part not in GIT_WATCHED:
                    self._cover(at)
                else:
                    self._watched[path] = None
                return
            if stat.S_ISLNK(found.st_mode):
                # A link cannot be mounted on. It is put back if it was replaced.
                self._watched[at] = os.readlink(at)
            elif is_place(found):
                self._cover(at, exists=True)
            elif is_last or not stat.S_ISDIR(found.st_mode):
                self.args.append((at, ["--ro-bind", at, at]))
            else:
                self.args.append((at, ["--bind", at, at]))
                continue
            return

    def _cover(self, path: str, *, exists: bool = False) -> None:
        if exists:
            self.places.made.add(path)
        if exists or self.places.make(path):
            self.args.append((path, ["--perms", "0555", "--size", "4096", "--tmpfs", path]))

    def release(self) -> tuple[str, ...]:
        """Undo what could not be prevented, and say so."""
        if self._is_released:
            return ()
        self._is_released = True
        self.places.leave()
        return tuple(_put_back(path, target) for path, target in self._watched.items() if _differs(path, target))


def protected_paths(root: str) -> Iterator[str]:
    """Everything at the top of `root` that is on the list, and the dangerous parts of its git directory."""
    git = f"{root}/.git"
    has_git = os.path.isdir(git) and not os.path.islink(git) and not is_place(os.lstat(git))
    yield from (f"{root}/{name}" for name in protected.DIRECTORIES if name != ".git" or not has_git)
    yield from (f"{root}/{'/'.join(pair)}" for pair in protected.PAIRS)
    yield from (f"{root}/{name}" for name in protected.FILES)
    if has_git:
        yield from (f"{git}/{name}" for name in (*GIT_PARTS, *GIT_WATCHED))
        yield from _hooks(root, f"{git}/config")
    elif os.path.isfile(f"{root}/HEAD") and os.path.isdir(f"{root}/objects"):  # the root is a git directory
        yield from (f"{root}/{name}" for name in (*GIT_PARTS, *GIT_WATCHED))
    if _is_home(root):
        yield from (f"{root}/{name}" for name in sorted(protected.PROFILES | protected.HOME_DIRECTORIES))
    else:
        # A project that happens to have one keeps it as it is.
        yield from (p for name in sorted(protected.PROFILES) if os.path.lexists(p := f"{root}/{name}"))


def worktree_of(root: str) -> tuple[str, str] | None:
    """The git directory and the common one of a linked worktree. The first must point back to `root`: a `.git` file
    that came with the project could name any directory, but cannot make that one agree."""
    try:
        text = Path(root, ".git").read_text(encoding="utf-8", errors="surrogateescape")
        if not text.startswith("gitdir:"):
            return None
        own = os.path.realpath(os.path.join(root, text[7:].strip()))
        common = os.path.realpath(os.path.join(own, Path(own, "commondir").read_text().strip()))
        back = os.path.realpath(Path(own, "gitdir").read_text().strip())
    except (OSError, ValueError):
        return None
    if back != os.path.realpath(f"{root}/.git") or os.path.dirname(own) != f"{common}/worktrees":
        return None
    return own, common


def beneath(path: str, roots: Iterable[str]) -> bool:
    """Whether a resolved path is one of the roots or below one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _hooks(root: str, config: str) -> Iterator[str]:
    try:
        with open(config, "rb") as file:
            found = HOOKS_PATH.findall(file.read(1 << 20))
    except OSError:
        return
    for raw in found:
        path = os.path.normpath(os.path.join(root, os.fsdecode(raw).strip()))
        if path != root and beneath(path, (root,)):
            yield path


def _is_home(root: str) -> bool:
    return tuple(protected.plain(p) for p in root.split("/") if p) in protected.homes()


def is_place(found: os.stat_result) -> bool:
    """Whoever puts something into the directory changes its time."""
    return stat.S_ISDIR(found.st_mode) and found.st_mtime_ns == MARK_NS


def _differs(path: str, target: str | None) -> bool:
    try:
        return os.readlink(path) != target
    except FileNotFoundError:
        return target is not None
    except OSError:
        return True


def _put_back(path: str, target: str | None) -> str:
    aside = f"{path}.refused-{uuid.uuid4().hex[:8]}"
    moved = ""
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        moved = f"; what stood there is now {os.path.basename(aside)}"
    if target is not None:
        with contextlib.suppress(FileExistsError):
            os.symlink(target, path)
    return f"{path} is protected and was changed by the command: that was undone{moved}"
