"""Frames of the live view: what fits, what is counted, what is kept out; drawn on an emulated
terminal."""

from __future__ import annotations

import io
import os
import pty
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyte
import pytest
from rich.text import Text

from retinue.cli.terminal.colors import Palette
from retinue.cli.terminal.keyboard import Editor, KeyDecoder, Keys
from retinue.cli.terminal.painter import Painter
from retinue.cli.terminal.screen import Focus, Screen
from retinue.cli.terminal.terminal_style import TerminalStyle, detect_style
from retinue.core.events import LogEntry, Replied
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, ToolMessage, UserMessage
from retinue.core.spec import RunRequest, RunSpec
from retinue.core.state import (
    NOTHING,
    Asking,
    Ended,
    OpenCalls,
    Question,
    Queued,
    Run,
    State,
    Thinking,
    Waiting,
)
from retinue.core.values import Ending, Usage
from retinue.view.cells import cut, wrap
from retinue.view.grid import guides
from retinue.view.rows import TreeView
from retinue.view.transcript import Transcripts
from retinue.view.updates import feed
from tests.cli.record import SCENES, load

AT = 1_800_000_000_000
THINKS = Thinking(attempt=1, purpose="turn", hold=NOTHING, max_output=1)
WAITS = Waiting(calls=None)
DONE = Ended(
    ending=Ending(state="completed", stop="done", text="5 files, 4 key types", at=AT + 900)
)
FAILED = Ended(ending=Ending(state="failed", stop="error", error="no such file", at=AT + 900))
ASKS = Asking(
    calls=OpenCalls(
        message=1,
        count=1,
        open=1,
        asks=1,
        questions=(
            Question(index=0, id="q", call_id="c", text="write docs/A.md?", kind="permission"),
        ),
    )
)


def tree(*states: State, labels: Any = None, task: str = "map this repository") -> TreeView:
    """A parent with one child for each state."""
    view = TreeView()
    view.take(
        RunSpec(id="top", root="top", request=RunRequest(agent="lead", task=task), created_at=AT)
    )
    view.take(Run(id="top", state=THINKS, started_at=AT, usage=Usage(input=1_300), turn=2))
    for n, state in enumerate(states):
        label = labels[n] if labels else f"agent {n}"
        order = RunRequest(agent="worker", task="t", label=label, max_turns=10)
        view.take(
            RunSpec(id=f"c{n}", root="top", parent="top", depth=1, request=order, created_at=AT)
        )
        view.take(Run(id=f"c{n}", state=state, started_at=AT, usage=Usage(input=2_000), turn=3))  # type: ignore[arg-type]
    return view


