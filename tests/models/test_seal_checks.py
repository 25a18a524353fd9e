"""Signatures of thoughts and sealed reasoning: only to the model that made them, not again where
they were refused."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.history import Conversation, ShownMessages
from retinue.core.messages import (
    AssistantMessage,
    Image,
    Message,
    ModelReply,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.errors import ModelRejected
from retinue.models.codec import Options
from retinue.models.http import ConnectionPool
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FakeLLM, ParsedRequest
from tests.cli.private_home import Llm, PrivateHome
from tests.models.http_world import DIALECTS, FAST, QUICK, READ, asking, http_model, url_of
from tests.pictures import encoded, png

THINK = Options(thinking_tokens=2_048, effort="low")
SEALED = ("anthropic", "openai_responses", "gemini")
MARKS = {
    "anthropic": b'"signature"',
    "openai_responses": b'encrypted_content":',
    "gemini": b"thoughtSignature",
}


def talk(*replies: ModelReply) -> Conversation:
    conversation = Conversation()
    conversation.append(UserMessage(text="Go."))
    for reply in replies:
        conversation.append(reply.message)
        for c in reply.message.calls:
            conversation.append(ToolMessage(call_id=c.id, text="contents", name=c.name))
    return conversation


def script(request: ParsedRequest) -> Any:
    n = sum(isinstance(m, ToolMessage) for m in request.messages)
    return call("read", path=f"{n}") if n < 2 else "Done."


async def story(dialect: str, then: Any) -> None:
    async with FakeLLM(script, settings=QUICK) as llm:
        client = ConnectionPool(FAST)

        def model(name: str = "gemini-3-pro", provider: str = "p") -> Any:
            options = THINK
            return http_model(
                url_of(llm, dialect),
                dialect,
                client=client,
                options=options,
                model=name,
                provider=provider,
            )

        async def ask(one: Any, conversation: Conversation) -> ModelReply:
            history = ShownMessages(conversation, 0, len(conversation))
            request = asking(messages=history, tools=(READ,), declared=(READ,), max_output=8_000)
            reply: ModelReply = await one.complete(request, lambda text: None)
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
        assert re.fullmatch(f"{dialect} p:gemini-3-pro at [0-9a-f]{{12}}", owner)
        await ask(mine, talk(first))
        assert MARKS[dialect] in llm.requests[-1].raw and llm.violations == []
        for other in (model("gemini-3-flash"), model(provider="q")):
            n = len(llm.requests)
            reply = await ask(other, talk(first))
            assert reply.message.calls
            for request in llm.requests[n:]:
                assert b"skip_thought" in request.raw or MARKS[dialect] not in request.raw.replace(
                    b'"include":', b""
                )

    asyncio.run(story(dialect, then))


def has_seal(dialect: str, request: Any) -> bool:
    raw = request.raw.replace(b'"include":["reasoning.encrypted_content"]', b"")
    return MARKS[dialect] in raw and b"skip_thought" not in raw


@pytest.mark.parametrize("dialect", SEALED)
def test_a_seal_goes_to_no_other_address_under_the_same_name(dialect: str) -> None:
    """`ANTHROPIC_BASE_URL` is set between two runs, or a key is brought together with the address
    that it is for."""

    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = await ask(mine, talk())
        conversation = talk(first)
        await ask(mine, conversation)
        assert has_seal(dialect, llm.requests[-1])
        async with FakeLLM(script, settings=QUICK) as other:
            mine.connect(url_of(other, dialect), "another-key")
            reply = await ask(mine, conversation)
            assert reply.message.calls and not any(
                has_seal(dialect, request) for request in other.requests
            )
            mine.connect(url_of(llm, dialect), "a-key")
            await ask(mine, talk(first))
            assert has_seal(dialect, llm.requests[-1])

    asyncio.run(story(dialect, then))


@pytest.mark.parametrize("dialect", SEALED)
def test_an_address_that_changes_while_a_request_waits_gets_no_seal_of_the_first(
    dialect: str,
) -> None:
    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = await ask(mine, talk())
        async with FakeLLM(script, settings=QUICK) as other:
            governor = mine.governor
            rest = governor.turn

            def turn(*args: Any) -> Any:
                mine.connect(url_of(other, dialect), "another-key")
                return rest(*args)

            governor.turn = turn
            reply = await ask(mine, talk(first))
            assert reply.message.calls and not any(
                has_seal(dialect, request) for request in other.requests
            )
            assert len(other.requests) >= 1
            # What the other has sealed is the other's.
            mine.connect(url_of(llm, dialect), "a-key")
            n = len(llm.requests)
            await ask(mine, talk(reply))
            assert not any(has_seal(dialect, request) for request in llm.requests[n:])

    asyncio.run(story(dialect, then))


@pytest.mark.parametrize("dialect", SEALED)
@pytest.mark.parametrize("maker", ["", " p:gemini-3-pro"])
def test_a_seal_of_an_earlier_version_still_goes_back(dialect: str, maker: str) -> None:
    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = await ask(mine, talk())
        _, _, signature = first.message.opaque.partition("\n")
        old = replace(
            first, message=replace(first.message, opaque=f"{dialect}{maker}\n{signature}")
        )
        await ask(mine, talk(old))
        assert MARKS[dialect] in llm.requests[-1].raw and llm.violations == []

    asyncio.run(story(dialect, then))


def spoiled(reply: ModelReply) -> ModelReply:
    """The same reply, its seal damaged: half of it is lost."""
    opaque = reply.message.opaque
    for mark in ('"signature":"', '"encrypted_content":"', '"thoughtSignature":"'):
        head, mark_found, tail = opaque.partition(mark)
        if mark_found:
            return replace(
                reply,
                message=replace(
                    reply.message, opaque=f"{head}{mark}AAAA{tail[tail.index(chr(34)) :]}"
                ),
            )
    raise AssertionError(opaque)


@pytest.mark.parametrize("dialect", SEALED)
def test_a_seal_that_is_refused_is_left_out_and_the_conversation_goes_on(dialect: str) -> None:
    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = spoiled(await ask(mine, talk()))
        conversation = talk(first)
        if dialect != "anthropic":
            llm._faults = lambda request, n: "F15" if n == 2 else None
        second = await ask(mine, conversation)
        assert second.message.calls and llm.n_requests == 3
        # It is remembered: the next turn is not refused first.
        conversation.append(second.message)
        conversation.append(
            ToolMessage(call_id=second.message.calls[0].id, text="contents", name="read")
        )
        third = await ask(mine, conversation)
        assert third.message.text == "Done." and llm.n_requests == 4

    asyncio.run(story(dialect, then))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_goes_on_being_refused_is_an_error_after_one_more_try(dialect: str) -> None:
    async def one() -> None:
        async with FakeLLM(["Hello."], settings=QUICK, faults=lambda request, n: "F15") as llm:
            client = ConnectionPool(FAST)
            with pytest.raises(Exception) as failure:
                await http_model(url_of(llm, dialect), dialect, client=client).complete(
                    asking(), lambda text: None
                )
            await client.close()
            assert (getattr(failure.value, "kind", ""), llm.n_requests) == ("invalid_request", 2)

    asyncio.run(one())


@pytest.mark.parametrize("dialect", SEALED)
@pytest.mark.parametrize(
    "words", ["the parameter 'signature' of tool 'sign' is invalid", "image_size is out of range"]
)
def test_a_refusal_that_only_sounds_like_one_of_seals_or_pictures_costs_neither(
    dialect: str, words: str
) -> None:
    """Leaving them out did not help, so they are not left out of what comes next."""
    picture = Image(media_type="image/png", data=encoded(png()))

    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = await ask(mine, talk())
        conversation = talk(first)
        conversation.append(AssistantMessage(text="I see."))
        conversation.append(UserMessage(text="And this?", images=(picture,)))
        attempt, n = mine._attempt, 0

        async def refuse(*args: Any) -> Any:
            nonlocal n
            n += 1
            raise ModelRejected(words, kind="invalid_request")

        mine._attempt = refuse
        with pytest.raises(ModelRejected, match=re.escape(words)):
            await ask(mine, conversation)
        assert n == 2
        mine._attempt = attempt
        await ask(mine, conversation)
        assert has_seal(dialect, llm.requests[-1]) and picture.data.encode() in llm.requests[-1].raw
        if dialect == "anthropic":
            assert b'"budget_tokens"' in llm.requests[-1].raw

    asyncio.run(story(dialect, then))


@pytest.mark.parametrize("param", ["input", None])
def test_a_thought_that_was_not_stored_is_no_model_that_is_not_found(param: str | None) -> None:
    words = "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."
    text = {
        "error": {"message": words, "type": "invalid_request_error", "param": param, "code": None}
    }

    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        mine = model()
        first = await ask(mine, talk())
        attempt, n = mine._attempt, 0

        async def refuse(request: Any, body: list[bytes], *args: Any) -> Any:
            nonlocal n
            if b'"rs_' in b"".join(body):
                n += 1
                raise mine.codec.failure(404, {}, json.dumps(text).encode())
            return await attempt(request, body, *args)

        mine._attempt = refuse
        assert (await ask(mine, talk(first))).message.calls and n == 1

    asyncio.run(story("openai_responses", then))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "rest",
    [
        "",
        "{",
        "[",
        "[{]",
        "null",
        "5",
        '"x"',
        "[5]",
        "[null]",
        "[{}]",
        '{"reasoning_content":',
        '[{"type":5}]',
    ],
)
def test_a_seal_that_cannot_be_read_costs_no_conversation(dialect: str, rest: str) -> None:
    async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
        first = ModelReply(
            message=AssistantMessage(
                text="I look.", calls=(call("read", path="a"),), opaque=f"{dialect}\n{rest}"
            )
        )
        assert (await ask(model(), talk(first))).message.calls
        json.loads(llm.requests[-1].raw)
        assert not llm.violations or llm.n_requests > 1

    asyncio.run(story(dialect, then))


def test_a_history_of_another_dialect_is_taken_by_models_that_want_seals() -> None:
    """Gemini 3 wants a signature on each call, Anthropic's thinking models a thought before it."""
    messages: list[Message] = [
        AssistantMessage(calls=(ToolCall(id="x", name="read", arguments_json='{"path":"a"}'),))
    ]

    async def one(dialect: str) -> None:
        async def then(llm: FakeLLM, model: Any, ask: Any) -> None:
            conversation = talk()
            for message in (*messages, ToolMessage(call_id="x", text="contents", name="read")):
                conversation.append(message)
            assert (await ask(model(), conversation)).message.calls
            assert llm.n_requests <= 2

        await story(dialect, then)

    for dialect in SEALED:
        asyncio.run(one(dialect))


