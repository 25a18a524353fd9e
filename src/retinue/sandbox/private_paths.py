"""Paths that neither commands nor file tools can see: Retinue's own files, and secrets in home
directories. One value, `Private`, is made where a runtime is put together; the sandbox and the file
tools ask it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from retinue.errors import Refused
from retinue.sandbox import mount_aliases as mounts
from retinue.sandbox.directory_walk import OPEN, walk_folders
from retinue.sandbox.protected_paths import home_directories
from retinue.sandbox.secret_places import SECRETS, is_inside, is_secret, secret_places
from retinue.sandbox.store_files import FOLDERS, TAILS, belongs_to_another, stores_in

MOST_FILES, FRESH_SECONDS = 200_000, 5
TEMPORARY = "retinue-state"
"""How the private folder of a runtime in memory is called, with something behind it."""
OURS = "it belongs to Retinue (its store, settings or related files)"
SECRET = (
    "models cannot use this part of a home directory: it has keys, passwords and "
    "settings of other programs"
)


@dataclass(frozen=True, slots=True)
class Private:
    """`store` is the runtime's own file, `stores` those of others that are known and files of
    tokens, each with everything beside it that has its name in front; `folders` are hidden
    whole."""

    store: str = ""
    stores: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def why(self, path: str, root: str = "") -> str:
        """Why the file at `path` is not for a model, or "". It is absolute and resolved, as is
        `root`, the directory in which the run works: in a copy of its own, a run may see that
        copy."""
        paths = self._known()
        if paths.copy(path) and paths.copy(path) == paths.copy(root):
            return ""
        return paths.why(path, root) or (OURS if belongs_to_another(path) else "")

    def hides(self, root: str) -> Callable[[str], bool]:
        """For listing a directory: whether an entry beneath `root`, which is resolved, is
        omitted."""
        top, paths = root.rstrip("/"), self._known()
        mine = paths.copy(root)

        def is_hidden(path: str) -> bool:
            whole = f"{top}/{path}"
            if paths.why(whole, top):
                return not mine or paths.copy(whole) != mine
            return path.endswith(TAILS) and belongs_to_another(whole)

        return is_hidden

    def is_linked(self, info: os.stat_result) -> bool:
        """Whether a file with more than one name is one of those that are hidden."""
        if info.st_nlink < 2:
            return False
        return (info.st_dev, info.st_ino) in _numbers(self, int(time.monotonic() / FRESH_SECONDS))

    def _files(self) -> Iterator[os.stat_result]:
        paths = self._known()
        secrets = (f"{home}/{'/'.join(path)}" for home in home_directories() for path in SECRETS)
        places = (*(p for store in paths.stores for p in _beside(store)), *paths.folders, *secrets)
        for place in places:
            with suppress(OSError):
                if stat.S_ISREG((first := os.lstat(place)).st_mode):
                    yield first
        # Single files come first, and a folder with very many last: it must not hide the others.
        for place in places:
            with suppress(OSError):
                yield from _below(place)

    def refuse(self, path: str) -> None:
        """A directory in which something hidden is kept is not given to a command."""
        if why := self.why(path, path):
            raise Refused(
                "private",
                f"{path} is not available to commands: {why}. Nothing was run. Use "
                "another directory.",
            )

    def beneath(self, roots: Iterable[str]) -> list[str]:
        """What there is to hide in these directories, by resolved paths; what lies in another of
        them is omitted."""
        tops = tuple(dict.fromkeys(roots))
        private = self._known()
        stores = dict.fromkeys((*private.stores, *(s for top in tops for s in stores_in(top))))
        candidates = [path for path in private.folders if is_inside(path, tops)]
        for store in stores:
            if is_inside(os.path.dirname(store), tops):
                candidates += _beside(store)
        candidates += [path for path in secret_places(tops) if is_inside(path, tops)]
        paths: list[str] = []
        for path in sorted(dict.fromkeys(candidates), key=len):
            if os.path.lexists(path) and not is_inside(path, paths):
                paths.append(path)
        return paths

    def hold(self, roots: Iterable[str]) -> None:
        """Before something is run in these directories: what would come up in them later is made
        now, or the command would see it or make it itself; and a store with a second name cannot be
        hidden."""
        tops = tuple(roots)
        for folder in map(os.path.realpath, self.folders):
            top = next((top for top in tops if is_inside(folder, (top,))), "")
            if top and not self.why(os.path.dirname(folder), top):
                with suppress(OSError):
                    os.makedirs(folder, 0o700, exist_ok=True)
        store = os.path.realpath(self.store)
        if (
            not self.store
            or not os.path.exists(store)
            or not is_inside(os.path.dirname(store), tops)
        ):
            return
        for tail in FOLDERS:
            with suppress(OSError):
                os.mkdir(store + tail, 0o700)
        for tail in ("", "-wal", "-shm", ".sent", ".sock.key"):
            with suppress(OSError):
                if os.lstat(store + tail).st_nlink > 1:
                    raise Refused(
                        "private",
                        f"{store + tail} has a second name (a hard link), which cannot be "
                        "hidden from a command. Nothing was run. Remove the other name, "
                        "or keep the store outside the workspace.",
                    )

    def _known(self) -> _Known:
        return _known(self, mounts.mountinfo(), home_directories())


@dataclass(frozen=True, slots=True)
class _Known:
    folders: frozenset[str]
    inside: tuple[str, ...]
    stores: tuple[str, ...]
    homes: tuple[str, ...]
    secrets: tuple[str, ...]

    def why(self, path: str, root: str = "") -> str:
        if path in self.folders or path.startswith(self.inside):
            return OURS
        if path.startswith(self.stores) and any(_is_part(path, store) for store in self.stores):
            return OURS
        if path.startswith(self.homes) and any(is_secret(path, home, root) for home in self.homes):
            return SECRET
        return SECRET if f"{path}/".startswith(self.secrets) else ""

    def copy(self, path: str) -> str:
        """The copy of a repository, made for a run, in which a path lies. (Notes about copies have
        an ending.)"""
        for store in self.stores if path.startswith(self.stores) else ():
            parts = path[len(store) :].split("/")
            if len(parts) > 2 and parts[1] == "worktrees" and "." not in parts[2]:
                return f"{store}{'/'.join(parts[:3])}"
        return ""


NOTHING = Private()
"""Where there is no runtime: the secrets of home directories only."""


def _below(place: str) -> Iterator[os.stat_result]:
    top = os.open(place, OPEN)
    try:
        for _, _, others, fd in walk_folders(top):
            for other in others:
                with suppress(OSError):
                    yield os.stat(other.name, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(top)


@lru_cache(maxsize=16)
def _known(private: Private, mountinfo: bytes, homes: tuple[str, ...]) -> _Known:
    """The places by every path that leads to them: through links, and through mounts of the same
    directory."""
    parsed_mounts = mounts.parsed(mountinfo)
    folders = {q for p in private.folders for q in mounts.aliases(p, parsed_mounts)}
    folders |= {os.path.realpath(e.path) for p in private.folders for e in _links(p)}
    files = {r for p in (private.store, *private.stores) if p for r in (p, os.path.realpath(p))}
    stores = {
        f"{q}/{os.path.basename(r)}"
        for r in files
        for q in mounts.aliases(os.path.dirname(r), parsed_mounts)
    }
    inside, prefixes = (tuple(f"{p}/" for p in sorted(group)) for group in (folders, homes))
    # By their real paths, and through mounts of a part of a home: there the name says nothing.
    places = {
        q
        for home in homes
        for secret in SECRETS
        for q in mounts.aliases(f"{home}/{'/'.join(secret)}", parsed_mounts)
    }
    secrets = tuple(sorted(f"{place}/" for place in places))
    return _Known(frozenset(folders), inside, tuple(sorted(stores)), prefixes, secrets)


@lru_cache(maxsize=4)
def _numbers(private: Private, moment: int) -> frozenset[tuple[int, int]]:
    """Every hidden file by its number. A search asks for each of its hits, so this is kept for a
    moment."""
    return frozenset((f.st_dev, f.st_ino) for f in islice(private._files(), MOST_FILES))


def _links(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [e for e in entries if e.is_symlink()]
    except OSError:
        return []


def _beside(store: str) -> list[str]:
    folder, base = os.path.split(store)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [
        path
        for name in names
        if _is_part(path := f"{folder.rstrip('/')}/{name}", f"{folder}/{base}")
    ]


def _is_part(path: str, store: str) -> bool:
    return path.startswith(store) and path[len(store) : len(store) + 1] in ("", "-", ".", "/")
