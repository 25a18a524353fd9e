"""Claude Code and Codex from npm against `retinue mcp serve`, with a fake model on loopback: `make
clients`. Ends with one line of JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.mcp.clients import claude_code, codex, headless, in_terminal
from tests.mcp.clients.stage import stage
from tests.mcp.node_packages import VERSIONS, NoPackages

CLIENTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "claude": (claude_code, claude_code.ClaudeCode, in_terminal.CLAUDE),
    "codex": (codex, codex.Codex, in_terminal.CODEX),
}


def tried(scenario: Callable[[Any, Any], None], separator: str, client: Any) -> dict[str, Any]:
    since = time.monotonic()
    try:
        with stage(separator) as result:
            scenario(result, client(result))
        error = ""
    except Exception as problem:
        traceback.print_exc()
        error = f"{type(problem).__name__}: {problem}"[:500]
    seconds = round(time.monotonic() - since, 1)
    return {"seconds": seconds, "ok": not error, **({"error": error} if error else {})}


def report(name: str, only: list[str]) -> dict[str, Any]:
    module, client, terminal = CLIENTS[name]
    out: dict[str, Any] = {"version": VERSIONS[module.PACKAGE]}
    try:
        module.program()
    except NoPackages as error:
        return {**out, "skipped": str(error), "ok": os.environ.get("CI") != "true"}
    scenarios = dict(headless.SCENARIOS)
    if shutil.which("tmux"):
        scenarios |= terminal
    else:
        out["without_terminal"] = "tmux is not installed"
    out["scenarios"] = {}
    target = [title for title in scenarios if title in only] or list(scenarios)
    for title in target:
        sys.stderr.write(f"{name} {title}\n")
        out["scenarios"][title] = tried(scenarios[title], module.SEPARATOR, client)
    return {**out, "ok": all(one["ok"] for one in out["scenarios"].values())}


def main(words: list[str]) -> int:
    """All of it, or only the clients and scenarios that are named."""
    names = [name for name in CLIENTS if name in words] or list(CLIENTS)
    reports = {name: report(name, words) for name in names}
    is_ok = all(one["ok"] for one in reports.values())
    sys.stdout.write(json.dumps({"clients": reports, "ok": is_ok}) + "\n")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
