"""Converts ordered permission rules of a file into rules where the strictest match decides, as the
core reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from retinue.agent_files.agent_spec import AgentSpec
from retinue.agent_files.tool_alias_table import AGENT, CANONICAL
from retinue.agent_files.tool_aliases import written
from retinue.core.call_rules import Rule, read_rule

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def spawnable(spec: AgentSpec, names: Iterable[str]) -> tuple[str, ...]:
    """Which of the agents a spec may start: those it names, without those that its rules deny."""
    rules = [r for r in map(read_rule, spec.rules) if fnmatchcase(AGENT, r.tool)]
    out = []
    for name in names:
        is_choice = spec.can_spawn is None or any(
            fnmatchcase(name, pattern) for pattern in spec.can_spawn
        )
        last = next(
            (r.effect for r in reversed(rules) if fnmatchcase(name, r.pattern or "*")), "allow"
        )
        if is_choice and last != "deny":
            out.append(name)
    return tuple(out)


def permit_rules(spec: AgentSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The rules for a request, and the tools for which they say less than the file.

    A rule without a pattern begins a tool's rules anew. What comes after it and is stricter is kept
    beside it. A looser rule cannot be kept next to it: then the rule without a pattern is dropped,
    and calls without a rule are left to the mode, which asks. Where the file wanted that denied,
    the tool is named in the second part."""
    rules = list(map(read_rule, spec.rules))
    if all(r.tool == "*" and not r.pattern for r in rules):
        return spec.rules[-1:], ()
    tools = dict.fromkeys(r.tool for r in rules if "*" not in r.tool)
    if any("*" in r.tool for r in rules):
        tools |= dict.fromkeys(t for t in CANONICAL if spec.tools is None or t in spec.tools)
    out: dict[str, None] = {}
    less: list[str] = []
    for tool in tools:
        if tool == AGENT:
            continue
        mine = [r for r in rules if fnmatchcase(tool, r.tool)]
        base, later = _from_last_whole(mine)
        looser = base is not None and any(
            STRICTNESS[r.effect] < STRICTNESS[base.effect] for r in later
        )
        if base is not None and not looser:
            out[written(base.effect, tool)] = None
        elif base is not None and base.effect == "deny":
            less.append(tool)
        for rule in later:
            out[written(rule.effect, tool, rule.pattern or "")] = None
    return tuple(out), tuple(less)


def _from_last_whole(rules: Sequence[Rule]) -> tuple[Rule | None, Sequence[Rule]]:
    at = next((n for n in range(len(rules) - 1, -1, -1) if not rules[n].pattern), None)
    return (None, rules) if at is None else (rules[at], rules[at + 1 :])
