"""The providers' own clients talk to the fake as they would to the real thing, and their types fit
what it says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from google import genai
from google.genai import errors as genai_errors
from google.genai import types
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from retinue.core.messages import AssistantMessage
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.testing.fake_llm_support import SCHEMA, good, send, tools

TEXT = "Grüße aus der Küche, and a good day to you."
ROUND = [[call("read", path="a.txt"), call("read", path="ü.txt")], AssistantMessage(text=TEXT)]
BOTH = [False, True]


async def ask_anthropic(llm: FakeLLM, stream: bool) -> tuple[list[Any], str, Any]:
    client = anthropic.AsyncAnthropic(base_url=llm.url, api_key="k", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    options: dict[str, Any] = {
        "model": "m",
        "max_tokens": 500,
        "tools": tools("anthropic"),
        "messages": messages,
    }

    async def once() -> Message:
        if not stream:
            return await client.messages.create(**options)
        async with client.messages.stream(**options) as parts:
            return await parts.get_final_message()

    async with client:
        first = await once()
        assert first.stop_reason == "tool_use"
        calls = [block for block in first.content if block.type == "tool_use"]
        messages.append(
            {
                "role": "assistant",
                "content": [block.model_dump(exclude_none=True) for block in first.content],
            }
        )
        answers = [{"type": "tool_result", "tool_use_id": one.id, "content": "x"} for one in calls]
        messages.append({"role": "user", "content": answers})
        second = await once()
    assert second.stop_reason == "end_turn"
    text = "".join(block.text for block in second.content if block.type == "text")
    return (
        [one.input for one in calls],
        text,
        (second.usage.input_tokens, second.usage.output_tokens),
    )


async def ask_chat(llm: FakeLLM, stream: bool) -> tuple[list[Any], str, Any]:
    client = openai.AsyncOpenAI(base_url=f"{llm.url}/v1", api_key="k", max_retries=0)
    messages: list[Any] = [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "hi"},
    ]
    options: dict[str, Any] = {"model": "m", "messages": messages, "tools": tools("openai_chat")}

    async def once() -> ChatCompletion:
        if not stream:
            return await client.chat.completions.create(**options)
        async with client.chat.completions.stream(
            **options, stream_options={"include_usage": True}
        ) as parts:
            return await parts.get_final_completion()

    async with client:
        first = await once()
        assert first.choices[0].finish_reason == "tool_calls"
        calls: Sequence[Any] = first.choices[0].message.tool_calls or ()
        plain = [
            {
                "id": c.id,
                "type": "function",
                "function": {"name": c.function.name, "arguments": c.function.arguments},
            }
            for c in calls
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": plain})
        messages.extend({"role": "tool", "tool_call_id": one.id, "content": "x"} for one in calls)
        second = await once()
    assert second.usage is not None
    text = second.choices[0].message.content or ""
    usage = (second.usage.prompt_tokens, second.usage.completion_tokens)
    return [json.loads(one.function.arguments) for one in calls], text, usage


async def ask_responses(llm: FakeLLM, stream: bool) -> tuple[list[Any], str, Any]:
    client = openai.AsyncOpenAI(base_url=f"{llm.url}/v1", api_key="k", max_retries=0)
    items: list[Any] = [{"role": "user", "content": "hi"}]
    options: dict[str, Any] = {"model": "m", "input": items, "tools": tools("openai_responses")}

    async def once() -> Response:
        if not stream:
            return await client.responses.create(**options)
        async with client.responses.stream(**options) as parts:
            async for _ in parts:
                pass
            return await parts.get_final_response()

    async with client:
        first = await once()
        calls = [item for item in first.output if item.type == "function_call"]
        for one in calls:
            rest = {"type": "function_call", "id": one.id, "call_id": one.call_id, "name": one.name}
            items.append({**rest, "arguments": one.arguments})
        items.extend(
            {"type": "function_call_output", "call_id": one.call_id, "output": "x"} for one in calls
        )
        second = await once()
    assert second.usage is not None
    usage = (second.usage.input_tokens, second.usage.output_tokens)
    return [json.loads(one.arguments) for one in calls], second.output_text, usage


def gemini_options(llm: FakeLLM, transport: httpx2.AsyncClient) -> types.HttpOptions:
    """Its other transport warns of itself, and a warning is an error here."""
    return types.HttpOptions(base_url=llm.url, httpx_async_client=transport)


async def ask_gemini(
    llm: FakeLLM, stream: bool, model: str = "gemini-3-pro"
) -> tuple[list[Any], str, Any]:
    transport = httpx2.AsyncClient()
    client = genai.Client(api_key="k", http_options=gemini_options(llm, transport))
    declared = types.FunctionDeclaration(name="read", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=[declared])],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        max_output_tokens=500,
    )
    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text="hi")])]

    async def once() -> list[types.GenerateContentResponse]:
        if not stream:
            return [
                await client.aio.models.generate_content(
                    model=model, contents=contents, config=config
                )
            ]
        parts = await client.aio.models.generate_content_stream(
            model=model, contents=contents, config=config
        )
        return [part async for part in parts]

    def parts_of(responses: list[types.GenerateContentResponse]) -> list[types.Part]:
        contents = [one.candidates[0].content for one in responses if one.candidates]
        return [part for content in contents if content is not None for part in content.parts or ()]

    first = parts_of(await once())
    calls = [part.function_call for part in first if part.function_call is not None]
    contents.append(types.Content(role="model", parts=first))
    answers = [
        types.FunctionResponse(id=one.id, name=one.name, response={"output": "x"}) for one in calls
    ]
    contents.append(
        types.Content(role="user", parts=[types.Part(function_response=one) for one in answers])
    )
    second = await once()
    await transport.aclose()
    usage = second[-1].usage_metadata
    assert usage is not None
    text = "".join(part.text or "" for part in parts_of(second))
    return [one.args for one in calls], text, (usage.prompt_token_count, usage.total_token_count)


ASKS: dict[str, Callable[[FakeLLM, bool], Any]] = {
    "anthropic": ask_anthropic,
    "openai_chat": ask_chat,
    "openai_responses": ask_responses,
    "gemini": ask_gemini,
}


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ASKS)
def test_an_official_client_makes_a_round_of_parallel_calls(dialect: str, stream: bool) -> None:
    async def story() -> None:
        async with FakeLLM(ROUND) as llm:
            calls, text, usage = await ASKS[dialect](llm, stream)
            assert calls == [{"path": "a.txt"}, {"path": "ü.txt"}]
            assert text == TEXT
            assert min(usage) > 0
            assert llm.violations == []
            assert [request.turn for request in llm.requests] == [0, 1]
            assert llm.open == 0

    asyncio.run(story())


def test_gemini_without_ids_makes_the_same_round() -> None:
    async def story() -> None:
        async with FakeLLM(ROUND) as llm:
            calls, text, _ = await ask_gemini(llm, True, "gemini-2.5-flash")
            assert (len(calls), text, llm.violations) == (2, TEXT, [])

    asyncio.run(story())


def test_what_a_dialect_says_fits_the_types_of_its_client() -> None:
    """The clients do not check what they read; their types do."""
    checks: dict[str, tuple[TypeAdapter[Any], TypeAdapter[Any]]] = {
        "anthropic": (TypeAdapter(Message), TypeAdapter(RawMessageStreamEvent)),
        "openai_chat": (TypeAdapter(ChatCompletion), TypeAdapter(ChatCompletionChunk)),
        "openai_responses": (TypeAdapter(Response), TypeAdapter(ResponseStreamEvent)),
    }

    async def story() -> None:
        message = AssistantMessage(
            text=TEXT, calls=(call("read", path="a.txt"), call("read", path="b.txt"))
        )
        async with FakeLLM([message]) as llm:
            for dialect, (whole, event) in checks.items():
                more: dict[str, Any] = (
                    {"stream_options": {"include_usage": True}} if dialect == "openai_chat" else {}
                )
                if dialect == "anthropic":
                    more = {"thinking": {"type": "adaptive"}}
                if dialect == "openai_responses":
                    more = {"include": ["reasoning.encrypted_content"]}
                reply = await send(llm, good(dialect, stream=True, **more))
                for data in reply.datas:
                    if data.get("type") != "ping":
                        event.validate_python(data)
                more.pop("stream_options", None)
                whole.validate_python((await send(llm, good(dialect, **more))).json)
            for stream in BOTH:
                reply = await send(llm, good("gemini", stream=stream, model="gemini-3-pro"))
                for data in reply.datas if stream else [reply.json]:
                    types.GenerateContentResponse.model_validate(data)
            assert llm.violations == []

    asyncio.run(story())


def test_official_clients_raise_their_own_errors_for_faults() -> None:
    async def story() -> None:
        async with FakeLLM() as llm:
            one = anthropic.AsyncAnthropic(base_url=llm.url, api_key="k", max_retries=0)
            two = openai.AsyncOpenAI(base_url=f"{llm.url}/v1", api_key="k", max_retries=0)
            transport = httpx2.AsyncClient()
            three = genai.Client(api_key="k", http_options=gemini_options(llm, transport)).aio
            user: Any = [{"role": "user", "content": "hi"}]
            with pytest.raises(anthropic.RateLimitError):
                await one.messages.create(model="fault-F1", max_tokens=9, messages=user)
            with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
                async with one.messages.stream(
                    model="fault-F4", max_tokens=9, messages=user
                ) as parts:
                    await parts.get_final_message()
            with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
                await one.messages.create(model="fault-F12", max_tokens=9, messages=user)
            with pytest.raises(openai.RateLimitError, match="quota"):
                await two.chat.completions.create(model="fault-F2", messages=user)
            with pytest.raises(openai.AuthenticationError):
                await two.responses.create(model="fault-F10", input="hi")
            with pytest.raises(openai.APIError):
                async for _ in await two.chat.completions.create(
                    model="fault-F5", messages=user, stream=True
                ):
                    pass
            events = await two.responses.create(model="fault-F5", input="hi", stream=True)
            assert [event.type async for event in events][-1] == "error"
            with pytest.raises(openai.APIConnectionError):
                await two.responses.create(model="fault-F19", input="hi")
            with pytest.raises(genai_errors.ServerError, match="overloaded"):
                await three.models.generate_content(model="fault-F3", contents="hi")
            with pytest.raises(genai_errors.ClientError, match="NOT_FOUND"):
                await three.models.generate_content(model="fault-F11", contents="hi")
            assert llm.violations == []
            await one.close()
            await two.close()
            await transport.aclose()

    asyncio.run(story())


def test_an_official_client_tries_again_and_succeeds() -> None:
    async def story() -> None:
        from retinue.testing.fake_llm.fake_provider import FakeSettings

        async with FakeLLM(["yes"], settings=FakeSettings(retry_after_seconds=0.01)) as llm:
            client = anthropic.AsyncAnthropic(base_url=llm.url, api_key="k", max_retries=1)
            user: Any = [{"role": "user", "content": "hi"}]
            answer = await client.messages.create(
                model="fault-F1-then-ok", max_tokens=9, messages=user
            )
            assert answer.content[0].type == "text"
            assert (llm.n_requests, llm.injected) == (2, [(1, "F1")])
            await client.close()

    asyncio.run(story())
