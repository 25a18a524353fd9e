"""A project as commands use it: its paths, the environment, and its trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retinue.host.project_paths import ProjectPaths
from retinue.host.project_trust import TrustCheck

if TYPE_CHECKING:
    from retinue.core.redaction import Redactor


@dataclass(frozen=True)
class Project:
    """`environ` may have what the configuration says of keys and addresses; `trust` was looked up
    without it."""

    environ: Mapping[str, str]
    paths: ProjectPaths
    trust: TrustCheck

    @property
    def redactor(self) -> Redactor:
        """What takes the secrets of the environment out of texts."""
        from retinue.core.redaction import Redactor
        from retinue.core.secret_values import secrets_of

        return Redactor(secrets_of(self.environ))

    @staticmethod
    def of(environ: Mapping[str, str], paths: ProjectPaths) -> Project:
        return Project(environ, paths, TrustCheck(environ, paths))
