"""Rules about tool calls: their syntax, and which calls one matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from retinue.core.values import ToolRisk, Value
from retinue.formats.globs import rule_glob, rule_pattern
from retinue.formats.host_names import spelled

Verdict = Literal["allow", "ask", "deny"]
_RULE = re.compile(r"(allow|ask|deny):\s*([^()\s]+)\s*(?:\((.*)\))?", re.DOTALL)
_SHELL = re.compile(r"[;&|`$()<>\n\r\\{}!#]")
"""What makes more of a command than a program and its words. A wildcard does not vouch for it."""
DOMAIN = "domain:"
READING = ("read", "search")
READERS = (*READING, "shell")  # a command can read the whole workspace
Bounds = tuple[tuple[str, tuple[str, ...]], ...]
"""The rules of a run and its ancestors, each with the directory in which they are meant."""


class Rule(Value):
    """Without a pattern it holds for every call of the tool."""

    effect: Verdict
    tool: str
    pattern: str | None = None

    @property
    def words(self) -> str:
        return f"{self.effect}: {self.tool}" + (
            f"({self.pattern})" if self.pattern is not None else ""
        )


@lru_cache(maxsize=4096)
def read_rule(text: str) -> Rule:
    """A rule as people write it: `deny: shell(rm *)`, `allow: edit(src/**)`, `ask:
    fetch(domain:example.org)`."""
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a rule. Write e.g. 'allow: shell(git log*)' or 'deny: edit(.env)'."
        )
    effect, tool, pattern = match.groups()
    return Rule(effect=effect, tool=tool, pattern=pattern)  # type: ignore[arg-type]


def rule_for(effect: Verdict, tool: str, subject: str) -> str:
    """The rule for exactly this subject: nothing in it is a wildcard, or a domain."""
    literal = _literal(subject)
    shield = "\\" if literal.startswith(DOMAIN) else ""
    return f"{effect}: {tool}({shield}{literal})"


def _literal(text: str) -> str:
    return re.sub(r"([*?\\])", r"\\\1", text)


def rule_matches(
    rule: Rule, tool: str, guard: ToolRisk, subject: str | None, cwd: str = ""
) -> bool:
    """Whether a rule that is meant in `cwd` speaks of a call. A pattern never allows a path that is
    not known here. A rule that asks does ask, and a rule that denies is left to the tool, which
    sees every path."""
    if not rule_pattern(rule.tool).fullmatch(tool):
        return False
    if rule.pattern is None:
        return True
    if subject is None:
        return rule.effect == "ask"
    if guard.subject == "path":
        # What is denied or asked about wherever it is, is so in every root of the run.
        far = (
            rule.effect != "allow"
            and rule.pattern.startswith("**")
            and rule_glob(f"/{rule.pattern}").matches(subject)
        )
        return far or rule_glob(whole_path(_literal(cwd), rule.pattern)).matches(subject)
    if guard.subject == "url" and rule.pattern.startswith(DOMAIN):
        return _in_domain(subject, rule.pattern.removeprefix(DOMAIN))
    if guard.subject == "command" and rule.effect == "allow" and _SHELL.search(subject):
        return rule_for("allow", rule.tool, subject) == rule.words
    return bool(rule_pattern(rule.pattern).fullmatch(subject))


def barred_path(
    bounds: Iterable[tuple[str, tuple[str, ...]]],
    names: Iterable[str],
    path: str,
    tool: str = "",
    path_text: str = "",
    cwd: str = "",
) -> str:
    """The rule that keeps tools of these names from a path, or "". For tools, which alone know
    where a link leads. `bounds` are the directories and rules of the run and its ancestors. A rule
    that asks counts as a denial, because no question was asked; unless the rule is about the call
    itself: `tool`, with the path `written` in `cwd` ("": a patch)."""
    guard = ToolRisk(risk="write", subject="path")
    target = whole_path(cwd, path_text) if path_text.strip() else None
    rules = [(own, text, read_rule(text)) for own, texts in bounds for text in texts]
    for name in names:
        for own, text, rule in rules:
            if (
                rule.effect == "allow"
                or rule.pattern is None
                or not rule_matches(rule, name, guard, whole_path(own, path), own)
            ):
                continue
            if rule.effect == "deny" or not (tool and rule_matches(rule, tool, guard, target, own)):
                return text
    return ""


def is_hidden(bounds: Bounds, path: str) -> bool:
    """Whether what a file holds is kept from a run: by a rule about it, or because its rules leave
    it no tool that reads."""
    without = all(denied_tool(bounds, name) for name in READERS)
    return without or bool(barred_path(bounds, READING, path))


def patterns_below(
    bounds: Iterable[tuple[str, tuple[str, ...]]], names: Sequence[str], top: str
) -> list[str]:
    """The patterns of the rules that keep tools of these names from a path, each as seen from the
    directory `top`."""
    patterns: dict[str, None] = {}
    for own, texts in bounds:
        for rule in map(read_rule, texts):
            if (
                rule.effect == "allow"
                or rule.pattern is None
                or not any(rule_pattern(rule.tool).fullmatch(n) for n in names)
            ):
                continue
            far = rule.pattern.startswith("**")
            whole = f"/{rule.pattern}" if far else whole_path(_literal(own), rule.pattern)
            patterns.update(
                dict.fromkeys(_seen_from(whole.split("/")[1:], [p for p in top.split("/") if p]))
            )
    return list(patterns)


def _seen_from(pattern: list[str], top: list[str]) -> list[str]:
    """What is left of a pattern behind the directories of `top`, in each way that it can match
    them."""
    reached = {0}
    for name in [*top, None]:
        for i in sorted(reached):
            if i < len(pattern) and pattern[i] == "**":
                reached.add(i + 1)
        if name is not None:
            stay = {i for i in reached if i < len(pattern) and pattern[i] == "**"}
            step = {
                i + 1
                for i in reached - stay
                if i < len(pattern) and rule_pattern(pattern[i]).fullmatch(name)
            }
            reached = stay | step
    return ["/".join(pattern[i:]) for i in sorted(reached) if i < len(pattern)]


def denied_tool(bounds: Iterable[tuple[str, tuple[str, ...]]], tool: str) -> bool:
    """Whether a rule denies the tool whatever it is called with."""
    rules = [read_rule(text) for _, texts in bounds for text in texts]
    return any(
        r.effect == "deny" and r.pattern is None and rule_pattern(r.tool).fullmatch(tool)
        for r in rules
    )


def whole_path(cwd: str, path: str) -> str:
    """A path from the top, without `.`, doubled slashes and inner `..`, so that one file has one
    name here."""
    path = path if path.startswith("/") or not cwd else f"{cwd}/{path}"
    out: list[str] = []
    for part in path.split("/"):
        if part == ".." and out and out[-1] != "..":
            out.pop()
        elif part == ".." and path.startswith("/"):
            continue
        elif part not in ("", "."):
            out.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(out)


def _in_domain(url: str, domain: str) -> bool:
    """Whether the host of an address is this one or below it, however it is spelled."""
    host, suffix = host_of(url), spelled(domain.removeprefix("*."))
    return bool(host) and (host == suffix or host.endswith("." + suffix))


def host_of(url: str) -> str:
    """The host of an address as it is asked for, or ""."""
    match = re.match(r"[a-z][a-z0-9+.-]*://([^/?#\\]*)", url.strip(), re.IGNORECASE)
    return "" if match is None else spelled(match[1].rpartition("@")[2])
