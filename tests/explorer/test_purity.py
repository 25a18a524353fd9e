"""The explorer is a pure function of its request: asked again, in another process or after a
restart, it says so."""

from __future__ import annotations

import ast
import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import retinue.models.explorer
from retinue import Retinue
from retinue.core.messages import ModelReply
from retinue.models.base import ModelRequest
from retinue.models.explorer import ExplorerModel
from tests.explorer.world import DIALECTS, TREES, explore, explorer

FOLDER = Path(retinue.models.explorer.__file__).parent


class Watched(ExplorerModel):
    """Keeps what it was asked and what it said; at the turn `stop_at` of the whole tree it
    hangs."""

    def __init__(self, stop_at: int = -1) -> None:
        super().__init__()
        self.heard: list[tuple[ModelRequest, ModelReply]] = []
        self.stop_at, self.reached = stop_at, asyncio.Event()

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        if 0 <= self.stop_at <= len(self.heard):
            self.reached.set()
            await asyncio.Event().wait()
        reply = await super().complete(request, emit)
        self.heard.append((request, reply))
        return reply


@pytest.mark.parametrize("dialect", ["", *DIALECTS])
def test_the_same_request_gets_the_same_reply_from_any_instance(dialect: str) -> None:
    async def story() -> None:
        model = Watched()
        async with Retinue() as retinue:
            await retinue.run(
                explorer(dialect, model=model), "map this repository", cwd=str(TREES / "python")
            )
        assert len(model.heard) >= 3
        for request, reply in reversed(model.heard):
            assert await ExplorerModel().complete(request, lambda _: None) == reply
            assert await ExplorerModel().complete(request, lambda _: None) == reply

    asyncio.run(story())


PROGRAM = """
import asyncio, sys
from tests.explorer.world import TREES, explore
for tree, task in (("python", "map this"), ("rust", "where are retries done?"), ("mixed", "map \
this in full")):
    print(asyncio.run(explore(TREES / tree, task, "delegate")).text)
"""


def test_processes_with_other_hash_seeds_write_the_same_reports() -> None:
    root = Path(__file__).resolve().parents[2]
    texts = []
    for seed in ("1", "2"):
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        }
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=root,
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        texts.append(process.stdout)
    assert texts[0] == texts[1] and len(texts[0]) > 3_000


@pytest.mark.parametrize(
    ("dialect", "at"), [("", 2), ("fanout", 6), ("agent", 7), ("subagent", 5), ("openclaw", 8)]
)
def test_a_restart_in_the_middle_changes_nothing(dialect: str, at: int, tmp_path: Path) -> None:
    async def story() -> str:
        model = Watched(stop_at=at)
        async with Retinue(tmp_path / "log.db") as retinue:
            id = await retinue.spawn(
                explorer(dialect, model=model), "map this repository", cwd=str(TREES / "python")
            )
            await model.reached.wait()
        async with Retinue(tmp_path / "log.db", agents=[explorer(dialect)]) as retinue:
            outcome = await retinue.wait(id)
            return outcome.text if outcome else ""

    before = asyncio.run(explore(TREES / "python", "map this repository", dialect)).text
    # How often the lead waits depends on who is back first; what it reports does not.
    assert asyncio.run(story()).partition("\n---\n")[0] == before.partition("\n---\n")[0]


def test_it_imports_nothing_that_has_files_time_or_chance() -> None:
    forbidden = {
        "os",
        "pathlib",
        "time",
        "datetime",
        "random",
        "uuid",
        "subprocess",
        "io",
        "socket",
        "tempfile",
        "logging",
    }
    result = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                result |= {(path.name, alias.name.split(".")[0]) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                result.add((path.name, node.module.split(".")[0]))
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "open"
            ):
                result.add((path.name, "open"))
    assert {f for f in result if f[1] in forbidden | {"open"}} == set()


def test_it_costs_nothing_and_counts_its_tokens() -> None:
    outcome = asyncio.run(explore(TREES / "go", "map this repository"))
    assert outcome.usage.nanos == 0 and outcome.usage.input > 1_000 and outcome.usage.output > 100
    info = ExplorerModel().info
    assert (info.name, info.price_in, info.price_out) == ("offline/explorer", 0, 0)
