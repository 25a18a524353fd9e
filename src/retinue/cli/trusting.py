"""Whether the files of a project take effect: the one place that the command line asks. Until they do, its agents are
not staff, its MCP servers are not started, and neither its AGENTS.md nor its skills are read.
"""

from __future__ import annotations

import os

from retinue.cli import settings
from retinue.cli.door import Door
from retinue.errors import ConfigError


def is_trusted(door: Door) -> bool:
    """Whether the person has trusted this project, and it is as it was then."""
    return settings.is_trusted(door)


def trusted_bytes(door: Door, path: str | os.PathLike[str]) -> bytes | None:
    """The content of a project's file if it is what was trusted, byte for byte."""
    try:
        return settings.standing(door).read(path)
    except ConfigError:
        return None
