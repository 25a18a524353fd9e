"""A result with a type: if it does not match, the model reads why and tries again."""

import asyncio

from msgspec import Struct

from retinue import Agent, ModelRequest, Retinue, ToolCall
from retinue.testing import Scripted, call


class Invoice(Struct):
    number: str
    total_cents: int


def extract(request: ModelRequest) -> ToolCall:
    error = request.messages[-1].text
    if request.turn == 0:
        return call("submit_result", result={"number": "2024-17", "total_cents": "12.50"})
    print(f"the model reads: {error}")
    return call("submit_result", result={"number": "2024-17", "total_cents": 1250})


async def main() -> None:
    clerk = Agent("clerk", "Extract the invoice.", model=Scripted(extract), output=Invoice)
    async with Retinue() as retinue:
        outcome = await retinue.run(clerk, "Invoice 2024-17, to be paid: 12.50")
    print(f"{outcome.output!r} after {outcome.usage.turns} turns")


asyncio.run(main())
