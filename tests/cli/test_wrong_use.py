"""What is said when a command was not meant so: what is wrong, and what to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.errors import ConfigError
from retinue.host.listing import RunListing
from retinue.host.model_choice import checked
from retinue.host.project_paths import find
from tests.cli.private_home import PrivateHome, private_home

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-1", "OPENAI_API_KEY": "sk-1"}


def test_a_fork_behind_the_last_message_is_an_error(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "hello")
        result = home.run("fork", "latest", "--at", "99", "again")
        assert result.returncode == 2 and "--at 99: run" in result.stderr
        assert " messages. `retinue logs " in result.stderr


def test_a_run_is_found_by_either_end_of_its_id(tmp_path: Path) -> None:
    with private_home(tmp_path) as home:
        home.ok("run", "hello")
        (row,) = home.lines("ps", "--jsonl")
        for part in (row["id"], row["id"][:8], row["short"], row["id"][-6:]):
            with RunListing(find(home.env, cwd=str(home.project))) as listing:
                assert listing.resolve(part).id == row["id"], part


def test_an_unknown_agent_is_not_shown_and_folders_are_not_made_for_an_export(
    tmp_path: Path,
) -> None:
    with private_home(tmp_path) as home:
        result = home.run("agents", "show", "zzz")
        assert (
            result.returncode == 2 and "Unknown agent 'zzz'" in result.stderr and not result.stdout
        )
        home.ok("run", "hello")
        result = home.run("export", "-o", "not/there/run.md")
        assert result.returncode == 2 and "The folder not/there does not exist" in result.stderr
        assert not (home.project / "not").exists()


def test_several_mistakes_of_a_file_are_one_line_each(tmp_path: Path) -> None:
    home = PrivateHome(tmp_path)
    file = Path(home.env["XDG_CONFIG_HOME"]) / "retinue" / "config.toml"
    file.parent.mkdir(mode=0o700)
    file.write_text('modle = "x"\nlimit = 3\n[limits]\ndepth = "a"\n')
    try:
        result = home.run("run", "hello")
        lines = result.stderr.splitlines()
        assert result.returncode == 2 and len(lines) == 4, lines
        assert [n for n in ("line 1", "line 2", "line 4") if n in result.stderr] == [
            "line 1",
            "line 2",
            "line 4",
        ]
        assert lines[-1] == "retinue: 3 mistakes. Correct them; nothing was started."
    finally:
        home.close()


def test_a_provider_alone_is_no_model_and_says_which_one_it_could_be() -> None:
    with pytest.raises(ConfigError, match="'anthropic' is a provider") as failure:
        checked("anthropic", {"ANTHROPIC_API_KEY": "k"})
    assert "anthropic:claude-" in str(failure.value) and "Did you mean" not in str(failure.value)


def test_an_unknown_model_suggests_a_near_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean anthropic:claude-sonnet-5-5") as failure:
        checked("anthropic:claude-sonet-5-5", KEYS)
    assert "Unknown model anthropic:claude-sonet-5-5" in str(failure.value)


def test_a_model_that_is_like_none_or_of_another_server_is_left_to_the_provider() -> None:
    assert checked("anthropic:claude-sonnet-5-5", KEYS) == "anthropic:claude-sonnet-5-5"
    assert checked("openai:something-quite-new", KEYS) == "openai:something-quite-new"
    elsewhere = {**KEYS, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    assert checked("anthropic:claude-sonet-5-5", elsewhere) == "anthropic:claude-sonet-5-5"
