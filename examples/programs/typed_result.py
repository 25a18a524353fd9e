"""A result with a type, and what is done when there is none."""

import asyncio
from decimal import Decimal

from pydantic import BaseModel

from retinue import Agent, Retinue, RunFailed, one_of


class Invoice(BaseModel):
    number: str
    total: Decimal


class NotAnInvoice(BaseModel):
    reason: str


clerk = Agent(
    "clerk",
    "Extract the invoice.",
    model="openai:gpt-5",
    output=one_of(Invoice, NotAnInvoice),
)


async def main() -> None:
    async with Retinue() as retinue:
        outcome = await retinue.run(clerk, "Invoice 2024-17, 12.50 EUR, due in 30 days.")
        try:
            match outcome.unwrap():
                case Invoice(number=number, total=total):
                    print(f"Pay {total} for {number}.")
                case NotAnInvoice(reason=reason):
                    print(f"Ignored: {reason}")
        except RunFailed as error:
            print(f"{error.outcome.state}: {error.outcome.error}")


if __name__ == "__main__":
    asyncio.run(main())
