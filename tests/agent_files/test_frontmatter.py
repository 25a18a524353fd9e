"""Front matter, TOML and JSON: what is read, and what is said about the rest."""

from __future__ import annotations

import pytest

from retinue.agent_files.frontmatter import MAX_BYTES, read_json, read_markdown, read_toml
from tests.agent_files.helpers import said


def test_keys_have_their_values_and_lines() -> None:
    document = read_markdown(
        b"---\nname: a\ntools:\n  - Read\nnested:\n  deep: 1\n---\n\nBody.\n", "x"
    )
    assert document.data == {"name": "a", "tools": ["Read"], "nested": {"deep": 1}}
    assert document.lines == {("name",): 2, ("tools",): 3, ("nested",): 5, ("nested", "deep"): 6}
    assert document.body == "Body."


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"\n\n", b"  \r\n"])
def test_a_byte_order_mark_or_empty_lines_do_not_hide_the_front_matter(start: bytes) -> None:
    document = read_markdown(start + b"---\r\nname: a\r\n---\r\nBody\r\n", "x")
    assert (document.data, document.body) == ({"name": "a"}, "Body")


def test_a_file_without_front_matter_is_all_text() -> None:
    document = read_markdown(b"# Title\n\n---\n\nText", "x")
    assert (document.has_head, document.data, document.body) == (
        False,
        {},
        "# Title\n\n---\n\nText",
    )


def test_front_matter_that_never_ends_is_an_error_and_no_text() -> None:
    document = read_markdown(b"---\nname: a\ntools: Read\n\nBody", "x")
    assert document.broken
    assert document.body == ""
    assert said(document.complaints) == [(1, "the front matter that starts here is not closed")]


def test_a_tab_is_named_with_its_line_and_a_remedy() -> None:
    document = read_markdown(b"---\nname: a\n\ttools: Read\n---\n", "x")
    (complaint,) = document.complaints
    assert (complaint.line, complaint.hint) == (3, "indent with spaces, not tabs")


def test_a_colon_in_a_text_is_an_error_with_a_remedy() -> None:
    document = read_markdown(b"---\nname: a\ndescription: use when: always\n---\n", "x")
    (complaint,) = document.complaints
    assert (complaint.line, complaint.severity, complaint.hint) == (
        3,
        "error",
        "put the value in quotes",
    )


def test_a_key_that_stands_twice_is_an_error_with_both_lines() -> None:
    document = read_markdown(b"---\ntools: Read\nname: a\ntools: Bash\n---\n", "x")
    assert said(document.complaints, "error") == [(4, "duplicate key 'tools', first on line 2")]


def test_the_same_key_in_two_entries_of_a_list_is_no_mistake() -> None:
    assert read_markdown(b"---\na:\n  - {x: 1}\n  - {x: 2}\n---\n", "x").complaints == []


def test_aliases_are_counted_by_what_they_stand_for() -> None:
    bomb = "---\na: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, after in zip("abcdefg", "bcdefgh", strict=True):
        bomb += f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    document = read_markdown(f"{bomb}---\n".encode(), "x")
    assert document.broken
    assert "including those of aliases" in document.complaints[-1].message


def test_aliases_and_merges_work_where_they_are_small() -> None:
    document = read_markdown(b"---\na: &x {q: 1}\nb:\n  <<: *x\n  r: 2\nc: *x\n---\n", "x")
    assert document.data == {"a": {"q": 1}, "b": {"q": 1, "r": 2}, "c": {"q": 1}}


@pytest.mark.parametrize(
    "text",
    [
        b"---\na: &a [*a]\n---\n",
        b"---\na: " + b"[" * 200_000 + b"\n---\n",
        b"---\n" + b"".join(b" " * n + b"a:\n" for n in range(500)) + b"---\n",
        b"---\na: 1\n--- x\nb: 2\n---\n",
        b"---\n- a\n- b\n---\n",
        b"---\njust a text\n---\n",
        b"\xff\xfe-\0-\0",
        b"x" * (MAX_BYTES + 1),
    ],
)
def test_what_cannot_be_read_is_one_error(text: bytes) -> None:
    document = read_markdown(text, "x")
    assert document.broken
    assert [c.severity for c in document.complaints] == ["error"]


def test_no_tag_makes_anything_but_plain_values() -> None:
    document = read_markdown(
        b"---\na: !!python/object/apply:os.getcwd []\nb: !thing {c: 1}\nd: 2001-01-01\n---\n", "x"
    )
    assert document.data == {"a": [], "b": {"c": 1}, "d": "2001-01-01"}


def test_numbers_that_json_does_not_have_stay_texts() -> None:
    document = read_markdown(
        b"---\na: .inf\nb: .nan\nc: 99999999999999999999\nd: 12:30:45\ne: 0x10\n---\n", "x"
    )
    assert document.data == {
        "a": ".inf",
        "b": ".nan",
        "c": "99999999999999999999",
        "d": "12:30:45",
        "e": 16,
    }


def test_bytes_that_are_not_utf_8_are_replaced_and_named() -> None:
    document = read_markdown(b"---\nname: a\n---\nna\xefve\x00\n", "x")
    assert document.body == "na\ufffdve"
    assert said(document.complaints) == [
        (4, "not valid UTF-8; invalid bytes were replaced"),
        (4, "control characters were removed"),
    ]


def test_toml_has_lines_too() -> None:
    document = read_toml(b'name = "a"\nwhen = 2020-01-01\n\n[mcp_servers.x]\ncommand = "y"\n', "x")
    assert document.data == {
        "name": "a",
        "when": "2020-01-01",
        "mcp_servers": {"x": {"command": "y"}},
    }
    assert document.lines[("mcp_servers", "x", "command")] == 5


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'name = "a\n', 1),
        (b"a = 1\na = 2\n", 2),
        (b"x = 1\n" + b"a." * 100_000 + b"b = 1", 2),
        (b"a = " + b"[" * 50_000, 0),
        (b"a = 1\n" * 100_000, 0),
    ],
)
def test_toml_that_cannot_be_read_is_one_error_with_its_line(text: bytes, line: int) -> None:
    document = read_toml(text, "x")
    assert [(c.severity, c.line) for c in document.complaints] == [("error", line)]


def test_json_may_have_comments_and_trailing_commas() -> None:
    document = read_json(b'{"a": 1, // one, }\n /* "b": 2, */ "c": ["//", "/*,]",],\n}', "x")
    assert document.data == {"a": 1, "c": ["//", "/*,]"]}
    assert document.lines == {("a",): 1, ("c",): 2}


@pytest.mark.parametrize(
    "text", [b'{"a":' * 50_000, b'"\\' * 300_000, b'{"a": 1, "a": 2}', b"[1]", b'{"a": NaN}']
)
def test_json_that_cannot_be_read_is_one_error(text: bytes) -> None:
    document = read_json(text, "x")
    assert [c.severity for c in document.complaints] == ["error"]
