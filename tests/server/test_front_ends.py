"""Requests as chat front ends send them, one after the other: the chat goes to the agent, and what
they ask beside it never does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from retinue import Agent
from retinue.models.base import ModelRequest
from retinue.server.openai.utility_answers import utility_answer
from retinue.testing import Scripted
from tests.host.served import ALICE, Served, served
from tests.server.openai_clients import data_of, n_runs, says


def counting(request: ModelRequest) -> str:
    return f"Answer to message {len(request.messages)}."


AGENTS = [Agent("gardener", model=Scripted(counting))]
FIRST = "How do I prune an old apple tree in winter?"


def post(api: Served, body: dict[str, Any]) -> Any:
    reply = api.call("POST", "/v1/chat/completions", body, token=ALICE)
    assert reply.status == 200, reply
    if body.get("stream"):
        chunks = data_of(reply.body)
        return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    return reply.json["choices"][0]["message"]["content"]


def task(about: str, output: str, history: str) -> dict[str, Any]:
    """A request of Open WebUI beside the chat: one message, with the chat inside of it."""
    text = (
        f"### Task:\n{about}\n\n### Guidelines:\n- Be brief.\n\n### Output:\n{output}\n\n"
        f"### Chat History:\n<chat_history>\n{history}\n</chat_history>"
    )
    return {"model": "gardener", "messages": [says(text)], "stream": False}


def test_a_chat_of_open_webui() -> None:
    with served(agents=AGENTS) as api:
        models = api.call("GET", "/v1/models", token=ALICE).json
        assert models["data"][0]["id"] == "gardener"
        talk = [says(FIRST)]
        chat = {"model": "gardener", "stream": True, "stream_options": {"include_usage": False}}
        answer = post(api, {**chat, "messages": talk, "chat_id": "a", "session_id": "b"})
        assert answer == "Answer to message 1." and n_runs(api) == 1
        history = f"USER: {FIRST}\nASSISTANT: {answer}"
        follow = task(
            "Suggest 3-5 follow-up questions that the user might ask next.",
            'JSON format: { "follow_ups": ["Question 1?", "Question 2?"] }',
            history,
        )
        assert json.loads(post(api, follow)) == {"follow_ups": []}
        title = task(
            "Generate a title of 3-5 words with an emoji for the chat.",
            'JSON format: { "title": "your concise title here" }',
            history,
        )
        assert json.loads(post(api, title)) == {"title": "How do I prune an old"}
        tags = task(
            "Generate 1-3 broad tags for the chat.",
            'JSON format: { "tags": ["tag1", "tag2"] }',
            history,
        )
        assert json.loads(post(api, tags)) == {"tags": ["Prune", "Apple", "Winter"]}
        queries = task(
            "Decide whether search queries are needed.",
            'Return: { "queries": ["query1"] }',
            history,
        )
        assert json.loads(post(api, {**queries, "stream": True})) == {"queries": []}
        picture = task(
            "Generate a detailed prompt for am image generation task.",
            'JSON format: { "prompt": "Your detailed description here." }',
            history,
        )
        assert json.loads(post(api, picture)) == {"prompt": FIRST}
        rest = task(
            "You are an autocompletion system. Continue the text in `<text>`.",
            '{ "text": "<your_completion>" }',
            history,
        )
        assert json.loads(post(api, rest)) == {"text": ""}
        emoji = (
            "Your task is to reflect the speaker's likely facial expression through a fitting "
            f"emoji.\n\nMessage: ```{answer}```"
        )
        assert len(post(api, {**picture, "messages": [says(emoji)]})) == 1
        assert n_runs(api) == 1, "no run was started for them"
        talk += [says(answer, "assistant"), says("And a young one?")]
        assert post(api, {**chat, "messages": talk}) == "Answer to message 3."
        assert n_runs(api) == 2


def test_a_chat_of_librechat() -> None:
    with served(agents=AGENTS) as api:
        assert api.call("GET", "/v1/models", token=ALICE).status == 200
        chat = {"model": "gardener", "user": "64af", "stream": True, "temperature": 1, "top_p": 1}
        system = says("You are a helpful gardener.", "system")
        talk = [system, says(FIRST)]
        answer = post(api, {**chat, "messages": talk})
        assert answer == "Answer to message 1."
        text = (
            "Provide a concise, 5-word-or-less title for the conversation, using title case "
            f"conventions. Only return the title itself.\n\nConversation:\nUser: {FIRST}\nAI: ..."
        )
        plain = {"model": "gardener", "messages": [says(text)], "temperature": 0.2}
        assert post(api, plain) == "How do I prune an old"
        structured = (
            "Analyze this conversation and provide:\n1. The detected language of the conversation\n"
            "2. A concise title in the detected language (5 words or less, no punctuation or "
            f"quotation)\n\nUser: {FIRST}\nAI: ..."
        )
        tool = {"type": "function", "function": {"name": "extract", "parameters": {}}}
        choice = {"type": "function", "function": {"name": "extract"}}
        body = {**plain, "messages": [says(structured)], "tools": [tool], "tool_choice": choice}
        reply = api.call("POST", "/v1/chat/completions", body, token=ALICE).json
        call = reply["choices"][0]["message"]["tool_calls"][0]["function"]
        assert call["name"] == "extract"
        assert json.loads(call["arguments"])["title"] == "How do I prune an old"
        assert n_runs(api) == 1, "no run was started for them"
        talk += [says(answer, "assistant"), says("And a young one?")]
        assert post(api, {**chat, "messages": talk}) == "Answer to message 3."


@pytest.mark.parametrize(
    "text",
    [
        "Write a concise title for this conversation between two gardeners.",
        "### Task:\nPrune the tree.",
        "Say: Your task is to reflect the speaker's likely facial expression.",
        "What does <chat_history> mean?",
        "",
    ],
)
def test_what_a_user_says_is_for_the_agent(text: str) -> None:
    assert utility_answer([text]) is None


def test_a_title_of_nothing_is_still_one() -> None:
    answer = utility_answer(["### Task:\nGenerate a title.\n<chat_history>\n\n</chat_history>"])
    assert answer is not None and answer.plain == "New chat" and not answer.is_json
