"""How long reading a tree and finding a name take, cold and warm, in seconds and in processor
time."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import msgspec

from retinue.syntax.symbol_search import find_symbols
from retinue.syntax.syntax_engine import SyntaxEngine
from retinue.syntax.tree_files import folder_files

GOALS = {
    "1500 files cold": 5.0,
    "7000 files cold": 20.0,
    "7000 files warm": 3.0,
    "find cold": 5.0,
    "find warm": 1.0,
}


def _cpu() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, kinds))


def _timed(work: Callable[[], object]) -> tuple[dict[str, float], object]:
    wall, cpu = time.perf_counter(), _cpu()
    value = work()
    spent = {"seconds": time.perf_counter() - wall, "cpu_seconds": _cpu() - cpu}
    return {k: round(v, 2) for k, v in spent.items()}, value


def _read(root: Path, cache: Path) -> int:
    engine = SyntaxEngine(cache)
    with folder_files(str(root)) as files:
        tree = engine.read_tree(files)
    engine.close()
    return len(tree.files)


def _find(root: Path, cache: Path, name: str) -> bytes:
    engine = SyntaxEngine(cache)
    with folder_files(str(root)) as files:
        symbols = find_symbols(engine, files, name, False, Event())
    engine.close()
    return msgspec.json.encode(symbols)


def measure(django: Path) -> dict[str, object]:
    """On a busy machine the processor time, shared by the cores, is what is judged."""
    out: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        part = Path(scratch, "part")
        _copy(django, part, 1_500)
        out["1500 files cold"], _ = _timed(lambda: _read(part, Path(scratch, "a")))
        whole = Path(scratch, "b")
        out["7000 files cold"], n = _timed(lambda: _read(django, whole))
        out["7000 files warm"], _ = _timed(lambda: _read(django, whole))
        cold = Path(scratch, "c")
        text = "Where is class QuerySet defined?"
        out["find cold"], first = _timed(lambda: _find(django, cold, text))
        out["find warm"], second = _timed(lambda: _find(django, cold, text))
        out["files"], out["same bytes"] = n, first == second
        size = (whole / "syntax.db").stat().st_size
        out["cache bytes"] = size
    cores = os.cpu_count() or 1
    out["load"], out["cores"] = round(os.getloadavg()[0], 1), cores
    is_busy = os.getloadavg()[0] > cores
    out["judged by"] = "cpu_seconds / cores" if is_busy else "seconds"
    late = []
    for name, goal in GOALS.items():
        spent = out[name]
        assert isinstance(spent, dict)
        judged = spent["cpu_seconds"] / min(cores, 2) if is_busy else spent["seconds"]
        if min(judged, spent["seconds"]) > goal:
            late.append(name)
    out["late"] = late
    return out


def _copy(root: Path, target: Path, most: int) -> None:
    paths = sorted(p for p in root.rglob("*.py") if p.is_file())[:most]
    for path in paths:
        place = target / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
