"""Claude Code from npm: without a terminal (`-p`), and in one, where it shows tasks as its own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mcp.clients.stage import Stage
from tests.mcp.node_packages import node_modules

PACKAGE = "@anthropic-ai/claude-code"
SEPARATOR = "__"
KEY = "sk-ant-not-a-key-of-anyone-0123456789"
TOOLS = "mcp__retinue__delegate,mcp__retinue__agents,mcp__retinue__result,mcp__retinue__cancel"


def program() -> Path:
    scope = node_modules(PACKAGE) / "@anthropic-ai"
    (path,) = scope.glob("claude-code-*/claude")
    return path


class ClaudeCode:
    """It is told of us by `retinue mcp install claude`."""

    ready = "mode on"
    """What it shows when it can be typed to."""

    def __init__(self, stage: Stage) -> None:
        self._program, home = program(), stage.home
        home.ok("mcp", "install", "claude", "--yes")
        self.env = {
            **home.env,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": home.llm.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",  # else our tools are looked up before they are used
            "MCP_CONNECTION_NONBLOCKING": "0",
        }
        name = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        settings = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
            "projects": {str(home.project): {**name, "enabledMcpjsonServers": ["retinue"]}},
        }
        (home.folder / "home" / ".claude.json").write_text(json.dumps(settings))

    def command(self, *words: str) -> list[str]:
        return [str(self._program), "--allowedTools", TOOLS, *words]

    def headless(self, prompt: str) -> list[str]:
        return self.command("-p", "--output-format", "stream-json", "--verbose", "--", prompt)
