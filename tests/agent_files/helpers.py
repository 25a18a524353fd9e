"""Projects on disk, made of texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from retinue.agent_files.agent_spec import AgentSpec, Dialect, FileComplaint
from retinue.agent_files.loader import Loader

WILD = Path(__file__).parent / "wild"


def project(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """A folder with these files, which is a repository."""
    (root / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root


def agent(name: str, *lines: str, body: str = "Do it.") -> str:
    return "\n".join(
        ("---", f"name: {name}", f"description: the agent {name}", *lines, "---", body)
    )


def spec_of(
    folder: Path, text: str | bytes, dialect: Dialect = "claude", name: str = "it.md"
) -> AgentSpec:
    """The one agent of one file."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    specs, complaints = Loader("project", folder).file(path, dialect, path.name.split(".")[0])
    assert complaints == []
    (spec,) = specs
    return spec


def said(
    complaints: tuple[FileComplaint, ...] | list[FileComplaint], severity: str = ""
) -> list[tuple[int, str]]:
    return [(c.line, c.message) for c in complaints if not severity or c.severity == severity]
