"""Precedence, origins, and everything that a file can have wrong: all of it at once, each with its
line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.commands.run import command as run_command
from retinue.config import read_config
from retinue.config.layer_reader import read_environment, read_flags, read_layer
from retinue.config.layers import EffectiveSettings, Kind
from retinue.config.model_config import catalog_of, model_environment, resolved
from retinue.config.problems import ConfigProblems
from retinue.config.schema import ModelsSection
from retinue.config.setting_list import every_setting
from retinue.errors import ConfigError


def layer(text: str, kind: Kind = "user", name: str = "config.toml") -> Any:
    return read_layer(name, kind, text.encode())


def problems(text: str, kind: Kind = "user") -> list[str]:
    return [str(p) for p in layer(text, kind).problems]


def test_flag_goes_before_environment_before_project_before_user_before_default() -> None:
    user = layer("[limits]\nmax_turns = 1\nmax_tokens = 1\ndepth = 1\ncalls_per_turn = 1\n")
    outer = layer("[limits]\nmax_turns = 2\nmax_tokens = 2\ndepth = 2\n", "project", "outer.toml")
    inner = layer("[limits]\nmax_turns = 3\nmax_tokens = 3\n", "project", "inner.toml")
    settings = EffectiveSettings(
        [
            read_flags({"limits.max_turns": 5, "limits.depth": None}),
            read_environment({"RETINUE_MAX_TURNS": "4", "RETINUE_MAX_TOKENS": "4"}),
            user,
            outer,
            inner,
        ]
    )
    limits = settings.checked().value.limits
    assert (limits.max_turns, limits.max_tokens, limits.depth, limits.calls_per_turn) == (
        5,
        4,
        2,
        1,
    )
    assert limits.children == 10_000
    texts = [
        str(settings.origin(f"limits.{n}"))
        for n in ("max_turns", "max_tokens", "depth", "calls_per_turn", "total")
    ]
    assert texts == [
        "flag: --max-turns",
        "environment: RETINUE_MAX_TOKENS",
        "project: outer.toml:4",
        "user: config.toml:5",
        "default",
    ]


def test_what_one_file_denies_another_cannot_permit_by_leaving_it_out() -> None:
    settings = EffectiveSettings(
        [
            layer('[permissions]\ndeny = ["edit(.env)"]\n'),
            layer('[permissions]\ndeny = ["shell"]\n', "project"),
        ]
    )
    assert settings.rules == ("deny: edit(.env)", "deny: shell")
    assert len(settings.by_key["permissions", "deny"].origins) == 2


def test_names_of_a_section_are_put_together_and_the_nearest_of_one_name_wins() -> None:
    user = layer('[models.aliases]\nfast = "openai:a"\nbest = "openai:b"\n')
    near = layer('[models.aliases]\nfast = "openai:c"\n', "project")
    assert EffectiveSettings([near, user]).value.models.aliases == {
        "fast": "openai:c",
        "best": "openai:b",
    }


def test_families_of_several_files_are_put_together_by_setting() -> None:
    user = layer("[orchestrator]\nmax_concurrent_subtasks = 2\nmax_background_groups = 1\n")
    near = layer("[families.delegate]\nmax_concurrent_subtasks = 4\n", "project")
    (family,) = EffectiveSettings([user, near]).families
    assert (family.settings.max_concurrent_subtasks, family.settings.max_background_groups) == (
        4,
        1,
    )
    off = layer('profiles = ["phoenix"]\n', "project")
    assert [f.name for f in EffectiveSettings([user, off]).families] == ["fanout"]


EVERYTHING_WRONG = """\
a = 1
[models]
defualt = "x"
default = 4
[models.keys]
openai = "sk-abcdefghijklmnop"
opnai = "X"
[limits]
max_turns = "x"
max_budget_usd = nan
timeout = "soon"
[permissions]
mode = "atuo"
deny = ["(("]
[orchestrator]
max_concurent_subtasks = 2
max_background_groups = "many"
parallel_timeout_secs = "long"
[output]
color = "nevr"
"""


def test_all_mistakes_of_a_file_are_told_at_once_each_with_its_line() -> None:
    result = problems(EVERYTHING_WRONG)
    lines = [int(text.partition("line ")[2].partition(":")[0]) for text in result]
    assert sorted(lines) == [1, 3, 4, 6, 7, 9, 10, 11, 13, 14, 16, 17, 18, 20]
    everything = "\n".join(result)
    assert "sk-abc" not in everything
    for hint in ("'default'", "'openai'", "'auto'", "'max_concurrent_subtasks'", "'never'"):
        assert f"Did you mean {hint}?" in everything
    with pytest.raises(ConfigProblems) as failure:
        EffectiveSettings([layer(EVERYTHING_WRONG)]).checked()
    assert len(failure.value.problems) == len(str(failure.value).splitlines()) == 14


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 1\na = 2\n", "line 2: a is set twice, first on line 1"),
        (
            "[models]\ndefault = 'openai:a'\n[limits]\n[models]\n",
            "line 4: models is set twice, first on line 1",
        ),
        ("[models]\ndefault = \n", "line 2: Invalid TOML: Invalid value (column 11)"),
        ("[models\n", "line 1: Invalid TOML"),
        ("a = " + "[" * 3_000, "nested too deep"),
        ("models = 3\n", "line 1: models is a section. Write [models]"),
        ("[models]\naliases = 'x'\n", "line 2: models.aliases is a section"),
        ("[models.aliases]\n'a:b' = 'openai:x'\n", "cannot be an alias"),
        ("[models]\ndefault = 'opnai:x'\n", "Did you mean 'openai'?"),
        ("[models.urls]\ngroq = 'https://example.org'\n", "The base URL of groq cannot be changed"),
        (
            "[models.urls]\nopenai = 'https://me:secret@example.org'\n",
            "must not contain a user name or password",
        ),
        ("[models]\napi_key = 'sk-abcdefghijklmnop'\n", "Never put keys in files"),
        ("default = 'x'\n", "Did you mean 'models.default'?"),
        ("[limits]\nmax_turns = 0\n", "Expected at least 1"),
        ("[limits]\nmax_turns = true\n", "Expected a whole number, not true or false"),
        ("[limits]\nmax_turns = 1979-05-27\n", "Expected a whole number, not a date"),
        ("[host]\nidle_seconds = inf\n", "Expected at most"),
        ("[limits]\ntimeout = 0\n", "more than 0"),
        ("[permissions]\nallow = 'read'\n", "Expected a list, not a text"),
        ("[permissions]\nallow = [1]\n", "Expected a text in the list, not a whole number"),
        ("[permissions]\nallow = ['deny: read']\n", "remove `allow:`, `ask:` or `deny:`"),
        (
            "[output]\ncolor = 'allways'\n",
            "'allways' is not one of: auto, always, never. Did you mean 'always'?",
        ),
        ("[channels.x]\ntype = 'console'\n", "Unknown section: 'channels'"),
        (
            "[mcp_servers.x]\ncommand = 'y'\nenv = { API_KEY = 'abcdefghijkl' }\n",
            "env.API_KEY looks like a secret",
        ),
        ("[sandbox]\nenv = ['lower']\n", "the name of an environment variable"),
    ],
)
def test_each_mistake_has_one_clear_line(text: str, says: str) -> None:
    (problem,) = problems(text)
    assert says in problem
    assert "\n" not in problem


def test_some_settings_may_stand_in_your_own_file_only() -> None:
    text = "[sandbox]\nunsafe_no_sandbox = true\n[store]\npath = '/x'\n[host]\nidle_seconds = 1\n"
    assert problems(text) == []
    refused = problems(text, "project")
    assert len(refused) == 3
    assert all("can only be set in your user config" in message for message in refused)
    assert not layer(text, "project").by_key
    assert "RETINUE_SANDBOX_UNSAFE_NO_SANDBOX" not in {s.variable for s in every_setting()}


def test_a_key_in_a_file_is_refused_and_never_shown() -> None:
    for kind in ("user", "project"):
        for key in (
            "sk-abcdefghijklmnop",
            "AIzaSyA1234567890abcdefghijklmnop",
            "gsk_abcdefgh1234",
            "hunter2",
        ):
            (problem,) = problems(f"[models.keys]\nopenai = '{key}'\n", kind)  # type: ignore[arg-type]
            assert key not in problem
            assert "set them in the environment" in problem
            assert problem.startswith("config.toml, line 2:")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p.mkdir(), "Expected a file, not a directory"),
        (
            lambda p: p.write_bytes(b"[models]\nx = '\xff'\n"),
            "line 2: The file is not UTF-8 (byte 0xff)",
        ),
        (lambda p: p.write_bytes(b"#" * (1 << 18) + b"\n"), "larger than 256 KiB"),
        (lambda p: os.mkfifo(p), "not a regular file"),
        (lambda p: p.symlink_to(p), "Cannot read the file"),
    ],
)
def test_what_is_no_readable_file_is_told_in_one_line(make: Any, says: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    make(file)
    with pytest.raises(ConfigError) as failure:
        read_config(file)
    assert says in str(failure.value)
    assert str(file) in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_byte_order_mark_and_windows_lines_are_taken() -> None:
    data = b'\xef\xbb\xbf[models]\r\ndefault = "openai:a"\r\n'
    layer = read_layer("config.toml", "user", data)
    assert not layer.problems
    assert str(layer.by_key["models", "default"].origins[0]) == "user: config.toml:2"


def test_the_environment_is_checked_like_a_file() -> None:
    environment = read_environment(
        {
            "RETINUE_MODEL": "openai:a",
            "RETINUE_MAX_TURNS": "many",
            "RETINUE_PROBE": "perhaps",
            "RETINUE_TIMEOUT": "1h30m",
            "RETINUE_ALLOWED_TOOLS": "shell(git log*, -n) read",
            "RETINUE_PERMISSION_MODE": "yolo",
            "RETINUE_QUIET": "",
        }
    )
    assert [str(p) for p in environment.problems] == [
        "RETINUE_PROBE: Expected one of: 1, true, yes, on, 0, false, no, off",
        "RETINUE_MAX_TURNS: Expected a whole number, not 'many'",
    ]
    values = {key: f.value for key, f in environment.by_key.items()}
    assert values == {
        ("models", "default"): "openai:a",
        ("permissions", "mode"): "bypassPermissions",
        ("permissions", "allow"): ("shell(git log*, -n)", "read"),
        ("limits", "timeout"): 5_400.0,
    }


def test_the_variable_of_a_renamed_flag_counts_before_the_old_one() -> None:
    both = {"RETINUE_MAX_TIME": "10m", "RETINUE_TIMEOUT": "1h"}
    timeout = ("limits", "timeout")
    assert read_environment(both).by_key[timeout].value == 600.0
    assert read_environment({**both, "RETINUE_MAX_TIME": " "}).by_key[timeout].value == 3_600.0
    assert str(read_environment(both).by_key[timeout].origins[0]).endswith("RETINUE_MAX_TIME")


def test_every_variable_is_that_of_its_flag_and_belongs_to_one_setting() -> None:
    flags = [s for s in every_setting() if s.about.flag]
    for setting in flags:
        flag, variable = setting.about.flag, setting.variable
        assert variable == "RETINUE_" + flag.lstrip("-").replace("-", "_").upper()
    # A flag that was renamed keeps its old variable too, and the flag itself reads it.
    renamed = {s.about.flag: s.about.old_variable for s in flags if s.about.old_variable}
    assert renamed == {"--max-time": "RETINUE_TIMEOUT"}
    for flag, variable in renamed.items():
        (option,) = (p for p in run_command.params if flag in p.opts)
        former = "--" + variable.removeprefix("RETINUE_").replace("_", "-").lower()
        assert former in option.opts and variable in (option.envvar or ())
    variables = [s.variable for s in every_setting() if s.variable]
    assert len(variables) == len(set(variables))


def test_every_setting_is_explained() -> None:
    assert all(s.about.text and not s.about.text.endswith(".") for s in every_setting())
    assert len(list(every_setting())) > 40


def test_models_get_their_keys_and_addresses_from_where_the_configuration_says() -> None:
    models = ModelsSection(
        keys={"openai": "WORK"}, urls={"openai": "http://127.0.0.1:1/v1", "anthropic": "http://b"}
    )
    env = model_environment(
        models, {"WORK": "w", "OPENAI_API_KEY": "o", "ANTHROPIC_BASE_URL": "http://env"}
    )
    assert (env["OPENAI_API_KEY"], env["OPENAI_BASE_URL"]) == ("w", "http://127.0.0.1:1/v1")
    assert env["ANTHROPIC_BASE_URL"] == "http://env"
    assert model_environment(models, {"OPENAI_API_KEY": "o"})["OPENAI_API_KEY"] == "o"


def test_a_catalog_knows_the_chains_and_what_is_allowed() -> None:
    models = ModelsSection(
        aliases={"fast": "openai:gpt-5-mini"},
        fallbacks={"strong": ("anthropic:claude-opus-4-6", "fast")},
        allow={"anthropic": ("claude-sonnet-*",)},
    )
    catalog = catalog_of(models, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
    assert (
        catalog.resolve("strong")
        == "anthropic:claude-opus-4-6 | openai:gpt-5-mini"
        == resolved("strong", models)
    )
    with pytest.raises(ConfigError, match="not allowed"):
        catalog.find("anthropic:claude-opus-4-6")


@pytest.mark.parametrize(
    "names", [{"a": "b", "b": "a"}, {"a": "a"}, {"a": "openai:x | b", "b": "a"}]
)
def test_names_that_lead_back_to_themselves_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="refers to itself"):
        resolved("a", ModelsSection(aliases=names))


def test_json5_says_the_same_as_toml_with_the_lines_of_its_keys() -> None:
    text = (
        "{\n // max_turns: is below\n models: { default: 'openai:a' },\n limits: {\n  "
        "max_turns: 'x' } }"
    )
    layer = read_layer("c.json5", "user", text.encode())
    assert layer.by_key["models", "default"].value == "openai:a"
    assert [str(p) for p in layer.problems] == [
        "c.json5, line 5: limits.max_turns: Expected a whole number, not a text"
    ]


def test_prices_and_terms_reach_the_catalog_and_the_host(tmp_path: Path) -> None:
    from retinue.config.model_config import declarations
    from retinue.host.keys import KeyedCatalog

    file = tmp_path / "config.toml"
    file.write_text(
        '[models.aliases]\nmine = "openrouter:acme/new"\n'
        "[models.prices.mine]\ninput = 2\noutput = 8.5\n"
        '[models.prices."anthropic:*"]\ninput = 1\noutput = 1\ncache_read = 0.1\n'
        "[providers.claude]\nmax_concurrent = 3\nrequests_per_minute = 50\n"
    )
    value = EffectiveSettings([read_layer(str(file), "user")]).checked().value
    keys = {"OPENROUTER_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}
    catalog = catalog_of(value.models, keys, value.providers)
    lender = KeyedCatalog({**keys, **declarations(value.models, value.providers)})
    for models, name in ((catalog, "mine"), (lender, "openrouter:acme/new")):
        info = models.find(name).info
        assert (info.price_in, info.price_out) == (2_000, 8_500)
    for models in (catalog, lender._catalog):
        sonnet: Any = models.find("anthropic:claude-sonnet-4-5")
        assert (sonnet.info.price_cache_read, sonnet.governor.most) == (100, 3)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("[providers.claude]\nmax_concurent = 3", "Did you mean 'max_concurrent'?"),
        ("[providers.claude]\nmax_concurrent = 0", "must be more than 0"),
        ('[providers.claude]\nmax_concurrent = "many"', "Expected `int | null`"),
        ("[providers.clod]\nmax_concurrent = 1", "Unknown provider 'clod'"),
        ("[providers.local]\nmax_concurrent = 1", "has no rate limits"),
        ('[models.prices."openai:m"]\ninput = 1', "output"),
        ('[models.prices."openai:m"]\ninput = -1\noutput = 1', "0 or more"),
        ('[models.prices."opnai:m"]\ninput = 1\noutput = 1', "Unknown provider 'opnai'"),
    ],
)
def test_a_mistake_in_prices_or_terms_is_told(tmp_path: Path, text: str, texts: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    (problem,) = EffectiveSettings([read_layer(str(file), "user")]).problems
    assert texts in str(problem)


def test_a_project_sets_no_prices_and_no_terms(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[models.prices."openai:m"]\ninput = 0\noutput = 0\n[providers.openai]\nmax_concurrent = '
        "1\n"
    )
    problems = EffectiveSettings([read_layer(str(file), "project")]).problems
    assert len(problems) == 2 and all(
        "can only be set in your user config" in str(p) for p in problems
    )
