"""Ids of calls are unique in every conversation that is sent, in every dialect, and stay as they
were."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue import Agent, Retinue, tool
from retinue.core.history import ID, Conversation, ShownMessages, view
from retinue.core.messages import (
    AssistantMessage,
    Message,
    ModelReply,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from retinue.models.fallback import Fallback
from retinue.models.http import ConnectionPool
from retinue.testing.fake_llm.fake_provider import FakeLLM, ParsedRequest
from tests.models.http_world import CODECS, DIALECTS, FAST, QUICK, asking, http_model, url_of

ODD = ("call_0", "", "a b", "ü", "x" * 200, "call_0\n", 'q"')


def turns(n: int, id: str = "call_0") -> list[Message]:
    out: list[Message] = [UserMessage(text="Go.")]
    for k in range(n):
        out += [
            AssistantMessage(calls=(ToolCall(id=id, name="read", arguments_json='{"path":"a"}'),)),
            ToolMessage(call_id=id, text=f"r{k}"),
        ]
    return out


def of(messages: list[Message], base: Conversation | None = None, length: int = 0) -> Conversation:
    conversation = Conversation(base, length)
    for message in messages:
        conversation.append(message)
    return conversation


def ids_in(messages: list[Message]) -> list[str]:
    return [c.id for m in messages if isinstance(m, AssistantMessage) for c in m.calls]


@pytest.mark.parametrize("id", ODD)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_server_that_names_every_call_alike_leaves_a_history_that_every_dialect_takes(
    dialect: str, id: str
) -> None:
    async def story() -> None:
        async with FakeLLM(["Done."], settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            conversation = of(turns(5, id))
            request = asking(messages=ShownMessages(conversation, 0, len(conversation)))
            reply = await http_model(url_of(llm, dialect), dialect, client=client).complete(
                request, lambda text: None
            )
            await client.close()
            assert llm.violations == [] and reply.message.text == "Done."
            (requests,) = llm.requests
            results = [m for m in requests.messages if isinstance(m, ToolMessage)]
            assert [m.text for m in results] == [f"r{k}" for k in range(5)]
            called = ids_in(list(requests.messages))
            if dialect != "gemini":  # there ids are left out and results are found by their place
                assert len(set(called)) == 5 and [m.call_id for m in results] == called

    asyncio.run(story())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_was_sent_before_is_sent_again_to_the_byte(dialect: str) -> None:
    codec = CODECS[dialect]()
    messages, data = turns(6), b""
    conversation = Conversation()
    for n, message in enumerate(messages):
        conversation.append(message)
        if isinstance(message, AssistantMessage):
            continue
        now = b",".join(ShownMessages(conversation, 0, n + 1).encode("k", codec.unit))
        again = b",".join(ShownMessages(of(messages[: n + 1]), 0, n + 1).encode("k", codec.unit))
        assert now.startswith(data) and now == again
        data = now
    fork = of([UserMessage(text="fork"), *turns(2)[1:]], conversation, 9)
    whole = b",".join(ShownMessages(fork, 0, len(fork)).encode("k", codec.unit))
    start = b",".join(ShownMessages(of(messages[:9]), 0, 9).encode("k", codec.unit))
    assert whole.startswith(start)
    # Cut, as after a summary: what is left has the names that it had.
    assert data.endswith(
        b",".join(ShownMessages(conversation, 9, len(conversation)).encode("k", codec.unit)[1:])
    )


MESSAGES = st.lists(
    st.builds(
        lambda ids: AssistantMessage(calls=tuple(ToolCall(id=i, name="t") for i in ids)),
        st.lists(
            st.sampled_from(["call_0", "call_1", "", "a b", "x" * 50]), min_size=1, max_size=3
        ),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(MESSAGES, MESSAGES, st.integers(0, 8))
def test_ids_are_unique_and_valid_also_across_forks(
    first: list[Message], more: list[Message], end: int
) -> None:
    base = of(first)
    fork = of(more, base, min(end, len(first)))
    for conversation in (base, fork, of([*first[:end], *more])):
        rows = view(conversation, 0, len(conversation))
        ids = ids_in(rows)
        assert len(set(ids)) == len(ids) and all(map(ID.fullmatch, ids))
        assert [m.call_id for m in rows if isinstance(m, ToolMessage)] == ids
    apart, joined = of([*first[:end], *more]), fork
    assert ids_in(view(apart, 0, len(apart))) == ids_in(view(joined, 0, len(joined)))


def test_an_id_that_looks_like_one_of_ours_does_not_collide() -> None:
    conversation = of(turns(2))
    (_, ours) = ids_in(view(conversation, 0, 5))
    for n in (1, 3, 5):
        forged = turns(2)
        forged.insert(n, AssistantMessage(calls=(ToolCall(id=ours, name="read"),)))
        ids = ids_in(view(of(forged), 0, len(forged)))
        assert len(set(ids)) == 3


class Copying:
    """A server that calls its call `call_0` in every turn, and dies after the third."""

    def __init__(self, model: Any) -> None:
        self.model, self.info, self.n = model, model.info, 0

    async def complete(self, request: Any, emit: Any) -> ModelReply:
        from retinue.errors import ModelRejected

        self.n += 1
        if self.n > 3:
            raise ModelRejected("gone", "not_found")
        return ModelReply(
            message=AssistantMessage(
                calls=(ToolCall(id="call_0", name="read", arguments_json='{"path":"a"}'),)
            ),
            stop="calls",
        )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_another_dialect_goes_on_where_such_a_server_stopped_also_after_a_restart(
    dialect: str, tmp_path: Path
) -> None:
    @tool
    async def read(path: str) -> str:
        """Reads a file."""
        return f"contents of {path}"

    def script(request: ParsedRequest) -> Any:
        assert [m.text for m in request.messages if isinstance(m, ToolMessage)] == [
            "contents of a"
        ] * 3
        return "All read."

    async def story() -> None:
        async with FakeLLM(script, settings=QUICK) as llm:
            client = ConnectionPool(FAST)
            model = http_model(url_of(llm, dialect), dialect, client=client)
            chain = Fallback([Copying(model), model], name="chain")
            agent = Agent("one", model=chain, tools=[read])
            async with Retinue(tmp_path / "r.db") as retinue:
                outcome = await retinue.run(agent, "Go.")
                assert outcome.text == "All read.", outcome.error
            async with Retinue(tmp_path / "r.db", agents=[agent]) as retinue:
                again = await retinue.resume(outcome.id, "More.")
                assert (await retinue.wait(again)).text == "All read."  # type: ignore[union-attr]
                forked = await retinue.fork(outcome.id, "Other.", agent=agent)
                assert (await retinue.wait(forked)).text == "All read."  # type: ignore[union-attr]
            await client.close()
            assert llm.violations == []

    asyncio.run(story())


@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses", "gemini"])
def test_a_reply_that_is_kept_whole_goes_back_under_its_new_ids(dialect: str) -> None:
    rest = {
        "anthropic": [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "tool_use", "id": "call_0", "name": "read", "input": {}},
        ],
        "openai_responses": [
            {"type": "reasoning", "id": "rs_1", "encrypted_content": "e", "summary": []},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_0",
                "name": "read",
                "arguments": "{}",
            },
        ],
        "gemini": [
            {
                "functionCall": {"id": "call_0", "name": "read", "args": {}},
                "thoughtSignature": "QQ==",
            }
        ],
    }[dialect]
    message = AssistantMessage(
        calls=(ToolCall(id="call_0", name="read"),), opaque=f"{dialect}\n{json.dumps(rest)}"
    )
    conversation = of(
        [
            UserMessage(text="Go."),
            message,
            ToolMessage(call_id="call_0", text="1"),
            message,
            ToolMessage(call_id="call_0", text="2"),
        ]
    )
    codec = CODECS[dialect]()
    value = json.loads(
        b"[%b]" % b",".join(ShownMessages(conversation, 0, 5).encode("k", codec.unit))
    )
    text = json.dumps(value)
    assert text.count({"anthropic": '"s"', "openai_responses": '"e"'}.get(dialect, "QQ==")) == 2
    ids = re.findall(r'"(?:tool_use_id|call_id|id)": "(call_\w+)"', text)
    assert len(ids) == (2 if dialect == "gemini" else 4) and len(set(ids)) == len(ids) // 2
