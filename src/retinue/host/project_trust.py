"""Decides whether a project's files take effect, and asks the user at most once per command. Until
they do, its agents are not staff, its MCP servers are not started, and neither its AGENTS.md nor
its skills are read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from retinue.errors import ConfigError
from retinue.host.project_paths import ProjectPaths, data_home
from retinue.sandbox.regular_file import read_small

if TYPE_CHECKING:
    from retinue.config.trust_record import TrustFile
    from retinue.config.trust_state import ProjectTrust


MOST_BYTES = 8 << 20


def project_text(path: str) -> str | None:
    """The text of a file that may be anything; None for what is none."""
    try:
        return read_small(path, MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


def trust_file(environ: Mapping[str, str]) -> str:
    return os.path.join(data_home(environ), "trust.json")


def open_trust_file(environ: Mapping[str, str]) -> TrustFile:
    from retinue.config.trust_record import TrustFile

    return TrustFile(trust_file(environ))


class TrustCheck:
    """Whether a project is trusted, seen from the current directory: looked up once."""

    def __init__(self, environ: Mapping[str, str], paths: ProjectPaths) -> None:
        self._environ, self._paths = environ, paths

    @property
    def is_home(self) -> bool:
        """A home directory is not a project: what is in it is the user's own."""
        home = os.path.realpath(self._environ.get("HOME") or "/")
        return os.path.realpath(self._paths.root) in ("/", home)

    def read(self) -> ProjectTrust:
        """What is so now. Raises `ConfigError` when the file that says so cannot be used."""
        from retinue.config.trust_state import ProjectTrust

        if self.is_home:
            return ProjectTrust(root=os.path.realpath(self._paths.root), state="empty", files={})
        return open_trust_file(self._environ).standing(self._paths.root, self._paths.cwd)

    @cached_property
    def _standing(self) -> ProjectTrust | str:
        """The state of trust, or why it is unknown."""
        try:
            return self.read()
        except ConfigError as error:
            return str(error)

    @property
    def is_trusted(self) -> bool:
        """Whether the person has trusted this project, and it is as it was then; False also when no
        one can say."""
        return not isinstance(self._standing, str) and self._standing.is_trusted

    @property
    def why_not(self) -> str:
        """What has to be done so that the project's files are used; "" when nothing has."""
        return self._standing if isinstance(self._standing, str) else self._standing.why()

    def trusted_bytes(self, path: str | os.PathLike[str]) -> bytes | None:
        """The content of a project's file if it is what was trusted, byte for byte."""
        return None if isinstance(self._standing, str) else self._standing.read(path)
