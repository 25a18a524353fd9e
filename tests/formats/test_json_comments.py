"""JSON with comments: what is left is JSON, and everything stands where it stood."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.formats.json_comments import without_comments

TEXT = """{ // a comment
  "url": "https://x.org/a//b", /* and
  another */ "list": [1, 2, ], "quote": "a \\" // b", "stars": "/* no */",
}
"""


def test_comments_and_last_commas_become_blanks() -> None:
    bare = without_comments(TEXT)
    assert json.loads(bare) == {
        "url": "https://x.org/a//b",
        "list": [1, 2],
        "quote": 'a " // b',
        "stars": "/* no */",
    }
    assert [len(line) for line in bare.split("\n")] == [len(line) for line in TEXT.split("\n")], (
        "columns stay right"
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_json_without_comments_is_left_as_it_is(value: object) -> None:
    text = json.dumps(value)
    assert without_comments(text) == text


@pytest.mark.parametrize(
    "text", ['"' * 200_001, "/*" * 200_000, "," * 200_000, ("," + " " * 300) * 2_000, "/" * 300_000]
)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    assert len(without_comments(text)) == len(text)
    assert time.process_time() - began < 5
