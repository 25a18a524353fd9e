"""What people write as types of a tool's parameters is told to the model and held to."""

from __future__ import annotations

import asyncio
import enum
import functools
import json
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import annotated_types as at
import jsonschema
import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypeAliasType

from retinue.errors import ConfigError
from retinue.tools.base import Context, ToolResult
from retinue.tools.function import FunctionTool, tool
from retinue.tools.function.docstrings import read_docstring
from tests.tools.test_function import a_caller

T = TypeVar("T")


class Seating(enum.Enum):
    EARLY = "early"
    LATE = "late"


class Booking(BaseModel):
    """A table for one evening."""

    table: int
    day: date
    guests: Annotated[int, Field(ge=1, le=12, description="Twelve is the largest table.")]


@dataclass
class Item:
    name: str
    amount: Annotated[int, at.Gt(0)] = 1
    parts: list[Item] = field(default_factory=list)


class Filter(TypedDict):
    word: str
    limit: NotRequired[Annotated[int, at.Le(5)]]


class Row(msgspec.Struct, rename="camel"):
    row_name: Annotated[str, msgspec.Meta(min_length=2)]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Box(Generic[T]):
    value: T
    more: list[T]


@dataclass
class Circle:
    radius: float


@dataclass
class Square:
    side: float


Name = NewType("Name", str)
Twice = TypeAliasType("Twice", tuple[T, T], type_params=(T,))
even = Annotated[int, AfterValidator(lambda n: n if n % 2 == 0 else _odd())]


def _odd() -> int:
    raise ValueError("an even number is needed")


def tool_of(hint: Any, **options: Any) -> FunctionTool[Any, Any]:
    """A tool with one parameter of this type, which shows what it was given."""

    def f(a: Any) -> str:
        return repr(a)

    f.__annotations__["a"] = hint
    return tool(f, **options)


def given(hint: Any, value: Any) -> str:
    out = asyncio.run(tool_of(hint, quick=True).run(a_caller(), {"a": value}))
    assert isinstance(out, ToolResult)
    return out.text


