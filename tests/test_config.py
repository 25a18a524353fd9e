"""Configuration files: the five documents' own sections work as they stand, and a mistake is shown
with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, ConfigError, family
from retinue.config import read_config
from retinue.tools.families.profiles import FAMILIES, PROFILES


def read(tmp_path: Path, text: str, name: str = "retinue.toml") -> dict[str, Any]:
    file = tmp_path / name
    file.write_text(text)
    return {f.name: f.settings for f in read_config(file).families}


def test_the_section_of_the_delegate_document_sets_that_family_and_turns_it_on(
    tmp_path: Path,
) -> None:
    text = """
[orchestrator]
max_concurrent_subtasks = 2
max_subtasks_per_request = 4
parallel_timeout_secs = 30
background_timeout_secs = 60
max_background_groups = 1
"""
    result = read(tmp_path, text)
    assert list(result) == ["delegate"]
    settings = result["delegate"]
    assert (settings.max_concurrent_subtasks, settings.max_subtasks_per_request) == (2, 4)
    assert (settings.parallel_timeout_secs, settings.background_timeout_secs) == (30, 60)
    assert settings.max_background_groups == 1


def test_the_json5_of_the_sessions_document_is_read_with_its_comments(tmp_path: Path) -> None:
    text = """{
  agent: {
    subagents: {
      maxConcurrent: 3,
      tools: {
        // deny wins
        deny: ["gateway", "cron"],
        allow: ["read", "bash", "process"],
      }
    }
  }
}"""
    settings = read(tmp_path, text, "config.json5")["sessions"]
    assert settings.max_concurrent == 3
    assert settings.tools_deny == ("gateway", "cron")
    assert settings.tools_allow == ("read", "bash", "process")


def test_the_sections_of_the_agent_and_subagent_documents_are_known(tmp_path: Path) -> None:
    text = """
[sub_agents]
default_budget = 1000
concurrency_limits = { max_depth = 2 }
[agent.subagent]
max_depth = 2
default_max_turns = 5
"""
    result = read(tmp_path, text)
    assert result["agent"].default_budget == 1000
    assert result["agent"].concurrency_limits.max_depth == 2
    assert (result["subagent"].max_depth, result["subagent"].default_max_turns) == (2, 5)


def test_profiles_name_the_families_and_sections_set_them(tmp_path: Path) -> None:
    text = """
profiles = ["openclaw", "phoenix"]
[families.fanout]
timeout_seconds = 60
[agent.subagents]
maxConcurrent = 2
"""
    result = read(tmp_path, text)
    assert list(result) == ["sessions", "fanout"]
    assert result["fanout"].timeout_seconds == 60
    assert (result["sessions"].max_concurrent, result["sessions"].cleanup) == (2, "keep")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_can_be_named_alone(profile: str, tmp_path: Path) -> None:
    result = read(tmp_path, f'profiles = ["{profile}"]')
    assert list(result) == [PROFILES[profile][0]]


def test_a_profile_is_its_family_with_other_defaults_and_nothing_else() -> None:
    for profile, (kind, settings) in PROFILES.items():
        mine, plain = family(profile).settings, family(kind).settings
        differing = {f for f in mine.__struct_fields__ if getattr(mine, f) != getattr(plain, f)}
        assert differing == set(settings), profile


MISTAKES = [
    ("profiles = ['mepo']", 1, "Did you mean 'meepo'?"),
    ("profiles = ['meepo', 'delegate']", 1, "named twice"),
    (
        "\n[orchestrator]\nmax_concurent_subtasks = 2\n",
        3,
        "Did you mean 'max_concurrent_subtasks'?",
    ),
    ("\n[orchestrater]\nmax_concurrent_subtasks = 2\n", 2, "Did you mean 'orchestrator'?"),
    ("[orchestrator]\n\nmax_background_groups = 'many'\n", 3, "Expected `int`, got `str`"),
    ("[agent.subagent]\nmax_depth = 0\n", 2, "agent.subagent.max_depth must be greater than 0"),
    ("[agent.subagent]\nmax_depth = 11\n", 2, "cannot exceed 10"),
    ("[agent.subagent]\ndefault_max_turns = 101\n", 2, "cannot exceed 100"),
    ("[agent.subagent]\noutput_max_size = 10\n", 2, "at least 1024 bytes"),
    ("[agent.subagents]\nmaxSpawnDepth = 6\n", 2, "between 1 and 5"),
    ("[families.fannout]\n", 1, "Did you mean 'fanout'?"),
    ("profiles = 'meepo'", 1, "a list of names"),
    ("profiles = ['meepo']\n[families.fanout]\ntimeout_seconds = 5\n", 2, "does not name it"),
    (
        "[sub_agents]\nallowed_models = { anthropic = ['a'], openai = ['b'] }\n",
        2,
        "gemini must be set and must not be empty",
    ),
    (
        "[sub_agents]\nallowed_models = { anthropic = ['*'], openai = ['b'], gemini = ['c'] }\n",
        2,
        "`*` is not supported",
    ),
]


@pytest.mark.parametrize(("text", "line", "says"), MISTAKES, ids=lambda x: str(x)[:30].strip())
def test_a_mistake_is_reported_with_its_line_and_what_was_meant(
    text: str, line: int, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as failure:
        read(tmp_path, text)
    assert f"retinue.toml, line {line}:" in str(failure.value)
    assert says in str(failure.value)


@pytest.mark.parametrize(
    ("name", "text"), [("x.toml", "a = ["), ("x.json5", "{a: "), ("x.json5", "[]")]
)
def test_a_file_that_cannot_be_parsed_is_refused_in_one_sentence(
    name: str, text: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=name):
        read(tmp_path, text, name)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Configuration file .*nowhere\.toml"):
        read_config(tmp_path / "nowhere.toml")


def test_families_of_a_file_are_ready_for_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("profiles = ['meerkat', 'meepo', 'phoenix', 'openclaw', 'xzatoma']")
    lead = Agent("lead", families=read_config(file).families)
    assert sorted(f.name for f in lead.family_list) == sorted(FAMILIES)
    assert {"agent_spawn", "delegate_tasks", "spawn_agents", "sessions_spawn", "subagent"} <= {
        t.schema.name for t in lead.own_tools
    }


def test_an_unknown_family_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'fanout'"):
        family("fanuot")
    with pytest.raises(
        ConfigError, match="Invalid settings of family 'fanout': Unknown setting 'nonsense'"
    ):
        family("fanout", nonsense=1)
