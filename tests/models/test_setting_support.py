"""Settings of an agent reach its provider as that wants them, or are refused with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anthropic.types
import google.genai.types
import openai.types.chat.completion_create_params as chat_params
import openai.types.responses.response_create_params as responses_params
import pytest
from msgspec.structs import replace
from pydantic import TypeAdapter

from retinue import Agent, Budget, ConfigError, ModelSettings, Retinue
from retinue.core.messages import UserMessage
from retinue.core.values import ModelInfo
from retinue.errors import ModelRejected
from retinue.models.base import ModelRequest
from retinue.models.catalog import Catalog
from retinue.models.codec import Options
from retinue.models.explorer import ExplorerModel
from retinue.models.local_prompt import Style, body
from retinue.models.openai_chat import OpenAIChatCodec
from retinue.models.scripted import Scripted
from retinue.models.setting_support import ALL, TAKES, check_settings, refusal
from retinue.testing.fake_llm.fake_provider import FakeLLM
from retinue.tools.submit import SubmitResult
from tests.models.http_world import DIALECTS, READ, talking

VALUES: dict[str, Any] = {
    "max_output": 600,
    "temperature": 0.25,
    "top_p": 0.5,
    "effort": "high",
    "thinking": 2_000,
    "stop": ("END",),
    "seed": 7,
    "tool_choice": "any",
    "parallel_tool_calls": False,
    "extra": {"user": "u"},
}
SENT: dict[tuple[str, str], dict[str, Any]] = {
    ("anthropic", "temperature"): {"temperature": 0.25},
    ("anthropic", "top_p"): {"top_p": 0.5},
    ("anthropic", "effort"): {"output_config": {"effort": "high"}},
    ("anthropic", "thinking"): {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
    ("anthropic", "stop"): {"stop_sequences": ["END"]},
    ("anthropic", "tool_choice"): {"tool_choice": {"type": "any"}},
    ("anthropic", "parallel_tool_calls"): {
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}
    },
    ("anthropic", "extra"): {"metadata": {"user_id": "u"}},
    ("openai_chat", "temperature"): {"temperature": 0.25},
    ("openai_chat", "top_p"): {"top_p": 0.5},
    ("openai_chat", "effort"): {"reasoning_effort": "high"},
    ("openai_chat", "stop"): {"stop": ["END"]},
    ("openai_chat", "seed"): {"seed": 7},
    ("openai_chat", "tool_choice"): {"tool_choice": "required"},
    ("openai_chat", "parallel_tool_calls"): {"parallel_tool_calls": False},
    ("openai_chat", "extra"): {"user": "u"},
    ("openai_responses", "temperature"): {"temperature": 0.25},
    ("openai_responses", "top_p"): {"top_p": 0.5},
    ("openai_responses", "effort"): {"reasoning": {"effort": "high"}},
    ("openai_responses", "tool_choice"): {"tool_choice": "required"},
    ("openai_responses", "parallel_tool_calls"): {"parallel_tool_calls": False},
    ("openai_responses", "extra"): {"user": "u"},
    ("gemini", "temperature"): {"generationConfig": {"temperature": 0.25}},
    ("gemini", "top_p"): {"generationConfig": {"topP": 0.5}},
    ("gemini", "effort"): {"generationConfig": {"thinkingConfig": {"thinkingLevel": "HIGH"}}},
    ("gemini", "thinking"): {"generationConfig": {"thinkingConfig": {"thinkingBudget": 2_000}}},
    ("gemini", "stop"): {"generationConfig": {"stopSequences": ["END"]}},
    ("gemini", "seed"): {"generationConfig": {"seed": 7}},
    ("gemini", "tool_choice"): {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
    ("gemini", "extra"): {"labels": {"user": "u"}},
}
EXTRA: dict[str, dict[str, Any]] = {
    "anthropic": {"metadata": {"user_id": "u"}},
    "gemini": {"labels": {"user": "u"}},
}


def settings_of(dialect: str, name: str) -> ModelSettings:
    value = EXTRA.get(dialect, VALUES["extra"]) if name == "extra" else VALUES[name]
    return ModelSettings(**{name: value})


def asking(settings: ModelSettings, max_output: int = 4_096) -> ModelRequest:
    return ModelRequest(
        run="r",
        root="r",
        path="r",
        agent="a",
        model="m",
        turn=0,
        attempt=1,
        purpose="turn",
        instructions="Be brief.",
        messages=(UserMessage(text="Hello."),),
        tools=(READ,),
        declared=(READ,),
        max_output=max_output,
        key="k",
        settings=settings,
    )


def holds(whole: Any, part: Any) -> bool:
    """Whether everything in `part` is in `whole`."""
    if isinstance(part, Mapping):
        return isinstance(whole, Mapping) and all(
            name in whole and holds(whole[name], value) for name, value in part.items()
        )
    return bool(whole == part)


async def sent(dialect: str, settings: ModelSettings) -> dict[str, Any]:
    """What a fake provider, which knows the fields of the real one, took."""
    async with talking(("Hello.",), dialect, info=INFO) as (llm, model):
        await model.complete(asking(settings), lambda text: None)
        return dict(llm.requests[-1].body)


INFO = ModelInfo(name="m", window=200_000, max_output=64_000)


@pytest.mark.parametrize("name", [name for name in ALL if name != "max_output"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_setting_is_sent_as_the_format_has_it_or_refused(dialect: str, name: str) -> None:
    settings = settings_of(dialect, name)
    if name in TAKES[dialect]:
        assert holds(asyncio.run(sent(dialect, settings)), SENT[dialect, name])
    else:
        assert (dialect, name) not in SENT
        with pytest.raises(ModelRejected, match=f"does not take the setting '{name}'"):
            asyncio.run(sent(dialect, settings))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_sent_with_all_settings_is_what_the_providers_package_describes(
    dialect: str,
) -> None:
    names = [n for n in TAKES[dialect] if n not in ("max_output", "extra", "thinking", "effort")]
    settings = ModelSettings(**{name: VALUES[name] for name in names})
    text = asyncio.run(sent(dialect, settings))
    kinds: dict[str, Any] = {
        "anthropic": anthropic.types.message_create_params.MessageCreateParamsStreaming,
        "openai_chat": chat_params.CompletionCreateParamsStreaming,
        "openai_responses": responses_params.ResponseCreateParamsStreaming,
    }
    if dialect == "gemini":
        config = google.genai.types.GenerateContentConfig.model_validate(
            {**text["generationConfig"], "toolConfig": text["toolConfig"]}
        )
        assert (config.temperature, config.top_p, config.seed) == (0.25, 0.5, 7)
        assert config.stop_sequences == ["END"]
    else:
        TypeAdapter(kinds[dialect]).validate_python(text)
        # The newest API version of Anthropic has neither; the one that is asked has both.
        older = {"temperature", "top_p"} if dialect == "anthropic" else set()
        described = kinds[dialect].__required_keys__ | kinds[dialect].__optional_keys__
        assert set(text) - older <= set(described)


@pytest.mark.parametrize(
    ("dialect", "choice", "field"),
    [
        ("anthropic", "read", {"tool_choice": {"type": "tool", "name": "read"}}),
        (
            "openai_chat",
            "read",
            {"tool_choice": {"type": "function", "function": {"name": "read"}}},
        ),
        ("openai_responses", "read", {"tool_choice": {"type": "function", "name": "read"}}),
        (
            "gemini",
            "read",
            {
                "toolConfig": {
                    "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}
                }
            },
        ),
        ("anthropic", "none", {"tool_choice": {"type": "none"}}),
        ("openai_chat", "none", {"tool_choice": "none"}),
        ("gemini", "auto", {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}),
    ],
)
def test_a_tool_can_be_chosen_by_name(dialect: str, choice: str, field: dict[str, Any]) -> None:
    assert holds(asyncio.run(sent(dialect, ModelSettings(tool_choice=choice))), field)


def test_two_agents_on_one_model_have_their_own_settings() -> None:
    async def work() -> list[dict[str, Any]]:
        async with FakeLLM(["One.", "Two.", "Three."]) as llm:
            environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": llm.url}
            name = "anthropic:claude-3-5-haiku-latest"
            hot = Agent("hot", model=name, settings=ModelSettings(temperature=1.0, max_output=200))
            cold = Agent("cold", model=name, settings=ModelSettings(temperature=0.0))
            async with Retinue(models=Catalog(environ)) as retinue:
                await retinue.run(hot, "x")
                await retinue.run(cold, "x")
                await retinue.run(cold, "x", settings=ModelSettings(top_p=0.5))
            return [dict(request.body) for request in llm.requests]

    first, second, third = asyncio.run(work())
    assert (first["temperature"], first["max_tokens"]) == (1.0, 200)
    assert (second["temperature"], second["max_tokens"]) == (0.0, 8_192)
    assert (third["temperature"], third["top_p"]) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        ("anthropic:claude-sonnet-5-5", {"seed": 1}, "does not take the setting 'seed'. Remove it"),
        (
            "openai:gpt-6.1-sol",
            {"thinking": True},
            "does not take the setting 'thinking'. Use effort",
        ),
        ("openai:gpt-6.1-sol", {"temperature": 0.2}, "takes neither temperature nor top_p"),
        (
            "anthropic:claude-sonnet-5-5",
            {"max_output": 100_000},
            "writes at most 64,000 tokens in a reply, and max_output is 100,000",
        ),
        ("anthropic:claude-sonnet-5-5", {"temperature": 1.5}, "a temperature from 0 to 1, not 1.5"),
        (
            "anthropic:claude-sonnet-5-5",
            {"thinking": 2_000, "temperature": 0.5},
            "no temperature but 1 while it thinks",
        ),
        ("anthropic:claude-sonnet-5-5", {"thinking": 100}, "thinks for 1,024 tokens or more"),
        ("anthropic:claude-sonnet-5-5 | openai:gpt-6.1-sol", {"stop": ["x"]}, "openai:gpt-6.1-sol"),
        ("gemini:gemini-3.8-flash", {"parallel_tool_calls": True}, "'parallel_tool_calls'"),
        ("offline/explorer", {"temperature": 0.0}, "does not take the setting 'temperature'"),
    ],
)
def test_what_a_model_does_not_take_is_said_when_its_agent_is_first_used(
    model: str, settings: dict[str, Any], says: str
) -> None:
    environ = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}

    async def work() -> None:
        poet = Agent("poet", model=model, settings=ModelSettings(**settings))
        async with Retinue(models=Catalog(environ)) as retinue:
            await retinue.spawn(poet, "x")

    with pytest.raises(ConfigError) as error:
        asyncio.run(work())
    assert str(error.value).startswith("Agent 'poet': ")
    assert says in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 3},
        {"temperature": "hot"},
        {"top_p": -0.1},
        {"max_output": 0},
        {"max_output": True},
        {"effort": "huge"},
        {"stop": []},
        {"stop": [""]},
        {"tool_choice": ""},
        {"thinking": -1},
        {"extra": {"n": 5}},
        {"extra": {"generationConfig": {"candidateCount": 5}}},
    ],
)
def test_a_value_that_no_model_takes_is_refused_where_it_is_written(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="ModelSettings: "):
        ModelSettings(**fields)


def test_settings_of_a_run_go_over_those_of_its_agent() -> None:
    own, agents = ModelSettings(top_p=0.5), ModelSettings(temperature=0.1, top_p=0.9, stop="END")
    assert own.over(agents) == ModelSettings(temperature=0.1, top_p=0.5, stop=("END",))


def test_a_local_model_is_given_what_it_takes_and_the_offline_one_refuses() -> None:
    options = Options(temperature=0.1, top_p=0.5, stop=("END",), seed=7)
    text = body(asking(ModelSettings()), Style(native=False, defuse=str), options)
    assert holds(text, {"temperature": 0.1, "top_p": 0.5, "stop": ["END"], "seed": 7})
    for name in (n for n in ALL if n not in TAKES["local"]):
        assert "does not take" in refusal(settings_of("local", name), "local", INFO)
    for name in (n for n in ALL if n != "max_output"):
        with pytest.raises(ConfigError, match=f"does not take the setting '{name}'"):
            check_settings(settings_of("", name), ExplorerModel(), "offline", "Agent 'a'")


def test_a_model_of_ones_own_gets_the_settings_in_its_request() -> None:
    record: list[ModelSettings] = []

    def talk(request: ModelRequest) -> str:
        record.append(request.settings)
        return f"{request.max_output}"

    async def work() -> str:
        settings = ModelSettings(seed=3, max_output=50, tool_choice="none")
        model = Scripted(talk, name="mine")
        async with Retinue() as retinue:
            outcome = await retinue.run(Agent("a", model=model, settings=settings), "x")
            return outcome.text

    assert asyncio.run(work()) == "50"
    assert record == [ModelSettings(seed=3, max_output=50, tool_choice="none")]


def test_the_limit_of_a_reply_follows_the_model_and_is_held_by_the_budget() -> None:
    numbers: list[int] = []

    def talk(request: ModelRequest) -> str:
        numbers.append(request.max_output)
        return "Done."

    async def work() -> None:
        for most, settings, budget in (
            (4_096, ModelSettings(), Budget()),
            (16_000, ModelSettings(), Budget()),
            (64_000, ModelSettings(), Budget()),
            (64_000, ModelSettings(max_output=64_000), Budget()),
            (64_000, ModelSettings(), Budget(tokens=1_000_000)),
            (64_000, ModelSettings(max_output=20_000), Budget(tokens=1_000_000)),
            (64_000, ModelSettings(max_output=20_000), Budget(tokens=10_000)),
        ):
            model = Scripted(talk, name="mine")
            model.info = replace(model.info, max_output=most)
            async with Retinue() as retinue:
                agent = Agent("a", model=model, settings=settings)
                await retinue.run(agent, "x", budget=budget)

    asyncio.run(work())
    *roomy, tight = numbers
    assert roomy == [4_096, 16_000, 32_768, 64_000, 8_192, 20_000]
    assert 0 < tight < 10_000


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("anthropic:claude-3-5-haiku-latest", 8_192),
        ("anthropic:claude-opus-4-1", 32_000),
        ("anthropic:claude-sonnet-5-5", 64_000),
        ("openai:gpt-4o", 16_384),
        ("openai-chat:gpt-6.1-sol", 128_000),
        ("gemini:gemini-3.8-flash", 65_536),
        ("groq:unknown", 8_192),
    ],
)
def test_a_catalog_knows_how_long_replies_can_be(name: str, most: int) -> None:
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GROQ_API_KEY")
    assert Catalog(dict.fromkeys(keys, "k")).find(name).info.max_output == most


@pytest.mark.parametrize(
    ("dialect", "is_held"), [("anthropic", True), ("openai_chat", True), ("openai_responses", True)]
)
def test_a_typed_result_is_held_to_its_schema_by_the_provider(dialect: str, is_held: bool) -> None:
    result = SubmitResult(list[int]).schema

    async def work(**fields: Any) -> Any:
        async with talking(("Hello.",), dialect, info=INFO, **fields) as (llm, model):
            tools = (result, READ)
            request = replace(asking(ModelSettings()), tools=tools, declared=tools)
            await model.complete(request, lambda text: None)
            texts = llm.requests[-1].body["tools"]
            return [tool.get("function", tool).get("strict", False) for tool in texts]

    assert asyncio.run(work()) == [is_held, False]
    if dialect == "openai_chat":
        elsewhere = OpenAIChatCodec(strict_tools=False)
        assert asyncio.run(work(codec=elsewhere)) == [False, False]
