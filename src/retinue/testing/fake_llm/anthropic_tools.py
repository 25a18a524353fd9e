"""Checks the tools and system prompt of a request to Anthropic."""

from __future__ import annotations

from typing import Any

from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.anthropic_messages import TOOL_NAME, refuse
from retinue.testing.fake_llm.strict_checks import bad_schema, words

TOOL_FIELDS = words(
    "type name description input_schema cache_control strict defer_loading allowed_callers "
    "input_examples eager_input_streaming"
)


def check_tools(value: Any) -> tuple[ToolSchema, ...]:
    if not isinstance(value, list):
        raise refuse("tools: Input should be a valid list")
    schemas: list[ToolSchema] = []
    for n, tool in enumerate(value):
        if not isinstance(tool, dict):
            raise refuse(f"tools.{n}: Input should be a valid dictionary")
        if tool.get("type") not in (None, "custom"):
            continue
        for name in tool:
            if name not in TOOL_FIELDS:
                raise refuse(f"tools.{n}.custom.{name}: Extra inputs are not permitted")
        for name in ("name", "input_schema"):
            if name not in tool:
                raise refuse(f"tools.{n}.custom.{name}: Field required")
        if not isinstance(tool["name"], str) or not TOOL_NAME.match(tool["name"]):
            raise refuse(
                f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )
        _schema(f"tools.{n}.custom.input_schema", tool["input_schema"])
        if any(tool["name"] == other.name for other in schemas):
            raise refuse("tools: Tool names must be unique.")
        about = tool.get("description", "")
        schemas.append(
            ToolSchema(name=tool["name"], description=about, parameters=tool["input_schema"])
        )
    return tuple(schemas)


def _schema(at: str, schema: Any) -> None:
    if not isinstance(schema, dict):
        raise refuse(f"{at}: Input should be a valid dictionary")
    if "type" not in schema:
        raise refuse(f"{at}.type: Field required")
    if schema["type"] != "object":
        raise refuse(f"{at}.type: Input should be 'object'")
    if schema.keys() & {"oneOf", "allOf", "anyOf"}:
        raise refuse(f"{at}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if bad_schema(schema):
        raise refuse(f"{at}: JSON schema is invalid. It must match JSON Schema draft 2020-12")


def check_choice(choice: Any, names: set[str], has_tools: bool) -> None:
    if choice is None:
        return
    if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "tool", "none"):
        raise refuse(
            "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', "
            "'tool', 'none'"
        )
    if not has_tools:
        raise refuse("tool_choice may only be specified while providing tools.")
    if choice["type"] == "tool" and choice.get("name") not in names:
        raise refuse(f"Tool '{choice.get('name')}' not found in provided tools")


def check_system(value: Any) -> tuple[str, int]:
    if isinstance(value, str):
        return value, 0
    if not isinstance(value, list):
        raise refuse("system: Input should be a valid list")
    for n, block in enumerate(value):
        if (
            not isinstance(block, dict)
            or block.get("type") != "text"
            or not isinstance(block.get("text"), str)
        ):
            raise refuse(f"system.{n}: Input should be a text block")
        if not block["text"]:
            raise refuse("system: text content blocks must be non-empty")
    return "\n\n".join(block["text"] for block in value), sum(
        "cache_control" in block for block in value
    )