@pytest.mark.parametrize("how", ["resume", "fork"])
def test_a_program_that_goes_on_at_another_address_sends_it_no_seal(
    how: str, tmp_path: Path
) -> None:
    """Gemini's models seal without being asked."""

    def answer(request: ParsedRequest) -> Any:
        return "Done." if isinstance(request.messages[-1], ToolMessage) else call("list", path=".")

    with Llm(answer) as one, Llm(answer) as other:
        home = PrivateHome(tmp_path, GEMINI_API_KEY="a-key", GOOGLE_GEMINI_BASE_URL=one.llm.url)
        try:
            home.ok("run", "-q", "--family", "none", "--model", "gemini:gemini-3-pro", "Go.")
            assert has_seal("gemini", one.llm.requests[-1])
            home.ok("host", "stop")
            env = {"GEMINI_API_KEY": "another-key", "GOOGLE_GEMINI_BASE_URL": other.llm.url}
            assert "Done." in home.ok(how, "latest", "Again.", env=env)
            assert b"Again." in other.llm.requests[-1].raw
            first = [
                request.raw
                for request in other.llm.requests
                if request.raw.count(b'"functionCall"') == 1
            ]
            assert first and not any(
                MARKS["gemini"] in raw and b"skip_thought" not in raw for raw in first
            )
        finally:
            home.close()
