"""Codex from npm: without a terminal (`codex exec`), and in one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.mcp.clients.stage import Stage
from tests.mcp.node_packages import node_modules

PACKAGE = "@openai/codex"
SEPARATOR = "/"
"""Our tools are functions in a namespace."""


def program() -> Path:
    scope = node_modules(PACKAGE) / "@openai"
    (path,) = scope.glob("codex-*/vendor/*/bin/codex")
    return path


class Codex:
    """It is told of us by `retinue mcp install codex`."""

    ready = "Ask Codex to do anything"
    """What it shows when it can be typed to."""

    def __init__(self, stage: Stage) -> None:
        self._program, home = program(), stage.home
        folder = home.folder / "codex"
        folder.mkdir()
        home.env["CODEX_HOME"] = str(folder)
        (folder / "config.toml").write_text(
            "\n".join(
                [
                    'model = "scripted"',
                    'model_provider = "loopback"',
                    "check_for_update_on_startup = false",
                    "[analytics]",
                    "enabled = false",
                    "[model_providers.loopback]",
                    'name = "loopback"',
                    f'base_url = "{home.llm.url}/v1"',
                    'env_key = "OPENAI_API_KEY"',
                    'wire_api = "responses"',
                    f"[projects.{json.dumps(str(home.project))}]",
                    'trust_level = "trusted"\n',
                ]
            )
        )
        home.ok("mcp", "install", "codex", "--yes")
        self.env = home.env

    def command(self, *words: str) -> list[str]:
        path = json.dumps(self.env["PYTHONPATH"])
        settings = ['default_tools_approval_mode="approve"', f"env.PYTHONPATH={path}"]
        flags = [word for s in settings for word in ("-c", f"mcp_servers.retinue.{s}")]
        return [str(self._program), *flags, *words]

    def headless(self, prompt: str) -> list[str]:
        return self.command("exec", "--skip-git-repo-check", "--json", prompt)
