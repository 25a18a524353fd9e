"""The setup of one run as one value: a client fills it in, and the configuration sets the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from retinue.core.values import Budget
from retinue.errors import ConfigError
from retinue.host.requests import RunTerms

_RULE = re.compile(r"[^\s,()]+(?:\([^)]*\))?")


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """Names and files are as people write them. `families` of None are the usual ones, an empty one
    means that the agent works alone. `rules` are permission rules of ours. `config_model` is the
    model that the configuration names, which an agent's own comes before."""

    agent: str = ""
    agent_file: str = ""
    model: str = ""
    config_model: str = ""
    families: tuple[str, ...] | None = None
    output_schema: dict[str, Any] | None = None
    mcp_config: tuple[str, ...] = ()
    strict_mcp_config: bool = False
    name: str = ""
    max_budget_usd: float | None = None
    max_tokens: int | None = None
    on_limit: Literal["", "land", "ask", "stop"] = ""
    max_turns: int | None = None
    timeout: float | None = None
    permission_mode: str = ""
    permission_prompts: str = "auto"
    rules: tuple[str, ...] = ()
    add_dir: tuple[str, ...] = ()

    def terms(self, cwd: str, questions: Literal["ask", "deny"]) -> RunTerms:
        """What the run may do and spend, in the directory `cwd`."""
        if self.max_turns is not None and self.max_turns < 1:
            raise ConfigError(f"The turn limit must be 1 or more, not {self.max_turns}.")
        try:
            budget = Budget(usd=self.max_budget_usd, tokens=self.max_tokens)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return RunTerms(
            label=self.name,
            cwd=cwd,
            budget=budget,
            on_limit=self.on_limit,
            timeout_seconds=self.timeout,
            max_turns=self.max_turns,
            mode=permission_mode(self.permission_mode),
            rules=self.rules,
            read=tuple(sorted({cwd, *self.add_dir})) if self.add_dir else (),
            questions=questions,
        )


def permission_mode(name: str) -> str:
    """One of our permission modes, whatever the name comes from."""
    if not name:
        return ""
    from retinue.config import value_checks as checks

    try:
        return checks.mode(name)
    except ValueError as error:
        raise ConfigError(f"{error}.") from None


def permission_rules(effect: str, texts: Sequence[str]) -> tuple[str, ...]:
    """`Read,Bash(git log:*)` as rules of ours. A tool that is not known is an error: no one means a
    rule that never holds."""
    out: dict[str, None] = {}
    for text in texts:
        for item in _RULE.findall(text):
            tool, _, pattern = item.removesuffix(")").partition("(")
            pattern = re.sub(r":\*$", "*", pattern)
            names = tool_names(tool)
            for name in names[:1] if pattern else names:
                out[f"{effect}: {name}({pattern})" if pattern else f"{effect}: {name}"] = None
    return tuple(out)


def tool_names(word: str) -> tuple[str, ...]:
    """Our tools by any of the names that they have elsewhere; who speaks of `agent` means all that
    starts others."""
    from retinue.agent_files.tool_alias_table import AGENT, CANONICAL
    from retinue.agent_files.tool_aliases import resolve
    from retinue.formats.suggestion import did_you_mean
    from retinue.tools.families.profiles import FAMILIES, make_family

    if word == "*" or word.startswith("mcp__") or "*" in word:
        return (word,)
    spawning = tuple(
        dict.fromkeys(name for kind in FAMILIES for name in make_family(kind).tool_names)
    )
    if word in spawning or word in ("skill", "artifact"):
        return (word,)
    names = resolve([word], "claude", lambda *complaint: None).names
    if not names:
        hint = did_you_mean(word, CANONICAL)
        raise ConfigError(f"Unknown tool {word!r}.{hint} Run `retinue tools list` to list them.")
    return tuple(n for name in names for n in ((AGENT, *spawning) if name == AGENT else (name,)))


def family_names(texts: Sequence[str]) -> tuple[str, ...] | None:
    """The families that were asked for, `none` for an agent that works alone; None when nothing was
    said."""
    from retinue.tools.families.profiles import make_family

    names = [n.strip() for text in texts for n in text.split(",") if n.strip()]
    if not names:
        return None
    if names == ["none"]:
        return ()
    for name in names:
        make_family(name)
    return tuple(dict.fromkeys(names))
