"""A provider in trouble is visible: in plain lines, `ps`, `show` and JSON, also to whoever looks
later, and for calls that are held because of what others were answered."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from retinue.testing.fake_llm.fake_request import FakeSettings
from tests.cli.private_home import MODEL, Llm, PrivateHome
from tests.waiting import SECONDS

KINDS = {
    "F1": ("rate_limit", "429", "rate limited"),
    "F6": ("server_error", "500", "retrying"),
    "F3": ("overloaded", "503", "retrying"),
}


def only(home: PrivateHome) -> dict[str, Any]:
    (row,) = home.lines("ps", "--jsonl")
    return row


def nobody() -> str:
    """An address of this machine where nobody listens."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{line.getsockname()[1]}"


@pytest.mark.parametrize("fault", KINDS)
def test_what_the_provider_answered_is_seen_by_whoever_looks(tmp_path: Path, fault: str) -> None:
    kind, answer, word = KINDS[fault]
    with Llm(["Done."], settings=FakeSettings(retry_after_seconds=40.0)) as llm:
        home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="30")
        try:
            model = f"openai-chat:fault-{fault}"
            home.ok("run", "--bg", "--model", model, "Go.", env=llm.env)
            home.until(lambda: only(home)["provider_wait"] is not None)
            row = only(home)
            wait = row["provider_wait"]
            assert (row["state"], wait["kind"], wait["answer"]) == ("waiting", kind, answer)
            assert wait["provider"] == "openai-chat" and wait["retry_at"] > row["created_at"]

            def shown() -> Any:
                return json.loads(home.ok("show", "--json"))["agents"][0]["provider_wait"]

            assert home.until(shown)["answer"] == answer
            for command in ("ps", "show"):
                home.until(
                    lambda command=command: (
                        word in (text := home.ok(command)) and f"openai-chat {answer}" in text
                    )
                )
        finally:
            home.close()


def test_a_refused_connection_names_the_address_in_every_line(tmp_path: Path) -> None:
    address = nobody()
    env = {"OPENAI_BASE_URL": f"http://{address}/v1", "OPENAI_API_KEY": "sk-very-secret"}
    home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="30")
    try:
        process = home.start("run", "--model", MODEL, "Go.", env=env)
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "refused" in line:
                break
        assert f"{address} refused the connection" in lines[-1], lines
        assert "retrying" in lines[-1]
        process.terminate()
        process.communicate(timeout=SECONDS)
    finally:
        home.close()


def test_a_call_that_is_held_for_others_says_so_too(tmp_path: Path) -> None:
    with Llm(["Done."], settings=FakeSettings(retry_after_seconds=60.0)) as llm:
        home = PrivateHome(tmp_path, RETINUE_IDLE_SECONDS="30")
        try:
            model = "openai-chat:fault-F1"
            home.ok("run", "--bg", "--model", model, "First.", env=llm.env)
            home.until(lambda: only(home)["provider_wait"] is not None)
            home.ok("run", "--bg", "--model", model, "Second.", env=llm.env)

            def waits() -> list[Any]:
                rows = home.lines("ps", "--jsonl")
                return [row["provider_wait"] for row in rows if row["state"] == "waiting"]

            home.until(lambda: len(waits()) == 2)
            assert sorted(wait["tries"] for wait in waits()) == [0, 1]
            assert all(wait["answer"] == "429" for wait in waits())
            assert len(llm.llm.injected) == 1
        finally:
            home.close()


def test_the_lines_of_json_tell_when_a_provider_is_waited_for(tmp_path: Path) -> None:
    with Llm(["Done."], settings=FakeSettings(retry_after_seconds=0.2)) as llm:
        home = PrivateHome(tmp_path)
        try:
            arguments = ("--model", "openai-chat:fault-F1-then-ok", "--output-format")
            output = home.ok("run", *arguments, "stream-json", "Go.", env=llm.env)
            lines = [json.loads(line) for line in output.splitlines()]
            (wait,) = [line for line in lines if line.get("subtype") == "provider_wait"]
            assert wait["provider_wait"]["answer"] == "429" and wait["provider_wait"]["tries"] == 1
            assert lines[-1]["result"] == "Done."
        finally:
            home.close()
