"""Chat completions, with the official client: whole and streamed, with tools of the client, and
what is refused."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from retinue import Agent, Budget, tool
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call
from tests.host.served import ADMIN, ALICE, BOB, READER, Served, served
from tests.server.openai_clients import (
    CHAT_TOOLS,
    async_client_of,
    client_of,
    n_runs,
    says,
)
from tests.waiting import SECONDS


@tool(restart="pure")
async def look() -> str:
    """Look around."""
    return "a garden"


def echo(request: ModelRequest) -> str:
    """What the model is told, as its answer."""
    texts = [m.text for m in request.messages if type(m).__name__ == "UserMessage"]
    return f"{len(request.messages)} messages; last: {texts[-1]}"


def told(request: ModelRequest) -> str:
    return f"instructions: {request.instructions}"


AGENTS = [
    Agent("main", "Be kind.", model=Scripted(["Hello there.", "And again."], name="kind")),
    Agent("echo", model=Scripted(echo, name="echo's")),
    Agent("told", "Be brief.", model=Scripted(told, name="told's")),
    Agent(
        "walker",
        model=Scripted([call("look"), "I see a garden.", "It is still a garden."], name="walker's"),
        tools=[look],
    ),
    Agent(
        "forecaster",
        model=Scripted(
            [
                [call("weather", city="Lima"), call("weather", city="Oslo"), call("look")],
                "Sun in Lima, rain in Oslo.",
                "You are welcome.",
            ],
            name="forecaster's",
        ),
        tools=[look],
    ),
    Agent(
        "curious",
        model=Scripted([call("ask", question="Which city?"), "Lima it is."], name="curious's"),
        tools=["ask"],
    ),
    Agent("broken", model=Scripted([ValueError("no such planet")], name="broken's")),
    Agent(
        "poor",
        model=Scripted([call("look")] * 9 + ["Never said."], name="poor's"),
        tools=[look],
        budget=Budget(turns=2),
    ),
]


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(agents=AGENTS) as service:
        yield service


@pytest.fixture(scope="module")
def client(api: Served) -> Iterator[openai.OpenAI]:
    with client_of(api) as client:
        yield client


def streamed(chunks: Any) -> tuple[str, list[Any]]:
    """The text of a stream, and its chunks."""
    result = list(chunks)
    return "".join(c.choices[0].delta.content or "" for c in result if c.choices), result


def test_agents_are_models(client: openai.OpenAI) -> None:
    models = list(client.models.list())
    assert [m.id for m in models] == [agent.name for agent in AGENTS]
    assert client.models.retrieve("echo").owned_by == "retinue"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("nobody")
    assert error.value.code == "model_not_found"


def test_a_chat_is_answered_whole_and_as_a_stream(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="main", messages=[says("hi")])
    assert whole.choices[0].message.content == "Hello there."
    assert whole.choices[0].finish_reason == "stop" and whole.model == "main"
    assert whole.usage is not None and whole.usage.completion_tokens > 0
    text, chunks = streamed(
        client.chat.completions.create(
            model="main",
            messages=[says("hi")],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert text == "Hello there."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert not chunks[-1].choices and chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1
    plain = client.chat.completions.create(model="main", messages=[says("hi")], stream=True)
    assert all(chunk.usage is None for chunk in plain)


def test_the_same_without_blocking(api: Served) -> None:
    async def main() -> None:
        async with async_client_of(api) as client:
            whole = await client.chat.completions.create(model="main", messages=[says("hi")])
            assert whole.choices[0].message.content == "Hello there."
            text = ""
            async for chunk in await client.chat.completions.create(
                model="walker", messages=[says("go")], stream=True
            ):
                text += chunk.choices[0].delta.content or ""
            assert text == "I see a garden."
            assert [m.id async for m in client.models.list()][:2] == ["main", "echo"]

    asyncio.run(main())


def test_what_an_agent_does_itself_is_not_the_clients_business(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="walker", messages=[says("go")])
    assert whole.choices[0].message.content == "I see a garden."
    assert whole.choices[0].message.tool_calls is None


def test_instructions_of_the_client_come_behind_those_of_the_agent(client: openai.OpenAI) -> None:
    messages = [says("Speak Latin.", "system"), says("hi")]
    whole = client.chat.completions.create(model="told", messages=messages)
    assert whole.choices[0].message.content == "instructions: Be brief.\n\nSpeak Latin."


def test_a_conversation_is_continued_by_the_run_that_has_it(
    api: Served, client: openai.OpenAI
) -> None:
    talk = [says("an opening of its own")]
    first = client.chat.completions.create(model="echo", messages=talk)
    answer = first.choices[0].message.content
    talk += [says(str(answer), "assistant"), says("and then?")]
    second = client.chat.completions.create(model="echo", messages=talk)
    assert second.choices[0].message.content == "3 messages; last: and then?"
    # The same once more: the conversation was continued before, so that it is forked.
    again = client.chat.completions.create(model="echo", messages=talk)
    assert again.choices[0].message.content == "3 messages; last: and then?"
    # An answer that is not ours is told to a new run.
    talk[1] = says("something that was never said", "assistant")
    other = client.chat.completions.create(model="echo", messages=talk)
    words = str(other.choices[0].message.content)
    assert words.startswith("1 messages") and "something that was never said" in words


def test_no_one_continues_the_conversation_of_another(api: Served, client: openai.OpenAI) -> None:
    talk = [says("an opening of alice")]
    answer = client.chat.completions.create(model="echo", messages=talk)
    talk += [says(str(answer.choices[0].message.content), "assistant"), says("and then?")]
    with client_of(api, BOB) as bob:
        words = bob.chat.completions.create(model="echo", messages=talk).choices[0].message.content
    assert str(words).startswith("1 messages")


def test_calls_of_the_clients_tools_wait_for_its_results(
    api: Served, client: openai.OpenAI
) -> None:
    talk: list[Any] = [says("what is the weather?")]
    ask = {"model": "forecaster", "tools": CHAT_TOOLS}
    first = client.chat.completions.create(messages=talk, **ask)
    assert first.choices[0].finish_reason == "tool_calls"
    calls = first.choices[0].message.tool_calls or []
    assert [c.function.arguments for c in calls] == ['{"city":"Lima"}', '{"city":"Oslo"}']  # type: ignore[union-attr]
    talk.append(first.choices[0].message.model_dump(exclude_none=True))
    one = [*talk, {"role": "tool", "tool_call_id": calls[0].id, "content": "sun"}]
    partly = client.chat.completions.create(messages=one, **ask)
    tool_calls = partly.choices[0].message.tool_calls or []
    assert [c.id for c in tool_calls] == [calls[1].id], "the other call still waits"
    both = [*one, {"role": "tool", "tool_call_id": calls[1].id, "content": "rain"}]
    text, _ = streamed(client.chat.completions.create(messages=both, stream=True, **ask))
    assert text == "Sun in Lima, rain in Oslo."
    thanks = [*both, says(text, "assistant"), says("thanks")]
    last = client.chat.completions.create(messages=thanks, **ask)
    assert last.choices[0].message.content == "You are welcome."
    with pytest.raises(openai.BadRequestError, match="No run waits"):
        client.chat.completions.create(messages=both, **ask)


def test_calls_come_in_a_stream_as_well(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="forecaster", messages=[says("and now?")], tools=CHAT_TOOLS, stream=True
        )
    )
    calls = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or ()]
    assert [(c.index, c.function.name) for c in calls if c.function] == [
        (0, "weather"),
        (1, "weather"),
    ]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_results_of_another_are_not_taken(api: Served, client: openai.OpenAI) -> None:
    first = client.chat.completions.create(
        model="forecaster", messages=[says("alice asks")], tools=CHAT_TOOLS
    )
    message = first.choices[0].message
    talk = [says("alice asks"), message.model_dump(exclude_none=True)]
    talk.append({"role": "tool", "tool_call_id": (message.tool_calls or [])[0].id, "content": "x"})
    with client_of(api, BOB) as bob, pytest.raises(openai.BadRequestError, match="No run waits"):
        bob.chat.completions.create(model="forecaster", messages=talk, tools=CHAT_TOOLS)


def test_a_question_of_the_agent_is_answered_by_the_next_message(client: openai.OpenAI) -> None:
    talk = [says("book a flight")]
    first = client.chat.completions.create(model="curious", messages=talk)
    assert first.choices[0].message.content == "Which city?"
    talk += [says("Which city?", "assistant"), says("Lima")]
    second = client.chat.completions.create(model="curious", messages=talk)
    assert second.choices[0].message.content == "Lima it is."


def test_a_run_at_its_limit_stops_by_length(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="poor", messages=[says("look")])
    assert whole.choices[0].finish_reason == "length"


def test_a_run_that_fails_is_not_started_again(api: Served, client: openai.OpenAI) -> None:
    """The client sends most errors again by itself."""
    before = n_runs(api)
    with pytest.raises(openai.InternalServerError) as error:
        client.chat.completions.create(model="broken", messages=[says("fly")])
    assert error.value.code == "failed" and n_runs(api) == before + 1
    with pytest.raises(openai.APIError, match="failed"):
        list(client.chat.completions.create(model="broken", messages=[says("x")], stream=True))


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": [says("x", "oracle")]}, "messages.0"),
        ({"messages": [says("x"), says("y", "assistant")]}, "messages"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(
    api: Served, client: openai.OpenAI, change: Any, param: str
) -> None:
    before = n_runs(api)
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(**{"model": "main", "messages": [says("hi")], **change})
    assert error.value.param == param and n_runs(api) == before


def test_a_tool_that_the_agent_has_cannot_be_the_clients(client: openai.OpenAI) -> None:
    theirs: Any = [{"type": "function", "function": {"name": "look"}}]
    with pytest.raises(openai.UnprocessableEntityError, match="already has a tool 'look'"):
        client.chat.completions.create(model="walker", messages=[says("x")], tools=theirs)


def test_errors_have_the_shape_that_clients_read(api: Served) -> None:
    with client_of(api, READER) as reader:
        assert reader.models.list().data
        with pytest.raises(openai.PermissionDeniedError) as denied:
            reader.chat.completions.create(model="main", messages=[says("hi")])
        assert denied.value.type == "permission_error"
    with client_of(api, "wrong-token") as nobody, pytest.raises(openai.AuthenticationError) as out:
        nobody.models.list()
    assert out.value.type == "authentication_error" and "Bearer TOKEN" in str(out.value)
    missing = api.call("GET", "/v1/engines")
    assert missing.status == 404 and missing.json["error"]["type"] == "not_found_error"
    form = api.call("POST", "/v1/chat/completions", raw=b"x=1", Content_Type="text/plain")
    assert form.status == 415 and form.json["error"]["type"] == "invalid_request_error"
    metrics = api.get("/metrics").body.decode()
    assert "openai_chat" in metrics


def test_a_client_that_leaves_takes_its_request_back() -> None:
    reached = threading.Event()

    @tool(restart="pure")
    async def wait_here() -> str:
        """Wait."""
        reached.set()
        await asyncio.sleep(SECONDS)
        return "waited"

    lead = Agent("main", model=Scripted([call("wait_here"), "Done."]), tools=[wait_here])
    with served(agents=[lead]) as api:
        for stream in ("false", "true"):
            reached.clear()
            body = f'{{"model":"main","stream":{stream},"messages":[{{"role":"user",' + (
                f'"content":"{stream}"}}]}}'
            )
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer "
                f"{ADMIN}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            with socket.create_connection(("127.0.0.1", api.port), SECONDS) as line:
                line.sendall((head + body).encode())
                assert reached.wait(SECONDS)
            run = api.get("/runs").json["runs"][0]["id"]
            until = time.monotonic() + SECONDS
            while api.get(f"/runs/{run}").json["state"] != "cancelled":
                assert time.monotonic() < until
                time.sleep(0.02)


def test_the_same_idempotency_key_starts_one_run(api: Served, client: openai.OpenAI) -> None:
    before, header = n_runs(api), {"Idempotency-Key": "order 7"}
    for _ in range(2):
        client.chat.completions.create(model="main", messages=[says("once")], extra_headers=header)
    assert n_runs(api) == before + 1
    assert api.call("GET", "/v1/models", token=ALICE).headers["cache-control"] == "no-store"
