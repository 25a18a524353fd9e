"""Which provider and model a sub-agent of the family `agent` gets, and what its settings may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue import ConfigError, Permissions
from retinue.config import read_config
from retinue.tools.families.agent.agent_settings import AgentSettings
from retinue.tools.families.profiles import family
from tests.api.scripted_agents import on_virtual_time
from tests.families.agent_world import World, fork, refusal, spawn

ANTHROPIC = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
OPENAI = ("gpt-6.1-sol", "gpt-6.1-terra")
GEMINI = ("gemini-3.8-flash", "gemini-4-argon")
LISTED = "anthropic: {}; openai: {}; gemini: {}".format(
    *(", ".join(m) for m in (ANTHROPIC, OPENAI, GEMINI))
)
EVERY: dict[str, Any] = {
    "profile": "meerkat",
    "model": ANTHROPIC[0],
    "models": (*ANTHROPIC[1:], *OPENAI, *GEMINI),
}
LISTS: dict[str, Any] = {
    "anthropic": ["claude-opus-5-5"],
    "openai": ["gpt-6.1-sol"],
    "gemini": ["gemini-4-argon"],
}


async def chosen(line: Any, **world: Any) -> tuple[str, str, str]:
    """Provider and model as the reply has them, and the model that was really asked."""
    stage = World(line, **world)
    await stage.go()
    (reply,) = stage.results
    assert isinstance(reply, dict), reply
    spec, run = await stage.row(reply["agent_id"])
    assert run.model_used == spec.model
    return reply["provider"], reply["model"], spec.model


# the defaults of the document


@on_virtual_time
async def test_the_profile_meerkat_has_the_defaults_of_the_document() -> None:
    settings = family("meerkat").settings
    assert (settings.default_provider, settings.default_model) == ("anthropic", None)
    assert settings.allowed_models == {"anthropic": ANTHROPIC, "openai": OPENAI, "gemini": GEMINI}
    assert (settings.default_budget, settings.max_budget_per_agent) == (50_000, None)
    assert (settings.allow_nested_spawn, settings.inherit_system_prompt, settings.enable_comms) == (
        True,
        True,
        False,
    )
    limits = settings.concurrency_limits
    numbers = (
        limits.max_depth,
        limits.max_concurrent_ops,
        limits.max_concurrent_agents,
        limits.max_children_per_agent,
    )
    assert numbers == (3, 32, 8, 5)
    assert settings.finished_kept == 256


def test_the_family_has_the_same_defaults_but_inherits_its_model() -> None:
    mine, theirs = family("agent").settings, family("meerkat").settings
    differing = {
        f for f in AgentSettings.__struct_fields__ if getattr(mine, f) != getattr(theirs, f)
    }
    assert differing == {
        "default_provider",
        "default_model",
        "allowed_models",
        "more_tools",
        "more_keys",
    }
    assert (mine.default_provider, mine.default_model, mine.allowed_models) == (
        "inherit",
        "inherit",
        None,
    )


@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_without_a_word_the_first_model_of_the_default_provider_is_used(start: Any) -> None:
    assert await chosen(start("say x"), **EVERY) == ("anthropic", ANTHROPIC[0], ANTHROPIC[0])


@pytest.mark.parametrize(("provider", "first"), [("openai", OPENAI[0]), ("gemini", GEMINI[0])])
@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_a_provider_without_a_model_means_the_first_of_its_list(
    start: Any, provider: str, first: str
) -> None:
    assert await chosen(start("say x", provider=provider), **EVERY) == (provider, first, first)


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("anthropic", "anthropic"), ("claude", "anthropic"), ("CLAUDE", "anthropic"),
        ("openai", "openai"), ("gpt", "openai"), ("ChatGPT", "openai"), ("OpenAI", "openai"),
        ("gemini", "gemini"), ("Google", "gemini"), (" gemini ", "gemini"),
    ],
)  # fmt: skip
@on_virtual_time
async def test_a_spawn_knows_providers_by_other_names_in_any_case(name: str, provider: str) -> None:
    assert (await chosen(spawn("say x", provider=name), **EVERY))[0] == provider


@pytest.mark.parametrize("name", ["claude", "gpt", "chatgpt", "google", "Anthropic"])
@on_virtual_time
async def test_a_fork_takes_only_the_three_names(name: str) -> None:
    text = await refusal(fork("say x", provider=name), **EVERY)
    assert text == f"Invalid parameters: Invalid enum value '{name}' - at `$.provider`"


@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_a_model_on_the_list_of_its_provider_is_used(start: Any) -> None:
    line = start("say x", provider="openai", model="gpt-6.1-terra")
    assert await chosen(line, **EVERY) == ("openai", "gpt-6.1-terra", "gpt-6.1-terra")


@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_a_model_that_is_not_on_the_list_is_refused_by_both_tools_with_the_list(
    start: Any,
) -> None:
    text = await refusal(start("say x", provider="openai", model="gpt-4"), **EVERY)
    assert (
        text == "Model 'gpt-4' is not in allowlist for provider 'openai'. Allowed models: "
        "gpt-6.1-sol, gpt-6.1-terra"
    )


@on_virtual_time
async def test_the_model_is_looked_for_on_the_list_of_the_default_provider() -> None:
    text = await refusal(spawn("say x", model="gpt-6.1-sol"), **EVERY)
    assert text.startswith(
        "Model 'gpt-6.1-sol' is not in allowlist for provider 'anthropic'. Allowed models: claude-"
    )


@on_virtual_time
async def test_the_tool_definitions_name_the_allowed_models() -> None:
    world = World("done", **EVERY)
    await world.go()
    for name in ("agent_spawn", "agent_fork"):
        assert LISTED in world.properties(name)["model"]["description"]
    assert "anthropic" in world.properties("agent_spawn")["provider"]["description"]
    own = World("done", profile="meerkat", model="gpt-6.1-sol", allowed_models=LISTS)
    await own.go()
    assert (
        "anthropic: claude-opus-5-5; openai: gpt-6.1-sol; gemini: gemini-4-argon"
        in own.properties("agent_spawn")["model"]["description"]
    )


@on_virtual_time
async def test_a_list_that_is_configured_replaces_the_one_of_the_document() -> None:
    text = await refusal(
        spawn("say x", model="claude-sonnet-5-5"), **{**EVERY, "allowed_models": LISTS}
    )
    assert text.endswith("Allowed models: claude-opus-5-5")


@on_virtual_time
async def test_a_configured_default_goes_before_the_lists_first_and_an_argument_before_both() -> (
    None
):
    world = {**EVERY, "default_model": "claude-sonnet-5-5"}
    assert (await chosen(spawn("say x"), **world))[1] == "claude-sonnet-5-5"
    haiku = await chosen(spawn("say x", model="claude-haiku-5-5"), **world)
    assert haiku[1] == "claude-haiku-5-5"
    world = {**EVERY, "default_provider": "gemini"}
    assert await chosen(spawn("say x"), **world) == ("gemini", GEMINI[0], GEMINI[0])
    assert (await chosen(spawn("say x", provider="gpt"), **world))[0] == "openai"


@on_virtual_time
async def test_a_model_on_the_list_that_nobody_has_cannot_be_had_without_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    text = await refusal(spawn("say x", provider="openai"), profile="meerkat", model=ANTHROPIC[0])
    assert text == "Failed to create LLM client: No API key for openai. Set OPENAI_API_KEY."


@on_virtual_time
async def test_a_model_may_be_known_by_its_provider_and_name() -> None:
    world = {"profile": "meerkat", "model": ANTHROPIC[0], "models": ["openai:gpt-6.1-sol"]}
    assert await chosen(spawn("say x", provider="openai"), **world) == (
        "openai",
        "gpt-6.1-sol",
        "openai:gpt-6.1-sol",
    )


@on_virtual_time
async def test_a_run_that_may_not_use_a_model_cannot_start_somebody_on_it() -> None:
    world = World(spawn("say x", provider="openai"), **EVERY)
    await world.go(permissions=Permissions(models=(ANTHROPIC[0],)))
    assert world.results == ["Failed to spawn sub-agent: you cannot use that model"]


# inherited


@pytest.mark.parametrize("start", [spawn, fork])
@on_virtual_time
async def test_without_lists_a_child_runs_on_its_parents_model(start: Any) -> None:
    model = "gpt-6.1-sol"
    assert await chosen(start("say x"), model=model) == ("openai", model, model)
    assert await chosen(start("say x")) == ("unknown", "model of lead", "model of lead")


@on_virtual_time
async def test_without_lists_any_known_model_of_the_provider_may_be_asked_for() -> None:
    world = {"model": "gpt-6.1-sol", "models": ["claude-x", "gemini:y"]}
    assert await chosen(spawn("say x", model="claude-x"), **world) == (
        "anthropic",
        "claude-x",
        "claude-x",
    )
    assert await chosen(spawn("say x", provider="google"), **world) == (
        "gemini",
        "gemini:y",
        "gemini:y",
    )
    assert await chosen(spawn("say x", provider="openai"), **world) == (
        "openai",
        "gpt-6.1-sol",
        "gpt-6.1-sol",
    )
    text = await refusal(spawn("say x", provider="openai", model="claude-x"), **world)
    assert text == (
        "Failed to create LLM client: model 'claude-x' does not belong to provider 'openai'"
    )
    text = await refusal(spawn("say x", model="gpt-7"), **world)
    assert text.startswith("Failed to create LLM client: unknown model 'gpt-7'")
    text = await refusal(spawn("say x", provider="anthropic"), model="gpt-6.1-sol")
    assert text == "Failed to create LLM client: no model of provider 'anthropic' is known"


@pytest.mark.parametrize("parents", ["gpt-6.1-sol", "openai:gpt-6.1-sol"])
@on_virtual_time
async def test_an_inherited_provider_is_told_by_the_parents_model(parents: str) -> None:
    world = {"allowed_models": LISTS, "model": parents}
    assert await chosen(spawn("say x"), **world) == ("openai", "gpt-6.1-sol", parents)


@on_virtual_time
async def test_an_inherited_provider_that_no_name_tells_is_ambiguous() -> None:
    text = await refusal(spawn("say x"), allowed_models=LISTS, model="mystery")
    assert "ambiguous" in text and "anthropic, openai, gemini" in text


@on_virtual_time
async def test_an_inherited_model_that_is_not_on_the_list_is_refused() -> None:
    text = await refusal(spawn("say x"), allowed_models=LISTS, model="gpt-4")
    assert (
        text == "Model 'gpt-4' is not in allowlist for provider 'openai'. Allowed models: "
        "gpt-6.1-sol"
    )


# settings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"allowed_models": {**LISTS, "gemini": []}}, "gemini must be set and must not be empty"),
        (
            {"allowed_models": {"anthropic": ["x"], "openai": ["y"]}},
            "gemini must be set and must not be empty",
        ),
        ({"allowed_models": {**LISTS, "openai": ["*"]}}, "`\\*` is not supported"),
        ({"allowed_models": {**LISTS, "mistral": ["x"]}}, "mistral: unknown provider"),
        (
            {"allowed_models": LISTS, "default_model": "gpt-4"},
            "default_model 'gpt-4' is not in the list of inherit",
        ),
        (
            {"allowed_models": LISTS, "default_provider": "gemini", "default_model": "gpt-6.1-sol"},
            "default_model 'gpt-6.1-sol' is not in the list of gemini",
        ),
        (
            {"default_provider": "mistral"},
            "default_provider 'mistral' is not one of anthropic, openai, gemini, inherit",
        ),
        ({"default_budget": -1}, "default_budget"),
        ({"max_budget_per_agent": -1}, "max_budget_per_agent"),
        ({"finished_kept": -1}, "finished_kept"),
        ({"concurrency_limits": {"max_depth": -1}}, "max_depth"),
        ({"concurrency_limits": {"max_width": 1}}, "max_width"),
        ({"max_agents": 3}, "max_agents"),
        ({"enable_comms": "yes"}, "enable_comms"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        family("agent", **settings)


def test_the_settings_stand_in_the_section_sub_agents(tmp_path: Path) -> None:
    file = tmp_path / "retinue.toml"
    file.write_text(
        'profiles = ["meerkat"]\n[sub_agents]\nenabled = false\ndefault_budget = 1000\n'
        'default_model = "claude-sonnet-5-5"\n[sub_agents.concurrency_limits]\nmax_depth = 2\n'
    )
    (result,) = read_config(file).families
    settings = result.settings
    assert result.name == "agent" and not settings.enabled
    assert (settings.default_budget, settings.default_model) == (1000, "claude-sonnet-5-5")
    assert (
        settings.concurrency_limits.max_depth,
        settings.concurrency_limits.max_children_per_agent,
    ) == (2, 5)
    assert settings.allowed_models["openai"] == OPENAI
