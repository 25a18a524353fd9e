"""What every dialect of the fake provider refuses: bodies, paths, sizes, schemas; and nothing makes
it fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from retinue.testing.fake_llm.fake_provider import FakeLLM, FakeSettings
from tests.testing.fake_llm_strict_support import message_of, out
from tests.testing.fake_llm_support import ALL, good, raw, send


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b'"x"', b'{"model": "\xff"}', b'{"a": "\\ud800"}', b"{}{}"]
)
def test_a_body_that_is_no_object_is_refused(dialect: str, data: bytes) -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            reply = await send(llm, good(dialect), data=data)
            assert reply.status == 400
            assert "JSON" in message_of(dialect, reply)
            assert len(llm.violations) == 1

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ALL)
def test_paths_methods_and_sizes_are_refused_in_the_shape_of_the_provider(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM(settings=FakeSettings(max_body=1000)) as llm:
            post = good(dialect)
            path = post.target()
            post.path = (
                path.replace("generateContent", "nothing")
                if dialect == "gemini"
                else f"{path}/nothing"
            )
            reply = await send(llm, post)
            assert reply.status == 404
            assert "Not found" in message_of(dialect, reply)
            reply = await raw(llm, f"GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n".encode())
            assert reply.status == 405
            message_of(dialect, reply)
            reply = await send(llm, good(dialect, text="x" * 2000))
            assert reply.status == 413
            message_of(dialect, reply)
            assert [v.status for v in llm.violations] == [404, 405, 413]

    asyncio.run(story())


@pytest.mark.parametrize(
    "schema",
    [
        "x",
        {"type": "text"},
        {"type": ["string", 1]},
        {"required": [1]},
        {"required": ["a", "a"]},
        {"enum": []},
        {"enum": "x"},
        {"minimum": "1"},
        {"maxLength": -1},
        {"properties": []},
        {"properties": {"x": 1}},
        {"$defs": {"x": {"type": "y"}}},
        {"items": [{}]},
        {"not": {"type": "y"}},
        {"anyOf": []},
        {"allOf": [{"type": "y"}]},
    ],
)
def test_what_is_no_json_schema_is_found(schema: Any) -> None:
    from retinue.testing.fake_llm.strict_checks import bad_schema

    assert bad_schema({"type": "object", "properties": {"deep": schema}})
    assert bad_schema({"type": "object", "properties": {"deep": True}}) is None


def test_anthropic_thinks_when_it_is_asked_to_and_wants_its_thoughts_back() -> None:
    async def story() -> None:
        from retinue.testing import call

        options = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
        async with FakeLLM([call("read", path="a"), "done"]) as llm:
            post = good("anthropic", **options)
            content = (await send(llm, post)).json["content"]
            assert [block["type"] for block in content] == ["thinking", "tool_use"]
            answer = {"type": "tool_result", "tool_use_id": content[1]["id"], "content": "x"}
            post.body["messages"] += [
                {"role": "assistant", "content": content},
                {"role": "user", "content": [answer]},
            ]
            assert (await send(llm, post)).status == 200
            for blocks in (content[1:], [{**content[0], "thinking": "else"}, content[1]]):
                post.body["messages"][1]["content"] = blocks
                assert (await send(llm, post)).status == 400

    asyncio.run(story())


def test_responses_seal_their_reasoning_and_gemini_signs_its_calls() -> None:
    async def story() -> None:
        from retinue.testing import call

        async with FakeLLM([call("read", path="a"), "done"]) as llm:
            post = good("openai_responses", include=["reasoning.encrypted_content"])
            output = (await send(llm, post)).json["output"]
            assert [item["type"] for item in output] == ["reasoning", "function_call"]
            post.body["input"] += [*output, out(output[1]["call_id"])]
            assert (await send(llm, post)).status == 200
            twin = good("gemini", model="gemini-3-pro")
            content = (await send(llm, twin)).json["candidates"][0]["content"]
            function_call = content["parts"][0]["functionCall"]
            text = {
                "functionResponse": {
                    "name": "read",
                    "id": function_call["id"],
                    "response": {"output": "x"},
                }
            }
            twin.body["contents"] += [content, {"role": "user", "parts": [text]}]
            assert (await send(llm, twin)).status == 200
            del content["parts"][0]["thoughtSignature"]
            assert (await send(llm, twin)).status == 400

    asyncio.run(story())


def test_no_value_of_any_type_anywhere_makes_the_server_fail() -> None:
    """Each place of a good body is replaced by values of every type: a refusal or an answer, never
    silence."""
    values: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], [0], {}, {"x": 0}]

    def places(value: Any) -> list[tuple[Any, Any]]:
        steps: list[Any] = list(range(len(value))) if isinstance(value, list) else []
        if isinstance(value, dict):
            steps = list(value)
        rows = [(value, step) for step in steps]
        for step in steps:
            rows += places(value[step])
        return rows

    async def story() -> None:
        async with FakeLLM() as llm:
            from tests.testing.fake_llm_support import connect, wire

            for dialect in ALL:
                reader, writer = await connect(llm)
                post = good(dialect, turns=1)
                for holder, step in places(post.body):
                    rest = holder[step]
                    for value in values:
                        holder[step] = value
                        writer.write(wire(post))
                        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
                        length = head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
                        body = (
                            await reader.readexactly(int(length))
                            if length
                            else await reader.readuntil(b"0\r\n\r\n")
                        )
                        assert head.split(b" ")[1] in (b"200", b"400"), (dialect, step, value)
                        assert length == b"" or json.loads(body)
                    holder[step] = rest
                writer.close()

    asyncio.run(story())
