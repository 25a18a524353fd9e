"""Reads one file into specs: chooses the reader, and reports a file that cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.agent_files.agent_spec import (
    WIDENING,
    AgentSpec,
    DefinitionSource,
    Dialect,
    FileComplaint,
    Scope,
)
from retinue.agent_files.dialects.claude import read_claude, read_ours
from retinue.agent_files.dialects.codex import read_codex, roles
from retinue.agent_files.dialects.copilot import read_copilot
from retinue.agent_files.dialects.cursor import read_cursor
from retinue.agent_files.dialects.gemini_cli import read_gemini
from retinue.agent_files.dialects.opencode import read_opencode
from retinue.agent_files.dialects.spec_reader import SpecReader
from retinue.agent_files.frontmatter import read_json, read_markdown, read_toml
from retinue.agent_files.yaml_builder import AgentDocument
from retinue.sandbox.bounded_read import MAX_BYTES, read_beneath, real, shown
from retinue.sandbox.regular_file import drain, open_regular

READERS: dict[str, Callable[[SpecReader], AgentSpec]] = {
    "retinue": read_ours,
    "claude": read_claude,
    "opencode": read_opencode,
    "codex": read_codex,
    "copilot": read_copilot,
    "gemini": read_gemini,
    "cursor": read_cursor,
}
NOT_AGENTS = {"readme", "agents", "claude", "gemini", "changelog", "license", "contributing"}
"""Texts next to agents that are not agents, unless they have front matter."""

NEEDS_HEAD = ("claude", "gemini")


@dataclass
class Loader:
    """Reads the files of one scope. `root` is what links may not lead out of; None is the user's
    own choice."""

    scope: Scope
    root: Path | None
    trusted: bool = True
    known: Sequence[str] = ()

    def file(
        self, path: Path, dialect: Dialect, stem: str
    ) -> tuple[list[AgentSpec], list[FileComplaint]]:
        """The agents of one file, and the complaints that belong to none of them."""
        document = self._document(path)
        if isinstance(document, FileComplaint):
            return [], [document]
        if path.suffix in (".json", ".jsonc"):
            return self._many(
                document, document.data, dialect, (), path.parent
            ), document.complaints
        if path.name == "config.toml" and dialect == "codex":
            return list(self._roles(document, path)), document.complaints
        if not document.broken and not document.data and not document.body:
            return [], [
                FileComplaint(path=shown(path), message="the file is empty, so it is not an agent")
            ]
        if not document.has_head:
            if stem.lower() in NOT_AGENTS:
                return [], []
            if dialect in NEEDS_HEAD:
                return [], [_no_head(path)]
            document.complain("no front matter: the whole file is the agent's instructions", 1)
        include = self._include(path.parent)
        return [
            self._spec(
                SpecReader(document, dialect, self.scope, stem, known=self.known, include=include)
            )
        ], []

    def opencode_json(self, path: Path) -> tuple[list[AgentSpec], list[FileComplaint]]:
        """The agents under `agent` in a configuration of opencode."""
        document = self._document(path)
        if isinstance(document, FileComplaint):
            return [], [document]
        agents = document.data.get("agent", {})
        if not isinstance(agents, dict):
            document.complain(
                "agent must have one object per agent", document.lines.get(("agent",), 0)
            )
            agents = {}
        return self._many(
            document, agents, "opencode", ("agent",), path.parent
        ), document.complaints

    def text(
        self, text: str, path: str = "--agents"
    ) -> tuple[list[AgentSpec], list[FileComplaint]]:
        """Agents by name in JSON, as a command line gives them."""
        document = read_json(text.encode("utf-8", "replace"), path)
        return self._many(document, document.data, "retinue", (), None), document.complaints

    def _document(self, path: Path) -> AgentDocument | FileComplaint:
        try:
            raw = (
                drain(open_regular(path), MAX_BYTES)
                if self.root is None
                else read_beneath(path, self.root)
            )
        except OSError as error:
            return FileComplaint(
                path=shown(path), message=f"not read: {error.strerror or error}", severity="warning"
            )
        reader = {".toml": read_toml, ".json": read_json, ".jsonc": read_json}.get(
            path.suffix, read_markdown
        )
        return reader(raw, shown(path))

    def _many(
        self,
        document: AgentDocument,
        agents: dict[str, Any],
        dialect: Dialect,
        at: tuple[str, ...],
        folder: Path | None,
    ) -> list[AgentSpec]:
        out = []
        for name, table in agents.items():
            place = (*at, name)
            if not isinstance(table, dict):
                document.complain(f"{name} must be an object", document.lines.get(place, 0))
                continue
            own = AgentDocument(document.path, lines=document.lines, has_head=True)
            reading = SpecReader(
                own, dialect, self.scope, name, name, self.known, data=table, at=place
            )
            if folder is not None:
                reading.include = self._include(folder)
            out.append(self._spec(reading))
        return out

    def _roles(self, document: AgentDocument, path: Path) -> Iterator[AgentSpec]:
        for name, table in roles(document):
            place = ("agents", name)
            file = table.get("config_file")
            if not isinstance(file, str):
                own = AgentDocument(document.path, lines=document.lines, has_head=True)
                yield self._spec(
                    SpecReader(
                        own, "codex", self.scope, name, name, self.known, data=table, at=place
                    )
                )
                continue
            layer = self._document(path.parent / file)
            if isinstance(layer, FileComplaint):
                line = document.lines.get(place, 0)
                document.complain(f"agents.{name}: {file[:120]} was {layer.message}", line, "error")
            else:
                data = {**table, **layer.data}
                yield self._spec(
                    SpecReader(layer, "codex", self.scope, name, name, self.known, data=data)
                )

    def _spec(self, reading: SpecReader) -> AgentSpec:
        if reading.document.broken:
            source = DefinitionSource(
                path=reading.document.path,
                dialect=reading.dialect,
                scope=self.scope,
                key=reading.key,
            )
            name = reading.name(reading.stem)
            return AgentSpec(
                name=name, source=source, complaints=tuple(reading.document.complaints)
            )
        spec = READERS[reading.dialect](reading)
        return spec if self.trusted else tamed(spec)

    def _include(self, folder: Path) -> Callable[[str], str]:
        """Other files for a prompt: beneath the project, or beside the user's own configuration."""

        def include(name: str) -> str:
            raw = read_beneath(folder / name, self.root or real(folder))
            if len(raw) > MAX_BYTES:
                raise OSError(f"larger than {MAX_BYTES} bytes")
            return raw.decode("utf-8", "replace").removeprefix("\ufeff").strip()

        return include


