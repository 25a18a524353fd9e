"""Tools are functions: the signature is the schema, the docstring the description, and what does
not fit is handed back to the model. A tool whose schema is no signature is a class."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from retinue import Agent, Context, Restart, Risk, ToolError, run_sync, tool


class Booking(BaseModel):
    table: int
    day: date
    guests: Annotated[int, Field(ge=1, le=12, description="Twelve is the largest table.")]


BOOKED: dict[tuple[int, date], Booking] = {}


@tool(restart="pure", risk="read")
def is_free(table: int, day: date) -> bool:
    """Whether a table is free.

    Args:
        table: Its number, 1 to 20.
        day: The evening in question.
    """
    return (table, day) not in BOOKED


@tool(risk="write")
def book(booking: Booking, seating: Literal["early", "late"] = "late") -> str:
    """Book a table for one evening."""
    if (booking.table, booking.day) in BOOKED:
        raise ToolError(f"Table {booking.table} is taken that evening; try another.")
    BOOKED[booking.table, booking.day] = booking
    return f"Table {booking.table} is yours for the {seating} seating."


class Menu:
    """What there is to eat, under a schema that is read from elsewhere."""

    name, description = "menu", "The price of a dish."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"dish": {"type": "string", "enum": ["soup", "fish"]}},
    }
    restart: Restart = "pure"
    risk: Risk = "read"

    async def invoke(self, ctx: Context, arguments: Mapping[str, Any], /) -> object:
        return {"soup": 6.5, "fish": 14.0}.get(arguments.get("dish", ""), "not today")


host = Agent("host", "Book tables.", model="openai:gpt-5", tools=[is_free, book, Menu()])

if __name__ == "__main__":
    print(run_sync(host, "A table for five on 1 May, please.").text)
