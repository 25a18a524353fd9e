"""What `retinue agents list | show | lint` prints, as plain lines. What comes from files cannot
move the cursor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from retinue.agent_files.agent_spec import AgentSpec, FileComplaint, FoundAgents, hint_at
from retinue.errors import NotFound
from retinue.formats.safe_text import one_line, several_lines

SHOWN = {"allow": "", "ask": "ask", "deny": "deny"}


def render_list(library: FoundAgents, *, cwd: str = "", width: int = 100) -> list[str]:
    """One agent a line: name, dialect, model, tools, file; then those that are shadowed or
    broken."""
    rows = [_row(spec, cwd) for spec in library.agents.values()]
    out = (
        _table([("NAME", "DIALECT", "MODEL", "TOOLS", "FILE"), *rows], width)
        if rows
        else ["No agents found."]
    )
    if not rows and library.searched:
        out.append(f"Looked in: {', '.join(_path(p, cwd) for p in library.searched)}")
    for spec in library.broken:
        why = next(c for c in spec.complaints if c.severity == "error")
        out.append(f"broken: {spec.name} ({_where(spec, cwd)}): {one_line(why.message)}")
    for hidden in library.shadowed:
        out.append(
            f"shadowed: {hidden.spec.name} ({_where(hidden.spec, cwd)}) by {_path(hidden.by, cwd)}"
        )
    return out


def _row(spec: AgentSpec, cwd: str) -> tuple[str, ...]:
    marks = [word for word, on in (("off", spec.disabled), ("hidden", spec.hidden)) if on]
    name = spec.name + (f" ({', '.join(marks)})" if marks else "")
    return (
        name,
        spec.source.dialect,
        one_line(spec.model or "inherit"),
        _tools(spec),
        _where(spec, cwd),
    )


def _tools(spec: AgentSpec) -> str:
    listed = "inherit" if spec.tools is None else ", ".join(spec.tools) or "none"
    return one_line(
        listed + (f", not {', '.join(spec.deny)}" if spec.deny and spec.tools is None else "")
    )


def _table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Columns as wide as they need to be; what is too long is cut in the column of the tools."""
    widths = [max(len(row[n]) for row in rows) for n in range(5)]
    rest = width - sum(widths[:3]) - widths[4] - 8
    widths[3] = max(8, min(widths[3], rest))
    out = []
    for row in rows:
        cells = [
            _cut(cell, size).ljust(size) for cell, size in zip(row[:4], widths[:4], strict=True)
        ]
        out.append("  ".join((*cells, row[4])).rstrip())
    return out


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 3]}..."


def render_show(library: FoundAgents, name: str, *, cwd: str = "") -> list[str]:
    """All that is known of one agent, with its instructions."""
    spec = next((s for s in library.everything() if s.name == name), None)
    if spec is None:
        hint = hint_at(name, library.agents)
        raise NotFound(
            f"Unknown agent {one_line(name)!r}. {hint or 'Run `retinue agents list` to list them.'}"
        )
    out = [f"{spec.name}{f' ({one_line(spec.title)})' if spec.title else ''}"]
    out += [f"  {key + ':':<17}{value}" for key, value in _facts(spec, cwd) if value]
    above = [h for h in library.shadowed if h.spec.name == name]
    out += [f"  {'shadows:':<17}{_where(h.spec, cwd)}" for h in above]
    for complaint in spec.complaints:
        hint = f" ({one_line(complaint.hint)})" if complaint.hint else ""
        out.append(f"  {complaint.severity + ':':<17}{one_line(str(complaint.message))}{hint}")
    out += ["", f"instructions, about {spec.tokens} tokens:", ""]
    return [*out, *several_lines(spec.instructions).split("\n")]


def _facts(spec: AgentSpec, cwd: str) -> Iterable[tuple[str, str]]:
    yield "file", f"{_where(spec, cwd)} ({spec.source.dialect}, {spec.source.scope})"
    yield "description", one_line(spec.description)
    yield "model", one_line(spec.model or "inherited from the agent that starts it")
    yield "effort", spec.effort
    yield "temperature", "" if spec.temperature is None else f"{spec.temperature:g}"
    yield "tools", _tools(spec)
    yield "denied", one_line(", ".join(spec.deny))
    yield "rules", one_line("; ".join(spec.rules))
    yield "permissions", spec.permission_mode or ""
    yield "may start", _spawns(spec)
    yield "limits", _limits(spec)
    yield "result", "" if spec.output_schema is None else one_line(_json(spec.output_schema))
    yield "skills", one_line(", ".join(spec.skills))
    yield (
        "MCP servers",
        one_line(
            ", ".join(f"{n}{' (defined here)' if v else ''}" for n, v in spec.mcp_servers.items())
        ),
    )
    flags = [
        w
        for w, on in (
            ("background", spec.background),
            ("hidden", spec.hidden),
            ("off", spec.disabled),
        )
        if on
    ]
    yield (
        "flags",
        ", ".join(
            [
                *flags,
                *([spec.isolation] if spec.isolation else []),
                *([spec.mode] if spec.mode else []),
            ]
        ),
    )
    yield "job", one_line(spec.job)
    yield "not supported", one_line(", ".join(spec.extra))


def _spawns(spec: AgentSpec) -> str:
    if spec.can_spawn:
        return one_line(", ".join(spec.can_spawn))
    return "all agents" if spec.spawns else ""


def _limits(spec: AgentSpec) -> str:
    amounts = [
        ("turns", spec.max_turns),
        ("seconds", spec.timeout),
        *(
            (f"{name} in all", getattr(spec.budget, name))
            for name in ("tokens", "usd", "turns", "calls", "seconds")
        ),
    ]
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts if amount is not None)


def render_lint(complaints: Iterable[FileComplaint], *, cwd: str = "") -> list[str]:
    """One complaint a line, as compilers write them, and a line that counts them."""
    listed = list(complaints)
    out = []
    for c in listed:
        where = _path(c.path, cwd) + (f":{c.line}" if c.line else "")
        out.append(
            f"{where}: {c.severity}: {one_line(c.message)}"
            + (f" ({one_line(c.hint)})" if c.hint else "")
        )
    counts = [(sum(c.severity == s for c in listed), s) for s in ("error", "warning", "note")]
    summary = ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts if n)
    return [*out, summary or "No problems found."]


def _where(spec: AgentSpec, cwd: str) -> str:
    return (_path(spec.source.path, cwd) or "built-in") + (
        f" [{one_line(spec.source.key)}]" if spec.source.key else ""
    )


def _path(path: str, cwd: str) -> str:
    """Relative where that is shorter and does not climb."""
    above = cwd.rstrip("/") + "/"
    return one_line(path.removeprefix(above) if cwd else path)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:500]
