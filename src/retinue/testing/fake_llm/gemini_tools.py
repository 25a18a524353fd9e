"""Checks the tools of a request to Gemini."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import encode
from retinue.testing.fake_llm.gemini_checks import (
    camel_keys,
    refuse_gemini,
    same_name,
    unknown_fields,
)
from retinue.testing.fake_llm.strict_checks import bad_schema, words

TOOL_FIELDS = words(
    "functionDeclarations googleSearch googleSearchRetrieval codeExecution urlContext fileSearch "
    "computerUse googleMaps"
)
FUNCTION_FIELDS = words(
    "name description parameters parametersJsonSchema response responseJsonSchema behavior"
)
SCHEMA_FIELDS = words(
    "type format title description nullable enum items maxItems minItems properties required "
    "minProperties maxProperties minimum maximum minLength maxLength pattern example anyOf "
    "propertyOrdering default"
)
TYPES = words("STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT NULL TYPE_UNSPECIFIED")
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}\Z")


def check_functions(value: Any) -> tuple[ToolSchema, ...]:
    schemas: list[ToolSchema] = []
    for n, tool in enumerate(same_name(value, list, "tools")):
        tool = camel_keys(same_name(tool, dict, f"tools[{n}]"))
        unknown_fields(tool, TOOL_FIELDS, f"tools[{n}]")
        for i, declared in enumerate(
            same_name(
                tool.get("functionDeclarations", []), list, f"tools[{n}].function_declarations"
            )
        ):
            at = f"tools[{n}].function_declarations[{i}]"
            declared = camel_keys(same_name(declared, dict, at))
            unknown_fields(declared, FUNCTION_FIELDS, at)
            schema = _function(declared, at)
            if any(schema.name == other.name for other in schemas):
                raise refuse_gemini(f"Duplicate function declaration found: {schema.name}")
            schemas.append(schema)
    return tuple(schemas)


def _function(declared: Mapping[str, Any], at: str) -> ToolSchema:
    name = declared.get("name", "")
    if not isinstance(name, str) or not NAME.match(name):
        raise refuse_gemini(
            f"* GenerateContentRequest.{at}.name: Invalid function name. Must start with a letter "
            "or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), "
            "colons (:), or dashes (-), with a maximum length of 64.\n"
        )
    if "parameters" in declared and "parametersJsonSchema" in declared:
        raise refuse_gemini(
            f"* GenerateContentRequest.{at}: parameters and parameters_json_schema are mutually "
            "exclusive.\n"
        )
    schema = declared.get("parameters", declared.get("parametersJsonSchema"))
    if "parametersJsonSchema" in declared:
        if not isinstance(schema, dict) or schema.get("type") != "object" or bad_schema(schema):
            raise refuse_gemini(
                f"* GenerateContentRequest.{at}.parameters_json_schema: schema must be an object "
                "schema.\n"
            )
    elif schema is not None:
        _schema(schema, f"{at}.parameters")
        if str(schema.get("type")).upper() != "OBJECT":
            raise refuse_gemini(
                f"* GenerateContentRequest.{at}.parameters: parameters schema should be of type "
                "OBJECT.\n"
            )
    return ToolSchema(
        name=name, description=str(declared.get("description", "")), parameters=schema or {}
    )


def _schema(schema: Any, at: str) -> None:
    """Gemini's own kind of schema: a few words of JSON schema, and no others."""
    schema = camel_keys(same_name(schema, dict, at))
    unknown_fields(schema, SCHEMA_FIELDS, at)
    kind = schema.get("type")
    if isinstance(kind, list):
        text = "Proto field is not repeating, cannot start list."
        raise refuse_gemini(
            f"Invalid JSON payload received. Unknown name \"type\" at '{at}': {text}"
        )
    if kind is not None and str(kind).upper() not in TYPES:
        proto = "type.googleapis.com/google.ai.generativelanguage.v1beta.Type"
        raise refuse_gemini(f"Invalid value at '{at}.type' ({proto}), {encode(kind).decode()}")
    parts = same_name(schema.get("properties", {}), dict, f"{at}.properties")
    if absent := [
        name
        for name in same_name(schema.get("required", []), list, f"{at}.required")
        if name not in parts
    ]:
        raise refuse_gemini(
            f"* GenerateContentRequest.{at}.required[0]: property is not defined: {absent[0]}\n"
        )
    if str(kind).upper() == "ARRAY" and "items" not in schema:
        raise refuse_gemini(f"* GenerateContentRequest.{at}.items: missing field.\n")
    for n, part in enumerate(parts.values()):
        _schema(part, f"{at}.properties[{n}].value")
    if "items" in schema:
        _schema(schema["items"], f"{at}.items")
    for n, part in enumerate(schema.get("anyOf", [])):
        _schema(part, f"{at}.any_of[{n}]")
