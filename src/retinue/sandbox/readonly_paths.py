"""Paths that a command cannot change inside its writable directory: files that other programs run
or trust.

Those that exist are bound read-only, with every directory above them pinned by a mount, since a
directory that merely holds a mount can be renamed away. Those that do not exist cannot be mounted
on, and nothing is made for it: what appears at such a name while a command runs is moved out of the
tree as soon as it is seen, kept, and reported."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from retinue.errors import Refused
from retinue.sandbox import git_config
from retinue.sandbox import protected_paths as protected
from retinue.sandbox.kept_aside import KeptAside, mark_reported
from retinue.sandbox.open_beneath import open_beneath
from retinue.sandbox.protected_paths import plain
from retinue.sandbox.regular_file import read_text
from retinue.sandbox.store_files import TAILS

# In a git directory that is itself writable, so that one can commit: what makes git run or trust
# something else.
GIT_PARTS = ("hooks", "config", "modules", "worktrees", "commondir", "config.worktree")
GIT_DIRECTORY = ("HEAD", "objects", "refs")
# The guarded names that do not begin with a dot, as far as they are the same in every directory.
ABOVE = frozenset(above for above, _ in protected.PAIRS) | {".git"}
LISTED = (*protected.DIRECTORIES, *protected.FILES, *protected.HOME_DIRECTORIES, *ABOVE)
LISTED += tuple(below for _, below in protected.HOME_PAIRS)
PLAIN = frozenset(
    {n for n in (*LISTED, *protected.PROFILES) if n[0] != "."} | {*GIT_PARTS, "git~1", "git~2"}
)
OPEN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
MOST_CONTENT = 1 << 20
MOST_HARMLESS = 200_000
"""So many names are remembered that are of no interest."""
MOST_TAKEN = 16
"""So often a command may make something that is taken away. Then it is stopped."""


@dataclass(frozen=True, slots=True)
class Bind:
    """What has to be mounted where it is: `fd` is it, open; `before` what is in a small file."""

    path: str
    fd: int
    writable: bool = False
    before: bytes | None = None


@dataclass
class ReadonlyPaths:
    """The guard of one writable directory, which `fd` holds open. `release` must be called when the
    command has ended. `store` is the runtime's own if it lies there: nothing may appear beside it
    that would be taken for a part of it."""

    root: str
    fd: int
    aside: KeptAside
    store: str = ""
    binds: list[Bind] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _links: dict[str, str] = field(default_factory=dict)
    _hooks: tuple[str, ...] = ()
    _has_git: bool = False
    _git_names: tuple[str, ...] = ()
    _is_home: bool = False
    _notes: list[str] = field(default_factory=list)
    _kept: list[str] = field(default_factory=list)
    _harmless: set[str] = field(default_factory=set)
    _is_released: bool = False

    @classmethod
    def of(
        cls, root: str, fd: int, aside: KeptAside, store: str = "", others: Iterable[str] = ()
    ) -> ReadonlyPaths:
        """`others` are the directories beside it that the command was given: a repository there may
        have its hooks here."""
        readonly = cls(root, os.dup(fd), aside, store)
        try:
            readonly._raise(others)
        except BaseException:
            readonly.release(looks=False)
            raise
        return readonly

    def _raise(self, others: Iterable[str]) -> None:
        with self._opened("") as top:
            names = set(os.listdir(top))
        self._is_home = self.root in protected.home_directories()
        self._has_git = ".git" in names and stat.S_ISDIR(self._kind(".git"))
        self._git_names = tuple(name for name in GIT_DIRECTORY if name in names)
        self._hooks = tuple(git_config.named_beneath(self.root, self.fd, others))
        if self._has_git:
            self._known.add(".git")
            self._pin(".git")
        for path in (*self._present(), *self._profiles(names)):
            self._known.add(path)
            if path not in self._tails():
                self._protect(path)

    @property
    def _is_git(self) -> bool:
        return self._git_names == GIT_DIRECTORY

    def _tails(self) -> list[str]:
        return [_rest(self.store + tail, self.root) for tail in TAILS] if self.store else []

    def _profiles(self, names: set[str]) -> list[str]:
        """A project that happens to have one keeps it as it is."""
        return (
            [] if self._is_home else [name for name in names if plain(name) in protected.PROFILES]
        )

    def _protect(self, path: str) -> None:
        parts = path.split("/")
        for i in range(1, len(parts) + 1):
            at = "/".join(parts[:i])
            kind = self._kind(at)
            if stat.S_ISLNK(kind):  # cannot be mounted on; it is put back if it was replaced
                self._links[at] = os.readlink(at, dir_fd=self.fd)
                return
            is_last = i == len(parts) or not stat.S_ISDIR(kind)
            self._pin(at, writable=not is_last)
            if is_last:
                return

    def _pin(self, path: str, *, writable: bool = True) -> None:
        at = f"{self.root.rstrip('/')}/{path}"
        if any(bind.path == at for bind in self.binds):
            return
        try:
            fd = open_beneath(self.fd, path, OPEN)
            self.binds.append(Bind(at, fd, writable, None if writable else _content(fd)))
        except OSError as error:
            raise Refused(
                "sandbox", f"{at} cannot be protected ({error.strerror}). Nothing was run."
            ) from None

    def _present(self, names: list[str] | None = None) -> Iterator[str]:
        """Everything that is protected and there now, by its path beneath the root, whose `names`
        may be known."""
        for name in filter(_may_matter, self._names("") if names is None else names):
            if name in self._harmless:
                continue
            folded = plain(name)
            is_listed = protected.at_top(name, self.root) and not (name == ".git" and self._has_git)
            if is_listed or (self._is_git and folded in GIT_PARTS):
                yield name
            elif folded not in ABOVE and len(self._harmless) < MOST_HARMLESS:
                self._harmless.add(name)
            for above, below in protected.PAIRS:
                if folded == above:
                    yield from (f"{name}/{n}" for n in self._names(name) if plain(n) == below)
        if self._has_git:
            yield from (f".git/{name}" for name in self._names(".git") if plain(name) in GIT_PARTS)
        yield from (path for path in (*self._hooks, *self._tails()) if self._kind(path))

    def remove_new(self) -> bool:
        """Take away what has appeared since; True when the command does it again and again."""
        self._known -= {
            path for path in (".git/worktrees", "worktrees") if self._was_replaced(path)
        }
        names = self._names("")
        for path in list(self._present(names)):
            if path not in self._known:
                self._take(path)
        if not self._is_git and set(GIT_DIRECTORY) <= set(names):
            new = next(name for name in GIT_DIRECTORY if name not in self._git_names)
            self._take(
                new, "with it, the directory would be a git directory, and git would use its config"
            )
        for path, target in self._links.items():
            if _differs(path, target, self.fd):
                self._put_back(path, target)
        return len(self._notes) > MOST_TAKEN

    def _was_replaced(self, path: str) -> bool:
        bind = next(
            (bind for bind in self.binds if bind.path == f"{self.root.rstrip('/')}/{path}"), None
        )
        try:
            return bind is not None and not os.path.samestat(os.fstat(bind.fd), os.lstat(bind.path))
        except OSError:
            return True

    def _take(self, path: str, why: str = "") -> None:
        if path in (".git/worktrees", "worktrees") and stat.S_ISDIR(self._kind(path)):
            for name in self._names(path):
                if self._misleads(f"{path}/{name}"):
                    self._move(f"{path}/{name}", "git reads the settings of a worktree from it")
            return
        self._move(path, why or _why(path, self.root))

    def _move(self, path: str, why: str) -> None:
        saved_path = self._away(path)
        if saved_path:
            self._notes.append(
                f"{self.root}/{path} was created while the command ran and was removed, "
                f"because it is protected ({why}). It was saved as {saved_path}. If you need "
                "it, the user can check it and move it back"
            )

    def _away(self, path: str) -> str:
        """Where it is kept now; "" when it was gone, or could not be moved, which is reported."""
        try:
            saved_path = self.aside.take(self.fd, path, self.root)
        except OSError as error:
            self._notes.append(
                f"{self.root}/{path} is protected and could not be removed: {error.strerror}"
            )
            return ""
        self._kept += [saved_path] if saved_path else []
        return saved_path

    def _put_back(self, path: str, target: str) -> None:
        saved_path = self._away(path)
        with contextlib.suppress(OSError):
            os.symlink(target, path, dir_fd=self.fd)
        moved = f"; the earlier content was saved as {saved_path}" if saved_path else ""
        self._notes.append(
            f"{self.root}/{path} is protected and was changed by the command. The change "
            f"was undone{moved}"
        )

    def restore(self, path: str) -> Iterator[str]:
        """Put back a file of ours that the command may have written to, for someone else had
        replaced it; what it is now is kept. A directory can only be reported."""
        bind = next((bind for bind in self.binds if bind.path == path), None)
        if bind is None:
            return
        if not stat.S_ISREG(os.fstat(bind.fd).st_mode):
            yield f"the command may have changed {path}, which is protected. Check its content"
            return
        copy_path, flags = (
            self._away(rest := _rest(path, self.root)),
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
        )
        # Not from the file that was there: in the moment in which it is replaced, a command can
        # write to that one too.
        now = (
            f"the command may have changed {path}, which is protected. It was moved to {copy_path}"
        )
        if bind.before is None:
            yield f"{now}. The earlier content could not be restored"
            return
        try:
            mode = stat.S_IMODE(os.fstat(bind.fd).st_mode)
            with open(open_beneath(self.fd, rest, flags, mode, links=False), "wb") as file:
                file.write(bind.before)
        except OSError as error:
            yield f"{now}. The earlier content could not be restored: {error.strerror}"
            return
        yield f"{now}. The earlier content was restored"

    def _misleads(self, path: str) -> bool:
        """Whether git's data about a worktree is not what it seems. One outside of the root is
        someone else's, who may make it at any time (a runtime does for its runs); half of one is on
        its way."""
        if not stat.S_ISDIR(self._kind(path)) or self._kind(f"{path}/config.worktree"):
            return True
        where, common = (self._text(f"{path}/{name}") for name in ("gitdir", "commondir"))
        return common not in ("", "../..") or (
            bool(where) and beneath(os.path.realpath(where), (self.root,))
        )

    def _text(self, path: str) -> str:
        try:
            fd = open_beneath(
                self.fd, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError:
            return ""
        try:
            return (
                os.fsdecode(os.read(fd, 8192)).strip()
                if stat.S_ISREG(os.fstat(fd).st_mode)
                else "?"
            )
        except OSError:
            return "?"
        finally:
            os.close(fd)

    def missing(self) -> Iterator[str]:
        """The plain names that are guarded and not there: for code that checks them without this
        process. What is there now is the user's, whatever the reason why it is not among those that
        we know."""
        names = [
            *protected.DIRECTORIES,
            *protected.FILES,
            *("/".join(pair) for pair in protected.PAIRS),
        ]
        names += sorted(protected.PROFILES | protected.HOME_DIRECTORIES) if self._is_home else []
        names += sorted(
            below for _, below in protected.HOME_PAIRS if protected.at_top(below, self.root)
        )
        # Not worktrees: those of a runtime's own copies may be among them.
        names += [f".git/{n}" for n in GIT_PARTS if n != "worktrees"] if self._has_git else []
        names += [*self._hooks, *self._tails()]
        absent = (n for n in dict.fromkeys(names) if n not in self._known and not self._exists(n))
        yield from (f"{self.root.rstrip('/')}/{n}" for n in absent)

    def release(self, *, looks: bool = True) -> tuple[str, ...]:
        """A last look, and everything that had to be undone."""
        if not self._is_released:
            self._is_released = True
            try:
                if looks:
                    self.remove_new()
            except OSError as error:
                self._notes.append(f"{self.root} could not be checked at the end: {error.strerror}")
            finally:
                os.close(self.fd)
                for bind in self.binds:
                    os.close(bind.fd)
                for saved_path in self._kept:
                    mark_reported(saved_path)
        return tuple(self._notes[: MOST_TAKEN + 1])

    def _kind(self, path: str) -> int:
        """The mode of what is there, not following a link at the end; 0 when there is nothing, or
        outside."""
        try:
            fd = open_beneath(self.fd, path, OPEN)
        except OSError:
            return 0
        try:
            return os.fstat(fd).st_mode
        finally:
            os.close(fd)

    def _exists(self, path: str) -> bool:
        """Whether something has this name, by whatever way; behind a link that leads out too."""
        return bool(self._kind(path)) or os.path.lexists(f"{self.root}/{path}")

    def _names(self, path: str) -> list[str]:
        try:
            with self._opened(path) as fd:
                return os.listdir(fd)
        except OSError:
            return []

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        fd = open_beneath(self.fd, path or ".", LIST)
        try:
            yield fd
        finally:
            os.close(fd)


def _content(fd: int) -> bytes | None:
    """What is in a regular file of moderate size; None of others."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_size > MOST_CONTENT:
        return None
    try:
        with open(
            os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
        ) as file:
            return file.read(MOST_CONTENT)
    except OSError:
        return None


