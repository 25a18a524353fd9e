"""Reads manifests line by line: go.mod, configure.ac, Makefile.am, pom.xml, gemspec, setup.py and
Makefile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from retinue.syntax.project.places import Place, Quote, flat
from retinue.syntax.project.project_facts import Manifest, ProjectCommand

TARGETS = ("all", "build", "install", "test", "check", "lint", "run")
_TARGET = re.compile(r"^([A-Za-z][\w-]*(?:\s+[A-Za-z][\w-]*)*)\s*:(?![=:])")
_HELP = re.compile(r"##\s*(.+)$")


def numbered(text: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(text.split("\n"), start=1)


def read_go_mod(path: str, text: str) -> Manifest:
    manifest, is_list = Manifest(path), False
    for n, line in numbered(text):
        if word := re.match(r"module\s+(\S+)", line):
            manifest.package = word[1]
            name = re.sub(r"/v\d+$", "", word[1]).rsplit("/", 1)[-1]
            manifest.name = name
        elif word := re.match(r"go\s+([\d.]+)", line):
            manifest.needs.append(Quote(f"Go {word[1]}", Place(path, n)))
        elif re.match(r"require\s*\(", line):
            is_list = True
            manifest.requires_at = manifest.requires_at or Place(path, n)
        elif line.startswith(")"):
            is_list = False
        elif "// indirect" not in line and (
            word := re.match(r"\s+(\S+)\s+v\S+" if is_list else r"require\s+(\S+)\s+v\S+", line)
        ):
            manifest.requires.append(word[1])
            manifest.requires_at = manifest.requires_at or Place(path, n)
    return manifest


def read_configure(path: str, text: str) -> Manifest:
    manifest = Manifest(path)
    for n, line in numbered(text):
        if word := re.match(r"AC_INIT\(\s*\[?([\w .+-]+?)\]?\s*,\s*\[?([\w.+-]+)\]?", line):
            manifest.name = word[1]
            manifest.version = word[2] if word[2][0].isdigit() else ""  # else it is a macro
            manifest.builder = Quote("autoconf", Place(path, n))
            break
    return manifest


def read_cmake(path: str, text: str) -> Manifest:
    """The first `project(...)`, on as many lines as it has."""
    manifest = Manifest(path)
    bare = re.sub(r"#[^\n]*", "", text)  # places are those of lines, and no line goes
    match = re.search(r"^\s*project\s*\(\s*\"?([\w.+-]+)\"?([^)]*)\)", bare, re.I | re.M)
    if match is None:
        return manifest
    manifest.name = match[1]
    if version := re.search(r"\bVERSION\s+\"?(\d[\w.]*)", match[2]):
        manifest.version = version[1]
    if description := re.search(r"\bDESCRIPTION\s+\"([^\"]+)\"", match[2]):
        line = bare.count("\n", 0, match.start(2) + description.start(1)) + 1
        manifest.description = Quote(flat(description[1]), Place(path, line))
    line = bare.count("\n", 0, match.start(1)) + 1
    manifest.builder = Quote("CMake", Place(path, line))
    return manifest


def read_automake(path: str, text: str) -> Manifest:
    manifest = Manifest(path)
    for n, line in numbered(text):
        if word := re.match(r"bin_PROGRAMS\s*=\s*(.+)$", line):
            for name in word[1].rstrip("\\").split():
                manifest.commands.append(ProjectCommand(name, Place(path, n), note="bin_PROGRAMS"))
    return manifest


def read_pom(path: str, text: str) -> Manifest:
    manifest, depth = Manifest(path), 0
    for n, line in numbered(text):
        if depth <= 1 and (word := re.search(r"<(artifactId|version|description)>([^<]+)<", line)):
            if word[1] == "artifactId":
                manifest.name = manifest.name or word[2]
            elif word[1] == "version":
                manifest.version = manifest.version or word[2]
            else:
                manifest.description = Quote(flat(word[2]), Place(path, n))
        opened = re.findall(r"<(parent|dependencies|build|profiles|modules)>", line)
        closed = re.findall(r"</(parent|dependencies|build|profiles|modules)>", line)
        depth += 2 * (len(opened) - len(closed))
    return manifest


def read_gemspec(path: str, text: str) -> Manifest:
    manifest = Manifest(path)
    for n, line in numbered(text):
        if word := re.search(r"\.(name|summary|version)\s*=\s*[\"']([^\"']+)[\"']", line):
            if word[1] == "name":
                manifest.name = word[2]
            elif word[1] == "version":
                manifest.version = word[2]
            else:
                manifest.description = Quote(flat(word[2]), Place(path, n))
        elif word := re.search(r"\.executables\s*=\s*(.+)$", line):
            listed = re.search(r"%w[\[({](.*?)[\])}]", word[1])
            names = listed[1].split() if listed else re.findall(r"[\"']([\w.-]+)[\"']", word[1])
            manifest.commands += [ProjectCommand(name, Place(path, n)) for name in names]
        elif word := re.search(r"required_ruby_version\s*=\s*[\"']([^\"']+)[\"']", line):
            manifest.needs.append(Quote(f"Ruby {word[1]}", Place(path, n)))
    return manifest


def read_setup_py(path: str, text: str) -> Manifest:
    """Only literals in it; nothing is run."""
    manifest = Manifest(path)
    for n, line in numbered(text):
        if word := re.match(r"\s*(name|version|description)\s*=\s*[\"']([^\"']+)[\"'],?\s*$", line):
            if word[1] == "description":
                manifest.description = manifest.description or Quote(flat(word[2]), Place(path, n))
            else:
                setattr(manifest, word[1], getattr(manifest, word[1]) or word[2])
        elif word := re.match(r"\s*[\"']?([\w.-]+)\s*=\s*([\w.]+:\w+)[\"'],?\s*\]?,?\s*$", line):
            manifest.commands.append(
                ProjectCommand(word[1], Place(path, n), note=word[2], target=word[2])
            )
    return manifest


def read_makefile(path: str, text: str) -> Manifest:
    """The targets that a newcomer looks for, with the help behind `##` where there is one."""
    manifest = Manifest(path)
    names: set[str] = set()
    for n, line in numbered(text):
        word = _TARGET.match(line)
        for name in word[1].split() if word else ():
            if name in TARGETS and name not in names:
                names.add(name)
                help_text = _HELP.search(line)
                text_ = "make" if name == "all" else f"make {name}"
                manifest.commands.append(
                    ProjectCommand(
                        text_, Place(path, n), note=flat(help_text[1]) if help_text else ""
                    )
                )
    manifest.commands.sort(key=lambda c: TARGETS.index(c.text[5:] or "all"))
    return manifest
