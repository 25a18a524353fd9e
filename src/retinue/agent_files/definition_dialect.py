"""Recognizes the dialect of a definition file."""

from __future__ import annotations

from pathlib import Path

from retinue.agent_files.agent_spec import Dialect


def file_dialect(path: Path) -> Dialect:
    """The dialect that a path speaks of; ours when it says nothing."""
    names: dict[str, Dialect] = {
        ".claude": "claude",
        ".opencode": "opencode",
        ".codex": "codex",
        ".github": "copilot",
        ".copilot": "copilot",
        ".gemini": "gemini",
        ".cursor": "cursor",
    }
    dialect = next((names[part] for part in reversed(path.parts) if part in names), None)
    return dialect or ("copilot" if path.name.endswith(".agent.md") else "retinue")


def stem_of(path: Path, dialect: Dialect, base: Path | None = None) -> str:
    if dialect == "opencode" and base is not None:
        return path.relative_to(base).with_suffix("").as_posix()
    stem = path.name.removesuffix(path.suffix)
    return stem.removesuffix(".agent") if dialect == "copilot" else stem
