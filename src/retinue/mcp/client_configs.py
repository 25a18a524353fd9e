"""The configuration files of MCP clients: where each keeps its servers, and how an entry of ours
looks there. Nothing here writes a file."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

NAME = "retinue"


def server_entry(flags: Sequence[str] = ()) -> dict[str, Any]:
    """How a client starts us: the installed program, or the module of this Python."""
    program = shutil.which("retinue")
    command = [program] if program else [sys.executable, "-m", "retinue"]
    return {"command": command[0], "args": [*command[1:], "mcp", "serve", *flags]}


def shown(entry: dict[str, Any]) -> str:
    return json.dumps({"mcpServers": {NAME: entry}}, indent=2, ensure_ascii=False)
