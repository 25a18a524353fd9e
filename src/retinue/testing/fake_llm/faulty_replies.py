"""Replies that are each wrong in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from retinue.core.messages import ToolCall
from retinue.testing.fake_llm import error_answers
from retinue.testing.fake_llm.dialect import FakeReply, encode, loads
from retinue.testing.fake_llm.fake_request import FakeRequest

HOLE = "\ufdd0"
"""Replaces half a surrogate pair until the text is bytes: no encoder writes one."""
ODD_TEXT = f"odd: {HOLE} \x00 \u202edesrever\u202c \U0001f469\u200d\U0001f680 \u0301"
STALE_ID = "000000000000000000000001"


def empty(scene: FakeRequest) -> FakeReply:
    stop: Any = "nothing" if scene.api.dialect == "gemini" else "end"
    return replace(scene.say(), text="", calls=(), thinking="", stop=stop)


def empty_content(scene: FakeRequest) -> FakeReply:
    return replace(scene.say(), text="", calls=(), thinking="", stop="end")


def cut_call(scene: FakeRequest) -> FakeReply:
    reply = scene.called()
    if scene.api.dialect == "gemini":
        return replace(reply, text="I am about to", calls=(), stop="length")
    last = reply.calls[-1]
    args = last.arguments_json if len(last.arguments_json) > 4 else '{"path":"a.txt"}'
    cut = ToolCall(id=last.id, name=last.name, arguments_json=args[: len(args) // 2])
    return replace(reply, calls=(*reply.calls[:-1], cut), stop="length")


def cut_text(scene: FakeRequest) -> FakeReply:
    reply = scene.say()
    text = reply.text or "I was about to say"
    return replace(reply, text=text[: max(len(text) // 2, 1)], calls=(), stop="length")


def refused(scene: FakeRequest) -> FakeReply:
    reply = replace(scene.say(), calls=())
    match scene.api.dialect:
        case "anthropic":
            return replace(reply, text="", stop="refusal")
        case "gemini":
            return replace(reply, text="", stop="blocked")
        case _:
            return replace(reply, text="", refusal="I cannot help with that.", stop="end")


def stopped(stop: Any) -> Callable[[FakeRequest], FakeReply]:
    return lambda scene: replace(scene.say(), text="", calls=(), stop=stop)


def _with_args(scene: FakeRequest, args: str) -> FakeReply:
    reply = scene.called()
    first = reply.calls[0]
    return replace(
        reply, calls=(ToolCall(id=first.id, name=first.name, arguments_json=args), *reply.calls[1:])
    )


def bad_args(scene: FakeRequest) -> FakeReply:
    if scene.api.dialect == "gemini":
        return replace(scene.say(), text="", calls=(), stop="malformed")
    return _with_args(scene, '{"path": "a", ' if scene.api.dialect == "anthropic" else '{"path":}')


def text_for_args(scene: FakeRequest) -> FakeReply:
    if scene.api.dialect == "gemini":
        return text_for_object(scene)
    return _with_args(scene, encode(scene.called().calls[0].arguments_json).decode())


def text_for_object(scene: FakeRequest) -> FakeReply:
    """Each object in the arguments as a text; if there is none, one where the tool declares it."""
    call = scene.called().calls[0]
    args = loads(call.arguments_json)
    args = dict(args) if isinstance(args, dict) else {}
    nested = [name for name, value in args.items() if isinstance(value, dict | list)]
    if not nested:
        schema = next((tool.parameters for tool in scene.heard.tools if tool.name == call.name), {})
        parts = schema.get("properties", {})
        declared = [
            name for name, part in parts.items() if str(part.get("type")).lower() == "object"
        ]
        nested = declared[:1] or ["options"]
        args[nested[0]] = {"policy": "inherit"}
    for name in nested:
        args[name] = encode(args[name]).decode()
    return _with_args(scene, encode(args).decode())


def misnamed(name: str) -> Callable[[FakeRequest], FakeReply]:
    def change(scene: FakeRequest) -> FakeReply:
        reply = scene.called()
        first = reply.calls[0]
        called = ToolCall(
            id=first.id, name=name.replace("*", first.name), arguments_json=first.arguments_json
        )
        return replace(reply, calls=(called, *reply.calls[1:]))

    return change


def storm(scene: FakeRequest) -> FakeReply:
    reply = scene.called()
    first = reply.calls[0]
    calls = [
        ToolCall(id=f"{first.id}_{n}", name=first.name, arguments_json=first.arguments_json)
        for n in range(scene.settings.n_storm)
    ]
    return replace(reply, calls=tuple(calls), stop="calls")


def paused(scene: FakeRequest) -> FakeReply:
    text = "I am still searching." if scene.api.dialect == "anthropic" else ""
    return replace(scene.say(), text=text, calls=(), thinking="", stop="pause")


def long(scene: FakeRequest) -> FakeReply:
    return replace(scene.say(), text="x" * scene.settings.long_text, calls=(), stop="end")


def mixed_up(scene: FakeRequest) -> FakeReply:
    reply = scene.say()
    return replace(reply, id=reply.id[: -len(STALE_ID)] + STALE_ID, model="another-model")


async def odd_text(scene: FakeRequest) -> None:
    reply = replace(scene.say(), text=ODD_TEXT, calls=(), stop="end")
    hole = HOLE.encode()
    if scene.is_stream:
        frames = scene.frames(scene.api.events(reply, scene.n_deltas))
        data = b"".join(frames).replace(hole, rb"\ud800")
        scene.conn.send(scene.stream_head() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
    else:
        scene.conn.answer(
            200, scene.headers, encode(scene.api.body(reply)).replace(hole, rb"\ud800")
        )


async def outage(scene: FakeRequest) -> None:
    """While it lasts: overload and resets in turn. The server begins it and ends it."""
    if scene.heard.n % 2:
        scene.refuse(error_answers.overloaded(scene))
    else:
        scene.conn.reset()


async def flap(scene: FakeRequest) -> None:
    raise NotImplementedError("the server draws what happens")
