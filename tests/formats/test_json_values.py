"""`2.0` is an integer of JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from retinue.formats.json_values import converted
from retinue.mcp.tool_arguments import AgentsArguments, read_arguments
from retinue.server.openai.chat_requests import ChatRequest, read_request


class Sent(msgspec.Struct):
    n: int
    items: list[int] = []
    ratio: float = 0.0


def test_a_whole_number_is_an_integer_wherever_it_is() -> None:
    assert converted({"n": 2.0, "items": [1, 3.0], "ratio": 4.0}, Sent) == Sent(2, [1, 3], 4.0)


@pytest.mark.parametrize("value", [2.5, "2", True, 1e400, -1e400, [2.0]])
def test_anything_else_is_none_and_the_error_is_that_of_what_was_sent(value: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got .* - at `\$.n`"):
        converted({"n": value}, Sent)


def test_every_door_reads_it() -> None:
    assert read_arguments("agents", {"limit": 5.0}, AgentsArguments).limit == 5
    request = {"model": "a", "messages": [], "n": 1.0}
    assert read_request(request, ChatRequest).n == 1