GOOD: list[tuple[Any, Any, Any]] = [
    (str, "x", "x"),
    (float, 3, 3.0),
    (bool, True, True),
    (Optional[int], None, None),  # noqa: UP045
    (int | None, 4, 4),
    (int | str, "4", "4"),
    (float | int, 3, 3),
    (int, 3.0, 3),
    (int | float, 3.0, 3.0),
    (Literal[True, 1], 1, 1),
    (Literal[Seating.LATE], "late", Seating.LATE),
    (Level, 2.0, Level.HIGH),
    (Box[str], {"value": "x", "more": []}, Box("x", [])),
    (list[Box[int]], [{"value": 1, "more": [2]}], [Box(1, [2])]),
    (Twice[int], [1, 2], (1, 2)),
    (Annotated[int, at.Predicate(lambda n: n != 3)], 4, 4),
    (Literal["a", 1], 1, 1),
    (Seating, "late", Seating.LATE),
    (Path, "a/b.txt", Path("a/b.txt")),
    (date, "2026-05-01", date(2026, 5, 1)),
    (datetime, "2026-05-01T10:00:00", datetime(2026, 5, 1, 10)),
    (timedelta, "PT90S", timedelta(seconds=90)),
    (Decimal, "1.50", Decimal("1.50")),
    (UUID, "0198c2e1-0000-7000-8000-000000000000", UUID("0198c2e1-0000-7000-8000-000000000000")),
    (list[date], ["2026-05-01"], [date(2026, 5, 1)]),
    (tuple[int, str], [1, "x"], (1, "x")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (set[int], [1, 1], {1}),
    (dict[str, int], {"x": 1}, {"x": 1}),
    (dict[int, Path], {"1": "p"}, {1: Path("p")}),
    (Name, "n", "n"),
    (Any, {"x": [1]}, {"x": [1]}),
    (Item, {"name": "x", "parts": [{"name": "y"}]}, Item("x", 1, [Item("y")])),
    (Filter, {"word": "x"}, {"word": "x"}),
    (Row, {"rowName": "ab"}, Row(row_name="ab")),
    (Circle | Square, {"side": 2}, Square(2.0)),
    (
        list[Booking],
        [{"table": 1, "day": "2026-05-01", "guests": 2}],
        [Booking(table=1, day=date(2026, 5, 1), guests=2)],
    ),
    (dict[str, Booking | None], {"x": None}, {"x": None}),
    (even, 4, 4),
    (Annotated[int, Field(ge=1, le=100)], 100, 100),
    (Annotated[int | None, at.Interval(ge=1, le=9)], None, None),
    (Annotated[str, at.Len(2, 3), Field(pattern="^a")], "abc", "abc"),
]


@pytest.mark.parametrize(("hint", "value", "record"), GOOD, ids=range(len(GOOD)))
def test_a_value_of_its_type_is_taken_and_is_valid_for_the_schema(
    hint: Any, value: Any, record: Any
) -> None:
    assert given(hint, value) == repr(record)
    schema = tool_of(hint).schema.parameters
    json.dumps(schema)
    jsonschema.Draft202012Validator.check_schema(schema)
    if hint != set[int]:
        jsonschema.validate({"a": value}, schema)


BAD: list[tuple[Any, Any, str]] = [
    (Annotated[int, Field(le=100, ge=0)], -5_000_000, "a: expected an integer, at least 0, got -5"),
    (Annotated[int, at.Le(100)], 101, "at most 100, got 101"),
    (Annotated[int, msgspec.Meta(lt=3)], 3, "less than 3"),
    (Annotated[float, Field(gt=0)], 0, "greater than 0"),
    (Annotated[float, at.MultipleOf(0.1)], 0.25, "a multiple of 0.1"),
    (Annotated[str, at.MinLen(2)], "a", "at least 2 characters"),
    (Annotated[list[int], Field(max_length=1)], [1, 2], "at most 1 item,"),
    (Annotated[str, Field(pattern="^[a-z]+$")], "A", "matching the pattern '^[a-z]+$'"),
    (Annotated[date, at.Ge(date(2026, 1, 1))], "2025-12-31", "at least 2026-01-01"),
    (list[Annotated[int, at.Ge(1)]], [1, 0], "a[1]: expected an integer, at least 1, got 0"),
    (Item, {"name": "x", "amount": 0}, "a.amount: expected an integer, greater than 0"),
    (Item, {"name": "x", "parts": [{"name": 1}]}, "a.parts[0].name: expected a string, got 1"),
    (Item, {"name": "x", "nmae": "y"}, "a.nmae: there is no such field"),
    (Filter, {"word": "x", "limit": 9}, "a.limit: expected an integer, at most 5, got 9"),
    (Row, {"rowName": "a"}, "a.rowName: expected a string, at least 2 characters"),
    (Booking, {"table": 1, "day": "2026-05-01", "guests": 40}, "a.guests: "),
    (Booking, {"table": 1, "day": "2026-05-01", "guests": 40}, "equal to 12, got 40"),
    (Booking, {"table": 1, "guests": 4}, "a.day: Field required"),
    (even, 3, "an even number is needed"),
    (Seating, "noon", 'expected one of "early", "late", got "noon"'),
    (Literal[1, 2], True, "expected one of 1, 2, got true"),
    (int, 3.5, "expected an integer, got 3.5"),
    (int, True, "expected an integer, got true"),
    (Box[int], {"value": 1, "more": ["x"]}, "a.more[0]: expected an integer"),
    (Box[int], {"value": 1, "more": [], "x": 1}, "a.x: there is no such field"),
    (Twice[int], [1, "x"], "a[1]: expected an integer"),
    (at.LowerCase[str], "A", "a string, for which islower is true, got"),
    (Path, 3, "expected a path"),
    (date, "soon", "expected a date such as 2026-01-31"),
    (int | date, "soon", "expected an integer or a date such as"),
    (tuple[int, int], [1], "expected a list of 2"),
    (dict[str, int], {"x": "y"}, "a.x: expected an integer"),
]


@pytest.mark.parametrize(("hint", "value", "says"), BAD, ids=range(len(BAD)))
def test_a_value_that_does_not_fit_is_answered_with_what_was_expected(
    hint: Any, value: Any, says: str
) -> None:
    text = given(hint, value)
    assert text.startswith("Invalid parameters: a")
    assert says in text
    example = json.loads(text.rpartition(" Example: ")[2])
    if (
        "pattern" not in text
        and "even" not in text
        and "islower" not in text
        and "2026-01-01" not in text
    ):
        assert not given(hint, example["a"]).startswith("Invalid")


def test_bounds_are_told_to_the_model_whoever_writes_them() -> None:
    for marks in (Field(ge=1, le=9, description="d"), msgspec.Meta(ge=1, le=9, description="d")):
        schema = tool_of(Annotated[int, marks]).schema.parameters["properties"]["a"]
        assert schema == {"type": "integer", "minimum": 1, "maximum": 9, "description": "d"}
    schema = tool_of(Annotated[int | None, at.Interval(gt=1, lt=9), "d"]).schema.parameters
    assert schema["properties"]["a"] == {
        "anyOf": [
            {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 9},
            {"type": "null"},
        ],
        "description": "d",
    }
    schema = tool_of(Annotated[list[str], at.Len(1, 3)]).schema.parameters["properties"]["a"]
    assert (schema["minItems"], schema["maxItems"]) == (1, 3)
    day = tool_of(Annotated[date, at.Ge(date(2026, 1, 1))]).schema.parameters["properties"]["a"]
    assert day["description"] == "Must be at least 2026-01-01."


def test_a_bound_that_the_type_cannot_have_is_refused_when_the_tool_is_made() -> None:
    for hint, says in (
        (Annotated[str, at.Ge(1)], "ge=1 does not apply"),
        (Annotated[int, at.MinLen(1)], "min_length=1 does not apply"),
        (Annotated[str, Field(pattern="(")], "not a regular expression"),
    ):
        with pytest.raises(ConfigError, match=f"Tool 'f': parameter 'a': .*{says}"):
            tool_of(hint)


def test_a_default_that_is_a_field_of_pydantic_bounds_its_parameter() -> None:
    def f(a: int = Field(3, le=9, description="How many."), b: str = Field(max_length=1)) -> str:
        return f"{a}{b}"

    result = tool(f, quick=True)
    assert result.schema.parameters["required"] == ["b"]
    assert result.schema.parameters["properties"]["a"]["description"] == "How many."
    assert asyncio.run(result.run(a_caller(), {"b": "x"})) == ToolResult(text="3x")
    assert "at most 9" in asyncio.run(result.run(a_caller(), {"a": 10, "b": "x"})).text


def test_a_plain_tool_does_not_import_pydantic() -> None:
    program = (
        "import sys\n"
        "from retinue import tool\n"
        "@tool\n"
        "def f(a: int, b: list[str] | None = None) -> None: 'x'\n"
        "print('pydantic' in sys.modules or 'pydantic_core' in sys.modules)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    assert printed.stdout == "False\n"


GOOGLE = """Whether a table is free.

Args:
    table (int): Its number,
        1 to 20.
    day: The evening in question.

Returns:
    Whether it is.
"""
NUMPY = """Whether a table is free.

Parameters
----------
table : int
    Its number,
    1 to 20.
day
    The evening in question.

Returns
-------
bool
    Whether it is.
"""
SPHINX = """Whether a table is free.

:param table: Its number,
    1 to 20.
:param date day: The evening in question.
:type table: int
:returns: Whether it is.
"""


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX])
def test_a_docstring_describes_the_parameters_in_each_style(doc: str) -> None:
    read = read_docstring(doc.strip())
    assert read.parameters == {"table": "Its number, 1 to 20.", "day": "The evening in question."}
    assert read.text.startswith("Whether a table is free.")
    assert "evening" not in read.text and "Whether it is." in read.text

    def free(table: int, day: date, item: Item | None = None) -> bool:
        return True

    free.__doc__ = doc
    schema = tool(free).schema
    assert schema.parameters["properties"]["table"] == {
        "type": "integer",
        "description": "Its number, 1 to 20.",
    }
    assert schema.parameters["properties"]["day"]["description"] == "The evening in question."


