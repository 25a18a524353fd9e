"""May this call be made: yes, only if somebody says so, or no.

Rules and modes are looked at in the run and in all its ancestors, and the strictest of them
decides: a run can add a rule for those below it, and nobody can take one away. A person's grant
answers a question; it never lifts a denial."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from retinue.core.arguments import BadArguments, parse
from retinue.core.ids import digest
from retinue.core.messages import Call
from retinue.core.values import MODES, Capabilities, Grant, Guard, Value
from retinue.formats.fair_cut import clip
from retinue.formats.globs import rule_glob, rule_pattern
from retinue.formats.host_names import spelled

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


DOMAIN = "domain:"


class Ruling(Value):
    """What holds for one call, and the rule that says so. `is_granted`: a person has permitted just
    this."""

    verdict: Verdict
    why: str
    is_granted: bool = False


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
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"{text!r} is not a rule. Write e.g. 'allow: shell(git log*)' or 'deny: edit(.env)'."
        )
    effect, tool, pattern = found.groups()
    return Rule(effect=effect, tool=tool, pattern=pattern)  # type: ignore[arg-type]


def rule_for(effect: Verdict, tool: str, subject: str) -> str:
    """The rule for exactly this subject: nothing in it is a wildcard, or a domain."""
    literal = _literal(subject)
    shield = "\\" if literal.startswith(DOMAIN) else ""
    return f"{effect}: {tool}({shield}{literal})"


def _literal(text: str) -> str:
    return re.sub(r"([*?\\])", r"\\\1", text)


def subject_of(call: Call, guard: Guard, cwd: str = "") -> str | None:
    """What the call is about: the argument that the tool has named for it, or all of them. A path
    is told whole, from the directory of the run; None stands for paths that cannot be told from
    here (those in a patch)."""
    try:
        args = parse(call.args)
    except BadArguments:
        return None if guard.subject == "path" else call.args
    about = args.get(guard.subject) if guard.subject else None
    if guard.subject == "path":
        return _whole(cwd, about) if isinstance(about, str) and about.strip() else None
    if isinstance(about, str):
        return about
    return msgspec.json.encode(about if about is not None else args, order="sorted").decode()


def rule_on(
    chain: Iterable[tuple[str, Capabilities]],
    call: Call,
    guard: Guard,
    grants: Iterable[Grant] = (),
    default: str = "manual",
    cwds: Sequence[str] = (),
) -> Ruling:
    """The strictest word of the run and everybody above it; a grant turns a question into a yes. A
    root without a mode has the `default` one. `cwds` are the directories of the run and its
    ancestors, in which their rules are meant."""
    own = cwds[0] if cwds else ""
    subject = subject_of(call, guard, own)
    ruling = Ruling(verdict="allow", why="no rule or mode restricts it")
    levels = list(chain)
    for n, (name, held) in enumerate(levels):
        mode = held.mode or (default if n == len(levels) - 1 else "")
        said = _level(
            name, held, mode, call.name, guard, subject, cwds[n] if n < len(cwds) else own
        )
        if said is not None and STRICTNESS[said.verdict] >= STRICTNESS[ruling.verdict]:
            ruling = said
            if said.verdict == "deny":
                return said
    if ruling.verdict == "ask" and subject is not None:
        for grant in grants:
            if grant.cwd == own and matches(read_rule(grant.rule), call.name, guard, subject, own):
                return Ruling(
                    verdict="allow", why=f"allowed for this run by {grant.rule}", is_granted=True
                )
    return ruling


def _level(
    name: str, held: Capabilities, mode: str, tool: str, guard: Guard, subject: str | None, cwd: str
) -> Ruling | None:
    """What one run's rules and mode say: a denial before a question before a permission before the
    mode."""
    best: Rule | None = None
    for text in held.rules:
        rule = read_rule(text)
        if best is not None and STRICTNESS[rule.effect] <= STRICTNESS[best.effect]:
            continue
        if matches(rule, tool, guard, subject, cwd):
            best = rule
    if best is not None:
        return Ruling(verdict=best.effect, why=f"rule {best.words!r} of {name}")
    return _mode(mode, guard, name) if mode else None


def _mode(mode: str, guard: Guard, name: str) -> Ruling | None:
    """What a mode says of a kind of tool. Functions of the program itself are not asked about, but
    plans stay plans."""
    if guard.risk in ("read", "spawn") or (not guard.guarded and mode != "plan"):
        return None
    why = f"mode {mode!r} of {name}, which covers tools that {WORDS[guard.risk]}"
    return Ruling(verdict=BY_MODE[mode][guard.risk], why=why)


WORDS = {"write": "write files", "execute": "run commands", "network": "use the network"}


def matches(rule: Rule, tool: str, guard: Guard, subject: str | None, cwd: str = "") -> bool:
    """Whether a rule that is meant in `cwd` speaks of a call. Of what cannot be told from here a
    pattern never says yes; a question is asked, and a denial is left to the tool, which sees every
    path."""
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
        return far or rule_glob(_whole(_literal(cwd), rule.pattern)).matches(subject)
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
    written: str = "",
    cwd: str = "",
) -> str:
    """The rule that keeps tools of these names from a path, or "". For tools, which alone know
    where a link leads. `bounds` are the directories and rules of the run and its ancestors. A rule
    that asks counts like a denial, for nobody was asked; unless it spoke of the call itself:
    `tool`, with the path `written` in `cwd` ("": a patch)."""
    guard = Guard(risk="write", subject="path")
    asked = _whole(cwd, written) if written.strip() else None
    rules = [(own, text, read_rule(text)) for own, texts in bounds for text in texts]
    for name in names:
        for own, text, rule in rules:
            if (
                rule.effect == "allow"
                or rule.pattern is None
                or not matches(rule, name, guard, _whole(own, path), own)
            ):
                continue
            if rule.effect == "deny" or not (tool and matches(rule, tool, guard, asked, own)):
                return text
    return ""


def patterns_below(
    bounds: Iterable[tuple[str, tuple[str, ...]]], names: Sequence[str], top: str
) -> list[str]:
    """The patterns of the rules that keep tools of these names from a path, each as seen from the
    directory `top`."""
    found: dict[str, None] = {}
    for own, texts in bounds:
        for rule in map(read_rule, texts):
            if (
                rule.effect == "allow"
                or rule.pattern is None
                or not any(rule_pattern(rule.tool).fullmatch(n) for n in names)
            ):
                continue
            far = rule.pattern.startswith("**")
            whole = f"/{rule.pattern}" if far else _whole(_literal(own), rule.pattern)
            found.update(
                dict.fromkeys(_seen_from(whole.split("/")[1:], [p for p in top.split("/") if p]))
            )
    return list(found)


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


def stricter(a: str, b: str) -> str:
    """Of two modes the one that permits less; "" has no opinion."""
    return max(a, b, key=lambda mode: MODES.index(mode) if mode else -1)


def question_id(run: str, turn: int, index: int, call: Call) -> str:
    """Names exactly this call: another run, turn or argument is another question."""
    return digest(run, turn, index, call.id, call.name, call.args)[:16]


def question_text(call: Call, guard: Guard) -> str:
    """The action as a question, by what the tool is about."""
    subject = subject_of(call, guard)
    verb = {"read": "Read", "write": "Edit"}.get(guard.risk, "")
    if guard.subject == "command" and subject:
        text = f"Run `{subject}`?"
    elif guard.subject == "url" and subject:
        text = f"Fetch {subject}?"
    elif guard.subject == "path" and subject and verb:
        text = f"{verb} {subject}?"
    else:
        text = f"Call {call.name} with {subject or call.args}?"
    return clip(text, 500)


def _whole(cwd: str, path: str) -> str:
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
    host, wanted = host_of(url), spelled(domain.removeprefix("*."))
    return bool(host) and (host == wanted or host.endswith("." + wanted))


def host_of(url: str) -> str:
    """The host of an address as it is asked for, or ""."""
    found = re.match(r"[a-z][a-z0-9+.-]*://([^/?#\\]*)", url.strip(), re.IGNORECASE)
    return "" if found is None else spelled(found[1].rpartition("@")[2])
