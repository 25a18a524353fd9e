"""The offline explorer on a generated repository of 1,500 files: `python -m bench.explorer
[family]` prints one line of JSON. The limit is 5 s for the run itself."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FILES = 1_500
LIMIT_SECONDS = 5.0
AREAS = (
    "billing",
    "catalog",
    "delivery",
    "identity",
    "ledger",
    "mailing",
    "orders",
    "search",
    "storage",
    "web",
)


def generate(root: Path, n: int) -> int:
    """A package of ten areas in which every module has a class, functions and imports; tests for
    some; one commit."""
    n_made = 0
    for i in range(n):
        area = AREAS[i % len(AREAS)]
        other = AREAS[(i * 7 + 3) % len(AREAS)]
        tests = i % 5 == 0
        folder = root / ("tests" if tests else "src/shop") / area / f"part{i // 200}"
        folder.mkdir(parents=True, exist_ok=True)
        imports = [
            f"from shop.{other}.part0.module{(i * 3 + k) % 190} import Thing" for k in range(4)
        ]
        body = [
            f"def act{k}(x: int) -> int:\n    if x > {k}:\n        return x - {k}\n    return x\n"
            for k in range(12)
        ]
        name = f"test_module{i}.py" if tests else f"module{i}.py"
        cases = (
            [f"def test_it_{k}() -> None:\n    assert {k} == {k}\n" for k in range(4)]
            if tests
            else []
        )
        text = [
            f'"""Module {i} of {area}."""\n',
            *imports,
            "",
            "",
            f"class Thing{i}:\n    n = {i}\n",
            *body,
            *cases,
        ]
        (folder / name).write_text("\n".join(text))
        n_made += 1
    (root / "pyproject.toml").write_text(
        '[project]\nname = "shop"\ndescription = "A shop of many parts."\n'
    )
    (root / "README.md").write_text(
        "# shop\n\nA generated shop, as large as the ones that people have.\n"
    )
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "all of it"]):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
    return n_made + 2


async def run(root: Path, dialect: str) -> dict[str, Any]:
    from retinue import Agent, Retinue
    from retinue.models.explorer import ExplorerModel

    agent = Agent(
        "explorer",
        model=ExplorerModel(),
        tools=["symbols"],
        families=[dialect] if dialect else [],
    )
    async with Retinue() as retinue:
        began, used = time.perf_counter(), time.process_time()
        outcome = await retinue.run(agent, "map this repository", cwd=str(root))
        wall, cpu = time.perf_counter() - began, time.process_time() - used
    return {
        "family": dialect or "none",
        "seconds": round(wall, 2),
        "cpu_seconds": round(cpu, 2),
        "state": outcome.state,
        "children": len(outcome.children),
        "calls": outcome.usage.calls,
        "bytes_of_report": len(outcome.text),
        "has_areas": "\n## Areas\n" in outcome.text,
    }


def explorer(dialect: str = "fanout") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        n = generate(root, FILES)
        figures = asyncio.run(run(root, dialect))
    return {
        "files": n,
        **figures,
        "ok": figures["has_areas"] and figures["seconds"] < LIMIT_SECONDS,
    }


if __name__ == "__main__":
    record = explorer(*sys.argv[1:2])
    print(json.dumps(record))
    sys.exit(0 if record["ok"] else 1)
