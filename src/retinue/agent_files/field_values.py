"""Values of fields in agent files, as other programs write them and as ours."""

from __future__ import annotations

from retinue.agent_files.agent_spec import PermissionMode

MODES: dict[str, PermissionMode] = {
    "manual": "manual",
    "default": "manual",
    "acceptedits": "acceptEdits",
    "auto_edit": "acceptEdits",
    "plan": "plan",
    "dontask": "dontAsk",
    "auto": "auto",
    "bypasspermissions": "bypassPermissions",
    "yolo": "bypassPermissions",
    "read-only": "plan",
    "workspace-write": "acceptEdits",
    "danger-full-access": "bypassPermissions",
}
"""Permission modes as the programs call them, in lower case."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGET = {
    "max_tokens": "tokens",
    "max_usd": "usd",
    "max_turns": "turns",
    "timeout": "seconds",
    "max_calls": "calls",
}
ON_LIMIT = ("land", "ask", "stop")
