"""Prompts of MCP servers on the command line: `retinue run --mcp-prompt`, and `/server:name` in a
chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from retinue.host import server_prompts
from retinue.host.requests import PromptsRequest

if TYPE_CHECKING:
    from retinue.host.client import HostClient
    from retinue.host.planner import PlannedRun
    from retinue.tools.mcp_client.server_content import ListedPrompt


def prompts_of(client: HostClient, planned: PlannedRun) -> list[ListedPrompt]:
    """The prompts of all servers of a plan; the servers are started for it."""
    request = PromptsRequest(plan=planned.plan, env=planned.env)
    return server_prompts.listed_prompts(client.ask(request))


def prompt_task(client: HostClient, planned: PlannedRun, name: str, words: Sequence[str]) -> str:
    """The task that the prompt `server/name` becomes with these words."""
    request, rest = server_prompts.prompt_request(
        prompts_of(client, planned), name, words, planned.plan, planned.env
    )
    return server_prompts.task_text(client.ask(request), rest)
