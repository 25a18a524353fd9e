"""`search` beside plain ripgrep over a generated tree; prints one line of JSON.

`python -m bench.search [files] [rounds]`. The ratio is of the medians of wall times, in the three
modes and for a pattern with few and with many matches."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import Queued, Run
from retinue.tools.base import Context, ToolResult
from retinue.tools.builtin.search import SearchTool

WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "import",
    "return",
    "value",
    "index",
    "buffer",
    "parser",
    "token",
    "packet",
)
PLAIN = {"lines": ["--line-number"], "files": ["--files-with-matches"], "count": ["--count"]}


def grow(root: Path, n_files: int) -> None:
    chance = random.Random(7)
    for i in range(n_files):
        folder = root / f"part{i % 60}" / f"unit{i % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(WORDS, k=9)) for _ in range(chance.randint(20, 220))]
        if i % 100 == 0:
            lines[len(lines) // 2] = "def needle(haystack):"
        (folder / f"file{i}.py").write_text("\n".join(lines) + "\n")
    (root / ".gitignore").write_text("*.log\nbuild/\n")


async def ours(search: SearchTool, caller: Context, pattern: str, mode: str) -> float:
    start = time.perf_counter()
    answer = await search.run(caller, {"pattern": pattern, "mode": mode})
    assert isinstance(answer, ToolResult) and not answer.error, answer
    return time.perf_counter() - start


def plain(root: Path, pattern: str, mode: str) -> float:
    start = time.perf_counter()
    command = ["rg", "--no-config", *PLAIN[mode], "--regexp", pattern, "./"]
    subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


async def measure(n_files: int, rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        grow(root, n_files)
        spec = RunSpec(id="r", request=RunRequest(agent="bench", task="search"), root="r")
        run = Run(id="r", state=Queued())
        caller = Context(
            spec=spec, row=run, call_id="c", index=0, key="k", called_at=0, root=folder
        )
        search = SearchTool()
        rows = {}
        for name, pattern in (("few", r"def \w+\("), ("many", "parser token")):
            for mode in PLAIN:
                times: tuple[list[float], list[float]] = ([], [])
                for _ in range(rounds):
                    times[0].append(await ours(search, caller, pattern, mode))
                    times[1].append(plain(root, pattern, mode))
                mine, theirs = (statistics.median(t) * 1000 for t in times)
                row = {
                    "ms": round(mine, 1),
                    "ripgrep_ms": round(theirs, 1),
                    "ratio": round(mine / theirs, 2),
                }
                rows[f"{name}_{mode}"] = row
        return {
            "bench": "search",
            "files": n_files,
            "rounds": rounds,
            "ratio": rows["few_lines"]["ratio"],
            **rows,
        }


if __name__ == "__main__":
    size, times = (int(a) for a in [*sys.argv[1:], "3000", "15"][:2])
    print(json.dumps(asyncio.run(measure(size, times))))
