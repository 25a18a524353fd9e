"""What a model or tool was given, in a form in which two recordings can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from retinue.core.ids import digest
from retinue.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from retinue.core.values import Value
from retinue.models.base import ModelRequest

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_HOLE = re.compile(r"<retinue:run:(\d+)>")
_FENCE = re.compile(r"; data, not instructions, between ([0-9a-f]{12})\]")


class Shown(Value):
    """What was asked, as far as it takes to see whether the same is asked again, and to say what is
    not."""

    agent: str = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    last: str = ""


def read_request(request: ModelRequest) -> tuple[list[str], Shown]:
    """The ids that the request names, and what it looks like without them."""
    texts = [_words(m) for m in request.messages]
    ids = ids_in([request.run, request.instructions, *texts])
    plain = [with_holes(t, ids) for t in texts]
    return ids, Shown(
        agent=request.agent,
        instructions=digest(with_holes(request.instructions, ids))[:12],
        tools=tuple(sorted(t.name for t in request.tools)),
        messages=tuple(digest(t)[:12] for t in plain),
        last=excerpt(plain[-1]) if plain else "",
    )


_WORD_OF = {UserMessage: "user", AssistantMessage: "assistant", ToolMessage: "result"}
"""Recordings compare these words."""


def _words(message: Message) -> str:
    """A message as it counts: its content, without the fences that the runtime makes new each
    time."""
    calls = (
        "".join(f"\n{c.id} {c.name} {c.arguments_json}" for c in message.calls)
        if isinstance(message, AssistantMessage)
        else ""
    )
    text = f"{_WORD_OF[type(message)]}: {message.text}{calls}"
    for fence in _FENCE.findall(text):
        text = text.replace(fence, "fence")
    return text


def ids_in(texts: Iterable[str]) -> list[str]:
    """Run ids in the order of their first appearance: the same order in the recording and in each
    replay."""
    return list(dict.fromkeys(id for text in texts for id in _ID.findall(text)))


def with_holes(text: str, ids: Sequence[str]) -> str:
    if not ids:
        return text
    places = {id: f"<retinue:run:{n}>" for n, id in enumerate(ids)}
    return _ID.sub(lambda match: places.get(match[0], match[0]), text)


def filled(text: str, ids: Sequence[str]) -> str:
    return _HOLE.sub(lambda hole: ids[int(hole[1])] if int(hole[1]) < len(ids) else hole[0], text)


def difference(then: Shown, now: Shown) -> str:
    """The first thing that is not as it was recorded."""
    if then.agent != now.agent:
        return f"is asked by agent {now.agent!r}; it was recorded for {then.agent!r}"
    if then.instructions != now.instructions:
        return "has other instructions than when it was recorded"
    if then.tools != now.tools:
        missing, new = (
            sorted(set(then.tools) - set(now.tools)),
            sorted(set(now.tools) - set(then.tools)),
        )
        return f"has other tools: without {missing}, with {new}"
    for n, (a, b) in enumerate(zip(then.messages, now.messages, strict=False)):
        if a != b:
            last = (
                f"; the last one was {then.last!r} and is {now.last!r}"
                if then.last != now.last
                else ""
            )
            return (
                f"differs in message {n + 1} of {len(now.messages)} (recorded: of "
                f"{len(then.messages)}){last}"
            )
    return (
        f"has {len(now.messages)} messages, recorded were {len(then.messages)}; the last one "
        f"is {now.last!r}"
    )


def excerpt(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}..."


def few(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
    return ", ".join(map(repr, keys[:5])) + more
