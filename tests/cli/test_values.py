"""The pure parts: words, exit codes, rules, the choice of a provider, places."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from retinue import errors
from retinue.cli import exit_codes
from retinue.cli.handover import found_severity
from retinue.host import model_choice, project_paths
from retinue.host.agent_source import PlannedAgents
from retinue.host.builder import AgentBuilder
from retinue.host.host import Host
from retinue.host.identity import OWNER
from retinue.host.keys import KeyedCatalog
from retinue.host.plan import Plan
from retinue.host.requests import StartRequest
from retinue.host.run_setup import permission_mode, permission_rules
from retinue.view import format as view_format


def test_numbers_and_times_are_short() -> None:
    assert [view_format.count(n) for n in (0, 940, 18_900, 999_949, 1_200_000)] == [
        "0",
        "940",
        "18.9k",
        "999.9k",
        "1.2M",
    ]
    times = (400, 9_999, 61_000, 12_000_000, 187_200_000)
    assert [view_format.span(ms) for ms in times] == ["400ms", "10s", "1m 01s", "3h 20m", "2d 4h"]
    assert [view_format.short_span(ms) for ms in times] == ["0s", "9s", "1m", "3h", "2d"]
    texts = [view_format.span_text(ms) for ms in (400, 2_400, 24_000, 90_000, 130_000)]
    assert texts == ["400 ms", "2.4 s", "24 s", "90 s", "2m 10s"]
    assert [view_format.money(usd) for usd in (0.0, 0.61, 0.0004, None)] == [
        "$0.00",
        "$0.61",
        "$0.0004",
        "n/a",
    ]


def test_states_have_one_vocabulary() -> None:
    states = ("queued", "thinking", "working", "waiting", "asking", "stopping", "timed_out")
    assert [view_format.shown_state(s) for s in states] == [
        "queued",
        "running",
        "running",
        "waiting",
        "needs_input",
        "cancelling",
        "timed_out",
    ]
    assert view_format.is_wanted("timed_out", ["failed"]) and not view_format.is_wanted(
        "completed", ["failed", "open"]
    )


@pytest.mark.parametrize(
    ("state", "stop", "options", "code"),
    [
        ("completed", "done", {}, 0),
        ("completed", "done", {"failed_children": 1}, 0),
        ("completed", "done", {"failed_children": 1, "strict": True}, 3),
        ("completed", "done", {"denials": 1, "strict": True}, 4),
        ("failed", "sub_agent_error", {}, 1),
        ("failed", "sub_agent_error", {"denials": 2}, 4),
        ("failed", "auth", {}, 6),
        ("incomplete", "turn_limit", {}, 5),
        ("incomplete", "usd_budget", {}, 5),
        ("incomplete", "not_submitted", {}, 1),
        ("timed_out", "deadline", {}, 5),
        ("cancelled", "cancelled", {}, 1),
        ("interrupted", "restart", {}, 1),
    ],
)
def test_each_end_has_its_exit_code(
    state: str, stop: str, options: dict[str, Any], code: int
) -> None:
    assert exit_codes.of_outcome(state, stop, **options) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("wrong"), 2),
        (errors.NoKey("No API key for openai", "Set OPENAI_API_KEY."), 6),
        (errors.NoProvider("none"), 6),
        (errors.NotFound("no run"), 2),
        (errors.Refused("open", "it is open"), 1),
        (errors.StoreLocked("in use"), 1),
        (errors.StoreFull("full"), 1),
        (errors.ModelRejected("no", kind="auth"), 6),
        (OSError(28, "No space left on device", "x.db"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(error: BaseException, code: int) -> None:
    assert exit_codes.of_error(error) == code
    assert "\n" not in exit_codes.sentence(error)


def test_a_full_disk_says_what_to_do() -> None:
    assert exit_codes.sentence(OSError(28, "No space left on device", "x.db")) == (
        "x.db: No space left on device. Free some space and try again."
    )


def test_every_exit_code_is_explained() -> None:
    assert set(exit_codes.MEANING) == {0, 1, 2, 3, 4, 5, 6, 130, 143}


def test_rules_of_other_programs_become_ours() -> None:
    assert permission_rules(
        "allow", ["Read,Bash(git log:*)", "Edit(src/**) WebFetch(domain:x.org)"]
    ) == (
        "allow: read",
        "allow: shell(git log*)",
        "allow: edit(src/**)",
        "allow: fetch(domain:x.org)",
    )
    assert permission_rules("deny", ["mcp__Server__tool"]) == ("deny: mcp__Server__tool",)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("default", "manual"),
        ("acceptEdits", "acceptEdits"),
        ("auto_edit", "acceptEdits"),
        ("yolo", "bypassPermissions"),
        ("read-only", "plan"),
        ("workspace-write", "auto"),
        ("danger-full-access", "bypassPermissions"),
        ("dontAsk", "dontAsk"),
    ],
)
def test_permission_modes_have_the_names_that_people_know(name: str, mode: str) -> None:
    assert permission_mode(name) == mode


KEYS = {"ANTHROPIC_API_KEY": "k", "RETINUE_PROBE": "0"}


@pytest.mark.parametrize(
    ("options", "environ", "model", "why"),
    [
        ({"flag": "claude-opus-4-5"}, KEYS, "anthropic:claude-opus-4-5", "--model"),
        (
            {"agent": "anthropic:a"},
            {**KEYS, "RETINUE_MODEL": "anthropic:b"},
            "anthropic:a",
            "the agent's file",
        ),
        (
            {"agent": "inherit"},
            {**KEYS, "RETINUE_MODEL": "anthropic:b"},
            "anthropic:b",
            "RETINUE_MODEL",
        ),
        ({"config": "anthropic:c"}, KEYS, "anthropic:c", "the configuration"),
        ({}, KEYS, "anthropic:claude-sonnet-5-5", "ANTHROPIC_API_KEY is set"),
        ({}, {"GOOGLE_API_KEY": "k"}, "gemini:gemini-3.8-flash", "GOOGLE_API_KEY is set"),
        ({}, {"RETINUE_PROBE": "0"}, "offline/explorer", "no model configured"),
        ({"flag": "offline"}, KEYS, "offline/explorer", "--model"),
        ({"flag": "anthropic:a|claude-b"}, KEYS, "anthropic:a|anthropic:claude-b", "--model"),
    ],
)
def test_a_provider_is_chosen_in_order(
    options: dict[str, str], environ: dict[str, str], model: str, why: str
) -> None:
    assert model_choice.choose(environ, **options)[:2] == (model, why)


def test_a_key_without_a_known_model_is_named_as_a_hint() -> None:
    choice = model_choice.choose({"GITHUB_API_KEY": "k", "RETINUE_PROBE": "0"})
    assert choice.model == "offline/explorer" and "GITHUB_API_KEY is set" in choice.hints[0]


def test_a_missing_key_is_told_with_a_way_out() -> None:
    with pytest.raises(errors.NoProvider, match=r"OPENAI_API_KEY.*offline/explorer"):
        model_choice.choose({}, flag="openai:gpt-5.2")


def test_two_projects_of_one_name_have_two_stores(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": "relative"}
    results = []
    for name in ("x", "y"):
        (tmp_path / name / "same" / ".git").mkdir(parents=True)
        results.append(project_paths.find(env, cwd=str(tmp_path / name / "same")))
    assert len({p.store for p in results}) == len({p.socket for p in results}) == 2
    assert all(
        p.store.startswith(str(tmp_path / ".local/share/retinue/projects/same-")) for p in results
    )


def test_a_socket_never_has_too_long_a_name(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    for env in ({"HOME": str(long)}, {"HOME": str(long), "XDG_RUNTIME_DIR": str(long)}):
        assert (
            len(os.fsencode(project_paths.find(env, cwd=str(long)).socket))
            <= project_paths.SOCKET_LIMIT
        )


def test_a_folder_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(errors.ConfigError, match="another user"):
        project_paths.private_directory(str(tmp_path), strict=True)


def test_the_same_plan_has_the_same_stamp_and_another_has_not() -> None:
    one, two = Plan(model="m"), Plan(model="n")
    assert one.stamp == Plan(model="m").stamp != two.stamp
    assert (
        view_format.agent_label(one.agent_name) == "main"
        and view_format.agent_label(f"{one.agent_name}.delegate") == "main.delegate"
    )


@pytest.mark.parametrize(
    ("text", "least", "is_found"),
    [
        ("# Review\n\nseverity: high\ncomplete: yes", "high", True),
        ("# Review\n\nseverity: low\ncomplete: yes", "high", False),
        ("# Review\n\nseverity: low\ncomplete: yes", "low", True),
        ("# Review\n\nseverity: none\ncomplete: no", "high", True),
        ("the severity: high is only spoken of", "high", False),
    ],
)
def test_a_review_fails_on_what_is_severe_enough(text: str, least: str, is_found: bool) -> None:
    assert found_severity({"result": text}, least) is is_found


def test_on_a_full_disk_whoever_starts_a_run_is_told_at_once() -> None:
    class Stuck:
        blocked_reason = "Cannot write to runs.db (disk full)."

        async def spawn(self, *arguments: Any, **options: Any) -> str:
            await asyncio.sleep(60)
            return ""

    async def start() -> None:
        lender = KeyedCatalog({"OPENAI_API_KEY": "k"})
        stuck: Any = Stuck()
        host = Host(stuck, PlannedAgents(AgentBuilder("", lender)))
        with pytest.raises(errors.StoreFull, match=r"disk full.*retinue ps"):
            await host.start(StartRequest(plan=Plan(model="openai:m"), task="x"), OWNER)
        await lender.close()

    asyncio.run(start())
