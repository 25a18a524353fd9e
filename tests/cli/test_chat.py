"""Talking with an agent: through a pipe, and at a prompt."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.terminal.prompt import MARK
from retinue.testing import call
from tests.cli.private_home import SECONDS, Gate, PrivateHome, private_home
from tests.cli.terminal import terminal
from tests.needs import needs


def echo(request: Any) -> str:
    texts = [m.text for m in request.messages if type(m).__name__ == "UserMessage"]
    return f"{len(texts)}: {texts[-1]}"


def is_asking(output: str) -> bool:
    """Whether the prompt is there, after the first answer: below it is what was spent."""
    last = output.rstrip().rpartition("\n")[2]
    return last.startswith(" esc agents") and last.endswith(" n/a")


def test_each_line_of_a_pipe_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    with private_home(tmp_path, echo) as home:
        result = home.run("chat", input="hello\nand again\n")
        assert (result.returncode, result.stdout) == (0, "1: hello\n2: and again\n")
        assert "\x1b" not in result.stderr and "done in " in result.stderr
        again = home.run("chat", "-c", "-q", input="a third\n")
        assert (again.stdout, again.stderr) == ("3: a third\n", "")


def test_commands_are_carried_out_between_messages(tmp_path: Path) -> None:
    with private_home(tmp_path, echo) as home:
        texts = (
            "/help\n/agents\n/cost\n\nhello\n/agents\n/cost\n/show\n/new\nhello\n/nonsense\n/c\n"
            "/send\n/quit\nnever\n"
        )
        result = home.run("chat", input=texts)
        assert (
            result.returncode == 0
            and result.stdout.startswith("1: hello\n")
            and "never" not in result.stdout
        )
        assert result.stdout.endswith("\n1: hello\n1: hello\n"), (
            "of `show`, and of a new conversation"
        )
        for text in (
            "/steer",
            "No agents yet.",
            "0 tokens, $0.00",
            "✓ main",
            "Unknown command /nonsense",
            "/c matches /cancel and /cost",
            "Use /send RUN TEXT.",
        ):
            assert text in result.stderr, text


def test_a_message_that_only_begins_with_a_slash_is_a_message(tmp_path: Path) -> None:
    with private_home(tmp_path, echo) as home:
        assert (
            home.run("chat", "-q", input="/usr/bin is what?\n").stdout == "1: /usr/bin is what?\n"
        )


def test_what_goes_wrong_is_told_and_the_chat_goes_on(tmp_path: Path) -> None:
    with private_home(
        tmp_path, lambda request: "" if request.messages[-1].text != "fine" else echo(request)
    ) as home:
        result = home.run("chat", input="/cancel\n/show nowhere\nbreak\nfine\n")
        assert result.returncode == 0 and result.stdout.endswith(": fine\n")
        for text in (
            "Send a message first",
            "nowhere",
            "the model returned no text. The conversation continues",
        ):
            assert text in result.stderr
        assert home.run("chat", "--max-budget-usd", "-1", input="x\n").returncode == 2


def test_a_wrong_model_is_told_before_the_first_message(tmp_path: Path) -> None:
    with private_home(tmp_path, echo) as home:
        result = home.run("chat", "-m", "nonsense", input="hello\n")
        assert result.returncode == 2 and "nonsense" in result.stderr


def test_what_ends_in_the_background_is_told_between_turns(tmp_path: Path) -> None:
    gate = Gate(call("artifact", id="0" * 64), "the long one is done", at=1)

    async def talk(request: Any) -> Any:
        return await gate(request) if request.messages[0].text == "a long task" else echo(request)

    with private_home(tmp_path, talk) as home:
        id = home.ok("run", "--bg", "a long task")
        assert gate.reached.wait(SECONDS)
        chat = Talk(home)
        try:
            assert chat.say("hello") == "1: hello\n"
            gate.opened.set()
            home.ok("wait", id)
            assert chat.say("and now") == "2: and now\n"
        finally:
            err = chat.close()
        (line,) = [line for line in err.splitlines() if "the long one is done" in line]
        assert line.startswith("✓ main done in ") and line.endswith(f" · /show {id}")


class Talk:
    """A chat through a pipe, one line at a time."""

    def __init__(self, home: PrivateHome) -> None:
        import subprocess

        self._process = home.start("chat", stdin=subprocess.PIPE)

    def say(self, text: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> str:
        _, err = self._process.communicate(timeout=SECONDS)
        return err


@needs("tmux")
def test_a_message_that_is_left_goes_on_and_is_told_above_the_prompt(tmp_path: Path) -> None:
    gate = Gate("the long one is done", at=0)

    async def talk(request: Any) -> Any:
        return await gate(request) if request.messages[-1].text == "wait" else echo(request)

    with private_home(tmp_path, talk) as home, terminal(tmp_path, 80, 24) as screen:
        screen.retinue("chat", env=home.env, cwd=home.project)
        screen.until(f"\n{MARK.rstrip()}")
        screen.type("wait")
        screen.keys("Enter")
        assert gate.reached.wait(SECONDS)
        screen.until("thinking")
        screen.keys("b")
        screen.until("continues in the background")
        screen.until(" ◉ main              thinking")
        screen.type("half a sent")
        gate.opened.set()
        screen.until(
            lambda text: "· the long one is done ·" in text and f"{MARK}half a sent" in text
        )
        screen.type("ence")
        screen.keys("Enter")
        screen.until("2: half a sentence", is_asking)
        screen.keys("C-d")
        assert screen.code() == 0


@needs("tmux")
def test_rows_of_background_agents_are_beside_the_prompt_and_esc_leads_to_them(
    tmp_path: Path,
) -> None:
    gate = Gate("2 findings", at=0)

    async def talk(request: Any) -> Any:
        if request.messages[0].text == "Review the parser.":
            return await gate(request)
        if any(type(m).__name__ == "ToolMessage" for m in request.messages):
            return "A lane limits how many runs work at once."
        task = {"task_id": "parser-review", "prompt": "Review the parser.", "tools": []}
        return call("delegate_tasks", mode="background", tasks=[task])

    with private_home(tmp_path, talk) as home, terminal(tmp_path, 80, 24) as screen:
        screen.retinue("chat", "--family", "delegate", env=home.env, cwd=home.project)
        screen.until(f"\n{MARK.rstrip()}")
        screen.type("Review it in the background. What is a lane?")
        screen.keys("Enter")
        screen.until("A lane limits", is_asking)
        screen.type("and what happens")
        screen.until("◉ parser-review     thinking     ", f"{MARK}and what happens")
        screen.keys("Escape")
        screen.until("AGENT", "STATE", "thinking")
        screen.keys("Escape")
        screen.until(f"{MARK}and what happens", is_asking)
        gate.opened.set()
        screen.until(
            lambda text: (
                "✓ parser-review done in " in text
                and " · 2 findings · /show parser-review" in text
                and "\n  The agent reads this at its next turn." in text
                and f"{MARK}and what happens" in text
            )
        )
        screen.until(lambda text: "◉ parser-review" not in text)
        screen.keys("C-u", "C-d")
        assert screen.code() == 0


@needs("tmux")
@pytest.mark.parametrize("gap_ms", [0, 2, 8, 20])
def test_ctrl_c_twice_leaves_however_fast_it_is_pressed(gap_ms: int, tmp_path: Path) -> None:
    with private_home(tmp_path, echo) as home, terminal(tmp_path, 80, 24) as screen:
        screen.retinue("chat", env=home.env, cwd=home.project)
        screen.until(f"\n{MARK.rstrip()}")
        screen.type("something")
        screen.until(f"{MARK}something")
        screen.keys("C-c")
        time.sleep(gap_ms / 1000)
        screen.keys("C-c")
        assert screen.code() == 130


@needs("tmux")
def test_an_answer_at_a_prompt_is_rendered_and_no_end_line_comes_between(tmp_path: Path) -> None:
    text = "# Cause\n\n- It is **late**.\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    page = [[call("search", pattern="x")], text]
    with private_home(tmp_path, page) as home, terminal(tmp_path, 80, 24) as screen:
        screen.retinue("chat", env=home.env, cwd=home.project)
        screen.until(f"\n{MARK.rstrip()}")
        screen.type("why?")
        screen.keys("Enter")
        screen_text = screen.until("Cause\n • It is late.\n", "  1   2\n", is_asking)
        assert '· search "x" ' in screen_text, "a call is one line"
        assert (
            screen_text.count("It is late") == 1
            and "done in" not in screen_text
            and "**" not in screen_text
        )


@needs("tmux")
def test_at_a_prompt_there_is_history_completion_several_lines_and_ctrl_c(tmp_path: Path) -> None:
    gate = Gate(at=0)

    async def talk(request: Any) -> Any:
        return await gate(request) if request.messages[-1].text == "wait" else echo(request)

    with private_home(tmp_path, talk) as home, terminal(tmp_path, 80, 24) as screen:
        screen.retinue("chat", env=home.env, cwd=home.project)
        screen.until(f"\n{MARK.rstrip()}")
        screen.type("one")
        screen.keys("M-Enter")
        screen.type("two")
        screen.keys("Enter")
        screen.until("1: one", is_asking)
        screen.type("/co")
        screen.keys("Tab")
        screen.until(f"{MARK}/cost")
        screen.keys("Enter")
        screen.until(lambda text: text.count("tokens, n/a") == 1)
        screen.type("wait")
        screen.keys("Enter")
        assert gate.reached.wait(SECONDS)
        screen.until("thinking")
        screen.keys("C-c")
        screen.until("cancelled by the user. The conversation continues from here", is_asking)
        screen.keys("Up")
        screen.until(lambda text: text.count(f"{MARK}wait") == 2)
        screen.keys("C-c")
        screen.until("Press Ctrl-C again")
        screen.keys("C-c")
        assert screen.code() == 130
        path = Path(f"{home.store}.plans/chat.history")
        assert "+wait" in path.read_text() and os.stat(path).st_mode & 0o077 == 0
        assert [run["state"] for run in home.runs()] == ["cancelled", "completed"]


@needs("tmux")
def test_the_history_of_a_chat_has_no_secret(tmp_path: Path) -> None:
    secret = "Zq8Rt5Yv2Bk7Jd4Hf1Gs9Ac6Lm3Np0Xw"
    with private_home(tmp_path, echo) as home, terminal(tmp_path, 100, 24) as screen:
        screen.retinue("chat", env={**home.env, "SERVICE_TOKEN": secret}, cwd=home.project)
        screen.until(f"\n{MARK.rstrip()}")
        screen.type(f"use {secret} now")
        screen.keys("Enter")
        screen.until("1: use", is_asking)
        screen.keys("C-d")
        assert screen.code() == 0
        text = Path(f"{home.store}.plans/chat.history").read_text()
        assert "+use [redacted:SERVICE_TOKEN] now" in text and secret not in text


OFF = """profiles = ["xzatoma"]

[agent.subagent]
max_depth = 3
default_max_turns = 10
output_max_size = 4096
chat_enabled = false
"""


def tools_of(request: Any) -> str:
    return "on" if any(t.name == "subagent" for t in request.tools) else "off"


def test_a_chat_has_subagents_once_they_are_asked_for_where_it_has_none_from_the_start(
    tmp_path: Path,
) -> None:
    with private_home(tmp_path, tools_of) as home:
        config = tmp_path / "config" / "retinue" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(OFF)
        text = (
            "hello\n/subagents\nplease Delegate this\nthanks\n/subagents "
            "off\nhello\n/subagents toggle\nhello\n"
        )
        result = home.run("chat", input=text)
        assert (result.returncode, result.stdout) == (0, "off\non\non\noff\non\n")
        assert "Sub-agents are off" in result.stderr
        assert home.run("run", "-q", "hello").stdout == "on\n", "a run is no chat"
        config.write_text(OFF.replace("false", "true"))
        assert home.run("chat", "-q", input="hello\n").stdout == "on\n"
