"""The arguments of a call, as its model wrote them and as code reads and changes them."""

from __future__ import annotations

import pytest

from retinue import ToolCall


def test_a_call_is_changed_by_the_names_of_its_arguments() -> None:
    call = ToolCall(id="1", name="sell", arguments_json='{"item": "cigar"}')
    assert call.replace(arguments={"item": "apple", "n": 2}).arguments == {"item": "apple", "n": 2}
    assert call.replace(name="buy") == ToolCall(
        id="1", name="buy", arguments_json=call.arguments_json
    )
    assert call.arguments == {"item": "cigar"}


def test_a_call_is_not_given_a_name_that_is_none() -> None:
    with pytest.raises(ValueError, match="name"):
        ToolCall(id="1", name="sell").replace(name=5)
