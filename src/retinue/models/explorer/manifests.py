"""What a project says of itself: manifests, README and Makefile, read line by line, so that every
fact has its line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from posixpath import basename, dirname

from retinue.formats.safe_text import one_line

NAMES = (
    "pyproject.toml",
    "setup.cfg",
    "package.json",
    "Cargo.toml",
    "go.mod",
    "composer.json",
    "setup.py",
    "pom.xml",
)
MAKEFILES = ("Makefile", "makefile", "GNUmakefile", "justfile")
_NUMBERED = re.compile(r"^\s*(\d+)\t(.*)$")
_PAIR = re.compile(r"""^\s*"?([\w.-]+)"?\s*=\s*(.+?)\s*$""")
_STRING = re.compile(r"""^(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")

Lines = list[tuple[int, str]]
Fact = tuple[str, str, int]
"""A text, and the file and line where it stands."""


def numbered(text: str) -> Lines:
    """The lines of `read`, with their numbers."""
    return [(int(m[1]), m[2]) for line in text.split("\n") if (m := _NUMBERED.match(line))]


@dataclass
class Manifest:
    """`scripts` are commands with what they call; `crate` is the name by which others import the
    package."""

    path: str
    name: str = ""
    description: Fact | None = None
    scripts: list[tuple[str, str, int]] = field(default_factory=list)
    requires: list[tuple[str, int]] = field(default_factory=list)
    crate: str = ""
    members: bool = False

    @property
    def folder(self) -> str:
        return dirname(self.path)


def read_manifest(path: str, text: str) -> Manifest | None:
    lines = numbered(text)
    name = basename(path)
    if name in ("pyproject.toml", "Cargo.toml"):
        return _toml(path, lines)
    if name in ("package.json", "composer.json"):
        return _json(path, lines)
    if name == "go.mod":
        return _go(path, lines)
    if name in ("setup.cfg", "setup.py"):
        return _setup(path, lines)
    return None


def _value(raw: str) -> str:
    found = _STRING.match(raw)
    if found is None:
        return ""
    return found[2] if found[2] is not None else found[1].replace('\\"', '"').replace("\\\\", "\\")


def _toml(path: str, lines: Lines) -> Manifest:
    out, section, in_list = Manifest(path), "", False
    cargo = basename(path) == "Cargo.toml"
    for n, line in lines:
        head = re.match(r"^\s*\[+([^\]]+)\]+", line)
        if head and not in_list:
            section = head[1].strip()
            out.members = out.members or section == "workspace"
            continue
        if in_list:
            in_list = not _take_list(out, n, line)
            continue
        pair = _PAIR.match(line)
        if pair is None:
            continue
        key, raw = pair[1], pair[2]
        if section in ("project", "tool.poetry", "package", "workspace.package"):
            if key == "name":
                out.name = out.name or _value(raw)
            elif key == "description" and (text := _value(raw)):
                out.description = out.description or (one_line(text, 300), path, n)
            elif key == "dependencies" and section == "project" and raw.startswith("["):
                in_list = not _take_list(out, n, raw[1:])
        elif section in ("project.scripts", "project.gui-scripts", "tool.poetry.scripts"):
            out.scripts.append((key, _value(raw), n))
        elif cargo and section == "bin" and key == "name":
            out.scripts.append((_value(raw), "", n))
        elif cargo and section == "bin" and key == "path" and out.scripts:
            name, _, at = out.scripts[-1]
            out.scripts[-1] = (name, _value(raw), at)
        elif (cargo and section == "dependencies") or (
            section == "tool.poetry.dependencies" and key != "python"
        ):
            out.requires.append((key, n))
    out.crate = out.name.replace("-", "_") if cargo else out.name
    return out


def _take_list(out: Manifest, n: int, line: str) -> bool:
    """Dependencies on one line of a list; whether the list ends there."""
    bare = re.sub(r"#.*$", "", line)
    for item in re.findall(r"""["']([A-Za-z0-9][\w.-]*)[^"']*["']""", bare):
        out.requires.append((item, n))
    return bool(re.search(r"\]\s*$", re.sub(r"\[[^\]]*\]", "", bare)))


def _line_of(lines: Lines, pattern: str, after: int = 0) -> int:
    return next((n for n, line in lines if n > after and re.search(pattern, line)), 0)


def _json(path: str, lines: Lines) -> Manifest | None:
    try:
        data = json.loads("\n".join(line for _, line in lines))
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    out = Manifest(path, name=_text(data.get("name")))
    out.crate = out.name
    out.members = bool(data.get("workspaces"))
    if text := _text(data.get("description")):
        out.description = (one_line(text, 300), path, _line_of(lines, r'^\s*"description"\s*:'))
    commands = data.get("bin")
    start = _line_of(lines, r'"bin"\s*:')
    if isinstance(commands, str):
        out.scripts.append((out.name, commands, start))
    elif isinstance(commands, dict):
        for key, value in commands.items():
            at = _line_of(lines, rf'"{re.escape(str(key))}"\s*:', start - 1)
            out.scripts.append((str(key), _text(value), at or start))
    for key in ("main", "module"):
        if (value := _text(data.get(key))) and not any(s[1] == value for s in out.scripts):
            out.scripts.append((key, value, _line_of(lines, rf'^\s*"{key}"\s*:')))
    needs = data.get("dependencies") or data.get("require")
    start = _line_of(lines, r'^\s*"(?:dependencies|require)"\s*:')
    for key in needs if isinstance(needs, dict) else ():
        out.requires.append(
            (str(key), _line_of(lines, rf'"{re.escape(str(key))}"\s*:', start - 1) or start)
        )
    return out


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _go(path: str, lines: Lines) -> Manifest:
    out, block = Manifest(path), False
    for n, line in lines:
        if found := re.match(r"^module\s+(\S+)", line):
            out.name = out.crate = found[1]
        elif re.match(r"^require\s*\($", line):
            block = True
        elif line.startswith(")"):
            block = False
        elif found := re.match(
            r"^(?:require\s+)?\s*([\w./-]+)\s+v[\w.+-]+(\s*//\s*indirect)?", line
        ):
            direct = (block or line.startswith("require")) and not found[2]
            out.requires += [(found[1], n)] if direct else []
    return out


def _setup(path: str, lines: Lines) -> Manifest:
    out = Manifest(path)
    for n, line in lines:
        if found := re.match(r"""^\s*name\s*=\s*["']?([\w.-]+)""", line):
            out.name = out.crate = out.name or found[1]
        elif found := re.match(r"""^\s*description\s*=\s*["']?([^"'\n]+?)["']?,?\s*$""", line):
            out.description = out.description or (one_line(found[1], 300), path, n)
        elif found := re.match(r"""^\s*["']?([\w.-]+)\s*=\s*([\w.]+:\w+)["']?,?\s*$""", line):
            out.scripts.append((found[1], found[2], n))
    return out


def targets(path: str, text: str) -> list[Fact]:
    """The targets of a Makefile that a person would call, with their help where there is one."""
    out: dict[str, Fact] = {}
    for n, line in numbered(text):
        found = re.match(r"^([a-zA-Z][\w-]*)\s*:(?![=:])(.*)$", line)
        if found and not re.match(r"\s*\w+\s*[?:+]?=", found[2]):
            out.setdefault(found[1], (found[1], path, n))
    return list(out.values())
