"""Options of runs and of children: one set of rules for both."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from retinue.agent import Agent
from retinue.core.spec import Lane
from retinue.core.values import Limits
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
        with pytest.raises(ConfigError, match=r"(The timeout of a run|timeout) is"):
            fields()


@pytest.mark.parametrize("wrong", [-1, float("nan"), "5"])
def test_a_tool_refuses_such_a_timeout_when_it_is_made(wrong: Any) -> None:
    def work() -> str:
        """Work."""
        return "done"

    with pytest.raises(ConfigError, match="timeout is a number of seconds or a timedelta"):
        tool(work, timeout=wrong)


def test_a_time_becomes_milliseconds_and_a_wrong_option_is_named() -> None:
    assert request_fields({"timeout": timedelta(seconds=2)}) == {"timeout_ms": 2_000}
    assert child_fields("run", {"key": "a", "timeout": 0.5}) == {"timeout_ms": 500}
    with pytest.raises(ConfigError, match="has no option 'timeout_s'"):
        child_fields("gather", {"timeout_s": 1})


def test_children_have_the_options_of_runs_and_two_of_their_own() -> None:
    own = set(ChildOptions.__annotations__) - set(RunOptions.__annotations__)
    assert own == {"fail_fast", "tell_parent"}
    assert set(RunOptions.__annotations__) - set(ChildOptions.__annotations__) == {
        "families",
        "follow_links",
    }


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"budget": 5}, "run(): budget is a Budget, not 5."),
        ({"settings": {"temperature": 1}}, "run(): settings is a ModelSettings, not {"),
        ({"meta": {"a": 1}}, "run(): meta is a dict of str to str, not {'a': 1}."),
        ({"max_turns": True}, "run(): max_turns is a whole number, not True."),
        ({"lanes": Lane(name="x", size=1)}, "run(): lanes is a list of Lane, not Lane("),
        ({"questions": "yes"}, "run(): questions is 'ask' or 'deny', not 'yes'."),
        ({"limits": Limits()}, "run(): limits is a SpawnLimits, not a Limits."),
        ({"key": 3}, "run(): key is a text, not 3."),
        ({"max_turns": -1}, "max_turns is 0 or more, not -1."),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_name_of_its_option(
    option: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as failure:
        child_fields("run", option)
    assert str(failure.value).startswith(says)
    assert failure.value.field == next(iter(option))


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"tools": "read"}, "Agent 'a': tools is a list of tools and names, not 'read'."),
        ({"tools": (t for t in ())}, "Agent 'a': tools is a list of tools and names, not <gen"),
        ({"staff": ["x"]}, "Agent 'a': staff is a list of Agent, not ['x']."),
        ({"instructions": 3}, "Agent 'a': instructions is a text, not 3."),
        ({"settings": {}}, "Agent 'a': settings is a ModelSettings, not {}."),
        ({"model": 3}, "Agent 'a': model is a name such as"),
        ({"options": {"budget": 5}}, "Agent 'a': options=: budget is a Budget, not 5."),
        ({"max_turns": -1}, "max_turns is 0 or more, not -1."),
    ],
)
def test_a_part_of_an_agent_that_is_none_is_refused_when_it_is_made(
    parts: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as failure:
        Agent("a", **parts)
    assert str(failure.value).startswith(says)
