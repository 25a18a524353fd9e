"""`think` does nothing, in as few words as possible; `ask` shows a person exactly what is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from retinue.formats.safe_text import several_lines
from retinue.tools.base import Ask, ToolResult
from retinue.tools.builtin.ask import AskTool
from retinue.tools.builtin.think import ThinkTool
from tests.tools.builtin.web_support import caller


def test_a_thought_is_noted() -> None:
    think = ThinkTool()
    assert asyncio.run(think.run(caller(), {"thought": "First the tests."})) == ToolResult(
        text="Noted."
    )
    assert (think.restart, think.risk, think.never_waits) == ("pure", "read", True)
    assert think.summary({"thought": "secret plan"}) == "think"
    wrong = asyncio.run(think.run(caller(), {"thoughts": "x"}))
    assert isinstance(wrong, ToolResult) and wrong.error and "thought" in wrong.text


def test_a_question_carries_its_options() -> None:
    ask = AskTool()
    question = asyncio.run(
        ask.run(caller(), {"question": "Which one?", "options": ["the first", "the\nsecond"]})
    )
    assert question == Ask(question="Which one?\n1. the first\n2. the second")
    assert asyncio.run(ask.run(caller(), {"question": "Go on?"})) == Ask(question="Go on?")
    assert (ask.restart, ask.risk) == ("pure", "read")
    assert ask.summary({"question": "Go\non?"}) == "ask: Go on?"


def test_a_question_shows_nothing_that_cannot_be_seen() -> None:
    text = "Delete \u202etxt.exe\u202c?\u200b\x1b[2J\U000e0041\u2066 yes\ufeff"
    question = asyncio.run(AskTool().run(caller(), {"question": text, "options": ["n\u200bo"]}))
    assert question == Ask(question="Delete txt.exe? yes\n1. no")
    assert several_lines("a\r\nb\tc 👩\u200d💻 \ud83d") == "a\nb\tc 👩\u200d💻 \ufffd"


@pytest.mark.parametrize(
    "args",
    [
        *(
            {},
            {"question": ""},
            {"question": "\u200b"},
            {"question": "x" * 10_001},
            {"question": "x", "who": "me"},
        ),
        *({"question": "x", "options": wrong} for wrong in ([""], ["y"] * 21, "y")),
    ],
)
def test_a_question_that_cannot_be_shown_becomes_an_answer(args: dict[str, Any]) -> None:
    answer = asyncio.run(AskTool().run(caller(), args))
    assert (
        isinstance(answer, ToolResult)
        and answer.error
        and answer.text.startswith("Invalid parameters")
    )
