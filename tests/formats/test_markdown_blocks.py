"""Markdown cut into blocks as it comes, however the text was cut on its way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retinue.formats.markdown_blocks import MarkdownBlocks

HEADING = "# Cause"
LOOSE_LIST = "- one\n  more of it\n\n- two\n\n  ```sh\n  ls\n\n  ls -l\n  ```"
CODE = "```python\ndef f():\n\n    return 1\n```"
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"
PARAGRAPH = "Two lines\nof one paragraph."
BLOCKS = [HEADING, PARAGRAPH, CODE, TABLE, LOOSE_LIST, PARAGRAPH, HEADING]
PAGE = "\n\n".join(BLOCKS)


def cut(text: str, sizes: list[int]) -> list[str]:
    blocks, results, at = MarkdownBlocks(), list[str](), 0
    for size in sizes:
        results += blocks.feed(text[at : at + size])
        at += size
    return results + blocks.feed(text[at:]) + blocks.close()


def test_a_heading_a_list_a_table_and_code_are_blocks() -> None:
    assert cut(PAGE, []) == BLOCKS


@given(st.lists(st.integers(0, 40), max_size=12))
def test_it_does_not_matter_where_the_text_was_cut(sizes: list[int]) -> None:
    assert cut(PAGE, sizes) == BLOCKS


@given(st.text(alphabet="#- `~\n|ab1.", max_size=60), st.lists(st.integers(0, 9), max_size=9))
def test_nothing_that_was_written_is_lost(text: str, sizes: list[int]) -> None:
    rest = "".join(cut(text, sizes))
    assert [c for c in rest if c not in "\n "] == [c for c in text if c not in "\n "]


def test_a_block_is_complete_when_it_is_and_not_before() -> None:
    blocks = MarkdownBlocks()
    assert blocks.feed("Some text") == [] and blocks.rest == "Some text"
    assert blocks.feed(".\n\n```py\nx = 1\n") == ["Some text."]
    assert blocks.rest == "```py\nx = 1\n"
    assert blocks.feed("\ny = 2\n```\n") == ["```py\nx = 1\n\ny = 2\n```"]
    assert (blocks.rest, blocks.close()) == ("", [])


def test_a_heading_that_follows_a_paragraph_at_once_does_not_join_it() -> None:
    assert cut("Text\n# Heading\nMore", []) == ["Text\n\n# Heading", "More"]
