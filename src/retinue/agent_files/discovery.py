"""Where definitions are looked for, and which of several with the same name is used: command line,
project, user, built-in; in the project, the nearest folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from retinue.agent_files.agent_spec import (
    AgentSpec,
    DefinitionSource,
    Dialect,
    FileComplaint,
    FoundAgents,
    Shadowed,
)
from retinue.agent_files.definition_dialect import file_dialect, stem_of
from retinue.agent_files.loader import Loader
from retinue.config.project_root import folders_between
from retinue.config.project_root import project_root as root_of
from retinue.sandbox.bounded_read import files_below, is_beneath, real, shown

MAX_FILES = 5_000
MAX_DEPTH = 16

Extra = str | Path | Mapping[str, Any]


@dataclass(frozen=True)
class DefinitionFolder:
    """A folder of definitions, or a file that holds some, relative to a project's folder or to the
    home."""

    path: str
    dialect: Dialect
    suffixes: tuple[str, ...] = (".md",)
    depth: int = 0


PROJECT = (
    DefinitionFolder(".retinue/agents", "retinue", (".md", ".toml")),
    DefinitionFolder(".claude/agents", "claude", depth=MAX_DEPTH),
    DefinitionFolder(".opencode/agents", "opencode", depth=MAX_DEPTH),
    DefinitionFolder(".opencode/agent", "opencode", depth=MAX_DEPTH),
    DefinitionFolder("opencode.json", "opencode"),
    DefinitionFolder("opencode.jsonc", "opencode"),
    DefinitionFolder(".opencode/opencode.json", "opencode"),
    DefinitionFolder(".opencode/opencode.jsonc", "opencode"),
    DefinitionFolder(".codex/agents", "codex", (".toml",)),
    DefinitionFolder(".codex/config.toml", "codex"),
    DefinitionFolder(".github/agents", "copilot"),
    DefinitionFolder(".gemini/agents", "gemini"),
    DefinitionFolder(".cursor/agents", "cursor"),
)


def user_places(home: Path, config: Path, codex: Path) -> tuple[tuple[Path, DefinitionFolder], ...]:
    return (
        (config, DefinitionFolder("retinue/agents", "retinue", (".md", ".toml"))),
        (home, DefinitionFolder(".retinue/agents", "retinue", (".md", ".toml"))),
        (home, DefinitionFolder(".claude/agents", "claude", depth=MAX_DEPTH)),
        (config, DefinitionFolder("opencode/agents", "opencode", depth=MAX_DEPTH)),
        (config, DefinitionFolder("opencode/agent", "opencode", depth=MAX_DEPTH)),
        (config, DefinitionFolder("opencode/opencode.json", "opencode")),
        (config, DefinitionFolder("opencode/opencode.jsonc", "opencode")),
        (codex, DefinitionFolder("agents", "codex", (".toml",))),
        (codex, DefinitionFolder("config.toml", "codex")),
        (home, DefinitionFolder(".copilot/agents", "copilot")),
        (home, DefinitionFolder(".gemini/agents", "gemini")),
        (home, DefinitionFolder(".cursor/agents", "cursor")),
    )


def find_agents(
    cwd: str | Path,
    home: str | Path | None = None,
    project_root: str | Path | None = None,
    extra: Iterable[Extra] = (),
    trusted: bool = False,
    *,
    builtin: Sequence[AgentSpec] = (),
    tools: Sequence[str] = (),
    config_home: str | Path | None = None,
    codex_home: str | Path | None = None,
) -> FoundAgents:
    """All agents that can be found from a folder. Nothing here raises over what is in a file.

    `extra` are JSON texts, mappings, files or folders that a command line names. `trusted` lets the
    project's files widen permissions; see `load.tamed`. `tools` are names that this program knows
    beside the built-in ones. Without a `home` only the project is looked at."""
    here = real(cwd)
    root = real(project_root if project_root is not None else root_of(str(here), str(home or "")))
    collection = _FoundAgents()
    for item in extra:
        collection.add_extra(item, Loader("command", None, known=tools))
    if not is_beneath(here, root):
        collection.complaints.append(
            FileComplaint(path=shown(here), message=f"it is outside the project {root}")
        )
        root = here
    users = real(home) if home is not None else None
    loader = Loader("project", root, trusted, tools)
    for folder in map(Path, folders_between(str(here), str(root))):
        if folder != users:
            for place in PROJECT:
                collection.add_place(folder, place, loader)
    if users is not None:
        config = real(config_home) if config_home is not None else users / ".config"
        codex = real(codex_home) if codex_home is not None else users / ".codex"
        for base, place in user_places(users, config, codex):
            collection.add_place(base, place, Loader("user", None, known=tools))
    for spec in builtin:
        collection.put(
            msgspec.structs.replace(
                spec, source=msgspec.structs.replace(spec.source, scope="built-in")
            )
        )
    return collection.library()


@dataclass
class _FoundAgents:
    """What was found so far, in the order of precedence: the first of a name is kept."""

    by_name: dict[str, AgentSpec] = field(default_factory=dict)
    shadowed: list[Shadowed] = field(default_factory=list)
    complaints: list[FileComplaint] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    n_files: int = 0

    def put(self, spec: AgentSpec) -> None:
        first = self.by_name.setdefault(spec.name, spec)
        if first is spec:
            return
        mine, other = spec.source, first.source
        if (mine.path, mine.key) == (other.path, other.key) and mine.path:
            return
        self.shadowed.append(Shadowed(spec=spec, by=other.path))
        if _same_folder(mine, other):
            message = (
                f"two agents here are named {spec.name!r}; the one in "
                f"{os.path.basename(other.path)} is used"
            )
            self.complaints.append(FileComplaint(path=mine.path, line=mine.line, message=message))

    def add_extra(self, item: Extra, loader: Loader) -> None:
        if isinstance(item, Mapping):
            try:
                text = msgspec.json.encode(item).decode()
            except (TypeError, ValueError, RecursionError) as error:
                self._fail("--agents", f"not valid JSON: {error}")
                return
            self._take(loader.text(text))
        elif isinstance(item, str) and item.lstrip().startswith("{"):
            self._take(loader.text(item))
        else:
            self._add_path(Path(item), loader)

    def _add_path(self, path: Path, loader: Loader) -> None:
        is_folder, is_file = os.path.isdir(path), os.path.isfile(path)
        dialect = file_dialect(path)
        if is_folder:
            place = DefinitionFolder("", dialect, (".md", ".toml"), MAX_DEPTH)
            self.add_place(path, place, loader)
        elif is_file and path.name.startswith("opencode.json"):
            self._take(loader.opencode_json(path))
        elif is_file:
            self._take(loader.file(path, dialect, stem_of(path, dialect)))
        else:
            self._fail(shown(path)[:200], "file not found, and it is not JSON either")

    def add_place(self, base: Path, place: DefinitionFolder, loader: Loader) -> None:
        path = base / place.path
        if place.path.endswith((".json", ".jsonc", ".toml")):
            if os.path.isfile(path):
                self._take(
                    loader.opencode_json(path)
                    if place.dialect == "opencode"
                    else loader.file(path, "codex", path.stem)
                )
            return
        if not os.path.isdir(path):
            return
        if loader.root is not None and not is_beneath(real(path), loader.root):
            self.complaints.append(
                FileComplaint(path=shown(path), message="outside the project; not read")
            )
            return
        self.places.append(shown(path))
        for file, why in files_below(path, place.suffixes, place.depth):
            if why:
                self.complaints.append(
                    FileComplaint(path=shown(file), severity="note", message=why)
                )
                continue
            self.n_files += 1
            if self.n_files > MAX_FILES:
                self._fail(shown(path), f"more than {MAX_FILES} files; the rest was not read")
                return
            self._take(loader.file(file, place.dialect, stem_of(file, place.dialect, path)))

    def _take(self, contents: tuple[list[AgentSpec], list[FileComplaint]]) -> None:
        specs, complaints = contents
        self.complaints.extend(complaints)
        for spec in specs:
            self.put(spec)

    def _fail(self, path: str, message: str) -> None:
        self.complaints.append(FileComplaint(path=path, message=message, severity="error"))

    def library(self) -> FoundAgents:
        return FoundAgents(
            agents={name: spec for name, spec in sorted(self.by_name.items()) if not spec.broken},
            broken=tuple(spec for _, spec in sorted(self.by_name.items()) if spec.broken),
            shadowed=tuple(self.shadowed),
            complaints=tuple(self.complaints),
            searched=tuple(self.places),
        )


def _same_folder(a: DefinitionSource, b: DefinitionSource) -> bool:
    return (
        a.scope == b.scope
        and a.dialect == b.dialect
        and os.path.dirname(a.path) == os.path.dirname(b.path)
    )
