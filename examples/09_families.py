"""A family gives a lead tools to start children with: here two tasks in the background, announced
as they end."""

import asyncio
import sys

from retinue import Agent, Origin, Retinue, family, tool
from retinue.channels.console import Console
from retinue.testing import Scripted, call


@tool(risk="read")
def length(word: str) -> int:
    """How long a word is."""
    return len(word)


def talk(request):
    if (
        request.agent == "lead.delegate"
    ):  # the family's helper: the lead's tools, and a task of its own
        word = request.messages[0].text.split()[-1]
        return (
            call("length", word=word)
            if request.turn == 0
            else f"{word} has {request.messages[-1].text} letters."
        )
    tasks = [
        {"task_id": w, "prompt": f"Measure {w}", "tools": ["length"]} for w in ("ant", "elephant")
    ]
    return (
        call("delegate_tasks", mode="background", tasks=tasks)
        if request.turn == 0
        else "They are being measured."
    )


async def main() -> None:
    async with Retinue(channels={"console": Console(sys.stdout)}) as retinue:
        delegate = family("meepo", max_background_groups=1)
        lead = Agent(
            "lead", model=Scripted(talk, name="script"), tools=[length], families=[delegate]
        )
        outcome = await retinue.run(
            lead, "How long are they?", origin=Origin(channel="console", user="ada")
        )
        print(outcome.text)
        await retinue.settle(outcome.id)


asyncio.run(main())
