"""What is true of the golden trees, found out by other means than the explorer's: the syntax tree
of Python's own parser, plain text, and counts by hand. Nothing here imports the explorer."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PLACE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w.-]*\w\.?\w*):(\d+)(?![\w:])")
NAMED = re.compile(r"`([^`\n]+)` ((?:[\w.-]+/)*[\w.-]+):(\d+)")
READ = re.compile(r"^\d+\. ((?:[\w.-]+/)*[\w.-]+):(\d+): `([^`]+)`", re.MULTILINE)
QUOTED = re.compile(r'"([^"\n]+)" ((?:[\w.-]+/)*[\w.-]+):(\d+)')


def lines_of(root: Path, path: str) -> list[str]:
    return (root / path).read_text(encoding="utf-8", errors="replace").split("\n")


def wrong_places(root: Path, report: str) -> list[str]:
    """Places in a report that are not there, names that do not stand where it says, and quotations
    that do not begin there."""
    out = []
    for match in PLACE.finditer(report):
        path, line = match[1], int(match[2])
        if not (root / path).is_file():
            out.append(f"{match[0]}: no such file")
        elif not 1 <= line <= max(1, len(lines_of(root, path))):
            out.append(f"{match[0]}: no such line")
    named = [(m[1], m[2], int(m[3])) for m in NAMED.finditer(report)]
    named += [(m[3], m[1], int(m[2])) for m in READ.finditer(report)]
    for name, path, line in named:
        word = re.split(r"\.|::", name)[-1]
        if re.fullmatch(r"\w+", word) and word not in lines_of(root, path)[line - 1]:
            out.append(f"`{name}` {path}:{line}: {lines_of(root, path)[line - 1]!r}")
    for match in QUOTED.finditer(report):
        words, here = (
            match[1].split()[:3],
            " ".join(lines_of(root, match[2])[int(match[3]) - 1 :][:4]),
        )
        if not all(_bare(word) in _bare(here) for word in words):
            out.append(f"{match[0]}: {here!r}")
    return out


def _bare(text: str) -> str:
    return re.sub(r"[^\w]", "", text)


def n_places(report: str) -> int:
    return len(PLACE.findall(report))


def section(report: str, title: str) -> str:
    _, mark, rest = report.partition(f"## {title}")
    return rest.partition("\n## ")[0].partition("\n---")[0] if mark else ""


def python_imports(root: Path, of: set[str]) -> dict[str, int]:
    """Import statements that name a file, as Python's own parser has them, in the files `of`."""
    modules = {}
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        for base in ("src/", "service/", ""):
            if name.startswith(base):
                dotted = name[len(base) :].removesuffix(".py").removesuffix("/__init__")
                modules.setdefault(dotted.replace("/", "."), name)
    count: dict[str, int] = {}
    for name in sorted(of):
        for node in ast.walk(ast.parse((root / name).read_text(encoding="utf-8"))):
            hit: set[str] = set()
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    hit.add(
                        modules.get(f"{node.module}.{alias.name}") or modules.get(node.module) or ""
                    )
            elif isinstance(node, ast.Import):
                hit = {modules.get(alias.name, "") for alias in node.names}
            for target in hit - {"", name}:
                count[target] = count.get(target, 0) + 1
    return count


def python_kinds(root: Path, paths: list[str]) -> tuple[int, int, int]:
    """Classes, methods and functions of some files, as Python's own parser has them."""
    classes = methods = functions = 0
    for path in paths:
        tree = ast.parse((root / path).read_text(encoding="utf-8"))
        owned = {
            child
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for child in node.body
        }
        for node in ast.walk(tree):
            classes += isinstance(node, ast.ClassDef)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                methods += node in owned
                functions += node not in owned
    return classes, methods, functions


# Counted by hand: import statements of files that are neither tests nor generated.
IMPORTED = {
    "rust": {
        "src/gauge/mod.rs": 5,
        "src/config.rs": 2,
        "src/store/mod.rs": 2,
        "src/warn/mod.rs": 2,
    },
    "typescript": {
        "src/board/board.ts": 6,
        "src/board/card.ts": 3,
        "src/board/lane.ts": 2,
        "src/sync/wire.ts": 2,
    },
    "go": {"internal/mail/": 3, "internal/queue/": 3},
    "mixed": {"firmware/camera.h": 2, "service/orchard/counting.py": 2},
}
FACTS = {
    # files in all, source files, test files, tests
    "python": (20, 13, 3, 3),
    "rust": (15, 11, 1, 2),
    "typescript": (15, 11, 1, 2),
    "go": (13, 7, 1, 2),
    "mixed": (18, 11, 1, 1),
}
PURPOSE = {
    "python": ("Double-entry bookkeeping for small clubs.", "pyproject.toml:3"),
    "rust": ("Watches tide gauges and warns before the water comes.", "Cargo.toml:5"),
    "typescript": ("A shared story board for writers' rooms.", "package.json:4"),
    "go": (
        "Postbox takes mail for people who have no server and keeps it until they ask.",
        "README.md:3",
    ),
    "mixed": (
        "Orchard counts apples with a camera on a ladder, a service in the barn and a page in the "
        "kitchen.",
        "README.md:5",
    ),
}
ENTRIES = {
    "python": [
        "ledgerly ledgerly.cli.main:run pyproject.toml:12 -> `run` src/ledgerly/cli/main.py:10",
        "-> `run` src/ledgerly/cli/importer.py:13",
        "make lint Makefile:6",
    ],
    "rust": [
        "tidewatch [[bin]] Cargo.toml:11 -> `main` src/main.rs:7",
        "tide-replay [[bin]] Cargo.toml:15 -> `main` src/bin/replay.rs:6",
    ],
    "typescript": ["plotline dist/cli.js package.json:7", "npm test vitest package.json:11"],
    "go": [
        "drain -> `main` cmd/drain/main.go:10",
        "postbox -> `main` cmd/postbox/main.go:10",
        "make build Makefile:1",
    ],
    "mixed": [
        "python -m orchard service/orchard/__main__.py:5",
        "main.c -> `main` firmware/main.c:3",
    ],
}