def worktree_of(root: str) -> tuple[str, str] | None:
    """The git directory and the common one of a linked worktree. The first must point back to
    `root`: a `.git` file that came with the project could name any directory, but cannot make that
    one agree."""
    try:
        text = read_text(f"{root}/.git")
        if not text.startswith("gitdir:"):
            return None
        own = os.path.realpath(os.path.join(root, text[7:].strip()))
        common = os.path.realpath(os.path.join(own, read_text(f"{own}/commondir").strip()))
        back = os.path.realpath(read_text(f"{own}/gitdir").strip())
    except (OSError, ValueError):
        return None
    if back != os.path.realpath(f"{root}/.git") or os.path.dirname(own) != f"{common}/worktrees":
        return None
    return own, common


def beneath(path: str, roots: Iterable[str]) -> bool:
    """Whether a resolved path is one of the roots or below one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _rest(path: str, root: str) -> str:
    return path[len(root.rstrip("/")) + 1 :]


def _may_matter(name: str) -> bool:
    """Quickly, for there may be a hundred thousand: whether a name at the top could be one that is
    guarded."""
    return name.startswith(".") or not name.isascii() or name.lower().rstrip(" .") in PLAIN


def _why(path: str, root: str) -> str:
    parts = [plain(part) for part in path.split("/")]
    if len(parts) > 1 and (why := protected.PAIRS.get((parts[0], parts[1]))):
        return why
    return protected.at_top(parts[0], root) or "git or Retinue would use it as its own"


def _differs(path: str, target: str, dir_fd: int) -> bool:
    try:
        return os.readlink(path, dir_fd=dir_fd) != target
    except OSError:
        return True
