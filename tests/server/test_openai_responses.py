"""The responses API, with the official client: continued, in the background, streamed again, and
after a restart of the server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from retinue import Agent, tool
from retinue.testing import Scripted, call
from tests.host.served import ALICE, BOB, READER, Served, served
from tests.server.openai_clients import RESPONSE_TOOLS, async_client_of, client_of, n_runs
from tests.waiting import SECONDS


@tool(restart="pure")
async def look() -> str:
    """Look around."""
    return "a garden"


def agents() -> list[Agent]:
    """New ones, as after a restart; their models say the same."""
    walker = ["I go.", "I see a garden.", "It is still a garden."]
    return [
        Agent("main", model=Scripted(["Hello there.", "And again.", "Once more."], name="kind")),
        Agent("walker", model=Scripted([*walker], name="walker's"), tools=[look]),
        Agent(
            "forecaster",
            model=Scripted(
                [call("weather", city="Lima"), "Sun in Lima.", "You are welcome."],
                name="forecaster's",
            ),
        ),
        Agent("broken", model=Scripted([ValueError("no such planet")], name="broken's")),
        Agent(
            "curious",
            model=Scripted([call("ask", question="Which city?"), "Lima it is."], name="curious's"),
            tools=["ask"],
        ),
    ]


@pytest.fixture(scope="module")
def api() -> Iterator[Served]:
    with served(agents=agents()) as service:
        yield service


@pytest.fixture(scope="module")
def client(api: Served) -> Iterator[openai.OpenAI]:
    with client_of(api) as client:
        yield client


def finished(client: openai.OpenAI, id: str) -> Any:
    until = time.monotonic() + SECONDS
    while (response := client.responses.retrieve(id)).status == "in_progress":
        assert time.monotonic() < until
        time.sleep(0.02)
    return response


def test_a_response_is_made_read_again_and_continued(client: openai.OpenAI) -> None:
    first = client.responses.create(
        model="main", input="hi", metadata={"shop": "7"}, instructions="Be brief."
    )
    assert first.output_text == "Hello there." and first.status == "completed"
    assert first.metadata == {"shop": "7"} and first.instructions == "Be brief."
    assert first.usage is not None and first.usage.output_tokens > 0
    assert client.responses.retrieve(first.id) == first
    items: Any = [{"role": "user", "content": [{"type": "input_text", "text": "and?"}]}]
    second = client.responses.create(input=items, previous_response_id=first.id)
    assert second.output_text == "And again." and second.previous_response_id == first.id
    third = client.responses.create(model="main", input="and?", previous_response_id=second.id)
    assert third.output_text == "Once more."
    other = client.responses.create(model="main", input="else?", previous_response_id=first.id)
    assert other.output_text == "And again.", "a conversation can be continued twice"
    assert client.responses.retrieve(first.id) == first


def test_a_stream_has_every_event_in_its_place(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="main", input="hi", stream=True))
    assert [e.type for e in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [e.sequence_number for e in events] == list(range(9))
    final: Any = events[-1]
    assert final.response.output_text == "Hello there."
    result: Any = events[-2]
    assert result.item == final.response.output[0]
    assert client.responses.retrieve(final.response.id) == final.response


def test_the_helper_of_the_client_reads_the_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="forecaster", input="?", tools=RESPONSE_TOOLS) as stream:
        kinds = [event.type for event in stream]
        whole = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    assert whole.output[0].type == "function_call"


def test_the_same_without_blocking(api: Served) -> None:
    async def main() -> None:
        async with async_client_of(api) as client:
            first = await client.responses.create(model="main", input="hi")
            texts = [
                event.delta
                async for event in await client.responses.create(
                    model="main", input="and?", previous_response_id=first.id, stream=True
                )
                if event.type == "response.output_text.delta"
            ]
            assert "".join(texts) == "And again."
            work = await client.responses.create(model="main", input="hi", background=True)
            stream = await client.responses.retrieve(work.id, stream=True)
            assert [event.type async for event in stream][-1] == "response.completed"
            assert (await client.responses.cancel(work.id)).status == "completed"

    asyncio.run(main())


def test_calls_of_the_clients_tools_wait_for_its_results(client: openai.OpenAI) -> None:
    first = client.responses.create(model="forecaster", input="?", tools=RESPONSE_TOOLS)
    [waiting] = first.output
    assert waiting.type == "function_call" and waiting.arguments == '{"city":"Lima"}'
    assert first.tools[0].type == "function" and first.status == "completed"
    result: Any = [{"type": "function_call_output", "call_id": waiting.call_id, "output": "sun"}]
    second = client.responses.create(
        model="forecaster", input=result, previous_response_id=first.id, tools=RESPONSE_TOOLS
    )
    assert second.output_text == "Sun in Lima." and second.previous_response_id == first.id
    assert client.responses.retrieve(first.id).output == first.output
    assert client.responses.retrieve(second.id).output == second.output
    with pytest.raises(openai.BadRequestError, match="No run waits"):
        client.responses.create(input=result, previous_response_id=first.id)
    thanks = client.responses.create(
        input="thanks", previous_response_id=second.id, tools=RESPONSE_TOOLS
    )
    assert thanks.output_text == "You are welcome."


def test_results_find_their_run_without_the_id_of_a_response(client: openai.OpenAI) -> None:
    """Programs that keep the conversation themselves send all items again."""
    first = client.responses.create(model="forecaster", input="?", tools=RESPONSE_TOOLS)
    [waiting] = first.output
    assert waiting.type == "function_call"
    items: Any = [
        {"role": "user", "content": "?"},
        waiting.model_dump(exclude_none=True),
        {"type": "function_call_output", "call_id": waiting.call_id, "output": "sun"},
    ]
    second = client.responses.create(model="forecaster", input=items, tools=RESPONSE_TOOLS)
    assert second.output_text == "Sun in Lima."


def test_a_question_of_the_agent_is_answered_by_the_next_input(client: openai.OpenAI) -> None:
    first = client.responses.create(model="curious", input="book a flight")
    assert first.output_text == "Which city?" and first.status == "completed"
    second = client.responses.create(input="Lima", previous_response_id=first.id)
    assert second.output_text == "Lima it is."
    assert client.responses.retrieve(first.id).output_text == "Which city?"


def test_a_response_that_fails_says_why(client: openai.OpenAI) -> None:
    failed = client.responses.create(model="broken", input="fly")
    assert failed.status == "failed" and failed.error is not None
    assert "no such planet" in failed.error.message
    events = list(client.responses.create(model="broken", input="fly", stream=True))
    assert events[-1].type == "response.failed"


def test_a_response_in_the_background_is_cancelled_and_streamed_again() -> None:
    opened = threading.Event()

    @tool(restart="pure")
    async def wait_here() -> str:
        """Wait."""
        await asyncio.to_thread(opened.wait, SECONDS)
        return "waited"

    slow = Agent("slow", model=Scripted([call("wait_here"), "Done."]), tools=[wait_here])
    with served(agents=[slow]) as api, client_of(api) as client:
        try:
            work = client.responses.create(model="slow", input="go", background=True)
            assert work.status == "in_progress" and work.background
            ended = client.responses.cancel(work.id)
            assert ended.status == "cancelled"
            assert client.responses.cancel(work.id) == ended, "twice is as good as once"
            plain = client.responses.create(model="slow", input="go", background=True, stream=True)
            records = []
            for event in plain:
                records.append(event)
                if event.type == "response.in_progress":
                    break
            plain.close()
            opened.set()
            id = records[0].response.id  # type: ignore[union-attr]
            rest = list(client.responses.retrieve(id, stream=True, starting_after=1))
            assert [e.sequence_number for e in rest] == [2, 3, 4, 5, 6, 7, 8]
            assert rest[-1].type == "response.completed"
            again = list(client.responses.retrieve(id, stream=True, starting_after=4))
            assert again == rest[3:]
        finally:
            opened.set()


def test_only_what_is_in_the_background_is_cancelled_or_streamed_again(
    client: openai.OpenAI,
) -> None:
    answer = client.responses.create(model="main", input="hi")
    with pytest.raises(openai.BadRequestError, match="in the background"):
        client.responses.cancel(answer.id)
    with pytest.raises(openai.BadRequestError, match="in the background"):
        client.responses.retrieve(answer.id, stream=True)


def test_a_response_of_another_looks_as_if_it_was_not_there(
    api: Served, client: openai.OpenAI
) -> None:
    mine = client.responses.create(model="main", input="hi", background=True)
    started = api.start("not from here", token=ALICE)
    with client_of(api, BOB) as bob:
        for id in (mine.id, "resp_nothing", f"resp_{started}", "nonsense"):
            for ask in (bob.responses.retrieve, bob.responses.cancel):
                with pytest.raises(openai.NotFoundError) as error:
                    ask(id)
                assert str(error.value.message).replace(id, "").endswith("Response '' not found.")
            with pytest.raises(openai.NotFoundError):
                bob.responses.create(model="main", input="and?", previous_response_id=id)
    with client_of(api, READER) as reader, pytest.raises(openai.PermissionDeniedError):
        reader.responses.create(model="main", input="hi")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": ""}, "input"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"input": [{"type": "computer_call_output"}]}, "input.0"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"model": ""}, "model"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_name(
    api: Served, client: openai.OpenAI, change: Any, param: str
) -> None:
    before = n_runs(api)
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(**{"model": "main", "input": "hi", **change})
    assert error.value.param == param and n_runs(api) == before


def test_another_agent_does_not_continue(client: openai.OpenAI) -> None:
    first = client.responses.create(model="main", input="hi")
    with pytest.raises(openai.BadRequestError, match="'main', which continues it"):
        client.responses.create(model="walker", input="and?", previous_response_id=first.id)


def test_everything_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    with served(agents=agents(), store=store) as api, client_of(api) as client:
        port = api.port
        first = client.responses.create(model="main", input="hi")
        parked = client.responses.create(
            model="forecaster", input="?", tools=RESPONSE_TOOLS, background=True
        )
        parked = finished(client, parked.id)
        question: Any = client.chat.completions.create(
            model="forecaster",
            messages=[{"role": "user", "content": "?"}],
            tools=[{"type": "function", "function": {"name": "weather"}}],
        )
    with served(agents=agents(), store=store, port=port) as api, client_of(api) as client:
        assert client.responses.retrieve(first.id) == first
        assert client.responses.retrieve(parked.id) == parked
        second = client.responses.create(input="and?", previous_response_id=first.id)
        assert second.output_text == "And again."
        [waiting] = parked.output
        result: Any = [
            {"type": "function_call_output", "call_id": waiting.call_id, "output": "sun"}
        ]
        answer = client.responses.create(
            input=result, previous_response_id=parked.id, tools=RESPONSE_TOOLS
        )
        assert answer.output_text == "Sun in Lima."
        message = question.choices[0].message
        talk = [
            {"role": "user", "content": "?"},
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sun"},
        ]
        chat: Any = client.chat.completions.create(model="forecaster", messages=talk)  # type: ignore[call-overload]
        assert chat.choices[0].message.content == "Sun in Lima."
