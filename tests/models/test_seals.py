"""Signatures of thoughts and sealed reasoning: only to the model that made them, not again where they were refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.history import Conversation, History
from retinue.core.values import Assistant, Call, Message, Reply, Result, User
from retinue.models.codec import Options
from retinue.models.http import Client
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FakeLLM, Heard
from tests.models.http_world import DIALECTS, FAST, QUICK, READ, asking, http_model, url_of

THINK = Options(thinking_tokens=2_048, effort="low")
SEALED = ("anthropic", "openai_responses", "gemini")
MARKS = {"anthropic": b'"signature"', "openai_responses": b'encrypted_content":', "gemini": b"thoughtSignature"}


def talk(*replies: Reply) -> Conversation:
    conversation = Conversation()
    conversation.append(User(text="Go."))
    for reply in replies:
        conversation.append(reply.message)
        for c in reply.message.calls:
            conversation.append(Result(call_id=c.id, text="contents", name=c.name))
    return conversation


def script(heard: Heard) -> Any:
    n = sum(isinstance(m, Result) for m in heard.messages)
    return call("read", path=f"{n}") if n < 2 else "Done."


async def story(dialect: str, then: Any) -> None:
    async with FakeLLM(script, settings=QUICK) as llm:
        client = Client(FAST)

        def model(name: str = "gemini-3-pro", provider: str = "p") -> Any:
            options = THINK
            return http_model(
                url_of(llm, dialect), dialect, client=client, options=options, model=name, provider=provider
            )

        async def ask(one: Any, conversation: Conversation) -> Reply:
            history = History(conversation, 0, len(conversation))
            request = asking(messages=history, tools=(READ,), declared=(READ,), max_output=8_000)
            reply: Reply = await one.complete(request, lambda text: None)
            return reply

        try:
            await then(llm, model, ask)
        finally:
            await client.close()


@pytest.mark.parametrize("dialect", SEALED)
def test_a_seal_goes_back_to_its_model_and_to_no_other(dialect: str) -> None:
    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = await ask(mine, talk())
        assert first.message.opaque, first
        owner = first.message.opaque.partition("\n")[0]
        assert owner == f"{dialect} p:gemini-3-pro"
        await ask(mine, talk(first))
        assert MARKS[dialect] in llm.requests[-1].raw and llm.violations == []
        for other in (model("gemini-3-flash"), model(provider="q")):
            n = len(llm.requests)
            said = await ask(other, talk(first))
            assert said.message.calls
            for heard in llm.requests[n:]:
                assert b"skip_thought" in heard.raw or MARKS[dialect] not in heard.raw.replace(b'"include":', b"")

    asyncio.run(story(dialect, then))


@pytest.mark.parametrize("dialect", SEALED)
def test_a_seal_of_an_earlier_version_still_goes_back(dialect: str) -> None:
    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = await ask(mine, talk())
        _, _, kept = first.message.opaque.partition("\n")
        old = replace(first, message=replace(first.message, opaque=f"{dialect}\n{kept}"))
        await ask(mine, talk(old))
        assert MARKS[dialect] in llm.requests[-1].raw and llm.violations == []

    asyncio.run(story(dialect, then))


def spoiled(reply: Reply) -> Reply:
    """The same reply, its seal damaged: half of it is lost."""
    opaque = reply.message.opaque
    for mark in ('"signature":"', '"encrypted_content":"', '"thoughtSignature":"'):
        head, found, tail = opaque.partition(mark)
        if found:
            return replace(
                reply, message=replace(reply.message, opaque=f"{head}{mark}AAAA{tail[tail.index(chr(34)) :]}")
            )
    raise AssertionError(opaque)


@pytest.mark.parametrize("dialect", SEALED)
def test_a_seal_that_is_refused_is_left_out_and_the_conversation_goes_on(dialect: str) -> None:
    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = spoiled(await ask(mine, talk()))
        conversation = talk(first)
        if dialect != "anthropic":
            llm._faults = lambda heard, n: "F15" if n == 2 else None
        second = await ask(mine, conversation)
        assert second.message.calls and llm.n_requests == 3
        # It is remembered: the next turn is not refused first.
        conversation.append(second.message)
        conversation.append(Result(call_id=second.message.calls[0].id, text="contents", name="read"))
        third = await ask(mine, conversation)
        assert third.message.text == "Done." and llm.n_requests == 4

    asyncio.run(story(dialect, then))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_goes_on_being_refused_is_an_error_after_one_more_try(dialect: str) -> None:
    async def one() -> None:
        async with FakeLLM(["Hello."], settings=QUICK, faults=lambda heard, n: "F15") as llm:
            client = Client(FAST)
            with pytest.raises(Exception) as caught:
                await http_model(url_of(llm, dialect), dialect, client=client).complete(asking(), lambda text: None)
            await client.close()
            assert (getattr(caught.value, "kind", ""), llm.n_requests) == ("invalid_request", 2)

    asyncio.run(one())


def test_a_history_of_another_dialect_is_taken_by_models_that_want_seals() -> None:
    """Gemini 3 wants a signature on each call, Anthropic's thinking models a thought before it."""
    said: list[Message] = [Assistant(calls=(Call(id="x", name="read", args='{"path":"a"}'),))]

    async def one(dialect: str) -> None:
        async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
            conversation = talk()
            for message in (*said, Result(call_id="x", text="contents", name="read")):
                conversation.append(message)
            assert (await ask(model(), conversation)).message.calls
            assert llm.n_requests <= 2

        await story(dialect, then)

    for dialect in SEALED:
        asyncio.run(one(dialect))
