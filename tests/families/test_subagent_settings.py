"""`[agent.subagent]`: every value with its default, its bounds, and what is said about a wrong
one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, ConfigError, family
from retinue.config import read_config
from retinue.testing import call
from retinue.tools.families.family_states import SUBAGENT
from retinue.tools.families.profiles import settings_of
from tests.api.scripted_agents import on_virtual_time
from tests.families.subagent_world import TOOLS, Stage, one, results


def read(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "retinue.toml"
    file.write_text(text)
    (result,) = read_config(file).families
    return result


def test_the_defaults_are_those_of_the_document() -> None:
    settings: Any = family("xzatoma").settings
    assert (settings.max_depth, settings.default_max_turns, settings.output_max_size) == (
        3,
        10,
        4096,
    )
    assert (settings.max_executions, settings.max_total_tokens, settings.max_total_time) == (
        None,
        None,
        None,
    )
    assert (settings.model, settings.enabled, settings.guide) == ("", True, True)
    assert settings_of("xzatoma") == ("subagent", {})


def test_a_file_sets_each_value(tmp_path: Path) -> None:
    text = """
[agent.subagent]
max_depth = 5
default_max_turns = 20
output_max_size = 1048576
max_executions = 100
max_total_tokens = 200000
max_total_time = 600
model = "small"
"""
    result = read(tmp_path, text)
    assert result.name == "subagent"
    s = result.settings
    assert (s.max_depth, s.default_max_turns, s.output_max_size, s.model) == (
        5,
        20,
        1_048_576,
        "small",
    )
    assert (s.max_executions, s.max_total_tokens, s.max_total_time) == (100, 200_000, 600.0)


@on_virtual_time
async def test_the_documents_configuration_is_loaded_as_it_stands_and_enforced(
    tmp_path: Path,
) -> None:
    """Its three constants under the names that its configuration gives them, and whether a chat has
    the tools."""
    text = """
[agent.subagent]
max_depth = 3
default_max_turns = 10
output_max_size = 4096
chat_enabled = false
"""
    result = read(tmp_path, text)
    assert result.settings == family("xzatoma", chat_enabled=False).settings
    does: dict[str, Any] = {
        "1": [one("2")],
        "2": [one("3")],
        "dig": lambda q: call("look_up", word="x"),
    }
    stage = Stage(one("1"), one("dig"), one("long"), does=does, sums={"long": "x" * 5_000})
    stage.lead = Agent("lead", model=stage.model, tools=TOOLS, families=[result])
    first, second, third = results((await stage.go()).told)
    assert first["success"] and stage.of("3") == []
    assert any(
        "depth (3) exceeded. Current depth: 2." in m.text for m in stage.of("2")[-1].messages
    )
    assert second["metadata"]["max_turns"] == "10"
    assert third["truncated"] and third["output"].startswith("x" * 4_096 + "\n... (truncated)")


@pytest.mark.parametrize(
    ("text", "is_on"),
    [
        ("hello", False),
        ("Use a SUBAGENT", True),
        ("please delegate", True),
        ("spawn agents", True),
        ("use agent x", True),
    ],
)
def test_a_message_of_a_chat_that_asks_for_such_work_turns_the_tools_on(
    text: str, is_on: bool
) -> None:
    assert family("xzatoma", chat_enabled=False).in_chat(text) is is_on
    assert family("xzatoma", chat_enabled=True).in_chat(text) is True
    assert family("xzatoma").in_chat(text) is None


WRONG: list[tuple[str, str]] = [
    ("max_depth = 0", "agent.subagent.max_depth must be greater than 0"),
    ("max_depth = -1", "agent.subagent.max_depth must be greater than 0"),
    ("max_depth = 11", "agent.subagent.max_depth cannot exceed 10 (stack overflow risk)"),
    ("default_max_turns = 0", "agent.subagent.default_max_turns must be greater than 0"),
    ("default_max_turns = 101", "agent.subagent.default_max_turns cannot exceed 100"),
    ("output_max_size = 1023", "agent.subagent.output_max_size must be at least 1024 bytes"),
    ("max_executions = -1", "agent.subagent.max_executions must be 0 or more, and finite"),
    ("max_total_tokens = -1", "agent.subagent.max_total_tokens must be 0 or more, and finite"),
    ("max_total_time = -0.5", "agent.subagent.max_total_time must be 0 or more, and finite"),
    ("max_total_time = inf", "agent.subagent.max_total_time must be 0 or more, and finite"),
    ("max_total_time = nan", "agent.subagent.max_total_time must be 0 or more, and finite"),
    ("max_depth = 'deep'", "Expected `int`, got `str`"),
    ("max_depth = true", "Expected `int`, got `bool`"),
    ("max_executions = 1.5", "Expected `int | null`, got `float`"),
    ("max_deph = 2", "Did you mean 'max_depth'?"),
]


@pytest.mark.parametrize(("line", "says"), WRONG, ids=lambda x: str(x)[:30])
def test_a_wrong_value_is_told_with_its_line(line: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as failure:
        read(tmp_path, f"[agent.subagent]\n{line}\n")
    assert "retinue.toml, line 2:" in str(failure.value)
    assert says in str(failure.value)


@pytest.mark.parametrize(
    "values",
    [
        {"max_depth": 1},
        {"max_depth": 10},
        {"default_max_turns": 1},
        {"default_max_turns": 100},
        {"output_max_size": 1024},
        {"max_executions": 0},
        {"max_total_time": 0.5},
    ],
)
def test_the_bounds_themselves_are_taken(values: dict[str, Any]) -> None:
    result = family("subagent", **values)
    assert {name: getattr(result.settings, name) for name in values} == values


def test_both_tools_are_given_to_the_lead_and_to_its_helpers() -> None:
    result = family("subagent")
    assert result.tool_names == ("subagent", "parallel_subagent")
    assert [t.schema.name for t in result.helper_tools()] == ["subagent", "parallel_subagent"]
    assert {t.restart for t in result.tools()} == {"pure"}, (
        "a call that a restart interrupted is asked again"
    )


def test_the_guide_says_when_to_delegate_when_not_to_and_that_polling_is_wrong() -> None:
    guide = family("subagent").guide
    for words in (
        "`subagent`",
        "`parallel_subagent`",
        "Do small tasks yourself",
        "nothing to poll",
    ):
        assert words in guide


def test_only_what_has_ended_well_is_complete() -> None:
    assert {end for end, word in SUBAGENT.items() if word == "complete"} == {"completed"}
    assert set(SUBAGENT.values()) == {"complete", "incomplete"}
