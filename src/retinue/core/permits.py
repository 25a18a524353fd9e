"""May this call be made: yes, only if somebody says so, or no.

Rules and modes are looked at in the run and in all its ancestors, and the strictest of them decides: a run can add a
rule for those below it, and nobody can take one away. A person's grant answers a question; it never lifts a denial.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from retinue.core.text import clip, digest
from retinue.core.values import MODES, Call, Capabilities, Guard, Value

Verdict = Literal["allow", "ask", "deny"]
STRICTNESS: dict[str, int] = {"allow": 0, "ask": 1, "deny": 2}
BY_MODE: dict[str, dict[str, Verdict]] = {
    "bypassPermissions": {"write": "allow", "execute": "allow", "network": "allow"},
    "auto": {"write": "allow", "execute": "allow", "network": "ask"},
    "acceptEdits": {"write": "allow", "execute": "ask", "network": "ask"},
    "manual": {"write": "ask", "execute": "ask", "network": "ask"},
    "dontAsk": {"write": "deny", "execute": "deny", "network": "deny"},
    "plan": {"write": "deny", "execute": "deny", "network": "deny"},
}
_RULE = re.compile(r"(allow|ask|deny):\s*([^()\s]+)\s*(?:\((.*)\))?", re.DOTALL)
_SHELL = re.compile(r"[;&|`$()<>\n\r\\{}!#]")
"""What makes more of a command than a program and its words. A wildcard does not vouch for it."""


class Ruling(Value):
    """What holds for one call, and the rule that says so."""

    verdict: Verdict
    why: str


class Rule(Value):
    effect: Verdict
    tool: str
    pattern: str = ""

    @property
    def words(self) -> str:
        return f"{self.effect}: {self.tool}" + (f"({self.pattern})" if self.pattern else "")


@lru_cache(maxsize=4096)
def read_rule(text: str) -> Rule:
    """A rule as people write it: `deny: shell(rm *)`, `allow: edit(src/**)`, `ask: fetch(domain:example.org)`."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a rule; write for example 'allow: shell(git log*)' or 'deny: edit(.env)'")
    effect, tool, pattern = found.groups()
    return Rule(effect=effect, tool=tool, pattern=pattern or "")  # type: ignore[arg-type]


def rule_for(effect: Verdict, tool: str, subject: str) -> str:
    """The rule for exactly this subject: nothing in it is a wildcard."""
    literal = re.sub(r"([*?\[\\])", r"\\\1", subject)
    return f"{effect}: {tool}({literal})" if subject else f"{effect}: {tool}"


def subject_of(call: Call, guard: Guard) -> str:
    """What the call is about: the argument that the tool has named for it, or all of them."""
    try:
        args = msgspec.json.decode(call.args)
    except (msgspec.DecodeError, RecursionError):
        return call.args
    about = args.get(guard.subject) if guard.subject and isinstance(args, dict) else None
    if isinstance(about, str):
        return _plain_path(about) if guard.subject == "path" else about
    return msgspec.json.encode(about if about is not None else args, order="sorted").decode()


def rule_on(
    chain: Iterable[tuple[str, Capabilities]],
    call: Call,
    guard: Guard,
    grants: Iterable[str] = (),
    default: str = "manual",
) -> Ruling:
    """The strictest word of the run and everybody above it; a grant turns a question into a yes. A root without a mode
    has the `default` one."""
    subject = subject_of(call, guard)
    ruling = Ruling(verdict="allow", why="no rule speaks of it")
    chain = list(chain)
    for n, (name, held) in enumerate(chain, 1):
        said = _level(name, held, held.mode or (default if n == len(chain) else ""), call.name, guard, subject)
        if said is not None and STRICTNESS[said.verdict] >= STRICTNESS[ruling.verdict]:
            ruling = said
            if said.verdict == "deny":
                return said
    if ruling.verdict == "ask":
        for text in grants:
            if matches(read_rule(text), call.name, guard, subject):
                return Ruling(verdict="allow", why=f"granted for this run: {text}")
    return ruling


