"""`ask`: asks the user or the parent a question. Who that is, is decided elsewhere; here it is made
fit to be shown to a person."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from retinue.core.values import Restart
from retinue.formats.safe_text import one_line, several_lines
from retinue.tools.base import Ask, Context, Returned, Risk, ToolResult
from retinue.tools.builtin.builtin_tool import Builtin, ToolArguments

MOST_OPTIONS = 20
LONGEST = 10_000


class AskArgs(ToolArguments, frozen=True):
    question: Annotated[
        str, Meta(min_length=1, max_length=LONGEST, description="One clear question.")
    ]
    options: Annotated[
        tuple[Annotated[str, Meta(max_length=1_000)], ...],
        Meta(
            max_length=MOST_OPTIONS,
            description="Answers to choose from. Omit for a free answer.",
        ),
    ] = ()


class AskTool(Builtin[AskArgs]):
    """The call stays open until someone answers."""

    name: ClassVar[str] = "ask"
    description: ClassVar[str] = (
        "Ask a question and wait for the answer. Use it for something that only the "
        "user, or the agent that gave you your task, can decide. Do not use it for what "
        "you can find out yourself. Offer options if there are only a few."
    )
    Args: ClassVar[type[ToolArguments]] = AskArgs
    restart: Restart = "pure"
    risk: Risk = "read"

    async def call(self, context: Context, args: AskArgs) -> Returned:
        question = several_lines(args.question).strip()
        options = [one_line(option) for option in args.options]
        if not question:
            return ToolResult(
                text="Invalid parameters: the question is empty. Ask again with a question.",
                error=True,
            )
        if not all(options):
            return ToolResult(
                text="Invalid parameters: an option is empty. Remove it and ask again.",
                error=True,
            )
        lines = [f"{n}. {option}" for n, option in enumerate(options, 1)]
        return Ask(question="\n".join([question, *lines]))

    def summary(self, args: dict[str, Any]) -> str:
        return f"ask: {one_line(str(args.get('question', '')))}"[:200]
