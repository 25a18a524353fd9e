"""Faults in what the fake provider's model says: empty, cut, refused, or calls that make no
sense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from retinue.testing.fake_llm.fake_provider import FakeLLM
from tests.testing.fake_llm_faults_support import (
    BOTH,
    CALLS,
    FAST,
    TEXT,
    hit,
    is_ended,
    with_dialects,
)
from tests.testing.fake_llm_support import ALL, Got, calls_of, good, send, text_of


def final(dialect: str, reply: Got, stream: bool) -> dict[str, Any]:
    """What the reply says about its own end: reason, output, usage."""
    if not stream:
        return dict(reply.json)
    match dialect:
        case "anthropic":
            return dict(next(d for d in reply.datas if d["type"] == "message_delta")["delta"])
        case "openai_responses":
            return dict(reply.datas[-1]["response"])
        case _:
            return dict(reply.datas[-1])


def reason(dialect: str, reply: Got, stream: bool) -> Any:
    text = final(dialect, reply, stream)
    match dialect:
        case "anthropic":
            return text["stop_reason"]
        case "openai_chat":
            return text["choices"][0]["finish_reason"]
        case "openai_responses":
            return text["status"], (text["incomplete_details"] or {}).get("reason")
        case _:
            candidates = text.get("candidates", [{}])
            return text.get("promptFeedback", {}).get("blockReason") or candidates[0].get(
                "finishReason"
            )


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f38_has_no_content(dialect: str, stream: bool) -> None:
    reply = hit("F38", dialect, stream)
    assert text_of(dialect, reply, stream) == ""
    assert calls_of(dialect, reply, stream) == []
    match dialect:
        case "anthropic":
            assert reason(dialect, reply, stream) == "end_turn"
            assert stream or reply.json["content"] == []
        case "openai_responses":
            assert final(dialect, reply, stream)["output"] == []
        case "gemini":
            assert "candidates" not in final(dialect, reply, stream)
            twin = final(dialect, hit("F38b", dialect, stream), stream)
            assert (twin["candidates"][0]["content"], twin["candidates"][0]["finishReason"]) == (
                {},
                "STOP",
            )
        case _:
            assert reason(dialect, reply, stream) == "stop"


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f39_cuts_a_call_by_length(dialect: str, stream: bool, script: Sequence[Any]) -> None:
    reply = hit("F39", dialect, stream, script)
    result = reason(dialect, reply, stream)
    match dialect:
        case "anthropic":
            assert result == "max_tokens"
        case "openai_chat":
            assert result == "length"
        case "openai_responses":
            assert result == ("incomplete", "max_output_tokens")
            assert final(dialect, reply, stream)["output"][-1]["status"] == "incomplete"
            assert not stream or reply.events[-1][0] == "response.incomplete"
        case _:
            assert result == "MAX_TOKENS"
            return
    args = calls_of(dialect, reply, stream)[-1][1]
    if dialect == "anthropic" and not stream:
        assert args == "{}"
    else:
        with pytest.raises(ValueError, match=r"."):
            json.loads(args)


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f39b_cuts_a_text_by_length(dialect: str, stream: bool) -> None:
    reply = hit("F39b", dialect, stream)
    target = {"anthropic": "max_tokens", "openai_chat": "length", "gemini": "MAX_TOKENS"}
    assert reason(dialect, reply, stream) == target.get(
        dialect, ("incomplete", "max_output_tokens")
    )
    assert text_of(dialect, reply, stream) == TEXT[: len(TEXT) // 2]


REFUSALS = {
    ("F40", "anthropic"): "refusal",
    ("F40", "openai_chat"): "stop",
    ("F40", "openai_responses"): ("completed", None),
    ("F40", "gemini"): "SAFETY",
    ("F40b", "openai_chat"): "content_filter",
    ("F40b", "openai_responses"): ("incomplete", "content_filter"),
    ("F40b", "gemini"): "SAFETY",
    ("F40c", "gemini"): "RECITATION",
    ("F40d", "gemini"): "PROHIBITED_CONTENT",
}


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize(("name", "dialect"), with_dialects("F40", "F40b", "F40c", "F40d"))
def test_f40_refuses(name: str, dialect: str, stream: bool) -> None:
    reply = hit(name, dialect, stream)
    assert reason(dialect, reply, stream) == REFUSALS[name, dialect]
    assert text_of_unless_refused(dialect, reply, stream) == ""
    if name != "F40":
        assert dialect != "gemini" or "promptFeedback" not in final(dialect, reply, stream)
        return
    match dialect:
        case "openai_chat" if stream:
            refusal = "".join(d["choices"][0]["delta"].get("refusal") or "" for d in reply.datas)
            assert refusal == "I cannot help with that."
        case "openai_chat":
            assert reply.json["choices"][0]["message"]["refusal"] == "I cannot help with that."
        case "openai_responses":
            part = {"type": "refusal", "refusal": "I cannot help with that."}
            assert final(dialect, reply, stream)["output"][0]["content"] == [part]
            assert not stream or "response.refusal.done" in [event for event, _ in reply.events]
        case "gemini":
            assert "candidates" not in final(dialect, reply, stream)


def text_of_unless_refused(dialect: str, reply: Got, stream: bool) -> str:
    if dialect == "openai_responses" and not stream:
        output = reply.json["output"]
        return "".join(part.get("text", "") for item in output for part in item.get("content", []))
    return text_of(dialect, reply, stream)


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f41_has_arguments_that_are_no_json(
    dialect: str, stream: bool, script: Sequence[Any]
) -> None:
    reply = hit("F41", dialect, stream, script)
    if dialect == "gemini":
        assert reason(dialect, reply, stream) == "MALFORMED_FUNCTION_CALL"
        assert calls_of(dialect, reply, stream) == []
        return
    args = calls_of(dialect, reply, stream)[0][1]
    if dialect == "anthropic":
        assert args == ('{"path": "a", ' if stream else json.dumps('{"path": "a", '))
    else:
        assert args == '{"path":}'


@pytest.mark.parametrize("script", [(TEXT,), (CALLS,)])
@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f42_has_texts_for_objects(dialect: str, stream: bool, script: Sequence[Any]) -> None:
    whole = json.loads(calls_of(dialect, hit("F42", dialect, stream, script), stream)[0][1])
    if dialect != "gemini":
        assert isinstance(whole, str)
        assert isinstance(json.loads(whole), dict)
    nested = json.loads(calls_of(dialect, hit("F42b", dialect, stream, script), stream)[0][1])
    assert json.loads(nested["options"]) == {"policy": "inherit"}
    assert dialect != "gemini" or whole == nested


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f44_calls_tools_that_there_are_not(dialect: str, stream: bool) -> None:
    names = {"F44": "Shell", "F44b": "default_api.read", "F44c": "functions.read", "F44d": ""}
    for name, target in names.items():
        assert calls_of(dialect, hit(name, dialect, stream, (CALLS,)), stream)[0][0] == target


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f46_is_a_storm_of_200_calls(dialect: str, stream: bool) -> None:
    calls = calls_of(dialect, hit("F46", dialect, stream), stream)
    assert len(calls) == 200
    assert {name for name, _ in calls} == {"read"}


@pytest.mark.parametrize("stream", BOTH)
def test_f48_is_not_finished(stream: bool) -> None:
    assert reason("anthropic", hit("F48", "anthropic", stream), stream) == "pause_turn"
    assert reason("gemini", hit("F48", "gemini", stream), stream) == "OTHER"
    for name, status in (("F48", "queued"), ("F48b", "in_progress")):
        reply = hit(name, "openai_responses", stream)
        text = final("openai_responses", reply, stream)
        assert (text["status"], text["output"]) == (status, [])
        assert not is_ended("openai_responses", reply)


def test_a_paused_turn_of_anthropic_can_be_continued() -> None:
    async def story() -> None:
        async with FakeLLM(["more"], faults=["F48"]) as llm:
            post = good("anthropic")
            content = (await send(llm, post)).json["content"]
            post.body["messages"].append({"role": "assistant", "content": content})
            assert text_of("anthropic", await send(llm, post), False) == "more"
            assert llm.violations == []

    asyncio.run(story())


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f50_has_odd_text_and_f50b_a_long_one(dialect: str, stream: bool) -> None:
    reply = hit("F50", dialect, stream)
    assert rb"\ud800" in reply.body
    text = text_of(dialect, reply, stream)
    for needle in ("\ud800", "\x00", "\u202e", "\u200d"):
        assert needle in text
    assert len(text_of(dialect, hit("F50b", dialect, stream), stream)) == FAST.long_text


@pytest.mark.parametrize("stream", BOTH)
@pytest.mark.parametrize("dialect", ALL)
def test_f51_has_the_id_of_an_earlier_reply_and_another_model(dialect: str, stream: bool) -> None:
    async def story() -> list[tuple[str, str]]:
        async with FakeLLM(faults=[None, None, "F51"]) as llm:
            replies = [await send(llm, good(dialect, stream=stream)) for _ in range(3)]
            return [identity(reply) for reply in replies]

    def identity(reply: Got) -> tuple[str, str]:
        data = reply.datas[0] if stream else reply.json
        data = data.get("message", data.get("response", data))
        return data.get("id", data.get("responseId")), data.get("model", data.get("modelVersion"))

    first, second, third = asyncio.run(story())
    assert first[0] != second[0]
    assert third == (first[0], "another-model")
    assert first[1] == "m"


@pytest.mark.parametrize("dialect", ALL)
def test_f53_overloads_and_resets_in_turn(dialect: str) -> None:
    async def story() -> list[str]:
        async with FakeLLM(faults=["F53"]) as llm:
            return [
                reply.end if not reply.raw else str(reply.status)
                for reply in [await send(llm, good(dialect)) for _ in "abcd"]
            ]

    busy = "529" if dialect == "anthropic" else "503"
    assert asyncio.run(story()) == [busy, "rst", busy, "rst"]