def _level(name: str, held: Capabilities, mode: str, tool: str, guard: Guard, subject: str) -> Ruling | None:
    """What one run's rules and mode say: a denial before a question before a permission before the mode."""
    best: Rule | None = None
    for text in held.rules:
        rule = read_rule(text)
        if (best is None or STRICTNESS[rule.effect] > STRICTNESS[best.effect]) and matches(rule, tool, guard, subject):
            best = rule
    if best is not None:
        return Ruling(verdict=best.effect, why=f"the rule {best.words!r} of {name}")
    return _mode(mode, guard, name) if mode else None


def _mode(mode: str, guard: Guard, name: str) -> Ruling | None:
    """What a mode says of a kind of tool. Functions of the program itself are not asked about, but plans stay plans."""
    if guard.risk in ("read", "spawn") or (not guard.guarded and mode != "plan"):
        return None
    why = f"the mode {mode!r} of {name} for tools that {WORDS[guard.risk]}"
    return Ruling(verdict=BY_MODE[mode][guard.risk], why=why)


WORDS = {"write": "write files", "execute": "execute", "network": "use the network"}


def matches(rule: Rule, tool: str, guard: Guard, subject: str) -> bool:
    if not _glob(rule.tool).fullmatch(tool):
        return False
    if not rule.pattern:
        return True
    if rule.pattern.startswith("domain:"):
        return _in_domain(subject, rule.pattern[7:])
    if guard.subject == "path":
        return _path_matches(_plain_path(rule.pattern), subject)
    if guard.subject == "command" and rule.effect == "allow" and _SHELL.search(subject):
        return rule_for("allow", rule.tool, subject) == rule.words
    return bool(_glob(rule.pattern).fullmatch(subject))


def denied_path(held: Capabilities, tool: str, path: str) -> str:
    """The rule that denies this path, or "". For tools, which alone know where a link really leads."""
    guard = Guard(risk="write", subject="path")
    for text in held.rules:
        rule = read_rule(text)
        if rule.effect == "deny" and rule.pattern and matches(rule, tool, guard, _plain_path(path)):
            return text
    return ""


def stricter(a: str, b: str) -> str:
    """Of two modes the one that permits less; "" has no opinion."""
    return max(a, b, key=lambda mode: MODES.index(mode) if mode else -1)


def question_id(run: str, turn: int, index: int, call: Call) -> str:
    """Names exactly this call: another run, turn or argument is another question."""
    return digest(run, turn, index, call.id, call.name, call.args)[:16]


def question_text(call: Call, guard: Guard) -> str:
    return clip(f"May {call.name} be called with {subject_of(call, guard)}?", 500)


@lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    """`*` and `?` match anything, a backslash takes the meaning away. What lies between two stars is looked for once,
    from left to right, so that no pattern can make a match take long."""
    parts, literal, i = [], "", 0
    while i < len(pattern):
        c = pattern[i]
        if c == "\\" and i + 1 < len(pattern):
            i += 1
            literal += re.escape(pattern[i])
        elif c == "*":
            parts.append(literal)
            literal = ""
        else:
            literal += "." if c == "?" else re.escape(c)
        i += 1
    if not parts:
        return re.compile(literal, re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in parts[1:] if part)
    return re.compile(f"{parts[0]}{middle}.*{literal}", re.DOTALL)


def _path_matches(pattern: str, path: str) -> bool:
    """By directories: `*` stays within one, `**` stands for any number of them (at the end for one at least)."""
    wanted, given = pattern.split("/"), path.split("/")
    reached = {0}
    for n, part in enumerate(wanted):
        if part == "**":
            first = min(reached, default=len(given) + 1) + (1 if n == len(wanted) - 1 else 0)
            reached = set(range(first, len(given) + 1))
        else:
            glob = _glob(part)
            reached = {i + 1 for i in reached if i < len(given) and glob.fullmatch(given[i])}
        if not reached:
            return False
    return len(given) in reached


def _plain_path(path: str) -> str:
    """Without `.`, doubled slashes and inner `..`, so that one file has one name here."""
    out: list[str] = []
    for part in path.split("/"):
        if part == ".." and out and out[-1] != "..":
            out.pop()
        elif part not in ("", "."):
            out.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(out)


def _in_domain(url: str, domain: str) -> bool:
    found = re.match(r"[a-zA-Z][\w+.-]*://(?:[^/@]*@)?([^/:?#]+)", url)
    host = found[1].lower().rstrip(".") if found else ""
    return bool(host) and (host == domain.lower() or host.endswith("." + domain.lower().removeprefix("*.")))
