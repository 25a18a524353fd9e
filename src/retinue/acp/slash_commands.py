"""Prompts of the project's MCP servers as the commands of a session: `/server:name`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from acp import schema

from retinue.host import server_prompts
from retinue.host.requests import PromptsRequest

if TYPE_CHECKING:
    from retinue.acp.editor_project import EditorProject
    from retinue.acp.project_host import ProjectHost
    from retinue.tools.mcp_client.server_content import ListedPrompt


async def commands_of(
    project: EditorProject, host: ProjectHost
) -> schema.AvailableCommandsUpdate | None:
    """The commands of a session; None for a project without servers. The servers are started for
    it."""
    planned, _ = await asyncio.to_thread(project.plan)
    if not planned.plan.servers:
        return None
    reply = await host.ask(PromptsRequest(plan=planned.plan, env=planned.env))
    return schema.AvailableCommandsUpdate(
        session_update="available_commands_update",
        available_commands=[_command(one) for one in server_prompts.listed_prompts(reply)],
    )


async def expanded(project: EditorProject, host: ProjectHost, text: str) -> str:
    """The text of a prompt of a server, for a message that names one; any other message as it
    is."""
    typed = server_prompts.typed_prompt(text)
    if typed is None:
        return text
    planned, _ = await asyncio.to_thread(project.plan)
    if not server_prompts.has_server(planned.plan, typed[0]):
        return text
    reply = await host.ask(PromptsRequest(plan=planned.plan, env=planned.env))
    request, rest = server_prompts.prompt_request(
        server_prompts.listed_prompts(reply),
        typed[0],
        server_prompts.words_of(typed[1]),
        planned.plan,
        planned.env,
    )
    return server_prompts.task_text(await host.ask(request), rest)


def _command(prompt: ListedPrompt) -> schema.AvailableCommand:
    names = [f"{one.name}=..." if one.required else f"[{one.name}=...]" for one in prompt.arguments]
    hint = schema.UnstructuredCommandInput(hint=" ".join(names)) if names else None
    return schema.AvailableCommand(
        name=f"{prompt.server}:{prompt.name}",
        description=prompt.description or prompt.title or prompt.name,
        input=schema.AvailableCommandInput(root=hint) if hint is not None else None,
    )
