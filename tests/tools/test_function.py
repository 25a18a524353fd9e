"""A function becomes a tool: its signature is the schema, its docstring the description."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import pytest

from retinue.core.effects import ChildOutcome
from retinue.core.spec import Actions, RunRequest, RunSpec
from retinue.core.state import Queued, Run
from retinue.core.values import Ending, Usage
from retinue.errors import ConfigError, ToolError
from retinue.tools.base import Ask, Context, Submission, ToolResult
from retinue.tools.function import FunctionTool, tool


def a_caller(**fields: Any) -> Context:
    spec = RunSpec(id="r", request=RunRequest(agent="boss", task="t", cwd="w"), root="r")
    return Context(
        spec=spec,
        row=Run(id="r", state=Queued(), turn=2),
        call_id="c",
        index=1,
        key="k",
        called_at=5,
        **fields,
    )


def run(result: FunctionTool, **args: Any) -> Any:
    return asyncio.run(result.run(a_caller(), args))


class Place(msgspec.Struct):
    name: str
    floor: int = 0


@tool
def find(
    pattern: str, place: Place, mode: Literal["fast", "slow"] = "fast", limit: int = 10
) -> str:
    """Find things.

    In a place.
    """
    return f"{pattern} in {place.name}, {mode}, {limit}"


def test_the_signature_is_the_schema() -> None:
    schema = find.schema
    assert (schema.name, schema.description) == ("find", "Find things.\n\nIn a place.")
    parameters = schema.parameters
    assert parameters["type"] == "object"
    assert set(parameters["properties"]) == {"pattern", "place", "mode", "limit"}
    assert set(parameters["required"]) == {"pattern", "place"}
    assert parameters["additionalProperties"] is False
    assert "$ref" not in parameters
    assert parameters["properties"]["mode"]["enum"] == ["fast", "slow"]
    assert "Place" in parameters["$defs"]
    assert find.restart == "unsafe"


def test_arguments_are_checked_and_converted() -> None:
    assert run(find, pattern="x", place={"name": "attic"}) == ToolResult(
        text="x in attic, fast, 10"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"place": {"name": "a"}}, "pattern: this parameter is required: a string"),
        ({"pattern": 1, "place": {"name": "a"}}, "pattern: expected a string, got 1"),
        (
            {"pattern": "x", "place": {"name": "a"}, "limit": True},
            "limit: expected an integer, got true",
        ),
        (
            {"pattern": "x", "place": {"name": "a"}, "limit": "3"},
            'limit: expected an integer, got "3"',
        ),
        (
            {"pattern": "x", "place": {"name": "a"}, "mode": "odd"},
            'mode: expected one of "fast", "slow", got "odd"',
        ),
        (
            {"pattern": "x", "place": {"name": "a"}, "rm": 1},
            "rm: there is no such parameter; the parameters are pattern, place, mode, limit",
        ),
        (
            {"pattern": "x", "place": {"name": "a"}, "limt": 1},
            "limt: there is no such parameter. Did you mean 'limit'?",
        ),
        ({"pattern": "x", "place": {"floor": 1}}, "place.name: this field is required: a string"),
        ({"pattern": "x", "place": {"name": "a", "floor": "1"}}, "place.floor: expected an int"),
        ({"pattern": 1, "place": "a"}, "got 1; place: expected an object"),
    ],
)
def test_wrong_arguments_are_an_answer_that_the_model_can_act_on(
    args: dict[str, Any], says: str
) -> None:
    answer = run(find, **args)
    assert answer.error
    assert answer.text.startswith("Invalid parameters: ")
    assert says in answer.text
    assert answer.text.endswith(' Example: {"pattern":"text","place":{"name":"text"}}')


def test_it_is_still_a_function() -> None:
    assert find("x", Place(name="attic"), limit=1) == "x in attic, fast, 1"


def test_an_async_function_runs_on_the_loop_and_a_plain_one_in_a_thread() -> None:
    @tool
    async def here() -> str:
        """x"""
        return threading.current_thread().name

    @tool
    def there() -> str:
        """x"""
        return threading.current_thread().name

    @tool(quick=True)
    def quickly() -> str:
        """x"""
        return threading.current_thread().name

    main = threading.current_thread().name
    assert run(here).text == main
    assert run(there).text != main
    assert run(quickly).text == main


def test_a_caller_is_filled_in_and_not_shown() -> None:
    @tool(name="who", restart="pure")
    def f(me: Context, n: int = 1) -> str:
        """x"""
        return f"{me.run_id} {me.cwd} {n}"

    assert set(f.schema.parameters["properties"]) == {"n"}
    assert (f.name, f.restart) == ("who", "pure")
    assert run(f, n=2).text == "r w 2"
    assert run(f, me="x").error


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "Done."),
        ("as it is", "as it is"),
        ({"a": [1]}, '{"a":[1]}'),
        (3, "3"),
        (True, "true"),
    ],
)
def test_what_is_returned_becomes_words(value: Any, text: str) -> None:
    @tool(quick=True)
    def f() -> Any:
        """x"""
        return value

    assert run(f) == ToolResult(text=text)


@pytest.mark.parametrize(
    "value",
    [
        ToolResult(text="x", error=True),
        Actions(answer="x"),
        Submission(text="x"),
        Ask(question="?"),
    ],
)
def test_an_answer_for_the_machine_is_passed_on(value: Any) -> None:
    @tool(quick=True)
    def f() -> Any:
        """x"""
        return value

    assert run(f) is value


def test_a_tool_that_cannot_be_described_is_refused_when_it_is_made() -> None:
    def untyped(a):  # type: ignore[no-untyped-def]
        """x"""

    def many(*args: int) -> None:
        """x"""

    def named(**kwargs: int) -> None:
        """x"""

    def unknown(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
        """x"""

    for function, says in (
        (untyped, r"Tool 'untyped': parameter 'a' has no type. Write, for example, a: str."),
        (many, "by name"),
        (named, "by name"),
    ):
        with pytest.raises(ConfigError, match=says):
            tool(function)
    with pytest.raises(ConfigError, match="cannot resolve"):
        tool(unknown)


def test_a_parameter_that_cannot_be_named_is_refused_when_it_is_made() -> None:
    def positional(a: int, /) -> None:
        """x"""

    with pytest.raises(ConfigError):
        tool(positional)


def test_a_type_without_a_schema_is_refused_with_the_name_of_the_tool() -> None:
    def odd(a: threading.Thread) -> None:
        """x"""

    with pytest.raises(ConfigError, match="odd"):
        tool(odd)


def an_outcome(text: str) -> ChildOutcome:
    ending = Ending(state="completed", stop="done", text=text)
    return ChildOutcome(
        id="x", label="l", task="t", item=0, ending=ending, usage=Usage(), created_at=0
    )


def test_a_family_composes_with_the_words_it_was_given() -> None:
    def words(outcomes: Sequence[ChildOutcome]) -> str:
        return "+".join(o.ending.text for o in outcomes)

    @tool(format_results=words)
    def f() -> None:
        """x"""

    assert f.format_results([an_outcome("a"), an_outcome("b")]) == "a+b"
    with pytest.raises(ConfigError, match="cannot format results"):
        find.format_results([])


class Defaults:
    """A view of the runtime in which every agent has the same defaults."""

    def defaults(self, agent: str) -> dict[str, Any]:
        return {"max_turns": 3, "label": agent}

    async def staff(self, spec: Any) -> list[Any]:
        return []


def test_a_caller_makes_orders_from_the_defaults_of_the_agent() -> None:
    caller = a_caller(reader=Defaults())
    orders = caller.spawn_actions("hand", "a", "b", join="none", answer="ok", label="mine")
    assert [o.task for o in orders.spawns] == ["a", "b"]
    assert {(o.agent, o.max_turns, o.join, o.label) for o in orders.spawns} == {
        ("hand", 3, "none", "mine")
    }
    assert orders.answer == "ok"
    assert caller.child_id(0) != caller.child_id(1)
    assert asyncio.run(caller.children()) == []


def test_what_cannot_be_raised_into_a_future_is_a_failed_call_and_not_a_run_that_hangs() -> None:
    @tool
    def first(of: list[int]) -> int:
        """x"""
        return next(n for n in of if n > 5)

    @tool(quick=True)
    def quickly() -> int:
        """x"""
        return next(iter(()))

    @tool
    def leave() -> None:
        """x"""
        raise SystemExit(2)

    @tool
    async def leave_slowly() -> None:
        """x"""
        raise SystemExit(2)

    for result, args, says in (
        (first, {"of": [1]}, r"first raised StopIteration\(\)"),
        (quickly, {}, "quickly raised StopIteration"),
        (leave, {}, r"leave raised SystemExit\(2\)"),
        (leave_slowly, {}, r"leave_slowly raised SystemExit\(2\)"),
    ):
        with pytest.raises(RuntimeError, match=says):
            asyncio.run(asyncio.wait_for(result.run(a_caller(), args), 5))
    with pytest.raises(RuntimeError, match="quickly raised StopIteration"):
        quickly.run_now(a_caller, {})


def test_a_generator_and_a_method_of_no_object_are_refused_with_what_to_write() -> None:
    def pages(n: int) -> Iterator[int]:
        """x"""
        yield n

    with pytest.raises(ConfigError, match=r"'pages': it is a generator.* Return a list"):
        tool(pages)
    with pytest.raises(ConfigError, match=r"Tool 'price': .* write tool\(thing.price\)"):

        class Shop:
            @tool
            def price(self, item: str) -> str:
                """x"""
                return item


def test_a_context_that_may_be_none_is_filled_in() -> None:
    @tool
    def who(n: int, ctx: Context | None = None) -> str:
        """x"""
        return f"{n} {ctx.run_id if ctx else 'alone'}"

    assert run(who, n=1).text == "1 r"
    assert who(1) == "1 alone"
    assert set(who.schema.parameters["properties"]) == {"n"}


def test_mappings_and_sequences_of_all_kinds_can_be_returned() -> None:
    for value, text in (
        (MappingProxyType({"a": (1,)}), '{"a":[1]}'),
        (range(3), "[0,1,2]"),
        (deque([1]), "[1]"),
    ):

        @tool(quick=True)
        def f(value: Any = value) -> Any:
            """x"""
            return value

        assert run(f).text == text

    @tool(quick=True)
    def odd() -> Any:
        """x"""
        return {(1, 2): 3}

    with pytest.raises(ToolError, match="The result of odd cannot be written as JSON"):
        run(odd)
