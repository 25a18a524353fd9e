"""What is true of the golden trees, found out by other means than the explorer's: the syntax tree
for Python, plain text for the others. Nothing here imports the explorer."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PLACE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w.-]*\w\.?\w*):(\d+)(?![\w:])")
NAMED = re.compile(r"`([^`\n]+)` ((?:[\w.-]+/)*[\w.-]+):(\d+)")


def lines_of(root: Path, path: str) -> list[str]:
    return (root / path).read_text(encoding="utf-8").splitlines()


def wrong_places(root: Path, report: str) -> list[str]:
    """Places in a report that are not there, and names that do not stand where it says."""
    out = []
    for found in PLACE.finditer(report):
        path, line = found[1], int(found[2])
        if not (root / path).is_file():
            out.append(f"{found[0]}: no such file")
        elif not 1 <= line <= max(1, len(lines_of(root, path))):
            out.append(f"{found[0]}: no such line")
    for found in NAMED.finditer(report):
        name, path, line = found[1], found[2], int(found[3])
        if re.fullmatch(r"\w+", name) and name not in lines_of(root, path)[line - 1]:
            out.append(f"{found[0]}: {lines_of(root, path)[line - 1]!r}")
    return out


def n_places(report: str) -> int:
    return len(PLACE.findall(report))


def section(report: str, title: str) -> str:
    _, mark, rest = report.partition(f"## {title}")
    return rest.partition("\n## ")[0].partition("\n---")[0] if mark else ""


def python_imports(root: Path, of: set[str]) -> dict[str, int]:
    """Import statements that name a file, as the syntax tree has them, in the files `of`."""
    modules = {}
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        for base in ("src/", "service/", ""):
            if name.startswith(base):
                dotted = (
                    name[len(base) :]
                    .removesuffix(".py")
                    .removesuffix("/__init__")
                    .replace("/", ".")
                )
                modules.setdefault(dotted, name)
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


def python_definitions(root: Path, path: str) -> int:
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    defs = sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(tree))
    return defs + sum(isinstance(n, ast.ClassDef) for n in tree.body)


# Counted by hand: import lines of files that are neither tests nor generated.
IMPORTED = {
    "rust": {
        "src/gauge/mod.rs": 5,
        "src/config.rs": 2,
        "src/store/mod.rs": 2,
        "src/warn/mod.rs": 2,
        "src/store/ring.rs": 1,
        "src/store/retry.rs": 1,
        "src/gauge/serial.rs": 1,
    },
    "typescript": {
        "src/board/board.ts": 6,
        "src/board/card.ts": 3,
        "src/board/lane.ts": 2,
        "src/sync/wire.ts": 2,
        "src/sync/retry.ts": 1,
        "src/sync/client.ts": 1,
        "src/sync/server.ts": 1,
        "src/storage/files.ts": 1,
    },
    "go": {"internal/mail": 3, "internal/queue": 3, "internal/server": 1},
    "mixed": {
        "firmware/camera.h": 2,
        "service/orchard/counting.py": 2,
        "service/orchard/app.py": 1,
        "web/src/counter.js": 1,
        "web/src/api.js": 1,
    },
}
FACTS = {
    # files, source files, test files, test cases, definitions of the source
    "python": (20, 13, 3, 3, None),
    "rust": (15, 11, 1, 1, 26),
    "typescript": (15, 10, 1, 2, 15),
    "go": (13, 7, 1, 2, 14),
    "mixed": (18, 11, 1, 1, 15),
}
PURPOSE = {
    "python": "Double-entry bookkeeping for small clubs. (pyproject.toml:3)",
    "rust": "Watches tide gauges and warns before the water comes. (Cargo.toml:5)",
    "typescript": "A shared story board for writers' rooms. (package.json:4)",
    "go": "Postbox takes mail for people who have no server and keeps it until they ask. "
    "(README.md:3)",
    "mixed": "Orchard counts apples with a camera on a ladder, a service in the barn and a page "
    "in the kitchen. "
    "(README.md:5)",
}
ENTRIES = {
    "python": [
        "`run` src/ledgerly/cli/main.py:10",
        "`run` src/ledgerly/cli/importer.py:13",
        "`lint` (Makefile:6)",
    ],
    "rust": [
        "`tidewatch` -> `src/main.rs` (Cargo.toml:12): src/main.rs:7",
        "(Cargo.toml:16): src/bin/replay.rs:6",
    ],
    "typescript": [
        "`plotline` -> `dist/cli.js` (package.json:7)",
        "`main` -> `dist/index.js` (package.json:5)",
    ],
    "go": [
        "`drain`: cmd/drain/main.go:10",
        "`postbox`: cmd/postbox/main.go:10",
        "`build` (Makefile:1)",
    ],
    "mixed": [
        "`python -m orchard`: service/orchard/__main__.py:5",
        "`firmware`: firmware/main.c:3",
    ],
}
