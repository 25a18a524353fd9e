"""TOML of others: mistakes have their places, and nothing ends the process."""

from __future__ import annotations

import tracemalloc

import pytest

from retinue.formats.toml_text import MOST_PARTS, BadToml, load
from retinue.tools.mcp_client.config_dialects import parse

LONG = ".".join("a" * (MOST_PARTS + 1))


def test_values_are_read() -> None:
    assert load('x = 1\n[a."b.c"]\ny = [1.5, "z"]') == {"x": 1, "a": {"b.c": {"y": [1.5, "z"]}}}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("x = 1\ny = ?", 2, 5),
        ("x = 1\n\ny =\n", 3, 4),
        ("a = 1\na = 2", 2, 0),
        ("x = [1,\n\n\n", 1, 0),
        ("d = 2026-99-99", 1, 0),
    ],
)
def test_a_mistake_has_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(BadToml) as error:
        load(text)
    assert error.value.line == line
    assert not column or error.value.column == column
    assert "(at " not in error.value.message
    assert str(error.value).startswith(f"line {line}")


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]",
        f"[[ {LONG} ]]",
        f"x = {{ {LONG} = 1 }}",
        " . ".join(["a"] * 101) + " = 1",
        ".".join(['"\\""'] * 101) + " = 1",
        ".".join(["'#'"] * 101) + " = 1",
        f'x = [{{a = """\n\' """}}, {{ {LONG} = 1 }}]',
        f"x = '''\n\"'''\n{LONG} = 1",
        f'# """\n{LONG} = 1',
    ],
)
def test_a_key_of_very_many_parts_is_refused_wherever_it_stands(text: str) -> None:
    with pytest.raises(BadToml, match="more than 100 parts") as error:
        load(text)
    assert error.value.line == text.count("\n") + 1


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG[2:]} = 1",
        "x = [" + ", ".join(["1.5"] * 500) + "]",
        f"x = '{LONG}'",
        f'x = """\n{LONG} "quoted" {LONG}"""',
        f"x = 1 # {LONG}",
        "x = '" + "." * 500 + "'",
    ],
)
def test_many_dots_are_not_many_parts(text: str) -> None:
    assert load(text)


@pytest.mark.parametrize("text", ["x = " + "[" * 100_000, "x = " + "{a=" * 100_000])
def test_what_is_nested_very_deep_is_an_error(text: str) -> None:
    with pytest.raises(BadToml):
        load(text)


def test_servers_in_toml_are_read_with_the_same_bounds() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="parts"):
            parse(".".join("a" * 20_000) + " = 1", is_toml=True)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(ValueError):
        parse("x = " + "[" * 100_000, is_toml=True)


def test_reading_takes_time_in_proportion_to_the_length() -> None:
    for piece in ('\\"', "'", '"""', "a.", '"."', "''.", '"\\'):
        with pytest.raises(BadToml):
            load("." * 101 + piece * 100_000)
