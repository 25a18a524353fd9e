"""A stage for the explorer: looking tools on a folder, the five families, and the reports that come
of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retinue import Agent, Outcome, Retinue
from retinue.models.explorer import ExplorerModel
from retinue.tools.families.profiles import family

TREES = Path(__file__).parent / "trees"
DIALECTS = ("agent", "delegate", "fanout", "sessions", "openclaw", "subagent")


LOOKING = ("list", "search", "find", "symbols", "read", "git")


def explorer(
    dialect: str = "", tools: Sequence[Any] | None = None, model: Any = None, **settings: Any
) -> Agent:
    return Agent(
        "explorer",
        model=model or ExplorerModel(),
        tools=LOOKING if tools is None else tools,
        families=[family(dialect, **settings)] if dialect else [],
    )


async def explore(
    root: Path, task: str, dialect: str = "", tools: Any = None, **options: Any
) -> Outcome:
    async with Retinue() as retinue:
        return await retinue.run(explorer(dialect, tools), task, cwd=str(root), **options)


def copied(tree: str, folder: Path, commits: int = 1) -> Path:
    """A golden tree as a repository of its own, in which some files changed a few times."""
    root = folder / tree
    shutil.copytree(TREES / tree, root)
    commit(root, "first")
    changing = sorted(
        p for p in root.rglob("*") if p.suffix in (".py", ".go", ".rs", ".ts") and "src" in p.parts
    )
    for n in range(1, commits):
        for path in changing[: 2 + n]:
            mark = "#" if path.suffix == ".py" else "//"
            path.write_text(f"{path.read_text(encoding='utf-8')}{mark} {n}\n", encoding="utf-8")
        commit(root, f"change {n}")
    return root


def commit(root: Path, message: str) -> None:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.invalid"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", message]):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