def tamed(spec: AgentSpec) -> AgentSpec:
    """The same agent without what a file may only do in a trusted project; what was omitted is
    said."""
    losses: list[str] = []
    changes: dict[str, Any] = {}
    if spec.permission_mode in WIDENING:
        changes["permission_mode"] = None
        losses.append(f"the permission mode {spec.permission_mode}")
    inline = [name for name, value in spec.mcp_servers.items() if value]
    if inline:
        changes["mcp_servers"] = {n: v for n, v in spec.mcp_servers.items() if not v}
        losses.append(f"the MCP servers {', '.join(inline)[:120]}")
    if "hooks" in spec.extra:
        changes["extra"] = {k: v for k, v in spec.extra.items() if k != "hooks"}
        losses.append("hooks")
    if any(rule.startswith("allow:") for rule in spec.rules):
        changes["rules"] = tuple(f"ask{r[5:]}" if r.startswith("allow:") else r for r in spec.rules)
        losses.append("permissions, which now ask")
    if not losses:
        return spec
    complaint = FileComplaint(
        path=spec.source.path,
        line=spec.source.line,
        message=f"the project is not trusted, so this is ignored: {'; '.join(losses)}",
        hint="trust the project to use it",
    )
    return replace(spec, complaints=(*spec.complaints, complaint), **changes)


def _no_head(path: Path) -> FileComplaint:
    return FileComplaint(
        path=shown(path),
        line=1,
        message="no front matter, so it is not an agent",
        hint="start the file with ---",
    )
