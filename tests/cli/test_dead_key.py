"""A key that its provider refuses: the run waits and says why, and goes on when another key is
brought."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from retinue.host.keys import KeyedCatalog
from retinue.host.provider_waits import key_names
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import ParsedRequest
from tests.cli.private_home import MODEL, SECONDS, Gate, Llm, PrivateHome

SPEAKS = {
    "anthropic": ("anthropic:m", "ANTHROPIC", ""),
    "openai_chat": ("openai-chat:m", "OPENAI", "/v1"),
    "openai_responses": ("openai:m", "OPENAI", "/v1"),
    "gemini": ("gemini:m", "GEMINI", ""),
}
DEAD = ("F10", "F10b", "F2b")


OLD, NEW = "sk-first-key-0001", "sk-second-key-0002"


def env_of(llm: Llm, dialect: str, key: str) -> dict[str, str]:
    _, name, tail = SPEAKS[dialect]
    url = "GOOGLE_GEMINI_BASE_URL" if name == "GEMINI" else f"{name}_BASE_URL"
    return {url: llm.llm.url + tail, f"{name}_API_KEY": key}


@pytest.mark.parametrize("fault", DEAD)
@pytest.mark.parametrize("dialect", SPEAKS)
def test_a_run_whose_key_is_refused_waits_and_goes_on_with_another(
    dialect: str, fault: str, tmp_path: Path
) -> None:
    with Llm(["Here I am."]) as llm:
        llm.llm.refused_keys[OLD] = fault
        home = PrivateHome(tmp_path)
        try:
            env = env_of(llm, dialect, OLD)
            result = home.run("run", "--model", SPEAKS[dialect][0], "Go.", env=env)
            assert result.returncode == 6, result.stderr
            assert (
                "retinue resume" in result.stderr
                and SPEAKS[dialect][1] + "_API_KEY" in result.stderr
            )
            assert len(llm.llm.injected) <= 2, (
                "one call may be refused for what is in it: another finds out"
            )
            listed = home.run("ps").stdout
            (row,) = [json.loads(line) for line in home.run("ps", "--jsonl").stdout.splitlines()]
            assert row["state"] in ("waiting", "paused") and row["waits_for"]
            assert "waits: " in listed and f"retinue resume {row['short']}" in listed
            output = home.run("show").stdout
            provider = SPEAKS[dialect][0].partition(":")[0]
            what = (
                f"account of {provider} has no credit"
                if fault == "F2b"
                else f"{provider} rejected the API key ("
            )
            for screen in (result.stderr, listed, " ".join(output.split())):
                assert what in screen and "HTTP" not in screen
                assert key_names(provider) in screen
                assert "auth:" not in screen and "quota:" not in screen
            assert OLD not in listed + output + result.stderr + result.stdout
            checks = json.loads(home.run("doctor", "--json", "--offline", env=env).stdout)["checks"]
            (waits,) = [check for check in checks if check["name"] == "runs"]
            assert (
                what in waits["text"]
                and waits["state"] == "degraded"
                and "retinue resume" in waits["fix"]
            )
            result = home.run("resume", env=env_of(llm, dialect, NEW))
            assert (result.returncode, result.stdout.strip()) == (0, "Here I am."), result.stderr
            assert '"runs"' not in home.run("doctor", "--json", "--offline", env=env).stdout
        finally:
            home.close()


def test_a_command_that_brings_another_key_lets_waiting_runs_go_on(tmp_path: Path) -> None:
    with Llm(["Done."]) as llm:
        llm.llm.refused_keys[OLD] = "F10"
        home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="30")
        try:
            env = env_of(llm, "openai_chat", OLD)
            ids = [
                home.run("run", "--bg", "--model", MODEL, f"Go {n}.", env=env).stdout.strip()
                for n in range(3)
            ]
            home.until(
                lambda: sum(bool(row["waits_for"]) for row in home.lines("ps", "--jsonl")) == 3
            )
            assert len(llm.llm.injected) <= 3
            # Any command that talks to the host brings its keys along.
            new_key = env_of(llm, "openai_chat", NEW)
            result = home.run("wait", *ids, "--timeout", "120s", env=new_key)
            assert result.returncode == 0, result.stderr
        finally:
            home.close()


def test_a_run_that_waits_for_a_key_survives_its_host_and_goes_on_with_the_next(
    tmp_path: Path,
) -> None:
    with Llm(["Back."]) as llm:
        llm.llm.refused_keys[OLD] = "F10"
        home = PrivateHome(tmp_path)
        try:
            env = env_of(llm, "openai_chat", OLD)
            assert home.run("run", "--model", MODEL, "Go.", env=env).returncode == 6
            home.ok("host", "stop", env=env)
            (row,) = [json.loads(line) for line in home.run("ps", "--jsonl").stdout.splitlines()]
            assert row["state"] == "paused" and row["waits_for"].startswith(
                "auth: openai-chat rejected the API key (401): "
            )
            result = home.run("resume", env=env_of(llm, "openai_chat", NEW))
            assert (result.returncode, result.stdout.strip()) == (0, "Back."), result.stderr
        finally:
            home.close()


def test_the_sub_agents_of_a_run_wait_too_and_nobody_is_lost(tmp_path: Path) -> None:
    def script(request: ParsedRequest) -> Any:
        text = str([m.text for m in request.messages])
        if "part one" in text and "You work" not in request.system:
            return "A part."
        if any(getattr(m, "call_id", "") for m in request.messages):
            return "All parts are here."
        llm.llm.refused_keys[OLD] = "F10"
        return call("delegate", tasks=[{"goal": "part one"}, {"goal": "part one too"}])

    with Llm(script) as llm:
        home = PrivateHome(tmp_path)
        try:
            env = env_of(llm, "openai_chat", OLD)
            result = home.run(
                "run", "--model", MODEL, "--permission-mode", "bypassPermissions", "Go.", env=env
            )
            assert result.returncode == 6, result.stderr
            assert "openai-chat rejected the API key (401): " in home.run("ps").stdout
            result = home.run("resume", env=env_of(llm, "openai_chat", NEW))
            assert (result.returncode, result.stdout.strip()) == (0, "All parts are here."), (
                result.stderr
            )
        finally:
            home.close()


@pytest.mark.parametrize("key", ["", "   ", "two words"])
def test_a_command_without_a_key_of_use_takes_none_from_those_at_work(
    key: str, tmp_path: Path
) -> None:
    gate = Gate("Still here.")
    with Llm(gate) as llm:
        home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="30")
        try:
            env = env_of(llm, "openai_chat", NEW)
            run = home.run("run", "--bg", "--model", MODEL, "Go.", env=env).stdout.strip()
            home.until(lambda: llm.llm.n_requests == 1)
            result = home.run(
                "send", run, "And more.", env={"OPENAI_API_KEY": key, "OPENAI_BASE_URL": ""}
            )
            assert result.returncode == 0, result.stderr
            gate.opened.set()
            result = home.run("wait", run, "--timeout", "120s", env={"OPENAI_API_KEY": key})
            assert result.returncode == 0, result.stderr
            assert llm.llm.n_requests == 2
        finally:
            home.close()


def test_a_key_is_sent_to_no_address_that_another_command_has_brought(tmp_path: Path) -> None:
    """The key of the second command belongs to the provider itself, not to the gateway of the
    first."""
    first = {"OPENAI_API_KEY": OLD, "OPENAI_BASE_URL": "http://gateway.test/v1"}
    lender = KeyedCatalog(first)
    lender.find(MODEL)
    lender.bring({"OPENAI_API_KEY": NEW, "HOME": "/h"})
    result: Any = lender.now(MODEL)
    assert result.secrets["key"] == NEW and "gateway.test" not in result._url
    lender.bring({"HOME": "/elsewhere"})
    assert cast(Any, lender.now(MODEL)).secrets["key"] == NEW, "who brings no key changes nobody's"
    lender.bring(first)
    result = lender.now(MODEL)
    assert result.secrets["key"] == OLD and "gateway.test" in result._url


def test_runs_that_lack_a_key_do_not_keep_others_from_starting(tmp_path: Path) -> None:
    gate = Gate("Here I am.", at=0)
    with Llm(gate) as llm:
        home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="30")
        (home.project / "a.py").write_text("def f():\n    pass\n")
        key = {"ANTHROPIC_BASE_URL": llm.llm.url, "ANTHROPIC_API_KEY": "sk-ant-very-secret"}
        try:
            model = "anthropic:claude-sonnet-5-5"
            id = home.ok("run", "--bg", "--model", model, "Go.", env=key)
            assert gate.reached.wait(SECONDS)
            os.kill(home.host_pid(), signal.SIGKILL)
            home.until(lambda: home.runs()[0]["state"] == "paused")
            result = home.run("run", "--model", "offline/explorer", "map this repository")
            assert result.returncode == 0 and "a.py" in result.stdout, result.stderr
            short = home.runs()[-1]["short"]
            listed = home.ok("ps").splitlines()
            assert any(line.startswith(f"{short}  ‖ paused ") for line in listed), listed
            text = f"Set ANTHROPIC_API_KEY, then run `retinue resume {short}`."
            assert listed[-1] == f"{short} waits: No API key for anthropic. {text}"
            words = "paused       needs ANTHROPIC_API_KEY"
            assert words in home.ok("ps", "--tree") and words in home.ok("show", id)
            lacking = home.run("attach", id)
            assert lacking.returncode == 6 and "No API key for anthropic" in lacking.stderr
            gate.opened.set()
            assert home.ok("attach", id, env=key) == "Here I am.", "the key was brought"
        finally:
            home.close()
