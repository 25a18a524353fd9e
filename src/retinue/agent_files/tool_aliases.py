"""Resolves tool names of other programs: names, groups, patterns and restrictions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial

from retinue.agent_files.agent_spec import Dialect, Severity, hint_at
from retinue.agent_files.tool_alias_table import (
    AGENT,
    ALIASES,
    CANONICAL,
    GROUPED,
    GROUPS,
    NEAR,
    SHELL,
    WITHOUT,
)
from retinue.core.values import Value

Complain = Callable[[str, Severity, str | Callable[[], str]], None]
MAX_ENTRIES = 500
MAX_ENTRY = 300
_WORD = re.compile(r"[\w.*?-]{1,128}")
_MCP = re.compile(r"mcp__([\w.-]+?)(?:__(.+))?")


class ToolList(Value):
    """A list of tools in our names, and the patterns after some of them. `every` is a list that
    leaves nothing out. `spawn` are the agents that were named with the tool that starts them: None
    when none was."""

    names: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    spawn: tuple[str, ...] | None = None
    every: bool = False


def split_names(text: str) -> list[str]:
    """`Read, Bash(git *), Grep` or `Read Grep`: commas and spaces inside parentheses separate
    nothing."""
    comma = "," in text
    parts, depth, start = [], 0, 0
    for n, letter in enumerate(text):
        if letter in "()":
            depth = max(0, depth + (1 if letter == "(" else -1))
        elif depth == 0 and (letter == "," if comma else letter.isspace()):
            parts.append(text[start:n])
            start = n + 1
    return [p.strip() for p in (*parts, text[start:]) if p.strip()]


def resolve(
    entries: Iterable[str],
    dialect: Dialect,
    complain: Complain,
    *,
    servers: Iterable[str] = (),
    known: Iterable[str] = (),
) -> ToolList:
    """The tools of ours that a list names. `servers` are MCP servers, `known` further tools of this
    program."""
    names: dict[str, None] = {}
    patterns: dict[tuple[str, str], None] = {}
    spawn: list[str] | None = None
    every = False
    more = {k.lower(): k for k in known}
    listed = list(entries)
    if len(listed) > MAX_ENTRIES:
        complain(
            (f"{len(listed)} tools are named; only the first {MAX_ENTRIES} were read"),
            "warning",
            "",
        )
    for entry in listed[:MAX_ENTRIES]:
        word, inside = _call(entry)
        if len(entry) > MAX_ENTRY:
            complain(f"{entry[:40]!r}... is too long for a tool name; it is ignored", "warning", "")
            continue
        if word == "*":
            every = True
            continue
        ours = _one(word, dialect, complain, tuple(servers), more)
        names.update(dict.fromkeys(ours))
        if not inside or inside == "*" or not ours:
            if AGENT in ours and spawn is not None:
                spawn = [*spawn, "*"]
        elif ours == (AGENT,):
            spawn = [*(spawn or ()), *split_names(inside)]
        else:
            # The tools that look after background commands have no command of their own to match.
            patterns.update(
                dict.fromkeys((n, pattern_of(inside)) for n in ours if n not in SHELL[1:])
            )
    if spawn is not None and "*" in spawn:
        spawn = None
    return ToolList(
        names=tuple(names),
        patterns=tuple(patterns),
        spawn=None if spawn is None else tuple(dict.fromkeys(spawn)),
        every=every,
    )


def _call(entry: str) -> tuple[str, str]:
    """`Bash(git *)` is a tool and a pattern."""
    word, paren, inside = entry.strip().partition("(")
    return word.strip(), inside.removesuffix(")").strip() if paren else ""


def pattern_of(inside: str) -> str:
    """`git:*` is an older way to write `git *`."""
    return f"{inside[:-2]} *" if inside.endswith(":*") else inside


def written(effect: str, tool: str, pattern: str = "") -> str:
    """A rule as `core.permits` reads it: `allow: shell(git *)`."""
    return f"{effect}: {tool}({pattern})" if pattern else f"{effect}: {tool}"


def _one(
    word: str,
    dialect: Dialect,
    complain: Complain,
    servers: tuple[str, ...],
    more: Mapping[str, str],
) -> tuple[str, ...]:
    low = word.lower()
    if low in more:
        return (more[low],)
    grouped = GROUPED.get(dialect, {}).get(low)
    if grouped or low in ALIASES:
        return grouped or ALIASES[low]
    if low in NEAR:
        ours, remark = NEAR[low]
        complain(f"{word}: {remark}", "note", "")
        return ours
    if low in WITHOUT:
        complain(f"no tool like {word!r} here; it is ignored", "note", "")
        return ()
    mcp = _mcp(word, dialect, servers)
    if mcp and all(_WORD.fullmatch(name) for name in mcp):
        return mcp
    if "*" in word or "?" in word:
        names = [n for alias, ours in ALIASES.items() if fnmatchcase(alias, low) for n in ours]
        names += [ours for name, ours in more.items() if fnmatchcase(name, low)]
        if names:
            return tuple(dict.fromkeys(names))
    if dialect == "opencode" and "_" in word.strip("_") and _WORD.fullmatch(word):
        server, _, tool = word.partition("_")
        complain(f"{word!r} is used as a tool of the MCP server {server!r}", "note", "")
        return (f"mcp__{server}__{tool or '*'}",)
    tool_names = (*CANONICAL, *ALIASES, *more.values())
    complain(
        f"unknown tool {word[:80]!r}; it is ignored", "warning", partial(hint_at, word, tool_names)
    )
    return ()


def _mcp(word: str, dialect: Dialect, servers: tuple[str, ...]) -> tuple[str, ...]:
    """A tool of an MCP server in any spelling, as `mcp__server__tool`; a whole server as
    `mcp__server__*`."""
    if word.startswith("mcp__"):
        match = _MCP.fullmatch(word)
        if match:
            return (f"mcp__{match[1]}__{match[2] or '*'}",)
        return ("mcp__*",) if word == "mcp__*" else ()
    if dialect == "gemini" and word.startswith("mcp_"):
        rest = word[4:]
        if rest == "*":
            return ("mcp__*",)
        fits = [s for s in servers if rest.startswith(f"{s}_")]
        server = max(fits, key=len) if fits else rest.partition("_")[0]
        return (f"mcp__{server}__{rest[len(server) + 1 :] or '*'}",)
    if dialect == "copilot" and "/" in word.strip("/"):
        server, _, tool = word.rpartition("/")
        low = server.lower()
        if low in ALIASES or low in WITHOUT:
            inner = tool.lower()
            return ALIASES.get(inner) or GROUPS.get(low) or ALIASES.get(low, ())
        return (f"mcp__{server.replace('/', '_')}__{tool or '*'}",)
    return ()
