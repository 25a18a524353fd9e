"""The machine: Python and its libraries, the sandbox, other programs, the terminal."""

from __future__ import annotations

import importlib.metadata
import locale
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from retinue.cli.context import CommandContext
from retinue.cli.doctor.finding import Finding, State

EXTRAS = {
    "acp": (("agent_client_protocol",), "retinue acp, for editors"),
    "cluster": (("psycopg", "procrastinate"), "stores in PostgreSQL, and retinue worker"),
    "local": (("xllamacpp",), "models from GGUF files"),
    "otel": (
        ("opentelemetry_sdk", "opentelemetry_exporter_otlp_proto_http"),
        "spans and metrics for OpenTelemetry",
    ),
    "temporal": (("psycopg", "temporalio"), "retinue worker --dispatch temporal://HOST:PORT"),
    "tui": (("textual", "prompt_toolkit"), "retinue top, and a history in retinue chat"),
}
SQLITE = (3, 51, 3)
"""The first with the fix for the reset of the log (docs/decisions/0003)."""
LANDLOCK_CREATE_RULESET = 444


def python(context: CommandContext) -> Iterator[Finding]:
    from retinue import __version__

    text = (
        f"retinue {__version__} on Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}"
    )
    is_new = sys.version_info >= (3, 11)
    fix = "" if is_new else "use Python 3.11 or newer"
    yield Finding(name="python", state="ok" if is_new else "broken", text=text, fix=fix)


def libraries(context: CommandContext) -> Iterator[Finding]:
    versions = {name: _installed(name) for name in required()}
    missing = [name for name, version in versions.items() if not version]
    if missing:
        yield Finding(
            name="libraries",
            state="broken",
            text=f"missing: {', '.join(missing)}",
            fix="install retinue again, the way you installed it (pip, pipx or uv)",
        )
        return
    import apsw

    grammars = [name for name in versions if name.startswith("tree-sitter-")]
    present = [f"{name} {version}" for name, version in versions.items() if name not in grammars]
    present += [f"{len(grammars)} grammars of tree-sitter"] if grammars else []
    sqlite = apsw.sqlite_lib_version()
    is_new = tuple(int(n) for n in sqlite.split(".")[:3]) >= SQLITE
    yield Finding(
        name="libraries",
        state="ok" if is_new else "broken",
        text=f"{', '.join(present)}; SQLite {sqlite}",
        fix="" if is_new else "this SQLite can lose commits: pip install --upgrade apsw",
    )


def required() -> list[str]:
    """The packages without which Retinue is not whole, by what its own package says."""
    requirements = importlib.metadata.requires("retinue") or []
    names = (re.split(r"[\s<>=!~;\[]", line)[0] for line in requirements if "extra ==" not in line)
    return sorted(names, key=str.lower)


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def extras(context: CommandContext) -> Iterator[Finding]:
    there = {
        name: all(_installed(package) for package in packages)
        for name, (packages, _) in EXTRAS.items()
    }
    missing = [name for name, is_there in there.items() if not is_there]
    have = ", ".join(name for name in there if there[name]) or "none"
    if not missing:
        yield Finding(name="extras", state="ok", text=have)
        return
    losses = "; ".join(f"{name}: {EXTRAS[name][1]}" for name in missing)
    fix = f"to install them: pip install 'retinue[{','.join(missing)}]'"
    yield Finding(name="extras", state="ok", text=f"{have}; not installed: {losses}", fix=fix)


def sandbox(context: CommandContext) -> Iterator[Finding]:
    from retinue.host.health import look_at_sandbox

    landlock = _landlock()
    more = [f"user namespaces: {_namespaces()}", f"Landlock: {landlock} (not used)"]
    health = look_at_sandbox(context.environ, context.paths.root)
    if health.problem:
        text = f"{health.problem}. The shell and git tools are disabled; {'; '.join(more)}"
        yield Finding(name="sandbox", state="degraded", text=text, fix=health.fix)
        return
    text = "; ".join([_version(health.program), *(g.text for g in health.guarantees), *more])
    if any(g.is_weak for g in health.guarantees):
        fix = (
            "run as a non-root user, or where cgroups are available, so that limits cover whole "
            "commands"
        )
        yield Finding(name="sandbox", state="degraded", text=text, fix=fix)
    else:
        yield Finding(name="sandbox", state="ok", text=text)


def _namespaces() -> str:
    try:
        with open("/proc/sys/user/max_user_namespaces", encoding="ascii") as file:
            return (
                "allowed" if int(file.read()) > 0 else "forbidden (sysctl user.max_user_namespaces)"
            )
    except (OSError, ValueError):
        return "unknown"


def _landlock() -> str:
    import ctypes

    try:
        version = ctypes.CDLL(None, use_errno=True).syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    except (OSError, AttributeError):
        return "unknown"
    return f"version {version}" if version > 0 else "not in this kernel"


def _version(program: str) -> str:
    try:
        process = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not start ({error})"
    return " ".join((process.stdout or process.stderr).splitlines()[:1]) or "of unknown version"


def programs(context: CommandContext) -> Iterator[Finding]:
    from retinue.host.health import find_program

    for name, program, without, fix in (
        ("ripgrep", "rg", "searches are slower", "install the package ripgrep"),
        ("git", "git", "no git tool and no worktrees", "install the package git"),
    ):
        path, refused = find_program(program, context.environ, context.paths.root)
        if path:
            text = _version(path)
            old = _old_git(text) if name == "git" else ""
            fix = "install a newer git" if old else ""
            state: State = "degraded" if old else "ok"
            yield Finding(name=name, state=state, text=f"{text}{old}", fix=fix)
        else:
            why = refused.rstrip(".") or f"{program} is not on PATH"
            yield Finding(name=name, state="degraded", text=f"{why}: {without}", fix=fix)


def _old_git(text: str) -> str:
    """What a git of this version cannot do, or ""."""
    from retinue.host.health import oldest_git

    needed = oldest_git()
    if tuple(int(n) for n in re.findall(r"\d+", text)[:2]) >= needed:
        return ""
    return (
        f", older than {'.'.join(map(str, needed))}: sub-agents that change files take turns, and "
        "branches are not merged"
    )


def terminal(context: CommandContext) -> Iterator[Finding]:
    env = context.environ
    is_tty = sys.stderr.isatty()
    encoding = (getattr(sys.stdout, "encoding", "") or locale.getpreferredencoding(False)).lower()
    is_utf = encoding.replace("-", "") == "utf8"
    deep = env.get("COLORTERM", "") in ("truecolor", "24bit")
    colors = "plain" if is_tty else "off"
    if env.get("NO_COLOR"):
        colors = "off (NO_COLOR)"
    elif deep:
        colors = "24-bit"
    if env.get("TERM") in ("dumb", None, "") and is_tty:
        colors = "off (TERM is dumb or not set)"
    size = shutil.get_terminal_size()
    text = (
        f"{'a terminal' if is_tty else 'not a terminal'}, {size.columns} columns, colors "
        f"{colors}, {encoding}"
    )
    fix = "" if is_utf else "set a UTF-8 locale, e.g. LANG=C.UTF-8, to see symbols and borders"
    if os.environ.get("PYTHONIOENCODING"):
        text += " (PYTHONIOENCODING)"
    yield Finding(name="terminal", state="ok" if is_utf else "degraded", text=text, fix=fix)
