"""Whether the files of a project take effect: the one place that the command line asks."""

from __future__ import annotations

from collections.abc import Mapping


def is_trusted(root: str, environ: Mapping[str, str]) -> bool:
    """Whether the person has trusted the project in `root`. Until then its agents are not staff, its MCP servers are
    not started, and neither its AGENTS.md nor its skills are read."""
    return False
