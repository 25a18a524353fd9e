"""When one provider keeps everybody, one line says so, and rows keep their last words. The window
has a title, and colours fit the background of the terminal."""

from __future__ import annotations

import io
import os
import pty
import threading
from typing import Any

import pytest

from retinue.cli.terminal.keyboard import ASK_BACKGROUND, KeyDecoder, Keys
from retinue.cli.terminal.painter import Painter
from retinue.cli.terminal.screen import Focus, Screen
from retinue.cli.terminal.terminal_style import background_of, detect_style
from retinue.cli.terminal.wall_clock import clock
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import NOTHING, Ended, Queued, Run, State, Thinking, Waiting
from retinue.core.values import Ending, ProviderTrouble
from retinue.view.rows import TreeView

NOW = 1_800_000_000_000
LIMIT = ProviderTrouble(provider="anthropic", answer="429")
REFUSED = ProviderTrouble(provider="ollama", answer="refused", host="127.0.0.1:11434")


def held(trouble: ProviderTrouble, seconds: int, kind: str = "rate_limit") -> Thinking:
    return Thinking(
        attempt=1,
        purpose="turn",
        hold=NOTHING,
        max_output=1,
        tries=2,
        retry_at=NOW + seconds * 1_000,
        waits_kind=kind,
        waits_for="x",
        trouble=trouble,
    )


def tree(*states: State) -> TreeView:
    view = TreeView()
    request = RunRequest(agent="lead", task="Timeouts and retries")
    view.take(RunSpec(id="top", root="top", request=request, created_at=NOW - 60_000))
    view.take(Run(id="top", state=Waiting(), n_children=len(states)))
    for n, state in enumerate(states):
        request = RunRequest(agent=f"worker{n}", task="t")
        view.take(RunSpec(id=f"k{n}", root="top", parent="top", depth=1, request=request))
        view.take(Run(id=f"k{n}", state=state))
    return view


def frame(view: TreeView) -> list[str]:
    return [line.plain for line in Screen(view).frame(Focus(), NOW, 80, 24)]


def test_a_rate_limit_of_all_is_told_once() -> None:
    result = Ended(ending=Ending(state="completed", stop="done", text="ok", at=NOW))
    lines = frame(tree(held(LIMIT, 57), held(LIMIT, 90), result, Queued(lane=0)))
    at = clock(NOW + 57_000)
    assert lines[1] == f" ◷ 2 rate limited: anthropic 429, next try in 57 s at {at}, 3 of 6"
    assert lines[2] == "   Nothing is lost or spent."
    assert "rate limited reads its task" in lines[3] and "429" not in lines[3]


def test_a_server_that_nobody_hears_names_the_variable_of_its_address() -> None:
    lines = frame(tree(held(REFUSED, 8, "network"), held(REFUSED, 9, "network")))
    assert lines[1].startswith(
        " ◷ 2 retrying: 127.0.0.1:11434 refused the connection, next try in 8 s"
    )
    assert "Is the server running? The base URL is from OLLAMA" in lines[2]


@pytest.mark.parametrize(
    "states",
    [
        (held(LIMIT, 57),),
        (held(LIMIT, 57), held(REFUSED, 8, "network")),
        (
            held(LIMIT, 57),
            held(LIMIT, 57),
            Thinking(attempt=1, purpose="turn", hold=NOTHING, max_output=1),
        ),
    ],
)
def test_where_not_all_are_kept_by_the_same_each_row_says_it(states: Any) -> None:
    lines = frame(tree(*states))
    assert "rate limited" in lines[1] and "next try" not in lines[1]
    assert "anthropic 429: 57 s, 3 of 6" in lines[2]


def test_the_window_has_a_title_until_the_view_is_left() -> None:
    stream = io.StringIO()
    painter = Painter(stream, color=False)
    view = tree(held(LIMIT, 57))
    assert Screen(view).title() == "Timeouts and retries · Retinue"
    view.counts["needs_input"] += 1
    title = Screen(view).title()
    assert title == "(1) Timeouts and retries · Retinue"
    painter.title(title)
    painter.title(title)
    assert stream.getvalue() == f"\x1b[22;2t\x1b]2;{title}\x1b\\", (
        "once, and what was there is kept"
    )
    painter.leave((), 80)
    assert stream.getvalue().endswith("\x1b[23;2t")
    painter.leave((), 80)
    assert stream.getvalue().count("\x1b[23;2t") == 1


@pytest.mark.parametrize(
    ("answer", "background"),
    [
        ("\x1b]11;rgb:1616/1818/1d1d\x1b\\", "dark"),
        ("\x1b]11;rgb:fdfd/f6f6/e3e3\x07", "light"),
        ("\x1b]11;rgb:ff/ff/ff\x07", "light"),
        ("", "unknown"),
        ("\x1b]11;?\x07", "unknown"),
    ],
)
def test_the_background_is_what_the_terminal_answers(answer: str, background: str) -> None:
    assert background_of(answer) == background


def test_a_flag_or_a_variable_goes_before_what_the_terminal_says() -> None:
    stream = io.StringIO()
    assert detect_style({"COLORFGBG": "0;15"}, stream).theme == "light"
    assert detect_style({"COLORFGBG": "0;15", "RETINUE_THEME": "dark"}, stream).theme == "dark"
    assert detect_style({"RETINUE_THEME": "auto"}, stream).theme == "unknown"


@pytest.mark.parametrize("answer", [b"\x1b]11;rgb:ffff/ffff/ffff\x07", b""])
def test_what_was_typed_while_the_terminal_was_asked_is_not_lost(answer: bytes) -> None:
    ours, theirs = pty.openpty()
    try:
        with Keys(theirs, theirs) as keys:
            question = bytearray()

            def reply() -> None:
                while ASK_BACKGROUND.encode() not in question:
                    question.extend(os.read(ours, 4096))
                os.write(ours, b"k" + answer)

            thread = threading.Thread(target=reply)
            thread.start()
            process = keys.background()
            thread.join()
            assert background_of(process) == ("light" if answer else "unknown")
            assert keys.read() == ["k"]
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_answer_that_comes_late_and_in_pieces_is_no_key() -> None:
    decoder = KeyDecoder()
    assert decoder.take(b"\x1b]11;rgb:ff") == [] and decoder.flush() == []
    assert decoder.take(b"ff/bbbb/ffff\x1b\\q") == ["q"]