def test_a_docstring_that_lists_nothing_stays_as_it_is() -> None:
    for doc in ("", "One line.", "Args are not listed.\n\nNor: here.", "Args:\nnothing indented"):
        read = read_docstring(doc)
        assert read.parameters == {}
    assert read_docstring("One.\n\nNote: two.").text == "One.\n\nNote: two."


class Shop:
    def __init__(self, currency: str) -> None:
        self.currency = currency

    def price(self, item: str, n: int = 1) -> str:
        """What it costs.

        Args:
            item: Its name.
        """
        return f"{n} {item} in {self.currency}"


class WebSearch:
    """Search the web."""

    async def __call__(self, ctx: Context, words: str) -> str:
        return f"{ctx.run_id}: {words}"


def test_methods_partials_and_objects_are_tools() -> None:
    method = tool(Shop("EUR").price)
    assert set(method.schema.parameters["properties"]) == {"item", "n"}
    assert method.schema.parameters["properties"]["item"]["description"] == "Its name."
    assert asyncio.run(method.run(a_caller(), {"item": "tea"})).text == "1 tea in EUR"
    some = tool(functools.partial(Shop("USD").price, n=3), quick=True)
    assert (some.name, set(some.schema.parameters["properties"])) == ("price", {"item"})
    assert asyncio.run(some.run(a_caller(), {"item": "tea"})).text == "3 tea in USD"
    assert asyncio.run(some.run(a_caller(), {"item": "tea", "n": 9})).error
    search = tool(WebSearch())
    assert (search.name, search.description) == ("web_search", "Search the web.")
    assert set(search.schema.parameters["properties"]) == {"words"}
    assert asyncio.run(search.run(a_caller(), {"words": "x"})).text == "r: x"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"restart": "pur"},
            "Tool 'f': restart='pur' is not a restart class. Did you mean 'pure'? There are pure, "
            "keyed, reconcile and unsafe.",
        ),
        (
            {"risk": "reed"},
            "Tool 'f': risk='reed' is not a risk. Did you mean 'read'? There are read, write, "
            "execute and network.",
        ),
        ({"restrat": "pure"}, "tool() has no option 'restrat'. Did you mean 'restart'?"),
        ({"subject": "b"}, "Tool 'f': subject='b' is not a parameter."),
        ({"name": "my tool"}, "Tool 'my tool': a name has 1 to 64 letters"),
    ],
)
def test_an_option_that_is_wrong_is_refused_when_the_tool_is_made(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as error:
        tool_of(int, **options)
    assert str(error.value).startswith(says)


def test_two_types_of_one_name_are_refused() -> None:
    def other() -> type:
        @dataclass
        class Item:
            size: int

        return Item

    with pytest.raises(ConfigError, match="two different types are named 'Item'"):
        tool_of(tuple[Item, other()])  # type: ignore[misc]


def test_what_is_returned_may_be_a_model_a_dataclass_or_a_path() -> None:
    for value, text in (
        (Booking(table=1, day=date(2026, 5, 1), guests=2), '"day":"2026-05-01"'),
        ([Item("x")], '[{"name":"x","amount":1,"parts":[]}]'),
        ({"at": Path("a/b")}, '{"at":"a/b"}'),
        (Seating.LATE, '"late"'),
    ):

        def f(value: Any = value) -> Any:
            return value

        f.__annotations__.clear()
        result = tool(functools.partial(f, value=value), quick=True)
        assert text in asyncio.run(result.run(a_caller(), {})).text


def test_a_tool_that_works_too_long_is_stopped() -> None:
    @tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.sleep(30)
        return "never"

    assert asyncio.run(slow.run(a_caller(), {})) == ToolResult(
        text="The tool was stopped after 0.01 s of its own work.", error=True
    )

    @tool(timeout=timedelta(seconds=5))
    async def own() -> str:
        raise TimeoutError("of its own")

    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(own.run(a_caller(), {}))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement `type` is new in Python 3.12")
def test_an_alias_that_contains_itself_is_a_definition() -> None:
    names: dict[str, Any] = {}
    exec("type Tree = dict[str, Tree] | list[Tree] | int", names)
    value = {"a": [1, {"b": 2}]}
    assert given(names["Tree"], value) == repr(value)
    assert given(names["Tree"], {"a": ["x"]}).startswith("Invalid parameters: a: expected")
    schema = tool_of(names["Tree"]).schema.parameters
    jsonschema.validate({"a": value}, schema)
    assert schema["properties"]["a"] == {"$ref": "#/$defs/Tree"}


def test_a_default_that_json_cannot_write_is_left_out_of_the_schema() -> None:
    def f(most: float = float("inf"), least: float = -1.0) -> None: ...

    properties = tool(f).schema.parameters["properties"]
    assert properties == {"most": {"type": "number"}, "least": {"type": "number", "default": -1.0}}


def test_a_type_that_pydantic_refuses_is_a_mistake_in_the_tool() -> None:
    class Strange(BaseModel):
        thing: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match="Tool 'f': parameter 'a': "):
        tool_of(Strange)
