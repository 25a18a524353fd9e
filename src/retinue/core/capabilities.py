"""Capabilities only shrink. `derive` is the only way to make a child's set; `gate` is asked again
at every call, against the run and all its ancestors as they are now, so that a revocation flows
down; `explain` names the rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from retinue.core.messages import ToolCall
from retinue.core.permissions import rule_on, stricter
from retinue.core.values import Permissions, ToolRisk

SETS = ("tools", "agents", "models", "read", "write", "hosts", "env", "announce", "comms")
PATHS = ("read", "write")
EXECUTES = ToolRisk()


@lru_cache(maxsize=4096)
def derive(parent: Permissions, request: Permissions) -> Permissions:
    """The meet of what the parent has and what is asked for: the child never has more, whatever was
    asked."""
    fields: dict[str, object] = {
        name: (_within if name in PATHS else _meet)(getattr(parent, name), getattr(request, name))
        for name in SETS
    }
    return Permissions(
        **fields,  # type: ignore[arg-type]
        deny=_union(parent.deny, request.deny),
        depth=_least(None if parent.depth is None else parent.depth - 1, request.depth),
        fanout=_least(parent.fanout, request.fanout),
        may_spawn=parent.may_spawn and request.may_spawn,
        sandbox=max(parent.sandbox, request.sandbox),
        expires=_least(parent.expires, request.expires),
        mode=stricter(parent.mode, request.mode),
        rules=_union(parent.rules, request.rules),
    )


@lru_cache(maxsize=4096)
def narrow(permissions: Permissions, request: Permissions) -> Permissions:
    """The same meet for a run that is already at work: depth is not a step down here."""
    depth = None if permissions.depth is None else permissions.depth + 1
    return derive(msgspec.structs.replace(permissions, depth=depth), request)


@lru_cache(maxsize=4096)
def for_child(
    permissions: Permissions, request: Permissions, reach: tuple[str, ...], agents: tuple[str, ...]
) -> Permissions:
    """What a parent with these permissions gives to a child whose agent can reach these tools and
    agents."""
    return derive(narrow(permissions, Permissions(tools=reach, agents=agents)), request)


def allows(permissions: Permissions, tool: str) -> bool:
    return tool not in permissions.deny and (permissions.tools is None or tool in permissions.tools)


def gate(chain: Iterable[tuple[str, Permissions]], tool: str, now: int) -> str | None:
    """Why `tool` may not be called, or None. `chain` is the run and its ancestors, each with its
    name."""
    for name, permissions in chain:
        if permissions.expires is not None and permissions.expires <= now:
            return f"the capabilities of {name} have expired"
        if tool in permissions.deny:
            return f"{name} denies {tool!r}"
        if permissions.tools is not None and tool not in permissions.tools:
            return f"{name} does not have the tool {tool!r}"
    return None


def explain(
    chain: Iterable[tuple[str, Permissions]],
    tool: str,
    now: int,
    guard: ToolRisk = EXECUTES,
    args: str = "{}",
    default: str = "manual",
    cwds: Sequence[str] = (),
) -> str:
    """One sentence for people: whether a tool may be called, and by which rule."""
    chain = list(chain)
    reason = gate(chain, tool, now)
    if reason:
        return f"refused: {reason}"
    ruling = rule_on(
        chain, ToolCall(id="", name=tool, arguments_json=args), guard, default=default, cwds=cwds
    )
    if ruling.verdict == "allow":
        return f"allowed: {tool!r} is available to this run and all its ancestors; {ruling.why}"
    return f"{'needs permission' if ruling.verdict == 'ask' else 'denied'}: {ruling.why}"


def exceeds(child: Permissions, parent: Permissions) -> str | None:
    """The name of the first field in which `child` holds more than `parent`, or None."""
    for name in SETS:
        mine, theirs = getattr(child, name), getattr(parent, name)
        if theirs is None:
            continue
        if mine is None or not all(
            _covers(p, theirs) if name in PATHS else p in theirs for p in mine
        ):
            return name
    for name in ("deny", "rules"):
        if not set(getattr(parent, name)) <= set(getattr(child, name)):
            return name
    if stricter(parent.mode, child.mode) != child.mode:
        return "mode"
    for name in ("depth", "fanout", "expires"):
        mine, theirs = getattr(child, name), getattr(parent, name)
        if theirs is not None and (mine is None or mine > theirs):
            return name
    if child.may_spawn and not parent.may_spawn:
        return "may_spawn"
    return "sandbox" if child.sandbox < parent.sandbox else None


def covers(path: str, cwd: str, permissions: Permissions) -> bool:
    """Whether a run that works in `cwd` may send a child to `path`. Without a directory of its own
    it has no bounds."""
    return not cwd or _covers(path, (cwd, *(permissions.read or ()), *(permissions.write or ())))


def _meet(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if a is None or b is None:
        return a if b is None else b
    return tuple(sorted({*a} & {*b}))


def _within(
    roots: tuple[str, ...] | None, request: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Paths are kept when a root of the parent covers them, and a parent's root when an asked path
    covers it."""
    if roots is None or request is None:
        only = roots if request is None else request
        return (
            None if only is None else tuple(sorted({p for p in only if ".." not in p.split("/")}))
        )
    paths = {p for p in request if _covers(p, roots)} | {r for r in roots if _covers(r, request)}
    return tuple(sorted(paths))


def _covers(path: str, roots: Iterable[str]) -> bool:
    """Literal prefixes of whole components; resolving links is the sandbox's task. `..` is never
    covered."""
    if ".." in path.split("/"):
        return False
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*a, *b})) if b else a


def _least(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return a if b is None else b
    return min(a, b)
