"""Reads and writes the references of a repository. Each is a regular file of the repository's own,
reached from one open directory to the next: a link, a pipe or a name that git would not take is
none. Git itself is given a copy that no one changes, and never follows what is put in their place a
moment later."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from retinue.sandbox import folder_operations as folders
from retinue.sandbox.directory_walk import OPEN, walk_folders
from retinue.sandbox.open_beneath import make_beneath, open_beneath, open_real
from retinue.sandbox.regular_file import read_small

HASH = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
HEAD = re.compile(rb"ref: (refs/[^\0\n]{1,4000})\n?|(" + HASH + rb")\n?")
PACKED = re.compile(rb"(" + HASH + rb") (refs/.{1,4000})")
NAME = re.compile(rb"refs(?:/(?!\.)[^\0-\x20\x7f~^:?*\[\\/]+)+")
REPLACEMENTS = b"refs/replace/"
OWN = (b"refs/bisect/", b"refs/worktree/", b"refs/rewritten/")
"""All that a worktree has for itself."""
MOST_PACKED = 256 << 20
MOST_LOOSE = 200_000
MOST_SYMBOLIC = 1_000
HOPS = 5
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class References:
    """What names a commit, and what names another reference. `odd` are those that cannot be taken,
    with the reason."""

    hashes: dict[bytes, bytes] = field(default_factory=dict)
    symbolic: dict[bytes, bytes] = field(default_factory=dict)
    odd: dict[bytes, str] = field(default_factory=dict)

    def check(self, head: bytes, common: str) -> None:
        """Whether that in which HEAD ends can be taken; nothing was committed if it is not there at
        all."""
        for _ in range(HOPS + 1):
            match = HEAD.fullmatch(head)
            if match is None:
                raise OSError(errno.EINVAL, "it names no commit", f"{common}/HEAD")
            name = match[1]
            if name is None or name in self.hashes:
                return
            where = f"{common}/{os.fsdecode(name)}"
            if not is_name(name):
                raise OSError(errno.EINVAL, "it leaves the repository", where)
            if name in self.odd:
                raise OSError(errno.EINVAL, self.odd[name], where)
            if name not in self.symbolic:
                return
            head = b"ref: " + self.symbolic[name]
        raise OSError(errno.ELOOP, "references form a circle", f"{common}/HEAD")

    def put(self, folder: str) -> None:
        """Write them into a git directory of ours."""
        lines = (b"%s %s\n" % (self.hashes[name], name) for name in sorted(self.hashes))
        _make(f"{folder}/packed-refs", b"# pack-refs with: sorted \n" + b"".join(lines))
        os.mkdir(f"{folder}/refs")
        for name, target in self.symbolic.items():
            place = f"{folder}/{os.fsdecode(name)}"
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                _make(place, b"ref: %s\n" % target)


def is_name(name: bytes) -> bool:
    """As git would have it: what it takes for broken it may refuse altogether."""
    if not NAME.fullmatch(name) or b".." in name or b"@{" in name:
        return False
    return not any(part.endswith((b".lock", b".")) for part in name.split(b"/"))


def read(own: str, common: str) -> References:
    """Those of the whole repository, and those that one of its worktrees has for itself."""
    references = References()
    for folder in dict.fromkeys((common, own)):
        top = open_real(folder)
        try:
            if folder == common:
                for value, name in _packed(top):
                    if is_name(name):
                        references.hashes[name] = value
            _read_loose(top, references, OWN if folder != common else (b"refs/",))
        finally:
            os.close(top)
    for names in (references.hashes, references.symbolic):
        for name in [n for n in names if n.startswith(REPLACEMENTS)]:
            del names[name]
    return references


def _packed(top: int) -> Iterator[tuple[bytes, bytes]]:
    with contextlib.suppress(FileNotFoundError):
        for line in read_small("packed-refs", MOST_PACKED, dir_fd=top, follow=False).split(b"\n"):
            if match := PACKED.fullmatch(line):
                yield match[1], match[2]


def _read_loose(top: int, references: References, prefixes: tuple[bytes, ...]) -> None:
    try:
        refs = os.open("refs", OPEN, dir_fd=top)
    except FileNotFoundError:
        return
    n_seen = 0
    try:
        for at, _, files, here in walk_folders(refs):
            n_seen += len(files)
            if n_seen > MOST_LOOSE:
                raise OSError(errno.EFBIG, f"it has more than {MOST_LOOSE} references")
            for file in files:
                name = os.path.normpath(os.fsencode(f"refs/{at}/{file.name}"))
                if is_name(name) and name.startswith(prefixes):
                    _read_one(here, file.name, name, references)
    finally:
        os.close(refs)


def _read_one(here: int, file: str, name: bytes, references: References) -> None:
    references.hashes.pop(name, None)  # what is written by itself counts before what is packed
    try:
        match = HEAD.fullmatch(read_small(file, 8192, dir_fd=here, follow=False).rstrip() + b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        references.odd[name] = (
            "it is a link to another place" if error.errno == errno.ELOOP else str(error.strerror)
        )
        return
    if match is None:
        references.odd[name] = "it names no commit"
    elif match[2]:
        references.hashes[name] = match[2]
    elif is_name(match[1]) and len(references.symbolic) < MOST_SYMBOLIC:
        references.symbolic[name] = match[1]


def write(common: str, name: str, commit: str) -> None:
    """Have a reference name a commit, as git does it: no one sees half of it. No log is kept, and
    none is added to."""
    with _directory(common, os.path.dirname(name), make=True) as fd:
        _replace(fd, os.path.basename(name), commit.encode() + b"\n")


def delete(common: str, name: str, commit: str) -> None:
    """Take a reference away, if that is what it names."""
    with contextlib.suppress(FileNotFoundError), _directory(common, ".") as top:
        packed = {n: value for value, n in _packed(top)}.get(name.encode())
        with _directory(common, os.path.dirname(name), make=packed is not None) as fd:
            last = os.path.basename(name)
            try:
                loose = read_small(last, 8192, dir_fd=fd, follow=False).strip()
            except FileNotFoundError:
                loose = b""
            if (loose or packed) != commit.encode():
                return
            if packed:
                _forget(top, name.encode())
            if loose:
                os.unlink(last, dir_fd=fd)
    with (
        contextlib.suppress(OSError),
        _directory(common, os.path.dirname(os.path.dirname(name))) as fd,
    ):
        os.rmdir(os.path.basename(os.path.dirname(name)), dir_fd=fd)  # only when it is empty


def _forget(top: int, name: bytes) -> None:
    """Leave a reference out of the packed ones, with the line about it that may follow."""
    lines: list[bytes] = []
    is_about = False
    for line in read_small("packed-refs", MOST_PACKED, dir_fd=top, follow=False).splitlines(
        keepends=True
    ):
        is_about = line.rstrip(b"\n").endswith(b" " + name) or (is_about and line.startswith(b"^"))
        lines += [] if is_about else [line]
    _replace(top, "packed-refs", b"".join(lines))


def _replace(fd: int, name: str, content: bytes) -> None:
    lock = f"{name}.lock"
    out = os.open(lock, NEW, 0o666, dir_fd=fd)
    try:
        with open(out, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(lock, name, src_dir_fd=fd, dst_dir_fd=fd)
    except BaseException:
        os.unlink(lock, dir_fd=fd)
        raise


@contextlib.contextmanager
def _directory(common: str, path: str, *, make: bool = False) -> Iterator[int]:
    """A directory of the repository, from one open directory to the next."""
    top = open_real(common)
    try:
        fd = make_beneath(top, path) if make else open_beneath(top, path, folders.LOOK, links=False)
    finally:
        os.close(top)
    try:
        yield fd
    finally:
        os.close(fd)


def _make(path: str, content: bytes) -> None:
    with open(os.open(path, NEW, 0o600), "wb") as file:
        file.write(content)
