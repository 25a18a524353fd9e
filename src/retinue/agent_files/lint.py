"""Lists all problems in a set of agent files, in the order of the files: those found while reading,
and those that only show across files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from retinue.agent_files.agent_spec import AgentSpec, FileComplaint, FoundAgents, Severity, hint_at
from retinue.agent_files.conversion import not_expressed
from retinue.agent_files.skill_discovery import Skills

ORDER = {"error": 0, "warning": 1, "note": 2}
LONG_DESCRIPTION = 1_024
LONG_PROMPT = 8_000
"""Tokens of instructions from which on their cost is worth a word: every run pays them."""


def lint(
    library: FoundAgents, *, skills: Skills | None = None, servers: Iterable[str] | None = None
) -> list[FileComplaint]:
    """All complaints, sorted by file and line. `servers` are the MCP servers that are configured
    elsewhere."""
    out: list[FileComplaint] = [*library.complaints, *not_expressed(library)]
    for spec in library.everything():
        out += spec.complaints
    for spec in library.agents.values():
        out += _in_company(spec, library)
        out += _of_skills(spec, skills)
        out += _of_servers(spec, servers)
    for hidden in library.shadowed:
        out += [c for c in hidden.spec.complaints if c.severity == "error"]
        out.append(
            _complaint(
                hidden.spec, f"{hidden.spec.name} is not used: {hidden.by} takes precedence", "note"
            )
        )
    if skills is not None:
        out += [
            *skills.complaints,
            *(c for s in (*skills.skills.values(), *skills.broken) for c in s.complaints),
        ]
    unique = dict.fromkeys((c.path, c.line, c.severity, c.message, c.hint) for c in out)
    complaints = [
        FileComplaint(path=p, line=n, severity=s, message=m, hint=h) for p, n, s, m, h in unique
    ]
    return sorted(complaints, key=lambda c: (c.path, c.line, ORDER[c.severity]))


def _complaint(
    spec: AgentSpec, message: str, severity: Severity = "warning", hint: str = ""
) -> FileComplaint:
    return FileComplaint(
        path=spec.source.path, line=spec.source.line, severity=severity, message=message, hint=hint
    )


def _in_company(spec: AgentSpec, library: FoundAgents) -> Iterator[FileComplaint]:
    for name in spec.can_spawn or ():
        if any(fnmatchcase(other, name) for other in library.agents):
            continue
        is_broken = any(b.name == name for b in library.broken)
        why = "is broken" if is_broken else "does not exist"
        yield _complaint(
            spec, f"it may start {name!r}, which {why}", "warning", hint_at(name, library.agents)
        )
    if not spec.instructions.strip() and not spec.disabled:
        yield _complaint(spec, f"{spec.name} has no instructions", "warning")
    if len(spec.description) > LONG_DESCRIPTION:
        yield _complaint(
            spec,
            f"the description has {len(spec.description)} characters; models see 300",
            "note",
        )
    if spec.tokens > LONG_PROMPT:
        yield _complaint(
            spec, f"the instructions use about {spec.tokens} tokens in every run", "note"
        )


def _of_skills(spec: AgentSpec, skills: Skills | None) -> Iterator[FileComplaint]:
    for name in spec.skills if skills is not None else ():
        assert skills is not None
        if name not in skills.skills:
            yield _complaint(
                spec, f"unknown skill {name!r}", "warning", hint_at(name, skills.skills)
            )


def _of_servers(spec: AgentSpec, servers: Iterable[str] | None) -> Iterator[FileComplaint]:
    if servers is None:
        return
    server_names = {*servers, *(name for name, value in spec.mcp_servers.items() if value)}
    names = {*(name for name, value in spec.mcp_servers.items() if not value)}
    names |= {
        tool.split("__")[1]
        for tool in spec.tools or ()
        if tool.startswith("mcp__") and tool != "mcp__*"
    }
    for name in sorted(names - server_names):
        yield _complaint(
            spec, f"unknown MCP server {name!r}", "warning", hint_at(name, server_names)
        )
