"""An agent uses the tools of a server like its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from retinue import Agent, Permissions, Retinue
from retinue.core.messages import ModelReply, ToolMessage
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests.tools.mcp.client_support import fake, servers


class Listening(Scripted):
    """Keeps the results that it was sent last."""

    results: tuple[ToolMessage, ...] = ()

    async def complete(self, request: ModelRequest, emit: Callable[[str], None]) -> ModelReply:
        self.results = tuple(m for m in request.messages if isinstance(m, ToolMessage))
        return await super().complete(request, emit)


def test_an_agent_calls_a_tool_of_a_server_and_outlives_its_death(tmp_path: Path) -> None:
    async def main() -> None:
        async with servers(fake()) as result:
            script = [
                call("mcp__fake__echo", text="hello"),
                call("mcp__fake__die"),
                "The server died.",
            ]
            model = Listening(script)
            agent = Agent("lead", "Use the tools.", model=model, tools=result.tools())
            async with Retinue(tmp_path / "log.db") as retinue:
                outcome = await retinue.run(
                    agent, "Say hello.", permissions=Permissions(mode="bypassPermissions")
                )
            assert outcome.text == "The server died."
            text, died = model.results
            assert (text.text, text.error) == ("hello", False)
            assert died.error
            assert "may still have taken effect" in died.text

    asyncio.run(main())
