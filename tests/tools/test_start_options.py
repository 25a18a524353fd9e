"""Options of runs and of children: one set of rules for both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from retinue.errors import ConfigError
from retinue.option_types import RunOptions
from retinue.tools.function import tool
from retinue.tools.start_options import ChildOptions, child_fields, request_fields


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "5", True])
def test_a_timeout_that_is_none_is_refused_for_children_as_for_runs(wrong: Any) -> None:
    for fields in (
        lambda: request_fields({"timeout": wrong}),
        lambda: child_fields("run", {"timeout": wrong}),
    ):
        with pytest.raises(ConfigError, match="The timeout of a run is"):
            fields()


@pytest.mark.parametrize("wrong", [-1, float("nan"), "5"])
def test_a_tool_refuses_such_a_timeout_when_it_is_made(wrong: Any) -> None:
    def work() -> str:
        """Work."""
        return "done"

    with pytest.raises(ConfigError, match="A timeout is a number of seconds or a timedelta"):
        tool(work, timeout=wrong)


def test_a_time_becomes_milliseconds_and_a_wrong_option_is_named() -> None:
    assert request_fields({"timeout": timedelta(seconds=2)}) == {"timeout_ms": 2_000}
    assert child_fields("run", {"key": "a", "timeout": 0.5}) == {"timeout_ms": 500}
    with pytest.raises(ConfigError, match="has no option 'timeout_s'"):
        child_fields("gather", {"timeout_s": 1})


def test_children_have_the_options_of_runs_and_two_of_their_own() -> None:
    own = set(ChildOptions.__annotations__) - set(RunOptions.__annotations__)
    assert own == {"fail_fast", "tell_parent"}
    assert set(RunOptions.__annotations__) - set(ChildOptions.__annotations__) == {"families"}
