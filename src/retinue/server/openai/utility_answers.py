"""Answers what chat front ends ask besides the chat: a title, tags, an emoji, follow-up questions,
a search query, a description of an image.
They send it to the model of the chat, which here is an agent with tools and sub-agents. It is
answered from the words of the conversation, without any model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from retinue.formats.safe_text import one_line

MOST_TITLE = 60
TITLE_WORDS = 6
MOST_TAGS = 3
_HISTORY = re.compile(r"<chat_history>(.*?)</chat_history>", re.DOTALL)
_SAID = re.compile(r"^\s*(?:USER|User|user|Human)\s*:\s*(.+)$", re.MULTILINE)
_CONVERSATION = re.compile(r"^Conversation:\s*", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]{5,}")
_TASK = re.compile(r"\s*### Task:\s*\n")
_TITLES = (
    re.compile(r"5-word-or-less title for the conversation", re.IGNORECASE),
    re.compile(r"title in the detected language \(5 words or less", re.IGNORECASE),
    re.compile(r"concise title \(max \d+ characters\) for a conversation", re.IGNORECASE),
)
_EMOJI = re.compile(r"your task is to reflect the speaker's likely facial expression")
EMOJI = "\N{SLIGHTLY SMILING FACE}"
_WANTED = re.compile(r'"?(title|tags|follow_ups|queries|text|prompt)"?\s*:')
_BY_WORDS = (
    ("title", re.compile(r"\btitle\b", re.IGNORECASE)),
    ("tags", re.compile(r"\btags\b", re.IGNORECASE)),
    ("follow_ups", re.compile(r"\bfollow-?up", re.IGNORECASE)),
    ("queries", re.compile(r"\bsearch quer|\bqueries\b", re.IGNORECASE)),
    ("text", re.compile(r"\bautocomplet", re.IGNORECASE)),
)


@dataclass(frozen=True)
class UtilityAnswer:
    """The fields that are wanted. `is_json`: whether the front end reads JSON, or plain text."""

    fields: dict[str, Any]
    is_json: bool

    @property
    def plain(self) -> str:
        value = next(iter(self.fields.values()))
        return value if isinstance(value, str) else ", ".join(value)


def utility_answer(texts: Sequence[str]) -> UtilityAnswer | None:
    """The answer to a request that does not belong to the chat; None for all others. `texts` are
    those of its messages: there is one, or the last one asks for a title of the others."""
    if not texts:
        return None
    prompt = texts[-1]
    if _TASK.match(prompt) and _HISTORY.search(prompt):
        key = _wanted(prompt)
        return None if not key else UtilityAnswer(_fields(key, prompt, texts), "{" in prompt)
    head = prompt[:600]
    if _EMOJI.match(head.lower()):
        return UtilityAnswer({"emoji": EMOJI}, False)
    if any(pattern.search(head) for pattern in _TITLES):
        fields = _fields("title", prompt, texts)
        if "detected language" in head:
            fields["language"] = "English"
        return UtilityAnswer(fields, "detected language" in head)
    return None


def _wanted(prompt: str) -> str:
    """What the front end wants: the key of its JSON, or what the task is called."""
    output = prompt.partition("### Output:")[2]
    named = _WANTED.search(output.partition("<chat_history>")[0])
    if named is not None:
        return named[1]
    task = prompt[:300]
    return next((name for name, pattern in _BY_WORDS if pattern.search(task)), "")


def _fields(key: str, prompt: str, texts: Sequence[str]) -> dict[str, Any]:
    speech = _first_message(prompt, texts)
    if key == "title":
        return {"title": _title(speech)}
    if key == "tags":
        return {"tags": _tags(speech)}
    if key in ("follow_ups", "queries"):
        return {key: []}
    if key == "prompt":
        return {key: _last_message(prompt)}
    return {key: ""}


def _first_message(prompt: str, texts: Sequence[str]) -> str:
    """The first thing that the user has said."""
    history = _HISTORY.search(prompt)
    body = history[1] if history is not None else _CONVERSATION.split(prompt)[-1]
    line = _SAID.search(body)
    if line is not None:
        return line[1]
    return texts[0] if len(texts) > 1 else body


def _last_message(prompt: str) -> str:
    """What the user wants a picture of."""
    history = _HISTORY.search(prompt)
    lines = _SAID.findall(history[1]) if history is not None else []
    return one_line(lines[-1], 400) if lines else ""


def _title(speech: str) -> str:
    words = one_line(speech.strip(), 400).strip(" \"'#*>").split()
    title = " ".join(words[:TITLE_WORDS])[:MOST_TITLE].rstrip(" .,;:!?")
    return title[:1].upper() + title[1:] if title else "New chat"


def _tags(speech: str) -> list[str]:
    counts = Counter(word.lower() for word in _WORD.findall(speech))
    names = [word.capitalize() for word, _ in counts.most_common(MOST_TAGS)]
    return names or ["General"]
