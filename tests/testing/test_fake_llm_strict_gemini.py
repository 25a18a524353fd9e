"""What the fake provider refuses and takes as Gemini does, in its words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pictures import encoded, png
from tests.testing.fake_llm_strict_support import (
    Bend,
    Case,
    add,
    answers,
    both,
    drop,
    header,
    model,
    put,
    refused,
    sealed,
    trouble,
)
from tests.testing.fake_llm_support import SCHEMA, Post, tools

PNG = encoded(png())


def contents(*more: Any) -> Bend:
    return put("contents", value=[{"role": "user", "parts": [{"text": "hi"}]}, *more])


def ask(*names: str, **more: Any) -> dict[str, Any]:
    return {
        "role": "model",
        "parts": [{"functionCall": {"name": name, "args": {}, **more}} for name in names],
    }


def tell(*names: str, **more: Any) -> dict[str, Any]:
    parts = [
        {"functionResponse": {"name": name, "response": {"output": "x"}, **more}} for name in names
    ]
    return {"role": "user", "parts": parts}


def declared(**more: Any) -> Bend:
    return lambda post: post.body["tools"][0]["functionDeclarations"][0].update(more)


def parameters(value: Any) -> Bend:
    return declared(parameters=value)


UNEVEN = "Please ensure that the number of function response parts is equal"
AFTER_CALL = (
    "Please ensure that function response turn comes immediately after a function call turn."
)
AFTER_USER = "Please ensure that function call turn comes immediately after a user turn"
USER = {"role": "user", "parts": [{"text": "x"}]}
GEMINI: list[Case] = [
    ("no key", header("x-goog-api-key", None), 403, "Method doesn't allow unregistered callers"),
    (
        "not JSON by its header",
        header("content-type", "text/plain"),
        400,
        "Invalid JSON payload received",
    ),
    (
        "an unknown field",
        put("messages", value=[]),
        400,
        'Unknown name "messages": Cannot find field.',
    ),
    (
        "an unknown setting",
        put("generationConfig", value={"max_tokens": 1}),
        400,
        "\"maxTokens\" at 'generation_config'",
    ),
    (
        "settings that are none",
        put("generationConfig", value=[1]),
        400,
        "Invalid value at 'generation_config'",
    ),
    (
        "a limit of 0",
        put("generationConfig", value={"maxOutputTokens": 0}),
        400,
        "max_output_tokens: must be positive",
    ),
    (
        "a limit as a text",
        put("generation_config", value={"max_output_tokens": "9"}),
        400,
        "must be positive",
    ),
    ("no contents", drop("contents"), 400, "contents is not specified"),
    ("no content", put("contents", value=[]), 400, "contents is not specified"),
    (
        "contents that are no list",
        put("contents", value={"a": 1}),
        400,
        "Invalid value at 'contents'",
    ),
    (
        "a content that is none",
        put("contents", 0, value="hi"),
        400,
        "Invalid value at 'contents[0]'",
    ),
    (
        "a content with more",
        put("contents", 0, "content", value=1),
        400,
        "Unknown name \"content\" at 'contents[0]'",
    ),
    (
        "an unknown role",
        put("contents", 0, "role", value="assistant"),
        400,
        "Please use a valid role: user, model.",
    ),
    ("no parts", put("contents", 0, "parts", value=[]), 400, "contents.parts must not be empty"),
    (
        "parts that are no list",
        put("contents", 0, "parts", value={"text": "x"}),
        400,
        "Invalid value at 'contents[0].parts'",
    ),
    (
        "a part that is none",
        put("contents", 0, "parts", value=["x"]),
        400,
        "Invalid value at 'contents[0].parts[0]'",
    ),
    (
        "a part with more",
        put("contents", 0, "parts", value=[{"text": "x", "type": "text"}]),
        400,
        'Unknown name "type"',
    ),
    (
        "a part of nothing",
        put("contents", 0, "parts", value=[{}]),
        400,
        "must have one initialized field",
    ),
    (
        "a part of two things",
        put("contents", 0, "parts", value=[{"text": "x", "inlineData": {}}]),
        400,
        "already set",
    ),
    (
        "a text that is none",
        put("contents", 0, "parts", value=[{"text": 1}]),
        400,
        "Invalid value at 'contents[0].parts[0]'",
    ),
    (
        "an empty text",
        put("contents", 0, "parts", value=[{"text": ""}]),
        400,
        "it must have a text parameter",
    ),
    (
        "data that is none",
        put("contents", 0, "parts", value=[{"inlineData": "x"}]),
        400,
        "parts[0].inline_data'",
    ),
    (
        "a signature that is none",
        contents({"role": "model", "parts": [{"text": "x", "thoughtSignature": "%"}]}, USER),
        400,
        "TYPE_BYTES",
    ),
    (
        "instructions that are none",
        put("systemInstruction", value="x"),
        400,
        "Invalid value at 'system_instruction'",
    ),
    (
        "instructions with more",
        put("systemInstruction", value={"text": "x"}),
        400,
        "at 'system_instruction'",
    ),
    (
        "a call that is none",
        contents({"role": "model", "parts": [{"functionCall": "x"}]}),
        400,
        "function_call'",
    ),
    (
        "a call with more",
        contents(ask("read", arguments="{}"), tell("read")),
        400,
        'Unknown name "arguments" at \'contents[1]',
    ),
    (
        "no call name",
        contents(ask(""), tell("")),
        400,
        "function_call.name: [REQUIRED_FIELD_MISSING]",
    ),
    ("arguments as a text", contents(ask("read", args="x")), 400, "function_call.args'"),
    (
        "the same call id twice",
        contents(ask("read", "read", id="a"), tell("read", "read", id="a")),
        400,
        "Duplicate function call id",
    ),
    ("an orphan call at the end", contents(ask("read")), 400, UNEVEN),
    ("an orphan call of two", contents(ask("a", "b"), tell("a")), 400, UNEVEN),
    ("a message before the results", contents(ask("a"), USER, tell("a")), 400, UNEVEN),
    (
        "a reply before the results",
        contents(ask("a"), {"role": "model", "parts": [{"text": "x"}]}, tell("a")),
        400,
        UNEVEN,
    ),
    ("results in two messages", contents(ask("a", "b"), tell("a"), tell("b")), 400, UNEVEN),
    ("a result of another call", contents(ask("a"), tell("b")), 400, UNEVEN),
    ("a result with another id", contents(ask("a", id="1"), tell("a", id="2")), 400, UNEVEN),
    ("a result without a call", contents(tell("a")), 400, AFTER_CALL),
    ("two results for one call", contents(ask("a"), tell("a", "a")), 400, UNEVEN),
    (
        "a result of the model",
        contents({"role": "model", "parts": tell("a")["parts"]}),
        400,
        AFTER_CALL,
    ),
    ("a call of the user", contents({"role": "user", "parts": ask("a")["parts"]}), 400, AFTER_USER),
    ("a call first", put("contents", value=[ask("a"), tell("a")]), 400, AFTER_USER),
    (
        "a call after a reply",
        contents({"role": "model", "parts": [{"text": "x"}]}, ask("a"), tell("a")),
        400,
        AFTER_USER,
    ),
    (
        "a reply at the end",
        contents({"role": "model", "parts": [{"text": "x"}]}),
        400,
        "end with a user role",
    ),
    (
        "a result that is none",
        contents(ask("a"), {"parts": [{"functionResponse": "x"}]}),
        400,
        "function_response'",
    ),
    ("a result with more", contents(ask("a"), tell("a", output="x")), 400, 'Unknown name "output"'),
    (
        "a result without a name",
        contents(ask("a"), tell("")),
        400,
        "function_response.name: Name cannot be empty",
    ),
    (
        "a result as a text",
        contents(ask("a"), tell("a", response="x")),
        400,
        "google.protobuf.Struct",
    ),
    (
        "calls without signatures",
        model("gemini-3-pro"),
        400,
        "Function call is missing a thought_signature",
    ),
    ("tools that are no list", put("tools", value={"a": 1}), 400, "Invalid value at 'tools'"),
    ("a tool that is none", put("tools", 0, value="x"), 400, "Invalid value at 'tools[0]'"),
    (
        "a tool with more",
        put("tools", 0, "functions", value=[]),
        400,
        "Unknown name \"functions\" at 'tools[0]'",
    ),
    (
        "functions that are no list",
        put("tools", 0, "functionDeclarations", value={}),
        400,
        "function_declarations'",
    ),
    (
        "a function that is none",
        put("tools", 0, "functionDeclarations", value=["x"]),
        400,
        "function_declarations[0]'",
    ),
    (
        "a function with more",
        declared(strict=True),
        400,
        "Unknown name \"strict\" at 'tools[0].function_declarations[0]'",
    ),
    (
        "a bad tool name",
        declared(name="1a"),
        400,
        "Invalid function name. Must start with a letter or an underscore",
    ),
    ("a long tool name", declared(name="a" * 65), 400, "Invalid function name"),
    ("a tool without a name", declared(name=None), 400, "Invalid function name"),
    (
        "two tools of one name",
        add("tools", value=tools("gemini")[0]),
        400,
        "Duplicate function declaration found: read",
    ),
    (
        "two schemas for one tool",
        declared(parametersJsonSchema=SCHEMA),
        400,
        "are mutually exclusive",
    ),
    ("a schema that is none", parameters([1]), 400, "function_declarations[0].parameters'"),
    (
        "a schema of a text",
        parameters({"type": "STRING"}),
        400,
        "parameters schema should be of type OBJECT",
    ),
    (
        "a schema without a type",
        parameters({"properties": {}}),
        400,
        "parameters schema should be of type OBJECT",
    ),
    (
        "a word of JSON schema",
        parameters({"type": "object", "$schema": "x"}),
        400,
        'Unknown name "$schema" at',
    ),
    (
        "a closed schema",
        parameters({"type": "object", "additionalProperties": False}),
        400,
        '"additionalProperties"',
    ),
    (
        "two types",
        parameters({"type": ["object", "null"]}),
        400,
        "Proto field is not repeating, cannot start list",
    ),
    ("an unknown type", parameters({"type": "text"}), 400, "v1beta.Type"),
    (
        "properties that are none",
        parameters({"type": "object", "properties": []}),
        400,
        "parameters.properties'",
    ),
    (
        "a required one that there is not",
        parameters({"type": "object", "required": ["x"]}),
        400,
        "property is not defined: x",
    ),
    (
        "an array of what",
        parameters({"type": "object", "properties": {"x": {"type": "array"}}}),
        400,
        "items: missing field",
    ),
    (
        "a bad schema inside",
        parameters(
            {"type": "object", "properties": {"x": {"type": "array", "items": {"const": 1}}}}
        ),
        400,
        'Unknown name "const" at '
        "'tools[0].function_declarations[0].parameters.properties[0].value.items'",
    ),
    (
        "a bad choice inside",
        parameters(
            {"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"oneOf": []}]}}}
        ),
        400,
        "properties[0].value.any_of[1]'",
    ),
    (
        "a JSON schema that is none",
        lambda post: post.body.update(
            tools=[
                {
                    "functionDeclarations": [
                        {"name": "a", "parametersJsonSchema": {"type": "string"}}
                    ]
                }
            ]
        ),
        400,
        "parameters_json_schema: schema must be an object schema",
    ),
]


@refused("gemini", GEMINI)
def test_gemini_refuses(bend: Bend, status: int, needle: str) -> None:
    for reply, message in answers("gemini", bend):
        assert reply == status and needle in message


def signed(value: str) -> Bend:
    def bend(post: Post) -> None:
        post.model = "gemini-3-pro"
        for content in post.body["contents"]:
            if content["role"] == "model":
                content["parts"][0]["thoughtSignature"] = value

    return bend


GOOD_GEMINI: dict[str, Bend] = {
    "a key in the address": both(
        header("x-goog-api-key", None), lambda post: setattr(post, "path", f"{post.target()}?key=k")
    ),
    "a bearer": both(header("x-goog-api-key", None), header("authorization", "Bearer k")),
    "snake case": lambda post: post.body.update(
        system_instruction={"parts": [{"text": "x"}]},
        tools=[{"function_declarations": [{"name": "a.b:c-d"}]}],
    ),
    "results in another order": contents(ask("a", "b"), tell("b", "a")),
    "an error as a result": contents(ask("a"), tell("a", response={"error": "x"})),
    "ids": contents(ask("a", id="1"), tell("a", id="1")),
    "no role": drop("contents", 0, "role"),
    "a picture": put(
        "contents", 0, "parts", value=[{"inlineData": {"mimeType": "image/png", "data": PNG}}]
    ),
    "a JSON schema": lambda post: post.body.update(
        tools=[
            {
                "functionDeclarations": [
                    {"name": "a", "parametersJsonSchema": {**SCHEMA, "additionalProperties": False}}
                ]
            }
        ]
    ),
    "signatures": signed(sealed("read")),
    "calls of another model": signed("skip_thought_signature_validator"),
    "unsigned calls of an earlier turn": both(
        model("gemini-3-pro"),
        contents(ask("a"), tell("a"), {"role": "model", "parts": [{"text": "x"}]}, USER),
    ),
    "a thought": contents(
        {"role": "model", "parts": [{"text": "x", "thought": True}, {"text": "y"}]}, USER
    ),
}


@pytest.mark.parametrize("name", GOOD_GEMINI)
def test_gemini_takes(name: str) -> None:
    assert trouble("gemini", GOOD_GEMINI[name]) == []
