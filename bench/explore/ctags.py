"""Definitions as universal-ctags sees them, and which of its kinds are compared with which of
ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.explore.comparison import Tag
from bench.explore.trees import Unavailable

CALLABLE = {"function", "member", "method", "func", "singletonMethod"}
TYPE = {"class", "struct", "union", "enum", "enumerator_type", "interface", "trait", "typedef"}
TYPE |= {"type", "annotation", "talias"}
KINDS = {
    "Python": "+cfm",
    "Rust": "+fPsgiut",
    "Go": "+fsita",
    "C": "+fsugt",
    "C++": "+fcsugt",
    "Java": "+mcgia",
    "PHP": "+fcit",
    "Ruby": "+fScm",
}
LANGUAGES = {
    "python": "Python",
    "rust": "Rust",
    "go": "Go",
    "c": "C",
    "cpp": "C++",
    "java": "Java",
    "php": "PHP",
    "ruby": "Ruby",
}
LAMBDA = re.compile(r"^/\^\s*[\w.]+[^=(]*=\s*lambda\b")
RULES = (
    "constructors and methods are callables; struct, union, enum, interface, trait and typedef are "
    "types",
    "anonymous tags (__anon..., AnonymousClass...) are left out",
    "Python: `x = lambda` is a function to ctags and none here: left out by the text of its line",
)


def program() -> str:
    program = shutil.which("ctags")
    if program is None:
        raise Unavailable("universal-ctags is not installed (Debian: universal-ctags)")
    output = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False
    ).stdout
    if "Universal Ctags" not in output or "json" not in output + _features(program):
        raise Unavailable("ctags is not universal-ctags with JSON output")
    return program


def _features(path: str) -> str:
    argv = [path, "--list-features"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def tags(root: Path, files: Iterable[str], language: str) -> list[Tag]:
    name = LANGUAGES[language]
    argv = [program(), "--options=NONE", "--output-format=json", "--fields=+nK", "-f", "-"]
    argv += [f"--language-force={name}", f"--kinds-{name}={KINDS[name][1:]}", "-L", "-"]
    process = subprocess.run(
        argv, cwd=root, input="\n".join(files), capture_output=True, text=True, check=True
    )
    out: list[Tag] = []
    for row in map(json.loads, process.stdout.splitlines()):
        if row.get("_type") != "tag" or row["name"].startswith(("__anon", "AnonymousClass")):
            continue
        if language == "python" and LAMBDA.search(row.get("pattern", "")):
            continue
        side = "type" if row["kind"] in TYPE else ""
        if row["kind"] in CALLABLE:
            side = "callable"
        if side:
            out.append(Tag(row["path"].removeprefix("./"), row["name"], row["line"], side))
    return out
