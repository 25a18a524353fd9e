"""Records which projects the user trusts; until then a project's files have no effect. What is
trusted is a directory with exactly these files in it: when one of them changes, appears or goes,
all of it has to be trusted again."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator

import msgspec

from retinue.config.project_root import folders_between
from retinue.config.trust_state import ProjectTrust, TrustedProject, compare_trust
from retinue.config.trusted_files import collect, everywhere, relative
from retinue.errors import ConfigError
from retinue.sandbox.atomic_write import write_file
from retinue.sandbox.open_beneath import make_folder
from retinue.sandbox.regular_file import drain, lock, open_regular

VERSION = 1
MOST_BOOK = 64 << 20


class _TrustFile(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    projects: dict[str, TrustedProject] = {}


class TrustFile:
    """The file in which trust is kept, for its owner alone."""

    def __init__(self, path: str) -> None:
        self.path = path

    def is_trusted(
        self, root: str | os.PathLike[str], cwd: str | os.PathLike[str] | None = None
    ) -> bool:
        """Whether the project's files are as they were trusted, seen from `cwd` (the root without
        one)."""
        return self.standing(root, cwd).is_trusted

    def trusted_files(
        self, root: str | os.PathLike[str], cwd: str | os.PathLike[str] | None = None
    ) -> dict[str, str]:
        """The trusted files by path with their hashes; empty when the project is not trusted."""
        trust = self.standing(root, cwd)
        return trust.files if trust.is_trusted else {}

    def standing(
        self, root: str | os.PathLike[str], cwd: str | os.PathLike[str] | None = None
    ) -> ProjectTrust:
        """The trust in a project, seen from a folder in it: the files of that folder and of those
        above it are compared, since those are what is read there."""
        top = os.path.realpath(root)
        record = self._read().projects.get(top)
        folders = list(folders_between(os.path.realpath(cwd or root), top))
        contents = collect(top, folders, is_read=record is not None)
        return compare_trust(top, record, contents, {relative(f, top) for f in folders})

    def survey(self, root: str | os.PathLike[str]) -> ProjectTrust:
        """The same for all folders of the project."""
        top = os.path.realpath(root)
        return compare_trust(
            top, self._read().projects.get(top), collect(top, everywhere(top)), None
        )

    def projects(self) -> dict[str, TrustedProject]:
        return self._read().projects

    def grant(self, review: ProjectTrust) -> None:
        """Trust a project as it was seen. When that is no longer so, nothing is trusted."""
        now, refused = collect(review.root, everywhere(review.root))
        if now != review.files or refused != review.refused:
            raise ConfigError(
                "The project's files changed during the review. Nothing was trusted. Try again."
            )
        with self._changing() as trusted:
            trusted.projects[review.root] = TrustedProject(
                files=now, refused=tuple(sorted(refused)), at=int(time.time() * 1000)
            )

    def revoke(self, root: str | os.PathLike[str]) -> bool:
        """False when it was not trusted."""
        with self._changing() as trusted:
            return trusted.projects.pop(os.path.realpath(root), None) is not None

    def _read(self) -> _TrustFile:
        try:
            fd = open_regular(self.path)
        except FileNotFoundError:
            return _TrustFile(VERSION)
        except OSError as error:
            raise self._damaged(error.strerror or str(error)) from None
        try:
            info = os.fstat(fd)
            if info.st_uid not in (os.getuid(), 0) or stat.S_IMODE(info.st_mode) & 0o022:
                raise self._damaged("other users can write it")
        except BaseException:
            os.close(fd)
            raise
        data = drain(fd, MOST_BOOK)
        try:
            trusted = msgspec.json.decode(data, type=_TrustFile)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._damaged(str(error)) from None
        if trusted.version != VERSION:
            raise self._damaged(
                f"it has version {trusted.version}; this version of Retinue supports {VERSION}"
            )
        return trusted

    def _damaged(self, why: str) -> ConfigError:
        return ConfigError(
            f"{self.path} cannot be used ({' '.join(why.split())}), so no project is "
            "trusted. Move the file away and trust your projects again."
        )

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_TrustFile]:
        """What the file says by now, under a lock; written whole afterwards."""
        folder = os.path.dirname(self.path)
        make_folder(folder)
        fd = os.open(
            self.path + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            lock(fd)
            trusted = self._read()
            yield trusted
            write_file(
                self.path,
                msgspec.json.format(msgspec.json.encode(trusted, order="sorted")) + b"\n",
                0o600,
            )
        finally:
            os.close(fd)
