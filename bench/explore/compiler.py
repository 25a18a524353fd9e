"""Definitions as the TypeScript compiler sees them, for JavaScript and TypeScript."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.explore.comparison import Tag
from bench.explore.trees import RealTree, Unavailable, fetch

TYPESCRIPT = RealTree("typescript", "5.9.3", "npm")
SCRIPT = Path(__file__).with_name("definitions.cjs")
RULES = (
    "functions, methods, accessors, constructors and their signatures are callables, as are arrow "
    "functions and function expressions with a name from a declaration, an assignment or a "
    "property; classes, interfaces, enums and aliases are types",
)


def tags(root: Path, files: Iterable[str]) -> list[Tag]:
    node = shutil.which("node")
    if node is None:
        raise Unavailable("node is not installed")
    compiler = fetch(TYPESCRIPT) / "lib" / "typescript.js"
    process = subprocess.run(
        [node, str(SCRIPT), str(compiler)],
        cwd=root,
        input="\n".join(files),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (json.loads(line) for line in process.stdout.splitlines())
    return [Tag(path, name, line, side) for path, name, line, side in rows]
