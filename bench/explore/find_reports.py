"""Reports of `find` on real trees: every place in them is looked up in the file."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

from retinue.models.explorer.find_report import write_names
from retinue.models.explorer.report import Report
from retinue.syntax.source_tree import SourceTree
from retinue.syntax.symbol_search import find_symbols
from retinue.syntax.syntax_engine import SyntaxEngine
from retinue.syntax.tree_files import folder_files

NAMES = 4
SEED = 20261118
PLACE = re.compile(r"(?<![\w/.-])((?:[\w.@+-]+/)*[\w.@+-]*\w):(\d+)(?![\w:])")
CALL = re.compile(r"^\| (\S+):(\d+) `", re.MULTILINE)


def check(trees: dict[str, tuple[Path, SourceTree]], cache: Path) -> dict[str, Any]:
    """Ask for names that are defined in each tree, drawn at random among those that are called."""
    wrong: list[str] = []
    n_places = n_reports = 0
    for tree_name, (root, tree) in sorted(trees.items()):
        engine = SyntaxEngine(cache)
        for name in _names(tree):
            with folder_files(str(root)) as files:
                (result,) = find_symbols(engine, files, f"`{name}`", True, Event()).names
            report = Report()
            write_names(report, result)
            text = report.text()
            n_reports += 1
            n_places += len(PLACE.findall(text))
            wrong += [f"{tree_name}, {name}: {w}" for w in _wrong(root, name, text)]
            defined = sum(d.name == name for f in tree.parsed.values() for d in f.definitions)
            if result.n_definitions != defined:
                wrong.append(
                    f"{tree_name}, {name}: {result.n_definitions} of {defined} definitions"
                )
        engine.close()
    return {"reports": n_reports, "places": n_places, "wrong": wrong}


def _names(tree: SourceTree) -> list[str]:
    called = Counter(c.name for f in tree.parsed.values() for c in f.calls)
    name = {d.name for f in tree.source.values() if f.facts for d in f.facts.definitions}
    names = sorted(n for n in name if called[n] and re.fullmatch(r"\w{4,}", n))
    return random.Random(SEED).sample(names, min(NAMES, len(names)))


def _wrong(root: Path, name: str, report: str) -> list[str]:
    out = []
    for path, number in PLACE.findall(report):
        if not (root / path).is_file() or not _line(root, path, int(number)):
            out.append(f"{path}:{number} is not there")
    for path, number in CALL.findall(report):
        if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", _line(root, path, int(number)) or ""):
            out.append(f"{path}:{number} does not have the name")
    return out


def _line(root: Path, path: str, number: int) -> str | None:
    """The text of a line, with a space behind, so that an empty one is there."""
    lines = (root / path).read_text(encoding="utf-8", errors="replace").split("\n")
    return f"{lines[number - 1]} " if 0 < number <= len(lines) else None
