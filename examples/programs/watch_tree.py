"""Watch a tree live: who starts, what they call, what it costs, until all is over."""

import asyncio
import sys
from typing import assert_type

from retinue import Agent, EndState, Event, Retinue
from retinue.events import (
    QuestionAsked,
    RunEnded,
    RunStarted,
    RunWaiting,
    TextDelta,
    ToolStarted,
    to_json,
)

lead = Agent("lead", "Explore.", model="openai:gpt-5", families=["fanout"])


def words(event: Event) -> str:
    match event:
        case RunStarted(task=goal, model=model):
            return f"starts on {model}: {goal:.60}"
        case ToolStarted(call=call):
            return f"calls {call.name}"
        case RunWaiting(waiting_for="budget" | "provider" as reason, detail=detail):
            return f"waits for its {reason}: {detail}"
        case QuestionAsked(question=question):
            return f"asks: {question.text}"
        case RunEnded(state=state, usage=usage, seconds=seconds):
            assert_type(state, EndState)
            return f"{state} after {seconds:.1f} s for ${usage.usd:.3f}"
        case _:
            return event.type


async def main(task: str) -> None:
    async with Retinue("explore.db", agents=[lead]) as retinue:
        run = await retinue.spawn(lead, task)
        async for event in retinue.stream(run, tree=True):
            if isinstance(event, TextDelta):
                print(event.text, end="", flush=True)
            else:
                print("  " * event.depth + event.label, words(event))
        for depth, node in (await retinue.tree(run)).walk():
            print(f"{'  ' * depth}{node.label:<30}{node.state:<12}{node.usage.tokens:>9,}")
        async for event in retinue.watch(after=0):
            print(f"{event.at:%H:%M} {to_json(event)}")
            if isinstance(event, RunEnded) and event.run == run:
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
