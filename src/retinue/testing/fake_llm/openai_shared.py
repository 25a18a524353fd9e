"""Shared by OpenAI's two APIs: the key, the form of errors, tools, schemas and names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retinue.core.image_checks import image_facts
from retinue.core.messages import Image
from retinue.core.values import ToolSchema
from retinue.testing.fake_llm.dialect import FakeError
from retinue.testing.fake_llm.http_server import HttpRequest
from retinue.testing.fake_llm.openai_schema_checks import schema_problem
from retinue.testing.fake_llm.strict_checks import NAME, is_count, is_number, json_object

MAX_NAME = 64
COLD = re.compile(r"(?:o\d|gpt-5(?!\.)|gpt-[6-9])")
"""Models that take no temperature while they think."""
MAX_TOOLS = 128


def refuse(
    message: str, param: str | None = None, code: str | None = None, status: int = 400
) -> FakeError:
    return FakeError(status, "invalid_request_error", message, code=code, param=param)


def missing(param: str) -> FakeError:
    return refuse(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def empty(param: str) -> FakeError:
    text = (
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an "
        "empty array instead."
    )
    return refuse(text, param, "empty_array")


def wrong_type(param: str, expected: str, value: object) -> FakeError:
    text = f"Invalid type for '{param}': expected {expected}, but got {_kind(value)} instead."
    return refuse(text, param, "invalid_type")


def wrong_value(param: str, value: object, supported: str) -> FakeError:
    return refuse(
        f"Invalid value: '{value}'. Supported values are: {supported}.", param, "invalid_value"
    )


def _kind(value: object) -> str:
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a decimal",
    }
    return names.get(type(value), "null")


def error(trouble: FakeError, n: int) -> dict[str, Any]:
    problem = {
        "message": trouble.message,
        "type": trouble.kind,
        "param": trouble.param,
        "code": trouble.code,
    }
    return {"error": problem}


def headers(n: int) -> dict[str, str]:
    return {"x-request-id": f"req_{n:024d}"}


def read_body(ask: HttpRequest) -> dict[str, Any]:
    if not ask.headers.get("authorization", "").startswith("Bearer "):
        text = (
            "You didn't provide an API key. You need to provide your API key in an Authorization "
            "header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
        )
        raise FakeError(401, "invalid_request_error", text)
    body = json_object(ask.body)
    if isinstance(body, str) or not ask.headers.get("content-type", "").startswith(
        "application/json"
    ):
        raise refuse(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't "
            "using your HTTP library correctly. The OpenAI API expects a JSON payload, but what "
            "was sent was not valid JSON.)"
        )
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise refuse("you must provide a model parameter")
    if not isinstance(body.get("stream") or False, bool):
        raise wrong_type("stream", "a boolean", body["stream"])
    heat = body.get("temperature")
    if heat is not None and (not is_number(heat) or not 0 <= heat <= 2):
        raise refuse(
            f"Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got "
            f"{heat} instead.",
            "temperature",
            "decimal_above_max_value",
        )
    effort = body.get("reasoning_effort", (body.get("reasoning") or {}).get("effort"))
    for name in ("temperature", "top_p"):
        if body.get(name) is not None and effort != "none" and COLD.match(body["model"]):
            text = f"Unsupported parameter: '{name}' is not supported with this model."
            raise refuse(text, name, "unsupported_parameter")
    return body


def limit(body: Mapping[str, Any], name: str, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(name, "an integer", value)
    if not is_count(value, least):
        text = (
            f"Invalid '{name}': integer below minimum value. Expected a value >= {least}, but "
            f"got {value} instead."
        )
        raise refuse(text, name, "integer_below_min_value")
    return value


def text_field(value: Any, param: str) -> str:
    if value is None:
        raise missing(param)
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    return value


def name_field(value: Any, param: str) -> str:
    name = text_field(value, param)
    if not NAME.match(name):
        text = (
            f"Invalid '{param}': string does not match pattern. Expected a string that matches the "
            "pattern '^[a-zA-Z0-9_-]+$'."
        )
        raise refuse(text, param, "invalid_value")
    return too_long(name, MAX_NAME, param)


def too_long(value: str, most: int, param: str) -> str:
    if len(value) > most:
        text = (
            f"Invalid '{param}': string too long. Expected a string with maximum length {most}, "
            f"but got a string with length {len(value)} instead."
        )
        raise refuse(text, param, "string_above_max_length")
    return value


def unknown_field(value: Mapping[str, Any], known_names: frozenset[str], at: str = "") -> None:
    if not value.keys() <= known_names:
        name = min(value.keys() - known_names)
        param = f"{at}.{name}" if at else name
        raise refuse(f"Unknown parameter: '{param}'.", param, "unknown_parameter")


def tool_list(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise wrong_type("tools", "an array of objects", value)
    if not value:
        raise empty("tools")
    if len(value) > MAX_TOOLS:
        text = (
            f"Invalid 'tools': array too long. Expected an array with maximum length "
            f"{MAX_TOOLS}, but got {len(value)}."
        )
        raise refuse(text, "tools", "array_above_max_length")
    for n, tool in enumerate(value):
        if not isinstance(tool, dict):
            raise wrong_type(f"tools[{n}]", "an object", tool)
        if "type" not in tool:
            raise missing(f"tools[{n}].type")
    return value


def function(tool: Mapping[str, Any], at: str) -> ToolSchema:
    name = name_field(tool.get("name"), f"{at}.name")
    schema = tool.get("parameters") or {"type": "object", "properties": {}}
    if problem := schema_problem(schema, bool(tool.get("strict"))):
        text = f"Invalid schema for function '{name}': {problem}"
        raise refuse(text, f"{at}.parameters", "invalid_function_parameters")
    return ToolSchema(name=name, description=tool.get("description") or "", parameters=schema)


def image(url: Any, param: str) -> Image:
    if not isinstance(url, str) or not url:
        raise missing(param)
    if url.startswith("data:"):
        kind, _, data = url[5:].partition(";base64,")
        if not data:
            raise refuse(
                f"Invalid '{param}'. Expected a valid URL, but got a value with an invalid format.",
                param,
            )
        picture = Image(media_type=kind, data=data)
        if image_facts(picture).wrong:
            raise refuse(
                "The image data you provided does not represent a valid image.",
                param,
                "invalid_image",
            )
        return picture
    return Image(media_type="", data=url)
