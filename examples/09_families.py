"""A family gives a lead tools to start sub-agents: two in the background, announced as they end."""

import asyncio
import sys

from retinue import Agent, ModelRequest, Origin, Retinue, ToolCall, family, tool
from retinue.channels import Console
from retinue.testing import Scripted, call


@tool(risk="read")
def length(word: str) -> int:
    """How long a word is."""
    return len(word)


def talk(request: ModelRequest) -> str | ToolCall:
    # the family's sub-agent has the lead's tools, and its own task
    if request.agent == "lead.delegate":
        word, last = request.messages[0].text.split()[-1], request.messages[-1].text
        return f"{word} has {last} letters." if request.turn else call("length", word=word)
    if request.turn:
        return "They are being measured."
    words, tools = ("ant", "elephant"), ["length"]
    tasks = [{"task_id": word, "prompt": f"Measure {word}", "tools": tools} for word in words]
    return call("delegate_tasks", mode="background", tasks=tasks)


async def main() -> None:
    async with Retinue(channels={"console": Console(sys.stdout)}) as retinue:
        delegate = family("meepo", max_background_groups=1)
        script, ada = Scripted(talk, name="script"), Origin(channel="console", user="ada")
        lead = Agent("lead", model=script, tools=[length], families=[delegate])
        outcome = await retinue.run(lead, "How long are they?", origin=ada)
        print(outcome.text)
        await retinue.settle(outcome.id)


asyncio.run(main())
