"""A bad picture costs no conversation: it is looked at when it comes in, and one that is refused
becomes words."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from retinue import Agent, Retinue, ToolResult, tool
from retinue.core.history import Conversation, ShownMessages
from retinue.core.image_checks import facts_of_bytes, taken_in
from retinue.core.messages import AssistantMessage, Image, ToolMessage, UserMessage
from retinue.models.http import ConnectionPool
from retinue.testing import call
from retinue.testing.fake_llm.fake_provider import FakeLLM, ParsedRequest
from tests.cli.private_home import Llm, PrivateHome
from tests.models.http_world import DIALECTS, FAST, QUICK, asking, http_model, url_of
from tests.pictures import encoded, png

STUB = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000") + (
    b"\xff\xc0\x00\x0b\x08\x00\x02\x00\x03\x01\x01\x11\x00"
    + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
    + b"\x00\xff\xd9"
)
GIF = (
    b"GIF89a"
    + struct.pack("<HHBBB", 3, 2, 0x80, 0, 0)
    + b"\x00" * 6
    + b",\x00\x00\x00\x00\x03\x00\x02\x00\x00\x02;"
)
WEBP = (
    b"RIFF"
    + struct.pack("<I", 22)
    + b"WEBPVP8L"
    + struct.pack("<IBI", 5, 0x2F, 2 | 1 << 14)
    + b"\x00" * 5
)


def test_whole_pictures_are_known_by_their_bytes() -> None:
    for data, kind in ((png(3, 2), "png"), (JPEG, "jpeg"), (GIF, "gif"), (WEBP, "webp")):
        looks = facts_of_bytes(data)
        assert (looks.media_type, looks.width, looks.height, looks.wrong) == (
            f"image/{kind}",
            3,
            2,
            "",
        )


@pytest.mark.parametrize("data", [png(3, 2), JPEG, GIF, WEBP], ids=["png", "jpeg", "gif", "webp"])
def test_no_beginning_of_a_picture_raises_and_its_head_alone_is_none(data: bytes) -> None:
    for n in range(len(data)):
        facts_of_bytes(data[:n])
        facts_of_bytes(data[:n] + b"\xff" * (len(data) - n))
    assert all(facts_of_bytes(data[:n]).wrong for n in range(20))
    assert facts_of_bytes(png(3, 2)[:-1]).wrong


@pytest.mark.parametrize(
    "data", [b"", STUB, b"<svg/>", b"BM" + b"\x00" * 60, png(0, 1), png(1, 60_000), b"%PDF-1.7"]
)
def test_what_is_no_picture_becomes_words(data: bytes) -> None:
    text, images = taken_in("Here.", (Image(media_type="image/png", data=encoded(data)),))
    assert (
        images == () and text.startswith("Here.\n[an image (image/png, ") and "is not shown" in text
    )


def test_a_picture_under_a_wrong_name_gets_its_own() -> None:
    text, images = taken_in(
        "", (Image(media_type="image/png", data=encoded(JPEG)), Image(media_type="x", data="!!"))
    )
    assert [i.media_type for i in images] == ["image/jpeg"] and "not base64" in text


def bad_history(*images: Image) -> Conversation:
    """A conversation of an earlier version, in which nobody looked."""
    conversation = Conversation()
    conversation.append(UserMessage(text="Look.", images=images[:1]))
    conversation.append(AssistantMessage(calls=(call("read", path="a"),)))
    conversation.append(ToolMessage(call_id="", text="", name="read", images=images))
    return conversation


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_bad_picture_that_is_on_record_is_sent_as_words(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM(["I see."], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            bad, good = (
                Image(media_type="image/png", data=encoded(STUB)),
                Image(media_type="image/png", data=encoded(png())),
            )
            conversation = bad_history(bad, good)
            request = asking(messages=ShownMessages(conversation, 0, 3))
            try:
                reply = await http_model(url_of(llm, dialect), dialect, client=client).complete(
                    request, lambda t: None
                )
            finally:
                await client.close()
            assert reply.message.text == "I see." and llm.violations == [] and llm.n_requests == 1
            assert (
                b"is not shown" in llm.requests[0].raw and good.data.encode() in llm.requests[0].raw
            )

    asyncio.run(story())


REFUSALS = {
    "anthropic": '{"type":"error","error":{"type":"invalid_request_error","message":"Could not '
    'process image"}}',
    "openai_chat": '{"error":{"message":"Invalid image '
    'data.","type":"invalid_request_error","code":"invalid_image"}}',
    "openai_responses": '{"error":{"message":"Bad '
    'picture","type":"image_parse_error","code":"image_parse_error"}}',
    "gemini": '{"error":{"code":400,"message":"Unable to process input '
    'image.","status":"INVALID_ARGUMENT"}}',
}


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_picture_that_only_the_provider_dislikes_is_left_out_and_the_others_stay(
    dialect: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retinue.models import http

    old = Image(media_type="image/png", data=encoded(png(2, 2)))
    new = Image(media_type="image/png", data=encoded(png(5, 5)))

    async def story() -> None:
        async with FakeLLM(["I see."], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            model = http_model(url_of(llm, dialect), dialect, client=client)
            rest = http.HttpModel._attempt
            n_refused = 0

            async def attempt(self: Any, request: Any, body: list[bytes], *args: Any) -> Any:
                nonlocal n_refused
                if new.data.encode() in b"".join(body):
                    n_refused += 1
                    raise self.codec.failure(status, {}, REFUSALS[dialect].encode())
                return await rest(self, request, body, *args)

            monkeypatch.setattr(http.HttpModel, "_attempt", attempt)
            conversation = Conversation()
            conversation.append(UserMessage(text="Look.", images=(old,)))
            try:
                for n, images in enumerate(((), (new,), ())):
                    if n:
                        conversation.append(AssistantMessage(text="I see."))
                        conversation.append(UserMessage(text="And now?", images=images))
                    request = asking(messages=ShownMessages(conversation, 0, len(conversation)))
                    assert (await model.complete(request, lambda t: None)).message.text == "I see."
                    assert old.data.encode() in llm.requests[-1].raw
                assert n_refused == 1 and b"rejected it" in llm.requests[-1].raw
            finally:
                await client.close()

    asyncio.run(story())


def test_what_a_tool_returns_is_looked_at_before_it_is_written_down(tmp_path: Path) -> None:
    @tool
    async def draw() -> ToolResult:
        """Draws."""
        return ToolResult(
            text="Drawn.", images=(Image(media_type="image/png", data=encoded(STUB)),)
        )

    def script(request: ParsedRequest) -> Any:
        return (
            "I see nothing."
            if any(isinstance(m, ToolMessage) for m in request.messages)
            else call("draw")
        )

    async def story() -> None:
        async with FakeLLM(script, settings=QUICK) as llm, Retinue(tmp_path / "r.db") as retinue:
            client = ConnectionPool(FAST)
            agent = Agent("one", model=http_model(llm.url, client=client), tools=[draw])
            outcome = await retinue.run(agent, "Go.")
            await client.close()
            assert outcome.text == "I see nothing.", outcome.error
            (result,) = [
                m for m in await retinue.messages(outcome.id) if isinstance(m, ToolMessage)
            ]
            assert (
                result.images == ()
                and "damaged or truncated" in result.text
                and llm.violations == []
            )

    asyncio.run(story())


@pytest.mark.parametrize("model", ["anthropic:m", "openai-chat:m", "openai:m", "gemini:m"])
def test_a_program_that_reads_a_stub_of_a_picture_goes_on_and_can_be_resumed(
    model: str, tmp_path: Path
) -> None:
    def script(request: ParsedRequest) -> Any:
        return (
            "It is broken."
            if any(isinstance(m, ToolMessage) for m in request.messages)
            else call("read", path="a.png")
        )

    with Llm(script) as llm:
        url = llm.llm.url
        home = PrivateHome(
            tmp_path,
            ANTHROPIC_API_KEY="a-key",
            ANTHROPIC_BASE_URL=url,
            OPENAI_API_KEY="a-key",
            OPENAI_BASE_URL=f"{url}/v1",
            GEMINI_API_KEY="a-key",
            GOOGLE_GEMINI_BASE_URL=url,
        )
        try:
            (home.project / "a.png").write_bytes(STUB)
            assert home.ok("run", "--model", model, "Look at a.png.") == "It is broken."
            assert home.ok("resume", "latest", "Look again.") == "It is broken."
            assert llm.llm.violations == []
        finally:
            home.close()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_picture_goes_out_under_its_real_kind_and_within_the_limits_of_its_provider(
    dialect: str,
) -> None:
    small, wide = encoded(JPEG), encoded(png(9_000, 2))
    images = tuple(Image(media_type="image/png", data=data) for data in (small, wide))

    async def story() -> bytes:
        async with FakeLLM(["I see."], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            conversation = Conversation()
            conversation.append(UserMessage(text="Look.", images=images))
            try:
                model = http_model(url_of(llm, dialect), dialect, client=client)
                await model.complete(
                    asking(messages=ShownMessages(conversation, 0, 1)), lambda t: None
                )
            finally:
                await client.close()
            assert llm.violations == []
            return llm.requests[0].raw

    raw = asyncio.run(story())
    assert b"image/jpeg" in raw and small.encode() in raw
    assert (wide.encode() in raw) == (dialect != "anthropic")


def refusing(model: Any, is_refused: Any, words: str, status: int = 400) -> list[bytes]:
    """A model whose provider refuses some of what it is sent, with these words; what was
    refused."""
    rest, refused = model._attempt, list[bytes]()

    async def attempt(request: Any, body: list[bytes], *args: Any) -> Any:
        raw = b"".join(body)
        if is_refused(raw):
            refused.append(raw)
            raise model.codec.failure(status, {}, f'{{"error":{{"message":"{words}"}}}}'.encode())
        return await rest(request, body, *args)

    model._attempt = attempt
    return refused


def picture(n: int) -> Image:
    return Image(media_type="image/png", data=encoded(png(n + 2, n + 3)))


NO_VISION = [
    "At most 0 image(s) may be provided in one request.",
    "llama is not a multimodal model",
    "messages[1].content must be a string",
    "Input should be a valid value: this model supports only text",
    "unknown variant `image_url`, expected `text`",
]


@pytest.mark.parametrize("words", NO_VISION)
@pytest.mark.parametrize("n_new", [0, 1])
def test_a_model_that_stops_taking_pictures_is_sent_words_for_old_and_new_ones(
    words: str, n_new: int
) -> None:
    """A server at home was started anew with another model: what it took before it refuses now."""

    async def story() -> None:
        async with FakeLLM(["I see."], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            model = http_model(url_of(llm, "openai_chat"), "openai_chat", client=client)
            conversation = Conversation()
            conversation.append(UserMessage(text="Look.", images=(picture(1),)))
            try:
                await model.complete(
                    asking(messages=ShownMessages(conversation, 0, 1)), lambda t: None
                )
                refused = refusing(model, lambda raw: b"image_url" in raw, words)
                conversation.append(AssistantMessage(text="I see."))
                conversation.append(
                    UserMessage(text="And now?", images=tuple(picture(2) for _ in range(n_new)))
                )
                for _ in range(2):
                    request = asking(messages=ShownMessages(conversation, 0, 3))
                    assert (await model.complete(request, lambda t: None)).message.text == "I see."
                assert len(refused) == 1 + n_new
            finally:
                await client.close()

    asyncio.run(story())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_forks_that_are_refused_at_the_same_time_for_one_picture_all_go_on(dialect: str) -> None:
    async def story() -> None:
        async with FakeLLM(["I see."] * 4, settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            model = http_model(url_of(llm, dialect), dialect, client=client)
            bad, good = picture(1), picture(2)
            base = Conversation()
            base.append(UserMessage(text="Look.", images=(bad,)))
            base.append(AssistantMessage(text="I see."))
            rest, gate, n = model._attempt, asyncio.Event(), 0

            async def attempt(request: Any, body: list[bytes], *args: Any) -> Any:
                nonlocal n
                if bad.data.encode() not in b"".join(body):
                    return await rest(request, body, *args)
                n += 1
                if n == 4:
                    gate.set()
                await gate.wait()
                raise model.codec.failure(400, {}, REFUSALS[dialect].encode())

            model._attempt = attempt  # type: ignore[method-assign]

            async def fork(n: int) -> str:
                one = Conversation(base, 2)
                one.append(UserMessage(text=f"Fork {n}."))
                request = asking(messages=ShownMessages(one, 0, 3), run=f"r{n}")
                return (await model.complete(request, lambda t: None)).message.text

            try:
                assert await asyncio.gather(*map(fork, range(4))) == ["I see."] * 4
            finally:
                await client.close()
            assert n == 4 and good.data not in str(llm.requests[-1].raw)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("status", "words"), [(400, "Too much media: 0 document pages + 3 images > 2"), (413, "large")]
)
def test_where_there_are_too_many_pictures_the_last_one_is_still_seen(
    status: int, words: str
) -> None:
    """Else whoever looks at a screen again and again would be blind from the hundredth picture
    on."""

    async def story() -> None:
        async with FakeLLM(["I see."], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            model = http_model(llm.url, client=client)
            refusing(model, lambda raw: raw.count(b'"base64"') > 2, words, status)
            conversation = Conversation()
            try:
                for n in range(6):
                    conversation.append(UserMessage(text="Look.", images=(picture(n),)))
                    request = asking(messages=ShownMessages(conversation, 0, len(conversation)))
                    assert (await model.complete(request, lambda t: None)).message.text == "I see."
                    assert picture(n).data.encode() in llm.requests[-1].raw
                    conversation.append(AssistantMessage(text="I see."))
            finally:
                await client.close()

    asyncio.run(story())
