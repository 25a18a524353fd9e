"""Faulty streams that break, stall, trickle, contain false data or repeat themselves.

A request that did not ask for a stream gets what is nearest: a body that is cut, late, or not what
its headers say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from retinue.core.values import Usage
from retinue.testing.fake_llm import error_answers, request_errors
from retinue.testing.fake_llm.dialect import FakeReply, StreamEvent, encode
from retinue.testing.fake_llm.fake_request import FakeRequest
from retinue.testing.fake_llm.http_server import LAST_CHUNK, chunk


def _until(events: Sequence[StreamEvent], kind: str, n: int) -> list[StreamEvent]:
    """The stream up to and with its n-th event of a kind."""
    n_events = 0
    for at, event in enumerate(events):
        n_events += event.kind == kind
        if n_events == n:
            return list(events[: at + 1])
    return list(events[:-1])


def _begin(scene: FakeRequest, events: Sequence[StreamEvent]) -> None:
    scene.conn.send(scene.stream_head() + b"".join(map(chunk, scene.frames(events))))


def _numbered(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    """Where events have numbers, these are consecutive again."""
    out = []
    for n, event in enumerate(events):
        if isinstance(event.data, Mapping) and "sequence_number" in event.data:
            event = event._replace(data={**event.data, "sequence_number": n})
        out.append(event)
    return out


async def _say(scene: FakeRequest, events: Sequence[StreamEvent]) -> None:
    _begin(scene, events)
    scene.conn.send(LAST_CHUNK)


def _failed(code: str, message: str, n: int) -> StreamEvent:
    response = {"id": "resp_1", "object": "response", "status": "failed", "output": []}
    failure = {**response, "error": {"code": code, "message": message}}
    return StreamEvent(
        "last",
        "response.failed",
        {"type": "response.failed", "sequence_number": n, "response": failure},
    )


async def overloaded(scene: FakeRequest) -> None:
    if not scene.is_stream:
        return scene.refuse(error_answers.overloaded(scene))
    events = _until(scene.partial(), "text", 3)
    match scene.api.dialect:
        case "anthropic":
            error = {"type": "overloaded_error", "message": "Overloaded"}
            events.append(StreamEvent("last", "error", {"type": "error", "error": error}))
        case "openai_responses":
            events.append(_failed("server_is_overloaded", error_answers.OPENAI_BUSY, len(events)))
        case _:
            events.append(
                StreamEvent(
                    "last", "", scene.api.error(error_answers.overloaded(scene), scene.heard.n)
                )
            )
    return await _say(scene, events)


async def broken(scene: FakeRequest) -> None:
    if not scene.is_stream:
        return scene.refuse(error_answers.broken(scene))
    events = [event for event in scene.partial() if event.kind == "start"]
    trouble = error_answers.broken(scene)
    match scene.api.dialect:
        case "anthropic":
            error = {"type": "api_error", "message": trouble.message}
            events.append(StreamEvent("last", "error", {"type": "error", "error": error}))
        case "openai_responses":
            details = {
                "code": "server_error",
                "message": trouble.message,
                "param": None,
                "sequence_number": len(events),
            }
            events.append(StreamEvent("last", "error", {"type": "error", **details}))
        case _:
            events.append(StreamEvent("last", "", scene.api.error(trouble, scene.heard.n)))
    return await _say(scene, events)


async def too_long(scene: FakeRequest) -> None:
    failed = _failed("context_length_exceeded", request_errors.WINDOW, 2)
    if scene.is_stream:
        return await _say(scene, [*scene.partial()[:2], failed])
    assert isinstance(failed.data, Mapping)
    return scene.conn.answer(200, scene.headers, encode(failed.data["response"]))


async def stall(scene: FakeRequest) -> None:
    if scene.is_stream:
        _begin(scene, _until(scene.partial(), "text", 3))
    else:
        start, body = scene.whole(scene.say())
        scene.conn.send(start + body[: len(body) // 2])
    await scene.silence()


async def drip(scene: FakeRequest) -> None:
    await _by_bytes(scene, scene.say(), scene.settings.drip_seconds)


async def one_byte(scene: FakeRequest) -> None:
    await _by_bytes(scene, scene.say(), 0.0)


async def _by_bytes(scene: FakeRequest, reply: FakeReply, seconds: float) -> None:
    start, body = scene.whole(reply)
    scene.conn.send(start)
    for at in range(len(body)):
        scene.conn.send(body[at : at + 1])
        await asyncio.sleep(seconds)
        await scene.conn.drain()


async def reset_in_call(scene: FakeRequest) -> None:
    reply = scene.called()
    if not scene.is_stream:
        start, body = scene.whole(reply)
        scene.conn.send(start + body[: len(body) // 2])
        return await scene.reset()
    events = scene.api.events(reply, 6)
    if scene.api.dialect == "gemini":
        frames = scene.frames(events)
        at = next(n for n, event in enumerate(events) if b"functionCall" in encode(event.data))
        half = frames[at][: frames[at].index(b"functionCall") + 20]
        scene.conn.send(scene.stream_head() + b"".join(map(chunk, [*frames[:at], half])))
    else:
        _begin(
            scene,
            _until(events, *(("call", 1) if scene.api.dialect == "anthropic" else ("args", 1))),
        )
    return await scene.reset()


async def odd_events(scene: FakeRequest) -> None:
    """Everything that the standard of server-sent events allows, and fields and events that no one
    knows yet."""
    events = scene.api.events(scene.say(), scene.n_deltas)
    if not scene.is_stream:
        return scene.conn.answer(
            200, scene.headers, encode({**scene.api.body(scene.say()), "future_field": {"a": [1]}})
        )
    unknown = {"anthropic": "future_event", "openai_responses": "response.future.thing"}.get(
        scene.api.dialect, ""
    )
    if unknown:
        events.insert(
            1, StreamEvent("start", unknown, {"type": unknown, "sequence_number": 0, "future": [1]})
        )
    events = _numbered(events)
    out = [b"\xef\xbb\xbf: a comment\n\nretry: 3000\n\n"]
    for n, event in enumerate(events):
        data = (
            event.data
            if isinstance(event.data, str)
            else encode({**event.data, "future_field": {"a": None}}).decode()
        )
        lines = [f"event: {event.name}"] if event.name else []
        if n % 4 == 1 and not isinstance(event.data, str):
            lines += [f"data: {line}" for line in msgspec.json.format(data, indent=1).splitlines()]
        else:
            lines.append(f"data:{data}")
        if n % 2:
            lines = [": between", f"id: {n}", *lines, "unknown-field: x"]
        end = ("\n", "\r\n", "\r", "\n")[n % 4]
        out.append((end.join(lines) + end + end).encode())
    scene.conn.send(scene.stream_head() + b"".join(map(chunk, out)) + LAST_CHUNK)
    return None


async def bad_json(scene: FakeRequest) -> None:
    if not scene.is_stream:
        _, body = scene.whole(scene.say())
        return scene.conn.answer(200, scene.headers, body[: len(body) * 2 // 3])
    events = scene.partial()
    n = len(_until(events, "text", 2))
    frames = scene.frames(events)
    name = (
        "content_block_delta" if scene.api.dialect == "anthropic" else "response.output_text.delta"
    )
    named = f"event: {name}\n" if events[n].name else ""
    bad = f'{named}data: {{"type":"content_block\n\n'.encode()
    scene.conn.send(
        scene.stream_head() + b"".join(map(chunk, [*frames[:n], bad, *frames[n:]])) + LAST_CHUNK
    )
    return None


async def twice(scene: FakeRequest) -> None:
    reply = scene.say()
    if not scene.is_stream:
        return scene.play(reply)
    events = scene.api.events(reply, max(scene.n_deltas, 3))
    kind = "args" if reply.calls else "text"
    at = next((n for n, event in enumerate(events) if event.kind == kind), 0)
    if reply.calls and scene.api.dialect == "anthropic":
        at += 1  # the first piece of arguments is empty
    return await _say(scene, [*events[: at + 1], *events[at:]])


async def two_ends(scene: FakeRequest) -> None:
    reply = scene.say()
    if not scene.is_stream:
        return scene.play(reply)
    events = scene.api.events(reply, scene.n_deltas)
    return await _say(scene, _numbered([*events, events[-1]]))


async def more_after_end(scene: FakeRequest) -> None:
    reply = scene.say()
    if not scene.is_stream:
        return scene.play(reply)
    events = scene.api.events(reply, scene.n_deltas)
    other = scene.api.events(replace(reply, text="This came too late.", calls=(), usage=Usage()), 1)
    late = [event for event in other if event.kind in ("text", "last")]
    return await _say(scene, _numbered([*events, *late]))