def frame(
    view: TreeView, width: int = 80, height: int = 24, focus: Focus | None = None, **more: Any
) -> list[str]:
    lines = Screen(view).frame(focus or Focus(), AT + 2_000, width, height, **more)
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
@pytest.mark.parametrize("height", [6, 10, 24, 60])
def test_a_frame_is_half_of_the_screen_at_most_and_no_line_is_too_long(
    width: int, height: int
) -> None:
    view = tree(*[THINKS] * 60, *[DONE] * 150)
    lines = Screen(view).frame(Focus(), AT + 2_000, width, height)
    assert len(lines) <= max(4, min(16, height // 2)) and len(lines) < height
    assert all(line.cell_len < max(width, 21) for line in lines)
    opened = Screen(view).frame(
        Focus(selected="c5", opened="c5"), AT, width, height, [("said", "x " * 500)] * 50
    )
    assert len(opened) < height and all(line.cell_len < max(width, 21) for line in opened)


def test_what_does_not_fit_is_counted() -> None:
    lines = frame(tree(*[THINKS] * 43, *[DONE] * 157))
    assert len(lines) == 12
    assert lines[1] == " ● 43 working  ✓ 157 done"
    assert lines[-2] == " +192 more: 157 done, 35 working"


def test_who_needs_somebody_is_shown_first_and_in_its_place() -> None:
    lines = frame(tree(*[THINKS] * 150, ASKS, *[THINKS] * 49))
    (asking,) = [line for line in lines[2:-1] if "needs you" in line]
    assert "agent 150" in asking and "write docs/A.md" in asking
    assert lines.index(asking) == 9 and lines[-1].startswith(" a answer 1  ↑↓ select")
    assert [line.split()[2:4] for line in lines[2:9]] == [["agent", str(n)] for n in range(7)]


def test_rows_that_are_shown_stay_when_others_begin_to_work() -> None:
    view = tree(*[Queued()] * 100, *[THINKS] * 3, *[Queued()] * 100)
    screen = Screen(view)
    first = [line.plain for line in screen.frame(Focus(), AT, 80, 24)]
    view.take(Run(id="c5", state=THINKS, started_at=AT))
    after = [line.plain for line in screen.frame(Focus(), AT, 80, 24)]
    assert [line for line in first[2:-2] if "thinking" in line] == [
        line for line in after[2:-2] if "agent 10" in line
    ]
    assert any("agent 5 " in line for line in after)


def test_the_selected_row_is_always_there_and_the_window_scrolls_with_it() -> None:
    view = tree(*[THINKS] * 200)
    screen, focus = Screen(view), Focus()
    for n in (0, 3, 10, 199, 197, 5):
        focus.selected = f"c{n}"
        lines = [line.plain for line in screen.frame(focus, AT, 80, 24)]
        (selection,) = [line for line in lines if line.startswith("▸")]
        assert f"agent {n} " in selection
        assert len(lines) == 12


def test_each_state_has_a_glyph_a_word_and_a_colour() -> None:
    view = tree(THINKS, DONE, FAILED, ASKS, Queued())
    lines = Screen(view, Palette("dark")).frame(Focus(), AT + 2_000, 100, 40)
    text = {}
    for line in lines[2:-1]:
        styles = {line.plain[s.start : s.end].strip(): str(s.style) for s in line.spans}
        text[line.plain.split()[1]] = styles
    assert text["◉"]["◉"] == text["◉"]["thinking"] == "bright_blue"
    assert text["✗"]["✗"] == text["✗"]["failed"] == "bright_red"
    assert text["◆"]["◆"] == text["◆"]["needs you"] == "black on yellow"
    assert text["✓"]["✓"] == "green" and "done" not in text["✓"], "the word stays ink"
    assert text["◌"]["queued"] == "dim"


def test_numbers_have_one_place_each() -> None:
    lines = frame(
        tree(
            THINKS,
            DONE,
            FAILED,
            labels=["short", "a much longer label than fits", "日本語の名前です長い"],
        )
    )
    from rich.cells import cell_len

    places = {cell_len(line) for line in lines[2:5]}
    assert len(places) == 1


@pytest.mark.parametrize("width", [40, 80, 120])
def test_wide_and_combining_letters_do_not_shift_a_column(width: int) -> None:
    labels = ["日本語" * 10, "é" * 30, "👩‍👩‍👧 family", "plain", "a\u0301" * 20]
    lines = Screen(tree(*[THINKS] * 5, labels=labels)).frame(Focus(), AT + 2_000, width, 40)
    from rich.cells import cell_len

    places = {cell_len(line.plain[: line.plain.index("thinking")]) for line in lines[2:7]}
    assert len(places) == 1


def test_a_label_that_would_take_over_the_terminal_is_only_text() -> None:
    evil = "\x1b[2J\x1b[H\x1b]0;owned\x07\u202eevil\nnext"
    view = tree(THINKS, labels=[evil], task=evil)
    transcripts = Transcripts(lambda call: call.name)
    transcripts.add("c0", UserMessage(text=evil))
    transcripts.add("c0", AssistantMessage(text=evil, calls=(ToolCall(id="1", name="x"),)))
    transcripts.preview("c0", 1, evil)
    focus = Focus(opened="c0")
    text = "".join(
        line.plain for line in Screen(view).frame(focus, AT, 80, 24, transcripts.of("c0"))
    )
    assert "evil" in text and all(c.isprintable() for c in text)


@pytest.mark.parametrize("name", SCENES)
def test_every_moment_of_a_real_run_can_be_drawn(name: str) -> None:
    view = TreeView()
    screen = Screen(view)
    for item in load(name):
        feed(view, item, 0)
        for width in (30, 80, 130):
            assert screen.frame(Focus(), AT, width, 24)
    last = [line.plain for line in screen.last(AT, 100, 40)]
    n_more = 1 if len(view.nodes) > 1 else 0
    assert len(last) == len(view.nodes) + n_more and not any("select" in line for line in last)


def test_branches_are_drawn_for_the_rows_that_are_there() -> None:
    view = TreeView()
    for id, parent, depth in (
        ("a", "", 0),
        ("b", "a", 1),
        ("c", "b", 2),
        ("d", "b", 2),
        ("e", "a", 1),
        ("f", "e", 2),
    ):
        view.take(
            RunSpec(
                id=id, parent=parent, root="a", depth=depth, request=RunRequest(agent=id, task="t")
            )
        )
    rows = view.rows(AT)[1:]
    assert guides(rows, 0) == ["├ ", "│ ├ ", "│ └ ", "└ ", "  └ "]
    assert guides([rows[1], rows[4]], 0) == ["  ├ ", "  └ "]


def test_an_opened_agent_shows_what_is_said_and_written() -> None:
    view, transcripts = tree(THINKS), Transcripts(lambda call: f"read {call.name}")
    transcripts.add("c0", UserMessage(text="look at it"))
    transcripts.add(
        "c0", AssistantMessage(text="I look.", calls=(ToolCall(id="1", name="docker.py"),))
    )
    transcripts.add("c0", ToolMessage(call_id="1", text="12 lines", name="read"))
    transcripts.add("c0", ToolMessage(call_id="2", text="not permitted", denied=True))
    long = f"[a.py: 90 lines, sha256 {'a1' * 32}]\n" + "x = 1\n" * 88 + "\nexit status 1\n"
    transcripts.add("c0", ToolMessage(call_id="3", text=long, name="read"))
    transcripts.preview("c0", 2, "It has ")
    transcripts.preview("c0", 2, "twelve")
    lines = frame(view, focus=Focus(selected="c0", opened="c0"), transcript=transcripts.of("c0"))
    assert lines[3].startswith("── agent 0 c0 · thinking · turn 3/10 ")
    assert [line.strip() for line in lines[4:-1]] == [
        "look at it",
        "I look.",
        "▸ read docker.py",
        "↳ 12 lines",
        "⊘ not permitted",
        "↳ 91 lines: [a.py: 90 lines] … exit status 1",
        "It has twelve ▌",
    ]
    transcripts.preview("c0", 3, "Again")
    assert transcripts.of("c0")[-1][1] == "Again ▌"
    transcripts.add("c0", AssistantMessage(text="Again."))
    assert transcripts.of("c0")[-1] == ("said", "Again.")


def test_silence_stands_before_the_words_and_a_selected_failure_can_be_retried() -> None:
    view = tree(THINKS, FAILED)
    view.take(
        LogEntry(
            run="c0", at=AT, event=Replied(attempt=1, reply=ModelReply(message=AssistantMessage()))
        )
    )
    screen = Screen(view)
    assert "silent" not in screen.frame(Focus(), AT + 30_000, 80, 24)[2].plain
    later = [line.plain for line in screen.frame(Focus(selected="c1"), AT + 185_000, 80, 24)]
    assert "thinking     silent 3m 05s, no text yet" in later[2]
    assert later[-2:] == [
        " agent 1: no such file",
        " r retry  R retry with a message  ↵ open  esc deselect",
    ]


def test_deep_rows_fold_into_their_parents_and_tell_what_is_loudest_there() -> None:
    view = tree(*[WAITS] * 8)
    for n in range(8):
        order = RunRequest(agent="helper", task="t")
        for m in range(2):
            id = f"c{n}.{m}"
            view.take(
                RunSpec(id=id, root="top", parent=f"c{n}", depth=2, request=order, created_at=AT)
            )
            state = ASKS if (n, m) == (3, 1) else THINKS
            view.take(Run(id=id, state=state, started_at=AT, turn=1))
    lines = frame(view)
    assert len(lines) == 11 and all(" +2 " in line for line in lines[2:-1])
    assert "◆ agent 3 +2      needs you    write docs/A.md" in lines[5]
    assert "◉ agent 0 +2      thinking" in lines[2]
    assert len(frame(view, height=60)) == 11, "two levels do not fit into sixteen lines either"
    few = tree(WAITS, THINKS)
    few.take(RunSpec(id="x", root="top", parent="c0", depth=2, request=order, created_at=AT))
    assert [line[1:6] for line in frame(few)[2:5]] == ["├ ○ a", "│ └ ◌", "└ ◉ a"]


def test_one_agent_alone_has_a_line_and_no_tree() -> None:
    view = tree()
    (line, keys) = frame(view)
    assert line.startswith(" ◉ thinking   reads its task   ") and len(line) == 79
    assert line.endswith("       2s     n/a")
    assert keys == " ↑↓ select  ↵ open  m message  x cancel  q detach  ? keys"


def test_cutting_and_wrapping_count_cells() -> None:
    assert cut("日本語", 5) == "日本…" and cut("ab", 4) == "ab  " and cut("abc", 0) == ""
    assert wrap("one two three", 7) == ["one two", "three"] and wrap("日本語日本語", 4) == [
        "日本",
        "語日",
        "本語",
    ]


class Pyte(io.StringIO):
    """A terminal that keeps what is drawn on it."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""

    def write(self, text: str) -> int:
        self.raw += text
        self._stream.feed(text)
        return len(text)

    @property
    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


def test_a_frame_replaces_the_one_before_and_what_stays_is_above() -> None:
    out = Pyte(40, 12)
    painter = Painter(out, color=True)
    out.write("$ retinue\r\n")
    painter.paint([Text("one"), Text("two"), Text("three")], 40)
    painter.paint([Text("1"), Text("2")], 40)
    assert out.shown == ["$ retinue", "1", "2"]
    painter.above([Text("note")], 40)
    painter.paint([Text("1"), Text("2"), Text("3")], 40)
    assert out.shown == ["$ retinue", "note", "1", "2", "3"]
    painter.leave([Text("end")], 40)
    out.write("answer")
    assert out.shown == ["$ retinue", "note", "end", "answer"] and not out.screen.cursor.hidden


def test_the_same_frame_is_not_written_twice() -> None:
    out = Pyte(40, 12)
    painter = Painter(out, color=False)
    painter.paint([Text("one")], 40)
    before = out.raw
    painter.paint([Text("one")], 40)
    assert out.raw == before


def test_a_frame_that_the_terminal_has_wrapped_is_cleared_whole() -> None:
    out = Pyte(20, 12)
    painter = Painter(out, color=False)
    painter.paint([Text("x" * 18), Text("y" * 18)], 20)
    narrow = Pyte(10, 12)
    narrow.write("above\r\n" + "x" * 18 + "\r\n" + "y" * 18)
    painter._stream = narrow
    painter.paint([Text("a"), Text("b")], 10)
    assert narrow.shown == ["above", "a", "b"]


def test_without_colour_only_weight_is_left() -> None:
    import re

    for color in (True, False):
        out = Pyte(100, 30)
        view = tree(THINKS, DONE, FAILED, ASKS)
        screen = Screen(view, Palette("dark", color))
        Painter(out, color=color).paint(screen.frame(Focus(selected="c1"), AT, 100, 30), 100)
        codes = {
            int(n)
            for match in re.findall(r"\x1b\[([\d;]*)m", out.raw)
            for n in match.split(";")
            if n
        }
        assert bool({n for n in codes if 30 <= n <= 49 or 90 <= n <= 107}) is color


@pytest.mark.parametrize(
    ("env", "tty", "flag", "color", "moves"),
    [
        ({"TERM": "xterm"}, True, "auto", True, True),
        ({"TERM": "xterm"}, False, "auto", False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, "auto", False, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, "auto", True, True),
        ({"TERM": "xterm", "NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, True, "auto", False, True),
        ({"TERM": "xterm", "CLICOLOR_FORCE": "1"}, False, "auto", True, False),
        ({"TERM": "xterm", "FORCE_COLOR": "3"}, False, "auto", True, False),
        ({"TERM": "xterm", "FORCE_COLOR": "0"}, True, "auto", True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, "always", True, True),
        ({"TERM": "xterm"}, True, "never", False, True),
        ({"TERM": "dumb"}, True, "auto", False, False),
        ({}, True, "auto", False, False),
        ({"TERM": "xterm", "CI": "true"}, True, "auto", True, False),
        ({"TERM": "xterm", "CI": "false"}, True, "auto", True, True),
        ({"TERM": "xterm", "RETINUE_AX_SCREEN_READER": "1"}, True, "auto", True, False),
        ({"TERM": "xterm", "CLICOLOR": "0"}, True, "auto", False, True),
    ],
)
def test_manners_follow_the_environment(
    env: dict[str, str], tty: bool, flag: str, color: bool, moves: bool
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return tty

    assert detect_style(env, Stream(), flag) == TerminalStyle(color, moves)


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        ([b"a", b"\x1b[A\x1b[B\x1bOA"], ["a", "up", "down", "up"]),
        ([b"\x1b", b"[A"], ["up"]),
        ([b"\x1b[", b"B"], ["down"]),
        ([b"\xe6\x97", b"\xa5"], ["日"]),
        ([b"\x1b[200~rm -rf x\ny\x1b[201~q"], ["paste:rm -rf x\ny", "q"]),
        ([b"\x1b[200~half", b" more\x1b[201~"], ["paste:half more"]),
        ([b"\r\n\x7f\x15\x1b\r"], ["enter", "enter", "backspace", "clear", "newline"]),
        ([b"\x1b[5~\x1b[6~\x1b[1;5C\x00"], ["pgup", "pgdn"]),
        ([b"\x1bq"], ["esc", "q"]),
    ],
)
def test_keys_are_read_from_bytes_in_any_pieces(pieces: list[bytes], keys: list[str]) -> None:
    decoder = KeyDecoder()
    assert [key for piece in pieces for key in decoder.take(piece)] == keys


def test_an_escape_alone_is_a_key_once_nothing_follows() -> None:
    decoder = KeyDecoder()
    assert decoder.take(b"\x1b") == [] and decoder.is_waiting
    assert decoder.flush() == ["esc"] and not decoder.is_waiting


def test_a_line_is_edited() -> None:
    editor = Editor("hello world")
    for key in (
        "word",
        "t",
        "h",
        "e",
        "r",
        "e",
        "home",
        "right",
        "backspace",
        "H",
        "end",
        "paste: a\nb\x1b ",
        "left",
    ):
        editor.press(key)
    assert (editor.text, editor.at) == ("Hello there a b ", 15)
    editor.press("clear")
    assert (editor.text, editor.at) == (" ", 0)
    editor.press("delete")
    assert editor.text == ""


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def test_the_terminal_is_put_back_as_it_was_whatever_happens() -> None:
    with terminal() as (ours, theirs):
        before = termios.tcgetattr(theirs)
        handlers = [signal.getsignal(n) for n in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)]
        keys = Keys(theirs, theirs)
        keys.is_foreground = lambda: True  # type: ignore[method-assign]
        with pytest.raises(RuntimeError), keys:
            during = termios.tcgetattr(theirs)
            assert not during[3] & (termios.ICANON | termios.ECHO) and during[3] & termios.ISIG
            os.write(ours, b"x\x1b[A")
            assert keys.read() == ["x", "up"] and keys.read() == []
            raise RuntimeError
        assert termios.tcgetattr(theirs) == before
        assert [
            signal.getsignal(n) for n in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
        ] == handlers


REPORTS = (
    b"\x1b]11;rgb:ffff/ffff/ffff\x07",
    b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1bP>|term(yes)\x1b\\",
    b"\x1b_Gi=31;OK\x1b\\",
)


@pytest.mark.parametrize("report", REPORTS)
def test_what_a_terminal_tells_of_itself_is_not_typed(report: bytes) -> None:
    """Somebody has asked it; the answer comes where keys come from, whole or in pieces."""
    assert KeyDecoder().take(report + b"q") == ["q"]
    for n in range(1, len(report)):
        decoder = KeyDecoder()
        assert decoder.take(report[:n]) == [] and decoder.is_waiting
        assert decoder.take(report[n:]) == [] and not decoder.is_waiting
    decoder_after = KeyDecoder()
    assert decoder_after.take(report[:-2]) == [] and decoder_after.flush() == []
