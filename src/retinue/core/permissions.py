"""Whether a call is allowed, denied, or needs a person's decision.

Rules and modes are looked at in the run and in all its ancestors, and the strictest of them
decides: a run can add a rule for the runs below it, and no run can remove one. A person's grant
answers a question; it never lifts a denial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from retinue.core.arguments import BadArguments, parse
from retinue.core.call_rules import Rule, Verdict, read_rule, rule_matches, whole_path
from retinue.core.ids import digest
from retinue.core.messages import ToolCall
from retinue.core.values import MODES, PermissionGrant, Permissions, ToolRisk, Value
from retinue.formats.fair_cut import clip

STRICTNESS: dict[str, int] = {"allow": 0, "ask": 1, "deny": 2}
BY_MODE: dict[str, dict[str, Verdict]] = {
    "bypassPermissions": {"write": "allow", "execute": "allow", "network": "allow"},
    "auto": {"write": "allow", "execute": "allow", "network": "ask"},
    "acceptEdits": {"write": "allow", "execute": "ask", "network": "ask"},
    "manual": {"write": "ask", "execute": "ask", "network": "ask"},
    "dontAsk": {"write": "deny", "execute": "deny", "network": "deny"},
    "plan": {"write": "deny", "execute": "deny", "network": "deny"},
}


class Ruling(Value):
    """What holds for one call, and the rule that says so. `is_granted`: a person has permitted just
    this."""

    verdict: Verdict
    why: str
    is_granted: bool = False


def subject_of(call: ToolCall, guard: ToolRisk, cwd: str = "") -> str | None:
    """What the call is about: the argument that the tool has named for it, or all of them. A path
    is complete, from the directory of the run; None means paths that are not known here (those in a
    patch)."""
    try:
        args = parse(call.arguments_json)
    except BadArguments:
        return None if guard.subject == "path" else call.arguments_json
    about = args.get(guard.subject) if guard.subject else None
    if guard.subject == "path":
        return whole_path(cwd, about) if isinstance(about, str) and about.strip() else None
    if isinstance(about, str):
        return about
    return msgspec.json.encode(about if about is not None else args, order="sorted").decode()


def rule_on(
    chain: Iterable[tuple[str, Permissions]],
    call: ToolCall,
    guard: ToolRisk,
    grants: Iterable[PermissionGrant] = (),
    default: str = "manual",
    cwds: Sequence[str] = (),
    *,
    asks: bool = False,
) -> Ruling:
    """The strictest ruling of the run and all runs above it; a grant turns a question into a yes. A
    root without a mode has the `default` one. `cwds` are the directories of the run and its
    ancestors, in which their rules are meant. `asks`: the tool wants a person asked."""
    own = cwds[0] if cwds else ""
    subject = subject_of(call, guard, own)
    ruling = Ruling(verdict="allow", why="no rule or mode restricts it")
    if asks:
        ruling = Ruling(verdict="ask", why="the tool wants approval before it runs")
    levels = list(chain)
    for n, (name, permissions) in enumerate(levels):
        mode = permissions.mode or (default if n == len(levels) - 1 else "")
        level = _level(
            name, permissions, mode, call.name, guard, subject, cwds[n] if n < len(cwds) else own
        )
        if level is not None and STRICTNESS[level.verdict] >= STRICTNESS[ruling.verdict]:
            ruling = level
            if level.verdict == "deny":
                return level
    if ruling.verdict == "ask" and subject is not None:
        for grant in grants:
            if grant.cwd == own and rule_matches(
                read_rule(grant.rule), call.name, guard, subject, own
            ):
                return Ruling(
                    verdict="allow", why=f"allowed for this run by {grant.rule}", is_granted=True
                )
    return ruling


def _level(
    name: str,
    permissions: Permissions,
    mode: str,
    tool: str,
    guard: ToolRisk,
    subject: str | None,
    cwd: str,
) -> Ruling | None:
    """What one run's rules and mode say: a denial before a question before a permission before the
    mode."""
    best: Rule | None = None
    for text in permissions.rules:
        rule = read_rule(text)
        if best is not None and STRICTNESS[rule.effect] <= STRICTNESS[best.effect]:
            continue
        if rule_matches(rule, tool, guard, subject, cwd):
            best = rule
    if best is not None:
        return Ruling(verdict=best.effect, why=f"rule {best.words!r} of {name}")
    return _mode(mode, guard, name) if mode else None


def _mode(mode: str, guard: ToolRisk, name: str) -> Ruling | None:
    """What a mode says of a kind of tool. Functions of the program itself are not asked about, but
    plans stay plans."""
    if guard.risk in ("read", "spawn") or (not guard.guarded and mode != "plan"):
        return None
    why = f"mode {mode!r} of {name}, which covers tools that {WORDS[guard.risk]}"
    return Ruling(verdict=BY_MODE[mode][guard.risk], why=why)


WORDS = {"write": "write files", "execute": "run commands", "network": "use the network"}


def stricter(a: str, b: str) -> str:
    """Of two modes the one that permits less; "" has no opinion."""
    return max(a, b, key=lambda mode: MODES.index(mode) if mode else -1)


def question_id(run: str, turn: int, index: int, call: ToolCall) -> str:
    """Names exactly this call: another run, turn or argument is another question."""
    return digest(run, turn, index, call.id, call.name, call.arguments_json)[:16]


def question_text(call: ToolCall, guard: ToolRisk) -> str:
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
        text = f"Call {call.name} with {subject or call.arguments_json}?"
    return clip(text, 500)
