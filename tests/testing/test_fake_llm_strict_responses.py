"""What the fake provider refuses and takes as OpenAI's responses do, in their words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pictures import encoded, png
from tests.testing.fake_llm_strict_support import (
    Bend,
    Case,
    add,
    answers,
    drop,
    openai,
    out,
    put,
    refused,
    sealed,
    trouble,
)

DATA = f"data:image/png;base64,{encoded(png())}"


def items(*more: Any) -> Bend:
    return put("input", value=[{"role": "user", "content": "hi"}, *more])


def fc(call_id: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}", **more}


def thought(**more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed(), **more}


REPLY = {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
RESPONSES: list[Case] = [
    *openai("openai_responses", "tools[0]"),
    ("an unknown field", put("max_tokens", value=100), 400, "Unknown parameter: 'max_tokens'"),
    (
        "too little to say",
        put("max_output_tokens", value=15),
        400,
        "Expected a value >= 16, but got 15",
    ),
    (
        "a limit as a text",
        put("max_output_tokens", value="99"),
        400,
        "Invalid type for 'max_output_tokens'",
    ),
    (
        "a response that is not stored",
        put("previous_response_id", value="resp_1"),
        400,
        "'resp_1' not found",
    ),
    (
        "instructions that are none",
        put("instructions", value=[1]),
        400,
        "Invalid type for 'instructions'",
    ),
    (
        "a tool with more",
        put("tools", 0, "function", value={}),
        400,
        "Unknown parameter: 'tools[0].function'",
    ),
    ("no input", drop("input"), 400, "Missing required parameter: 'input'"),
    ("input that is a number", put("input", value=1), 400, "Invalid type for 'input'"),
    ("no item", put("input", value=[]), 400, "Invalid 'input': empty array"),
    ("an item that is none", put("input", 0, value="hi"), 400, "Invalid type for 'input[0]'"),
    (
        "an item without a type",
        put("input", 0, value={}),
        400,
        "Missing required parameter: 'input[0].type'",
    ),
    (
        "an unknown item",
        put("input", 0, value={"type": "x"}),
        400,
        "Invalid value: 'x'. Supported values are",
    ),
    (
        "an item with more",
        put("input", 0, "name", value="x"),
        400,
        "Unknown parameter: 'input[0].name'",
    ),
    (
        "a message without a role",
        put("input", 0, value={"type": "message", "content": "x"}),
        400,
        "'input[0].role'",
    ),
    (
        "an unknown role",
        put("input", 0, "role", value="tool"),
        400,
        "Invalid value: 'tool'. Supported values are",
    ),
    (
        "no content",
        drop("input", 0, "content"),
        400,
        "Missing required parameter: 'input[0].content'",
    ),
    (
        "content that is a number",
        put("input", 0, "content", value=1),
        400,
        "Invalid type for 'input[0].content'",
    ),
    (
        "what the model says, said by the user",
        put("input", 0, "content", value=REPLY["content"]),
        400,
        "'output_text'. Supp",
    ),
    (
        "what the user says, said by the model",
        items({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
        400,
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'",
    ),
    (
        "a part without its text",
        put("input", 0, "content", value=[{"type": "input_text"}]),
        400,
        "content[0].text",
    ),
    (
        "an image without an address",
        put("input", 0, "content", value=[{"type": "input_image"}]),
        400,
        "image_url",
    ),
    (
        "an id of another kind",
        items(fc("a", id="call_1"), out("a")),
        400,
        "Expected an ID that begins with 'fc'",
    ),
    (
        "the same item twice",
        items(fc("a", id="fc_1"), fc("b", id="fc_1"), out("a"), out("b")),
        400,
        "Duplicate item found with id fc_1",
    ),
    ("no call id", items(fc(None)), 400, "Missing required parameter: 'input[1].call_id'"),
    ("an empty call id", items(fc(""), out("")), 400, "Duplicate 'call_id'"),
    ("a long call id", items(fc("a" * 65)), 400, "maximum length 64"),
    (
        "the same call id again",
        items(fc("a"), out("a"), fc("a"), out("a")),
        400,
        "Duplicate 'call_id': a",
    ),
    (
        "a bad call name",
        items(fc("a", name="a.b"), out("a")),
        400,
        "Invalid 'input[1].name': string does not match",
    ),
    (
        "no call name",
        items(fc("a", name=""), out("a")),
        400,
        "Invalid 'input[1].name': string does not match",
    ),
    (
        "arguments as an object",
        items(fc("a", arguments={}), out("a")),
        400,
        "Invalid type for 'input[1].arguments'",
    ),
    (
        "an orphan call",
        items(fc("a"), fc("b"), out("a")),
        400,
        "No tool output found for function call b.",
    ),
    (
        "a result without a call",
        items(out("a")),
        400,
        "No tool call found for function call output with call_id a.",
    ),
    (
        "a result before its call",
        items(out("a"), fc("a")),
        400,
        "No tool call found for function call output",
    ),
    (
        "two results for one call",
        items(fc("a"), out("a"), out("a")),
        400,
        "Duplicate function call output",
    ),
    (
        "a result without an id",
        items(fc("a"), out(None)),
        400,
        "Missing required parameter: 'input[2].call_id'",
    ),
    (
        "a result without an output",
        items(fc("a"), out("a", output=None)),
        400,
        "Missing required parameter: 'input[2].output'",
    ),
    (
        "a result with more",
        items(fc("a"), out("a", is_error=True)),
        400,
        "Unknown parameter: 'input[2].is_error'",
    ),
    ("a thought without an id", items({"type": "reasoning", "summary": []}), 400, "'input[1].id'"),
    (
        "a thought without a summary",
        items({"type": "reasoning", "id": "rs_1"}),
        400,
        "'input[1].summary'",
    ),
    (
        "a thought that was not stored",
        items(thought(encrypted_content=None), REPLY),
        404,
        "Items are not persisted",
    ),
    (
        "a thought of another",
        items(thought(encrypted_content="gAAAA"), REPLY),
        400,
        "could not be verified",
    ),
    (
        "a thought and nothing behind it",
        items(thought()),
        400,
        "without its required following item",
    ),
    (
        "a thought before the user",
        items(thought(), {"role": "user", "content": "x"}),
        400,
        "without its required following",
    ),
    (
        "two thoughts",
        items(thought(), thought(id="rs_2"), REPLY),
        400,
        "without its required following item",
    ),
]


@refused("openai_responses", RESPONSES)
def test_responses_refuses(bend: Bend, status: int, needle: str) -> None:
    for reply, message in answers("openai_responses", bend):
        assert reply == status and needle in message


GOOD_RESPONSES: dict[str, Bend] = {
    "a text as input": put("input", value="hi"),
    "no tool in the list": put("tools", value=[]),
    "tools of the server": add("tools", value={"type": "web_search"}),
    "something between a call and its result": items(
        fc("a"), {"role": "user", "content": "x"}, out("a")
    ),
    "a thought and its reply": items(thought(), REPLY, {"role": "user", "content": "x"}),
    "a thought and its call": items(thought(), fc("a"), out("a")),
    "an image": put("input", 0, "content", value=[{"type": "input_image", "image_url": DATA}]),
    "a developer": items({"role": "developer", "content": "x"}, {"role": "system", "content": "y"}),
    "a refusal": items({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
}


@pytest.mark.parametrize("name", GOOD_RESPONSES)
def test_responses_takes(name: str) -> None:
    assert trouble("openai_responses", GOOD_RESPONSES[name]) == []
