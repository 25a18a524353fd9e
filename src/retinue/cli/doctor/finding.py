"""One finding of `retinue doctor`: what works, what does not, and how to fix it. Each check looks
and changes nothing; what one of them stumbles over is its own finding, never the end of the others.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from retinue.cli.context import CommandContext
from retinue.core.values import Value
from retinue.formats.safe_text import one_line
from retinue.view.cells import wrap

State = Literal["ok", "degraded", "broken"]
GLYPHS: dict[str, str] = {"ok": "✓", "degraded": "!", "broken": "✗"}
PLAIN: dict[str, str] = {"ok": "+", "degraded": "!", "broken": "x"}
INDENT, LAST_COLUMN = 27, 79
COLORS: dict[str, str] = {"ok": "green", "degraded": "yellow", "broken": "red"}


class Finding(Value):
    """One line. `fix` says what to do about it; "" when nothing has to be done."""

    name: str
    state: State
    text: str
    fix: str = ""


Check = Callable[[CommandContext], Iterable[Finding]]


def examine(context: CommandContext, *, offline: bool) -> Iterator[Finding]:
    """All findings, in the order in which they are shown."""
    from retinue.cli.doctor import machine_checks as machine
    from retinue.cli.doctor import project_checks as project
    from retinue.cli.doctor import provider_checks as providers
    from retinue.cli.doctor import store_checks

    checks: list[tuple[str, Check]] = [
        ("python", machine.python),
        ("libraries", machine.libraries),
        ("extras", machine.extras),
        ("configuration", project.configuration),
        ("trust", project.trust),
        ("agents", project.agents),
        ("model", providers.model),
        ("providers", lambda d: providers.reachable(d, offline=offline)),
        ("local servers", lambda d: providers.local(d, offline=offline)),
        ("sandbox", machine.sandbox),
        ("programs", machine.programs),
        ("store", store_checks.store),
        ("host", store_checks.host),
        ("rights", store_checks.rights),
        ("disk", store_checks.disk),
        ("terminal", machine.terminal),
    ]
    for name, check in checks:
        try:
            yield from check(context)
        except Exception as error:
            problem = " ".join(str(error).split()) or type(error).__name__
            yield Finding(name=name, state="broken", text=f"could not be checked: {problem}")


class Look(NamedTuple):
    """How findings are written. `width`: columns of the terminal; 0 breaks no line."""

    is_colored: bool
    is_plain: bool
    width: int


def report(findings: Sequence[Finding], look: Look, *, verbose: bool) -> list[str]:
    """What is broken first, then what is degraded; what is in order as one line."""
    bad = [f for state in ("broken", "degraded") for f in findings if f.state == state]
    good = [f for f in findings if f.state == "ok"]
    if good and not verbose:
        names = list(dict.fromkeys(f.name for f in good))
        head = f"{len(good)} more" if bad else f"{len(good)} checks"
        good = [Finding(name=head, state="ok", text=", ".join(names))]
    counts = Counter(f.state for f in findings)
    states: tuple[State, ...] = ("broken", "degraded", "ok")
    last = ", ".join(f"{counts[s]} {s}" for s in states if counts[s] or s == "broken")
    if counts["broken"]:
        last += "exit 1".rjust(LAST_COLUMN - len(last))
    return [*(line(f, look) for f in (*bad, *good)), last]


def line(finding: Finding, look: Look) -> str:
    """Glyph, word and colour say the same. A long text continues below its beginning."""
    import click

    glyph = (PLAIN if look.is_plain else GLYPHS)[finding.state]
    head = f"{glyph} {finding.state:<8}"
    texts = [one_line(finding.text)]
    texts += [f"fix: {one_line(finding.fix)}"] if finding.fix else []
    room = look.width - 1 - INDENT
    if room > 0:
        texts = [piece for text in texts for piece in wrap(text, max(20, room))]
    text = f"  {finding.name:<14} " + f"\n{'':<{INDENT}}".join(texts)
    if look.is_plain:
        text = text.encode("ascii", "replace").decode()
    return f"{click.style(head, fg=COLORS[finding.state]) if look.is_colored else head}{text}"


class Came(NamedTuple):
    """What became of something that was tried."""

    text: str
    is_good: bool = True


def in_parallel(works: dict[str, Callable[[], str]], seconds: float) -> dict[str, Came | None]:
    """What each came to; None for those that took too long. They are left behind: a name that is
    looked up cannot be given up on in any other way."""
    results: dict[str, Came | None] = dict.fromkeys(works)
    threads = []
    for name, work in works.items():

        def carry(name: str = name, work: Callable[[], str] = work) -> None:
            try:
                results[name] = Came(work())
            except Exception as error:
                results[name] = Came(
                    " ".join(str(error).split())[:200] or type(error).__name__, is_good=False
                )

        thread = threading.Thread(target=carry, daemon=True)
        thread.start()
        threads.append(thread)
    import time

    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(results)
