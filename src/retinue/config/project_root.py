"""Finds the root of a project, for the store, trust, agents, skills and servers."""

from __future__ import annotations

import os
from collections.abc import Iterator

REPOSITORY, OWN_FOLDER = ".git", ".retinue"
"""What marks the root of a project. Manifests (`pyproject.toml`, `package.json`) do not: a
repository has many of them, and its parts belong together."""


def project_root(cwd: str, home: str = "") -> str:
    """The nearest folder from `cwd` up that is a repository or has a `.retinue`; without one, `cwd`
    itself. The `.retinue` of the home folder holds the user's own agents and marks no project."""
    users = os.path.realpath(home) if home else ""
    here = cwd
    while True:
        if os.path.exists(os.path.join(here, REPOSITORY)):
            return here
        if os.path.exists(os.path.join(here, OWN_FOLDER)) and os.path.realpath(here) != users:
            return here
        above = os.path.dirname(here)
        if above == here:
            return cwd
        here = above


def folders_between(here: str, root: str) -> Iterator[str]:
    """From a folder up to the root; the root alone when the folder is not in it. Both are real
    paths."""
    if here != root and not here.startswith(root.rstrip("/") + "/"):
        here = root
    while True:
        yield here
        if here == root:
            return
        here = os.path.dirname(here)
