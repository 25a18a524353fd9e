"""Settings of families: what there is not is named beside what there is, in the spelling that was
used; and the page of all settings is what the code says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.makers.family_settings import ALL, MEANINGS, fields_of
from retinue import Agent, ConfigError, Retinue, family, run_sync
from retinue.config import read_config
from retinue.testing import Scripted, VirtualClock
from retinue.tools.families.base import FamilySettings
from retinue.tools.families.profiles import FAMILIES, PROFILES, family_type
from tests.api.scripted_agents import on_virtual_time


def wrong(name: str, **settings: Any) -> str:
    with pytest.raises(ConfigError) as failure:
        family(name, **settings)
    return str(failure.value)


@pytest.mark.parametrize("name", [*FAMILIES, *PROFILES])
def test_an_unknown_setting_is_named_with_those_that_there_are(name: str) -> None:
    problems = wrong(name, nonsense=1)
    assert f"Invalid settings of family {name!r}: Unknown setting 'nonsense'." in problems
    for field in family(name).settings.__struct_fields__:
        assert field in problems


def test_the_nearest_setting_is_named_in_the_spelling_that_was_used() -> None:
    assert "Did you mean 'max_concurrent'?" in wrong("clawdbot", max_concurent=3)
    problems = wrong("clawdbot", maxConcurent=3)
    assert (
        "Did you mean 'maxConcurrent'?" in problems
        and "runTimeoutSeconds" in problems
        and "run_timeout" not in problems
    )
    assert "Did you mean 'default_budget'?" in wrong("meerkat", defaultBudget=3)
    assert "Did you mean 'max_depth'?" in wrong("meerkat", concurrency_limits={"max_dept": 3})


def test_a_setting_in_a_table_is_found_without_the_table() -> None:
    problems = wrong("agent", max_depth=2)
    assert (
        "Did you mean 'concurrency_limits.max_depth'?" in problems
        and "concurrency_limits.max_concurrent_ops" in problems
    )
    assert "Did you mean 'concurrency_limits.max_children_per_agent'?" in wrong(
        "meerkat", maxChildrenPerAgent=2
    )


@pytest.mark.parametrize(
    ("families", "words"),
    [
        ("meepo", "agent 'x': `families` is a list, e.g. families=['meepo']"),
        (family("meepo"), "agent 'x': `families` is a list, e.g. families=[family('meepo', ...)]"),
        ([3], "agent 'x': 3 is not a family. Name one, or use the result of family(name, ...)"),
    ],
)
def test_what_is_no_list_of_families_gets_a_clear_word(families: Any, words: str) -> None:
    with pytest.raises(ConfigError) as failure:
        Agent("x", model=Scripted(["y"], name="m"), families=families)
    assert str(failure.value) == words


def test_the_spelling_of_the_document_is_taken() -> None:
    result = family(
        "clawdbot",
        maxConcurrent=3,
        tools={"deny": ["bash"], "allow": ["read"]},
        runTimeoutSeconds=9,
    )
    assert (
        result.settings
        == family(
            "clawdbot",
            max_concurrent=3,
            tools_deny=["bash"],
            tools_allow=["read"],
            run_timeout_seconds=9,
        ).settings
    )
    assert result.settings.tools_deny == ("bash",)
    assert "set twice" in wrong("clawdbot", maxConcurrent=3, max_concurrent=4)
    problems = wrong("clawdbot", tools={"denny": []})
    assert (
        "Unknown setting 'tools.denny'. Did you mean 'tools.deny'? Known: tools.allow, tools.deny"
    ) in problems


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[agent.subagents]\nmaxConcurent = 3\n", "Did you mean 'maxConcurrent'?"),
        ("[families.sessions]\nmax_concurent = 3\n", "Did you mean 'max_concurrent'?"),
        ("[sub_agents]\nmax_depth = 3\n", "Did you mean 'concurrency_limits.max_depth'?"),
        ("[families.sessions]\nmax_concurrent = 0\n", "max_concurrent must be at least 1"),
        ("[agent.subagents]\nmaxConcurrent = 0\n", "maxConcurrent must be at least 1"),
        ("[agent.subagents]\ntools = { denny = [] }\n", "'denny'. Did you mean 'deny'?"),
        ("[agent.subagents]\ntools = { deny = 'cron' }\n", "got `str` - at `$.tools.deny`"),
        ("[agent.subagents]\ntools = { allow = [3] }\n", "got `int` - at `$.tools.allow[0]`"),
        ("[agent.subagents]\nmaxSpawnDepth = 'x'\n", "got `str` - at `$.maxSpawnDepth`"),
        ("[families.meerkat]\ndefault_budget = 3\n", "'meerkat' is a profile"),
        ('profiles = ["clawdbot", "openclaw"]\n', "as 'clawdbot' and as 'openclaw'"),
    ],
)
def test_a_hint_about_a_file_is_spelled_as_in_that_file(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError) as failure:
        read_config(tmp_path / "c.toml")
    assert words in str(failure.value)


@pytest.mark.parametrize(
    ("families", "words"),
    [
        (["agent", "meerkat"], "'agent' and 'meerkat', which are the same family, 'agent'"),
        (
            ["clawdbot", "openclaw"],
            "'clawdbot' and 'openclaw', which are the same family, 'sessions'",
        ),
        ([family("clawdbot"), "sessions"], "'clawdbot' and 'sessions'"),
        (["fanout", "fanout"], "'fanout' twice"),
    ],
)
def test_a_family_is_not_given_twice(families: list[Any], words: str) -> None:
    with pytest.raises(ConfigError) as failure:
        Agent("lead", families=families)
    assert words in str(failure.value) and "a profile is a family with other defaults" in str(
        failure.value
    )


@pytest.mark.parametrize("families", [{"phoenix": True}, None, 3])
def test_families_are_a_list(families: Any) -> None:
    with pytest.raises(ConfigError) as failure:
        Agent("lead", families=families)
    assert f"`families` is a list, e.g. families=['fanout'], not {families!r}" in str(failure.value)


@pytest.mark.parametrize("one", [3, None, {"fanout": True}])
def test_what_is_no_family_is_named(one: Any) -> None:
    with pytest.raises(ConfigError) as failure:
        Agent("lead", families=["agent", one])
    assert f"agent 'lead': {one!r} is not a family" in str(failure.value)


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        (["agent"], 'e.g. families={"agent": False}'),
        ("agent", 'e.g. families={"agent": False}'),
        (
            {"meerkat": False},
            "'meerkat' is a profile. For a run, name its family: {'agent': False}",
        ),
        ({"fanout": True}, "has no family 'fanout'. It has: agent"),
        ({"agent": {"max_depth": 3}}, "Use True or False"),
        ({"agent": "no"}, "Use True or False"),
        ({3: True}, "has no family 3"),
    ],
)
@on_virtual_time
async def test_what_a_run_says_about_families_gets_a_clear_word(switches: Any, words: str) -> None:
    lead = Agent("lead", model=Scripted(["x"], name="m"), families=["meerkat"])
    async with Retinue(clock=VirtualClock()) as retinue:
        with pytest.raises(ConfigError) as failure:
            await retinue.run(lead, "Go.", families=switches)
    assert words in str(failure.value)


def test_a_run_can_be_told_in_words_that_work() -> None:
    lead = Agent("lead", model=Scripted(["x"], name="m"), families=["meerkat"])
    assert run_sync(lead, "Go.", families={"agent": False}).text == "x"


# the page


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_setting_has_a_meaning_and_every_meaning_a_setting(kind: str) -> None:
    fields = set(fields_of(family_type(kind).settings_type))
    assert set(MEANINGS[kind]) == fields - set(ALL)
    assert set(ALL) == set(FamilySettings.__struct_fields__)
