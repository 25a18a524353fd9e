"""What an editor is shown of a run, and what it sends, as values: nothing is started here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from acp import RequestError, schema

from retinue import Agent, AssistantMessage, Retinue, ToolCall
from retinue.acp import person_requests
from retinue.acp.editor_project import server_texts
from retinue.acp.editor_session import EditorSession
from retinue.acp.prompt_text import prompt_text
from retinue.acp.session_settings import SessionSettings
from retinue.acp.tree_updates import AGAIN, TreeUpdates
from retinue.core.messages import ToolMessage, UserMessage
from retinue.core.values import ModelInfo, Usage
from retinue.host.requests import AnswerRequest
from retinue.host.tree_items import MessageAdded, TextArrived
from retinue.models.base import ModelRequest
from retinue.testing import Scripted, call


def updates() -> TreeUpdates:
    tree = TreeUpdates("/project")
    tree.follow("run-1")
    return tree


def told(tree: TreeUpdates, *items: Any) -> list[tuple[str, str]]:
    out = []
    for item in items:
        for update in tree.updates(item):
            content = getattr(update, "content", None)
            text = content.text if isinstance(content, schema.TextContentBlock) else ""
            out.append((update.session_update, text))
    return out


def reply(n: int, text: str = "", *calls: ToolCall) -> MessageAdded:
    return MessageAdded(run="run-1", n=n, message=AssistantMessage(text=text, calls=calls))


def said(text: str, attempt: int = 1, start: int = 0) -> TextArrived:
    return TextArrived(run="run-1", attempt=attempt, text=text, start=start)


def test_text_that_was_streamed_is_not_repeated_and_the_rest_is_added() -> None:
    tree = updates()
    assert told(tree, said("Hel"), said("lo", start=3), reply(1, "Hello.")) == [
        ("agent_message_chunk", "Hel"),
        ("agent_message_chunk", "lo"),
        ("agent_message_chunk", "."),
    ]
    assert told(tree, reply(1, "Hello.")) == [], "an item that comes again is shown once"
    assert told(tree, reply(2, "More.")) == [("agent_message_chunk", "More.")]


def test_a_reply_that_was_interrupted_is_said_to_start_again() -> None:
    assert told(
        updates(), said("Half"), said("Wh", 2), said("ole", 2, start=2), reply(1, "Whole")
    ) == [
        ("agent_message_chunk", "Half"),
        ("agent_thought_chunk", AGAIN),
        ("agent_message_chunk", "Wh"),
        ("agent_message_chunk", "ole"),
    ]
    assert told(updates(), said("Half"), reply(1, "Other")) == [
        ("agent_message_chunk", "Half"),
        ("agent_thought_chunk", AGAIN),
        ("agent_message_chunk", "Other"),
    ]


def test_thoughts_news_and_text_of_others_are_not_the_agents_words() -> None:
    tree = updates()
    think = ToolCall(id="a", name="think", arguments_json='{"thought": "Hm."}')
    news = UserMessage(text="A sub-agent has ended.", sender="run-2", kind="news")
    assert told(
        tree,
        reply(1, "", think),
        MessageAdded(run="run-1", n=2, message=ToolMessage(call_id="a", text="ok", name="think")),
        MessageAdded(run="run-1", n=3, message=news),
        TextArrived(run="run-2", attempt=1, text="A sub-agent's text."),
        MessageAdded(run="run-1", n=4, message=UserMessage(text="my own")),
    ) == [("agent_thought_chunk", "Hm."), ("agent_thought_chunk", "A sub-agent has ended.\n")]


def test_calls_have_a_kind_a_title_places_and_their_diff() -> None:
    calls = (
        ToolCall(id="a", name="edit", arguments_json='{"path": "x.py", "old": "1", "new": "2"}'),
        ToolCall(id="b", name="read", arguments_json='{"path": "/etc/x", "offset": 7}'),
        ToolCall(id="c", name="shell", arguments_json='{"command": "make"}'),
        ToolCall(id="d", name="mcp__db__query", arguments_json="not json"),
    )
    edit, read, *others = updates().updates(reply(1, "", *calls))
    shell, other = others
    assert (edit.kind, edit.title) == ("edit", "change x.py +1 -1")
    (diff,) = edit.content
    assert (diff.path, diff.old_text, diff.new_text) == ("/project/x.py", "1", "2")
    assert [(p.path, p.line) for p in read.locations] == [("/etc/x", 7)]
    assert (shell.kind, shell.title) == ("execute", "run `make`")
    assert (other.kind, other.raw_input) == ("other", {})


def test_what_a_person_sends_becomes_one_text() -> None:
    uri = "file:///project/a%20b.py"
    link = schema.ResourceContentBlock(
        type="resource_link", name="b", uri="file:///project/b.py#L3"
    )
    quote = schema.EmbeddedResourceContentBlock(
        type="resource", resource=schema.TextResourceContents(uri=uri, text="x = 1\n")
    )
    words = schema.TextContentBlock(type="text", text="Compare ")
    assert prompt_text([words, link, quote]) == (
        "Compare @/project/b.py:L3@/project/a b.py\n\n/project/a b.py:\n```\nx = 1\n```"
    )
    sound = schema.AudioContentBlock(type="audio", data="", mime_type="audio/wav")
    for blocks in ([sound], [], [schema.TextContentBlock(type="text", text=" \n")]):
        with pytest.raises(RequestError):
            prompt_text(blocks)


def test_servers_of_an_editor_become_a_configuration() -> None:
    texts = server_texts(
        [
            schema.McpServerStdio(
                name="a", command="x", args=["y"], env=[schema.EnvVariable(name="K", value="v")]
            ),
            schema.HttpMcpServer(
                type="http",
                name="b",
                url="https://b.test",
                headers=[schema.HttpHeader(name="H", value="w")],
            ),
        ]
    )
    assert texts == (
        '{"mcpServers":{"a":{"command":"x","args":["y"],"env":{"K":"v"}}}}',
        '{"mcpServers":{"b":{"type":"http","url":"https://b.test","headers":{"H":"w"}}}}',
    )


def decided(question: dict[str, Any], option: str) -> AnswerRequest:
    request = person_requests.decision(question, option, "Zed")
    assert request is not None
    return request


def test_each_kind_of_question_has_its_buttons_and_each_button_its_answer() -> None:
    budget = {
        "id": "q",
        "run": "r",
        "kind": "budget",
        "text": "Spent.",
        "shown": "Spent.\nA yes adds $0.50.",
    }
    assert [o.name for o in person_requests.options(budget)] == [
        "Add $0.50",
        "Finish with what there is",
    ]
    assert decided(budget, "reject").allow is False
    permission = {**budget, "kind": "permission"}
    always = decided(permission, "always")
    assert (always.allow, always.always, always.by) == (True, True, "Zed")
    question = {**budget, "kind": "question", "choices": ["yes", "no"]}
    assert decided(question, "choice/1").text == "no"
    for other in ("choice/9", "reject"):
        assert person_requests.decision(question, other, "Zed") is None, "only a choice answers it"
    call = {"name": "ask", "args": '{"options":["a","b"]}'}
    suggested = {**budget, "kind": "question", "call": call}
    assert decided(suggested, "choice/1").text == "b"
    assert decided(suggested, "reject").text == person_requests.NO_ANSWER
    assert person_requests.options({**budget, "kind": "question"}) == []


def test_what_is_set_wrongly_changes_nothing() -> None:
    settings = SessionSettings("manual", "a", ("a", "b"))
    for id, value in (("mode", "wild"), ("model", "c"), ("speed", "fast")):
        with pytest.raises(RequestError):
            settings.set_option(id, value)
    assert (settings.mode, settings.model) == ("manual", "a")
    settings.set_option("model", "b")
    settings.set_option("mode", "plan")
    assert (settings.modes.current_mode_id, settings.options[1].current_value) == ("plan", "b")


async def test_an_editor_is_told_what_a_result_lacks_and_what_of_its_cost_is_a_bound() -> None:
    """A lead says nothing about a sub-agent that has failed, in a session of an editor."""

    def lead(request: ModelRequest) -> Any:
        if request.messages[0].text == "fail":
            return ValueError("no such planet")
        n = sum(type(m).__name__ == "ToolMessage" for m in request.messages)
        return "All is well." if n else call("spawn_agents", tasks=[{"task": "fail"}])

    info = ModelInfo(name="m", price_in=1_000, price_out=1_000)
    model = Scripted(lead, info=info, usage=Usage(input=100, output=20, estimated=30))
    async with Retinue() as retinue:
        outcome = await retinue.run(Agent("lead", model=model, families=["fanout"]), "go")
        final = await retinue.tree_record(outcome.id)
    updates_sent: list[Any] = []

    class Editor:
        async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
            updates_sent.append(update)

    session: Any = object.__new__(EditorSession)
    session.id, session._editor = "s", Editor()
    session._following = asyncio.get_running_loop().create_future()
    session._following.set_result(final)
    end = await session._answer(asyncio.get_running_loop().create_future())
    facts = end.field_meta["retinue"]
    assert facts["missing"] == outcome.missing and outcome.missing.startswith("1 of 1 sub-agent")
    assert (facts["cost_is_known"], facts["tokens_estimated"]) == (False, 60)
    assert end.usage.total_tokens == 240
    assert [u.content.text for u in updates_sent] == [f"{outcome.note}\n"]
