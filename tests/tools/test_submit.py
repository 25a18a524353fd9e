"""How a child hands in its result."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from retinue.errors import ConfigError
from retinue.tools.base import Submission, ToolResult
from retinue.tools.output_type import json_schema
from retinue.tools.submit import SubmitError, SubmitResult
from tests.tools.test_function import a_caller


class Report(msgspec.Struct):
    title: str
    score: int


class Loose(msgspec.Struct):
    title: str = ""


def submit(result: Any, args: dict[str, Any]) -> Any:
    return asyncio.run(result.run(a_caller(), args))


def test_a_text_is_taken_as_it_is() -> None:
    assert submit(SubmitResult(), {"result": "done"}) == Submission(text="done", data="done")


def test_a_result_is_checked_against_its_type() -> None:
    result = SubmitResult(Report)
    good = {"title": "x", "score": 3}
    assert submit(result, {"result": good}) == Submission(text='{"title":"x","score":3}', data=good)
    bad = submit(result, {"result": {"title": "x", "score": "3"}})
    assert isinstance(bad, ToolResult)
    assert bad.error
    assert "does not match its schema" in bad.text
    assert "score" in bad.text


def test_the_schema_of_the_type_is_what_the_model_is_shown() -> None:
    parameters = SubmitResult(Report).schema.parameters
    assert parameters["required"] == ["result"]
    assert parameters["properties"]["result"]["properties"]["score"] == {"type": "integer"}
    nested = SubmitResult(list[Report]).schema.parameters
    assert "Report" in nested["$defs"]
    assert "$defs" not in nested["properties"]["result"]


def test_a_schema_that_providers_can_hold_a_reply_to_says_so() -> None:
    schema = SubmitResult(Report).schema
    assert schema.strict
    assert schema.parameters["properties"]["result"]["additionalProperties"] is False
    assert SubmitResult(list[Report]).schema.strict
    assert SubmitResult(str).schema.strict
    for loose in (Any, dict[str, int], Loose, json_schema({"minLength": 2})):
        assert not SubmitResult(loose).schema.strict


def test_a_json_schema_does_as_well() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
    }
    result = SubmitResult(json_schema(schema))
    assert submit(result, {"result": {"n": 2}}).data == {"n": 2}
    assert "$.n" in submit(result, {"result": {"n": 0}}).text
    assert result.schema.parameters["properties"]["result"] == schema
    assert "$defs" not in schema


@pytest.mark.parametrize("args", [{}, {"result": "x", "more": 1}, {"resutl": "x"}])
def test_exactly_one_key_is_taken(args: dict[str, Any]) -> None:
    answer = submit(SubmitResult(), args)
    assert answer.error
    assert '"result"' in answer.text


def test_a_large_number_is_handed_in_as_it_is() -> None:
    reply = submit(SubmitResult(Any), {"result": [10**30]})
    assert (reply.text, reply.data) == (f"[{10**30}]", [10**30])


def test_an_error_is_handed_in_by_its_own_tool() -> None:
    assert submit(SubmitError(), {"error": "no way"}) == Submission(text="no way", ok=False)
    for args in ({}, {"error": 3}, {"error": "x", "more": 1}):
        assert submit(SubmitError(), args).error


def test_submit_tools_start_no_children_and_may_be_run_again() -> None:
    for result in (SubmitResult(), SubmitError()):
        assert result.restart == "pure"
        with pytest.raises(ConfigError, match="starts no children"):
            result.format_results([])
