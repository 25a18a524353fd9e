"""Whether the files of a project take effect: the one place that the command line asks, once for a command. Until they
do, its agents are not staff, its MCP servers are not started, and neither its AGENTS.md nor its skills are read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from retinue.cli.context import Door
from retinue.errors import ConfigError
from retinue.host import project_config as settings

if TYPE_CHECKING:
    from retinue.config.trust_record import Standing


def is_trusted(door: Door) -> bool:
    """Whether the person has trusted this project, and it is as it was then."""
    found = _standing(door)
    return not isinstance(found, str) and found.is_trusted


def why_not(door: Door) -> str:
    """What has to be done so that the project's files are used; "" when nothing has."""
    found = _standing(door)
    return found if isinstance(found, str) else found.why()


def trusted_bytes(door: Door, path: str | os.PathLike[str]) -> bytes | None:
    """The content of a project's file if it is what was trusted, byte for byte."""
    found = _standing(door)
    return None if isinstance(found, str) else found.read(path)


def _standing(door: Door) -> Standing | str:
    """How it stands, or why nobody can say."""
    if door.standing is None:
        try:
            door.standing = settings.standing(door)
        except ConfigError as error:
            door.standing = str(error)
    found: Standing | str = door.standing
    return found
