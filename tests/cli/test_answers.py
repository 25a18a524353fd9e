"""Answers stream and are rendered on a terminal; a pipe gets them as they were written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.text import Text

from retinue.cli.terminal.answer_stream import AnswerStream
from retinue.cli.terminal.markdown import rendered
from retinue.core.messages import AssistantMessage, ToolMessage
from retinue.core.spec import RunRequest, RunSpec
from retinue.formats.markdown_blocks import MarkdownBlocks
from retinue.host.tree_items import MessageAdded, RunAdded, TextArrived, TreeItem
from retinue.testing import call
from tests.cli.private_home import MODEL, Llm, PrivateHome
from tests.cli.terminal import terminal

PAGE = """# Cause

- `clock.py:41` calls **now** without a time zone.

```python
def now():  # aware
    return datetime.now(tz=UTC)
```

| Fix | Files |
|---|---:|
| Use UTC | 1 |

See [the page](https://example.org/x)."""


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


def test_headings_lists_code_tables_and_links_are_rendered_within_the_width() -> None:
    lines = plain(rendered(PAGE.split("\n\n"), 60))
    assert lines[0] == "Cause" and " • clock.py:41 calls now without a time zone." in lines
    at = lines.index("    def now():  # aware")
    assert lines[at + 1] == "        return datetime.now(tz=UTC)", "as it can be copied"
    assert any(re.fullmatch(r" ─+ ─+", line) for line in lines)
    assert "See the page (https://example.org/x)." in lines, "a link shows where it leads"
    assert all(len(line) <= 60 for line in lines)


def test_a_table_takes_the_layout_with_fewer_lines_and_cuts_no_word() -> None:
    head = "| area | files | what it says |\n|---|--:|---|\n"
    rows = [f"| src/{'x' * 20}{n}/ | {n} | {'word ' * 30}end{n} |" for n in range(9)]
    beside = plain(rendered([head + "\n".join(rows)], 150))
    assert len(beside) == 2 + 2 * 9 and beside[0].endswith("what it says")
    below = plain(rendered([head + "\n".join(rows)], 70))
    assert len(below) == 2 + 9 * 4 and below[1] == "    what it says"
    calls = "| call | in |\n|---|---|\n| `get(...)` src/a.py:1 | `" + "C" * 30 + ".open` |"
    assert "C" * 30 + ".open" in "".join(plain(rendered([calls], 60)))


def test_no_line_is_empty_below_a_heading() -> None:
    blocks = MarkdownBlocks()
    text = "# A\n\nOne.\n\n- two\n- three\n\n## B\n\nFour.\n"
    lines = plain(rendered([*blocks.feed(text), *blocks.close()], 60))
    assert [line.strip() for line in lines] == [
        *("A", "One.", "", "• two", "• three", "", "B", "Four.")
    ]


def test_what_a_terminal_would_obey_is_not_rendered() -> None:
    (line,) = plain(rendered(["a \x1b[2J\x1b]0;title\x07 b"], 60))
    assert "\x1b" not in line and "\x07" not in line


def spec(id: str) -> RunAdded:
    return RunAdded(spec=RunSpec(id=id, request=RunRequest(agent="a", task="t"), root="top"))


def heard(stream: AnswerStream, *items: TreeItem) -> list[str]:
    for item in items:
        stream.add(item)
    return plain(stream.take(79))


def test_text_is_shown_block_by_block_and_calls_are_one_line_each() -> None:
    stream = AnswerStream()
    assert heard(stream, spec("top"), TextArrived(run="top", attempt=1, text="I loo")) == []
    assert plain(stream.tail(79, 5)) == ["I loo"]
    look = call("read", path="clock.py")
    message = AssistantMessage(text="I look.", calls=(look,))
    assert heard(stream, MessageAdded(run="top", n=2, message=message)) == ["I look."]
    result = ToolMessage(call_id=look.id, name="read", text="1\n2\n3")
    (line,) = heard(stream, MessageAdded(run="top", n=3, message=result))
    assert line.startswith("· read clock.py") and " 3 lines " in line and len(line) <= 79
    lines = heard(stream, TextArrived(run="top", attempt=2, text="# Cause\n\nThe clock.\n\nAnd"))
    assert lines == ["Cause", "The clock."], "a heading stands close to its text"
    final = AssistantMessage(text="# Cause\n\nThe clock.\n\nAnd more.")
    assert heard(stream, MessageAdded(run="top", n=4, message=final)) == ["", "And more."]
    assert stream.answer == final.text and plain(stream.tail(79, 5)) == []


def test_a_reply_that_breaks_off_is_marked_and_a_denied_call_is_told() -> None:
    stream = AnswerStream()
    one, two = (TextArrived(run="top", attempt=n, text="Half.\n\n") for n in (1, 2))
    lines = heard(stream, spec("top"), one, two)
    assert lines[0] == "Half." and "broke off" in lines[1] and lines[-1] == "Half."
    write = call("write", path="a.txt", content="x")
    message = AssistantMessage(text="", calls=(write,))
    refusal = ToolMessage(call_id=write.id, name="write", text="no", error=True, denied=True)
    items = [MessageAdded(run="top", n=n, message=m) for n, m in ((2, message), (3, refusal))]
    assert heard(stream, *items)[-1].startswith("! denied: write a.txt")


def test_of_a_tree_nothing_is_streamed() -> None:
    stream = AnswerStream()
    text = TextArrived(run="top", attempt=1, text="A.\n\n")
    assert heard(stream, spec("top"), spec("child"), text) == []
    assert not stream.is_single and plain(stream.tail(79, 5)) == []


@pytest.mark.parametrize("width, height", [(80, 24), (200, 50)])
def test_an_answer_is_rendered_on_a_terminal_and_told_once(
    tmp_path: Path, width: int, height: int
) -> None:
    with Llm([[call("list", path=".")], PAGE], chunks=40) as llm:
        home = PrivateHome(tmp_path)
        try:
            with terminal(tmp_path, width, height) as screen:
                env = {**home.env, **llm.env}
                screen.retinue("run", "--model", MODEL, "Why?", env=env, cwd=home.project)
                assert screen.code() == 0
                screen_text = screen.text(history=True)
                assert (
                    screen_text.count("    def now():  # aware") == 1 and "```" not in screen_text
                )
                assert screen_text.count("Cause") == 1 and "# Cause" not in screen_text
                assert re.search(r"^· list ", screen_text, re.MULTILINE), screen_text
                assert all(len(line) < width for line in screen_text.splitlines())
        finally:
            home.close()


def test_a_pipe_gets_the_answer_as_it_was_written_and_nothing_else(tmp_path: Path) -> None:
    with Llm([PAGE]) as llm:
        home = PrivateHome(tmp_path)
        try:
            assert home.real("run", "--model", MODEL, "Why?", env=llm.env).stdout == PAGE + "\n"
            with terminal(tmp_path) as screen:
                env = {**home.env, **llm.env}
                screen.retinue("run", "--raw", "-m", MODEL, "Why?", env=env, cwd=home.project)
                assert screen.code() == 0 and "# Cause" in screen.text(history=True)
        finally:
            home.close()
