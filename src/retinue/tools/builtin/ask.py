"""`ask`: a question to whoever can answer it, the user or the parent. Who that is, is decided elsewhere; here it is
made fit to be shown to a person.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from retinue.core.text import clean
from retinue.core.values import Restart
from retinue.tools.base import Answer, Ask, Caller, Returned, Risk
from retinue.tools.builtin.base import Arguments, Builtin

MOST_OPTIONS = 20
LONGEST = 10_000

# Controls but for the end of a line and the tab; bidirectional marks, embeddings and isolates; what has no width; line
# separators; tags, which spell a text that nobody sees. The joiners (U+200C and U+200D) are part of words and emoji.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """The text without what a reader cannot see, or what would show it in another order than it has."""
    return _UNSEEN.sub("", clean(text.replace("\r\n", "\n")))


class AskArgs(Arguments, frozen=True):
    question: Annotated[str, Meta(min_length=1, max_length=LONGEST, description="One clear question.")]
    options: Annotated[
        tuple[Annotated[str, Meta(max_length=1_000)], ...],
        Meta(max_length=MOST_OPTIONS, description="Answers to choose from; leave it out for a free answer."),
    ] = ()


class AskTool(Builtin[AskArgs]):
    """The call stays open until somebody answers."""

    name: ClassVar[str] = "ask"
    description: ClassVar[str] = (
        "Ask the user, or the agent that gave you your task, a question that you cannot answer yourself, and wait for "
        "the answer. Offer options when there are a few sensible ones."
    )
    Args: ClassVar[type[Arguments]] = AskArgs
    restart: Restart = "pure"
    risk: Risk = "read"

    async def call(self, caller: Caller, args: AskArgs) -> Returned:
        question = visible(args.question).strip()
        options = [" ".join(visible(option).split()) for option in args.options]
        if not question:
            return Answer(text="Invalid parameters: the question is empty. Ask again in words.", error=True)
        if not all(options):
            return Answer(text="Invalid parameters: an option is empty. Leave it out and ask again.", error=True)
        lines = [f"{n}. {option}" for n, option in enumerate(options, 1)]
        return Ask(question="\n".join([question, *lines]))

    def summary(self, args: dict[str, Any]) -> str:
        return f"ask: {' '.join(visible(str(args.get('question', ''))).split())}"[:200]
