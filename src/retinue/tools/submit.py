"""How a run submits its result: `submit_result`, checked against the agent's output type, and
`submit_error`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from retinue.core.effects import ChildOutcome
from retinue.core.values import Restart, ToolSchema
from retinue.errors import ConfigError
from retinue.tools.base import Context, Returned, Risk, Submission, ToolResult
from retinue.tools.output_type import Output, output_checker
from retinue.tools.strict_schema import strict_schema

RESULT, ERROR = "submit_result", "submit_error"

_encode = msgspec.json.Encoder().encode


class SubmitResult:
    """Takes `result`, which must be valid for `output`: a type, or what `one_of` or `json_schema`
    made."""

    restart: Restart = "pure"
    risk: Risk = "read"

    def __init__(self, output: Any = str) -> None:
        self._check, result = output_checker(output)
        definitions = result.pop("$defs", None)
        if "$ref" not in result and not isinstance(output, Output):
            result.setdefault(
                "description",
                "Everything the agent that gave you the task needs; it sees nothing else.",
            )
        parameters = {
            "type": "object",
            "properties": {"result": result},
            "required": ["result"],
            "additionalProperties": False,
        }
        if definitions:
            parameters["$defs"] = definitions
        closed = strict_schema(parameters)
        self.schema = ToolSchema(
            name=RESULT,
            description="Submit your final result. Call it alone, when the task is done; it ends "
            "your run.",
            parameters=closed or parameters,
            strict=closed is not None,
        )

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        if set(args) != {"result"}:
            return ToolResult(
                text='Invalid parameters: give exactly one key, "result". Submit again.',
                error=True,
            )
        result = args["result"]
        wrong = self._check(result)
        if wrong:
            return ToolResult(
                text=f"The result does not match its schema: {wrong}. Submit a corrected one.",
                error=True,
            )
        text = result if isinstance(result, str) else _encode(result).decode()
        return Submission(text=text, data=result)

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        raise ConfigError("submit_result starts no children")


class SubmitError:
    """Takes `error`: why the task cannot be done."""

    restart: Restart = "pure"
    risk: Risk = "read"
    schema = ToolSchema(
        name=ERROR,
        description="Report that the task cannot be completed, with the reason. Call it alone; it "
        "ends your run.",
        parameters={
            "type": "object",
            "properties": {
                "error": {
                    "type": "string",
                    "description": "Why the task cannot be completed, and what you tried.",
                }
            },
            "required": ["error"],
            "additionalProperties": False,
        },
    )

    async def run(self, context: Context, args: dict[str, Any]) -> Returned:
        error = args.get("error")
        if set(args) != {"error"} or not isinstance(error, str):
            return ToolResult(
                text='Invalid parameters: give exactly one key, "error", a string. Submit again.',
                error=True,
            )
        return Submission(text=error, ok=False)

    def format_results(self, outcomes: Sequence[ChildOutcome]) -> str:
        raise ConfigError("submit_error starts no children")
