"""Real source trees by name and version: from the package index, from npm, from Debian's sources,
through whatever this machine is set up to use. They are kept between runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urljoin

Origin = Literal["pypi", "npm", "debian"]


class Unavailable(Exception):
    """A tree or a program cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class RealTree:
    """`languages` are those whose definitions are compared in it."""

    name: str
    version: str
    origin: Origin
    languages: tuple[str, ...] = ()


TREES = (
    RealTree("flask", "3.1.3", "pypi", ("python",)),
    RealTree("django", "6.1.3", "pypi", ("python", "javascript")),
    RealTree("express", "5.2.1", "npm", ("javascript",)),
    RealTree("zod", "4.6.7", "npm", ("typescript", "javascript")),
    RealTree("rust-ripgrep", "13.0.0", "debian", ("rust", "ruby")),
    RealTree("rust-fd-find", "8.6.0", "debian", ("rust",)),
    RealTree("fzf", "0.38.0", "debian", ("go", "ruby")),
    RealTree("tmux", "3.3a", "debian", ("c",)),
    RealTree("jq", "1.6", "debian", ("c",)),
    RealTree("leveldb", "1.23", "debian", ("cpp",)),
    RealTree("junit4", "4.13.2", "debian", ("java",)),
    RealTree("php-twig", "3.5.1", "debian", ("php",)),
    RealTree("puma", "5.6.5", "debian", ("ruby",)),
)


def home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "retinue-bench", "trees")


def fetch(tree: RealTree) -> Path:
    """The folder with the unpacked tree."""
    folder = home() / f"{tree.name}-{tree.version}"
    if (folder / ".whole").exists():
        return folder / "tree"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        {"pypi": _from_index, "npm": _from_npm, "debian": _from_debian}[tree.origin](tree, folder)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        text = getattr(error, "stderr", "") or str(error)
        raise Unavailable(
            f"{tree.name} {tree.version} ({tree.origin}): {text.strip()[-300:]}"
        ) from error
    (folder / ".whole").touch()
    return folder / "tree"


def _run(*argv: str, cwd: Path | None = None) -> str:
    process = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=600, check=True)
    return process.stdout


def _from_index(tree: RealTree, folder: Path) -> None:
    """pip would build an sdist to learn its dependencies; here its file alone is wanted."""
    index = (
        os.environ.get("PIP_INDEX_URL")
        or _run(
            sys.executable,
            "-c",
            "from pip._internal.models.index import PyPI as p; print(p.simple_url)",
        ).strip()
    )
    page = f"{index.rstrip('/')}/{tree.name}/"
    with urllib.request.urlopen(page, timeout=120) as reply:
        text = reply.read().decode()
    target = re.compile(
        rf'href="([^"]*/{tree.name}-{re.escape(tree.version)}\.tar\.gz[^"]*)"', re.I
    )
    match = target.search(text)
    if match is None:
        raise ValueError("no such source distribution in the index")
    with urllib.request.urlopen(urljoin(page, match[1]), timeout=300) as reply:
        data = reply.read()
    sum_ = re.search(r"#sha256=([0-9a-f]{64})", match[1])
    if sum_ and hashlib.sha256(data).hexdigest() != sum_[1]:
        raise ValueError("the checksum of the download is wrong")
    archive = folder / "source.tar.gz"
    archive.write_bytes(data)
    _unpack(archive, folder)


def _from_npm(tree: RealTree, folder: Path) -> None:
    out = _run("npm", "pack", "--json", f"{tree.name}@{tree.version}", cwd=folder)
    _unpack(folder / json.loads(out)[0]["filename"], folder)


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (top,) = (folder / "unpacked").iterdir()
    top.rename(folder / "tree")
    archive.unlink()


def _from_debian(tree: RealTree, folder: Path) -> None:
    """The unpacked source package with its patches, as its packagers see it."""
    options = _source_lists()
    policy = _run("apt-get", *options, "source", "--download-only", tree.name, cwd=folder)
    del policy
    (path,) = folder.glob("*.dsc")
    if f"_{tree.version}" not in path.name.replace("%2b", "+"):
        raise ValueError(f"{path.name} is another version than {tree.version}")
    _run("dpkg-source", "--no-check", "-x", path.name, "tree", cwd=folder)


def _source_lists() -> list[str]:
    """apt with the machine's own sources, asked for source packages, in a folder of our own."""
    place = home().parent / "apt"
    lists = place / "lists"
    options = [
        "-o", f"Dir::Etc::sourcelist={place / 'sources.list'}",
        "-o", f"Dir::Etc::sourceparts={place / 'none'}",
        "-o", f"Dir::State::lists={lists}",
        "-o", "APT::Sandbox::User=root",
    ]  # fmt: skip
    if (place / "ready").exists():
        return options
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    rows = []
    for file in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if file.is_file():
            rows += _debian_rows(file.read_text(errors="replace"))
    if not rows:
        raise Unavailable("apt has no Debian source on this machine")
    (place / "sources.list").write_text("\n".join(sorted(set(rows))) + "\n")
    _run("apt-get", *options, "update")
    (place / "ready").touch()
    return options


def _debian_rows(text: str) -> list[str]:
    rows = []
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^(\w[\w-]*):\s*(.+)$", block, re.M))
        if "debian.org" in fields.get("URIs", "") or "/debian" in fields.get("URIs", ""):
            signed = f"[signed-by={fields['Signed-By']}] " if "Signed-By" in fields else ""
            rows += [
                f"deb-src {signed}{fields['URIs']} {suite} {fields.get('Components', 'main')}"
                for suite in fields.get("Suites", "").split()
                if "security" not in suite  # its old versions are taken away
            ]
    rows += [f"deb-src {r}" for r in re.findall(r"^deb\s+(.*debian.*)$", text, re.M)]
    return rows
