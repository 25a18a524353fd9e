"""Arguments as a model wrote them: something a tool can trust, or a sentence the model can use."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.core.arguments import MAX_BYTES, MAX_DEPTH, BadArguments, is_deep, parse, read

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "a",
    "\\",
    "\\u",
    "d800",
    "NaN",
    "-Infinity",
    "1e999",
    "0",
    " ",
    "\x00",
    "é",
]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_is_an_object_or_a_sentence(text: str) -> None:
    try:
        value = parse(text)
    except BadArguments as error:
        assert str(error)
    else:
        assert isinstance(value, dict)
        value_is_clean(value)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.dictionaries(st.text(), JSON, max_size=5), st.booleans())
def test_an_object_is_read_as_it_was_written(value: dict[str, Any], ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only)) == value
    assert parse(json.dumps(json.dumps(value))) == value


def value_is_clean(value: Any) -> None:
    """It can be stored and sent."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode("utf-8")


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_nothing_is_no_arguments(text: str) -> None:
    assert parse(text) == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"tool": "read", "tool": "shell"}', "duplicate key: tool"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "duplicate key: b"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": [-Infinity]}', "-Infinity is not a JSON number"),
        ("[1, 2]", "must be a JSON object, not list"),
        ("3", "must be a JSON object, not int"),
        ("null", "must be a JSON object, not NoneType"),
        ('"plain"', "must be a JSON object, not str"),
        ('{"path": "a", ', "not valid JSON"),
        ('{"a": 1} {"b": 2}', "not valid JSON"),
        ('"{\\"a\\": "', "not valid JSON"),
        ('{"n": ' + "9" * 5_000 + "}", "not valid"),
        ("[" * 100_000, "nested more than 64 levels deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested more than 64 levels deep"),
        ('{"a": "' + "x" * MAX_BYTES + '"}', "the limit is"),
    ],
    ids=lambda v: v[:30],
)
def test_what_is_wrong_is_said(text: str, says: str) -> None:
    with pytest.raises(BadArguments, match=says.replace("(", r"\(")):
        parse(text)


@pytest.mark.parametrize("text", ['{"a": 1e400}', '{"a": [-1e999]}'])
def test_a_number_beyond_all_numbers_is_refused(text: str) -> None:
    """`json.loads` makes an infinity of it, which no JSON can carry on."""
    try:
        value = parse(text)
    except BadArguments:
        return
    assert not any(
        math.isinf(v) for v in (value["a"] if isinstance(value["a"], list) else [value["a"]])
    )


def test_the_depth_that_is_allowed_is_taken() -> None:
    deepest = '{"a":' * (MAX_DEPTH - 1) + "{}" + "}" * (MAX_DEPTH - 1)
    assert "a" in parse(deepest)
    assert parse('{"a": "' + "[" * 1_000 + '"}') == {"a": "[" * 1_000}
    assert parse('{"a": "\\"' + "{" * 1_000 + '"}') == {"a": '"' + "{" * 1_000}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "\\ud800"}', "\ufffd"),
        ('{"a": "x\\udfffy"}', "x\ufffdy"),
        ('{"a": "\\ud83d\\ude00"}', "\U0001f600"),
        ('{"a": "\ud800b"}', "\ufffdb"),
        ('{"a": "\ufeffé"}', "\ufeffé"),
    ],
)
def test_a_lone_surrogate_becomes_a_mark(text: str, value: str) -> None:
    assert parse(text) == {"a": value}


def test_keys_that_become_the_same_are_the_same() -> None:
    with pytest.raises(BadArguments):
        parse('{"\\ud800": 1, "\\ud801": 2}')


def test_many_equal_keys_do_not_stop_the_world() -> None:
    """A megabyte of them is what a model may send."""
    text = "{" + ",".join(f'"k{i}":1' for i in range(12_000)) + ',"k0":1}'
    begin = time.process_time()
    with pytest.raises(BadArguments, match="k0"):
        parse(text)
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"a":1,"a":2}', '{"a":NaN}', '{"a":' + "[" * 100_000, "null", '"x"']
)
def test_whoever_looks_at_a_call_gets_its_arguments_or_none(text: str) -> None:
    assert read(text) is None


def test_who_looks_sees_what_the_tool_gets() -> None:
    assert read('{"a":"x"}') == {"a": "x"} and read("") == {}
    deep = '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1)
    assert is_deep(deep) and read(deep) is None and not is_deep('{"a":"' + "[" * 100 + '"}')
