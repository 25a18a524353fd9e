"""Which files are manifests, and which module reads each. A manifest that cannot be read says
nothing."""

from __future__ import annotations

import configparser
import tomllib
from collections.abc import Callable, Mapping
from posixpath import basename, dirname

from retinue.syntax.project.cargo_manifest import read_cargo
from retinue.syntax.project.other_manifests import (
    read_automake,
    read_cmake,
    read_configure,
    read_gemspec,
    read_go_mod,
    read_makefile,
    read_pom,
    read_setup_py,
)
from retinue.syntax.project.package_json import read_composer_json, read_package_json
from retinue.syntax.project.project_facts import Manifest, ProjectFacts
from retinue.syntax.project.python_manifest import read_ini, read_pyproject

READERS: dict[str, Callable[[str, str], Manifest | None]] = {
    "pyproject.toml": read_pyproject,
    "setup.cfg": read_ini,
    "setup.py": read_setup_py,
    "Cargo.toml": read_cargo,
    "package.json": read_package_json,
    "go.mod": read_go_mod,
    "composer.json": read_composer_json,
    "pom.xml": read_pom,
    "configure.ac": read_configure,
    "Makefile.am": read_automake,
    "CMakeLists.txt": read_cmake,
    "Makefile": read_makefile,
    "GNUmakefile": read_makefile,
    "makefile": read_makefile,
    "tox.ini": read_ini,
    "pytest.ini": read_ini,
}
"""In the order in which they are asked for a name."""
DEEPEST = 2
"""Folders above a manifest, at most."""


def reader_of(path: str) -> Callable[[str, str], Manifest | None] | None:
    name = basename(path)
    return read_gemspec if name.endswith(".gemspec") else READERS.get(name)


def is_manifest(path: str) -> bool:
    if reader_of(path) is None or path.count("/") > DEEPEST:
        return False
    return not dirname(path) or "akefile" not in basename(path)


def read_manifest(path: str, text: str) -> Manifest | None:
    reader = reader_of(path)
    try:
        return reader(path, text) if reader is not None else None
    except (ValueError, configparser.Error, tomllib.TOMLDecodeError, RecursionError):
        return None


def read_project(texts: Mapping[str, str]) -> ProjectFacts:
    """All manifests among some files: the root's first, those that give a name before others."""
    names = list(READERS)
    manifests = [m for path, text in texts.items() if (m := read_manifest(path, text)) is not None]
    rank = {m.path: _rank(names, m.path) for m in manifests}
    return ProjectFacts(
        tuple(sorted(manifests, key=lambda m: (m.path.count("/"), rank[m.path], m.path)))
    )


def _rank(names: list[str], path: str) -> int:
    name = basename(path)
    return names.index(name) if name in names else len(names)
