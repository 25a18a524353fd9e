"""The catalogue of what providers do wrong, by number, and how to ask for it.

A number with several forms has letters: `F2` is the first form, `F2b` the second. `outcome` says
what a good client does: R tries again, P waits for the provider without hammering it, T fails with
a typed error, M tells the model, S shrinks the conversation and tries once more, OK takes it as if
nothing had happened."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from retinue.core.messages import Call
from retinue.testing.fake_llm import broken_streams as breaks
from retinue.testing.fake_llm import error_answers as troubles
from retinue.testing.fake_llm.dialect import DIALECTS, Dialect, FakeError, FakeReply, encode, loads
from retinue.testing.fake_llm.fake_request import FakeRequest

Outcome = Literal["R", "P", "T", "M", "S", "OK"]
Act = Callable[[FakeRequest], Awaitable[None]]
ASKED = re.compile(r"fault-(F\d+[a-z]?)(-then-ok)?(?![\w])")
HOLE = "\ufdd0"
"""Stands for half a surrogate pair until the text is bytes: no encoder writes one."""
ODD_TEXT = f"odd: {HOLE} \x00 \u202edesrever\u202c \U0001f469\u200d\U0001f680 \u0301"
STALE_ID = "000000000000000000000001"

CLAUDE: tuple[Dialect, ...] = ("anthropic",)
OPENAI: tuple[Dialect, ...] = ("openai_chat", "openai_responses")
RESPONSES: tuple[Dialect, ...] = ("openai_responses",)
GEMINI: tuple[Dialect, ...] = ("gemini",)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. `act` answers a request with it; `differs` has the dialects with
    another outcome."""

    name: str
    about: str
    outcome: Outcome
    act: Act
    dialects: tuple[Dialect, ...] = DIALECTS
    differs: Mapping[Dialect, Outcome] = field(default_factory=dict)

    def outcome_in(self, dialect: Dialect) -> Outcome:
        return self.differs.get(dialect, self.outcome)


def asked(text: str) -> tuple[str, bool] | None:
    """The fault in a model's name like `fault-F4-then-ok`, and whether it is over after the first
    time."""
    found = ASKED.search(text)
    return (found[1], found[2] is not None) if found else None


def _status(tell: Callable[[FakeRequest], FakeError]) -> Act:
    async def act(scene: FakeRequest) -> None:
        scene.refuse(tell(scene))

    return act


def _at_once(tell: Callable[..., None], *args: Any) -> Act:
    async def act(scene: FakeRequest) -> None:
        tell(scene, *args)

    return act


def _reply(change: Callable[[FakeRequest], FakeReply]) -> Act:
    async def act(scene: FakeRequest) -> None:
        scene.play(change(scene))

    return act


def _empty(scene: FakeRequest) -> FakeReply:
    stop: Any = "nothing" if scene.wire.dialect == "gemini" else "end"
    return replace(scene.say(), text="", calls=(), thinking="", stop=stop)


def _empty_content(scene: FakeRequest) -> FakeReply:
    return replace(scene.say(), text="", calls=(), thinking="", stop="end")


def _cut_call(scene: FakeRequest) -> FakeReply:
    said = scene.called()
    if scene.wire.dialect == "gemini":
        return replace(said, text="I am about to", calls=(), stop="length")
    last = said.calls[-1]
    args = last.args if len(last.args) > 4 else '{"path":"a.txt"}'
    cut = Call(id=last.id, name=last.name, args=args[: len(args) // 2])
    return replace(said, calls=(*said.calls[:-1], cut), stop="length")


def _cut_text(scene: FakeRequest) -> FakeReply:
    said = scene.say()
    text = said.text or "I was about to say"
    return replace(said, text=text[: max(len(text) // 2, 1)], calls=(), stop="length")


def _refused(scene: FakeRequest) -> FakeReply:
    said = replace(scene.say(), calls=())
    match scene.wire.dialect:
        case "anthropic":
            return replace(said, text="", stop="refusal")
        case "gemini":
            return replace(said, text="", stop="blocked")
        case _:
            return replace(said, text="", refusal="I cannot help with that.", stop="end")


def _stopped(stop: Any) -> Callable[[FakeRequest], FakeReply]:
    return lambda scene: replace(scene.say(), text="", calls=(), stop=stop)


def _with_args(scene: FakeRequest, args: str) -> FakeReply:
    said = scene.called()
    first = said.calls[0]
    return replace(said, calls=(Call(id=first.id, name=first.name, args=args), *said.calls[1:]))


def _bad_args(scene: FakeRequest) -> FakeReply:
    if scene.wire.dialect == "gemini":
        return replace(scene.say(), text="", calls=(), stop="malformed")
    return _with_args(scene, '{"path": "a", ' if scene.wire.dialect == "anthropic" else '{"path":}')


def _text_for_args(scene: FakeRequest) -> FakeReply:
    if scene.wire.dialect == "gemini":
        return _text_for_object(scene)
    return _with_args(scene, encode(scene.called().calls[0].args).decode())


def _text_for_object(scene: FakeRequest) -> FakeReply:
    """Each object in the arguments as a text; if there is none, one where the tool declares it."""
    call = scene.called().calls[0]
    args = loads(call.args)
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


def _named(name: str) -> Callable[[FakeRequest], FakeReply]:
    def change(scene: FakeRequest) -> FakeReply:
        said = scene.called()
        first = said.calls[0]
        called = Call(id=first.id, name=name.replace("*", first.name), args=first.args)
        return replace(said, calls=(called, *said.calls[1:]))

    return change


def _storm(scene: FakeRequest) -> FakeReply:
    said = scene.called()
    first = said.calls[0]
    calls = [
        Call(id=f"{first.id}_{n}", name=first.name, args=first.args)
        for n in range(scene.settings.n_storm)
    ]
    return replace(said, calls=tuple(calls), stop="calls")


def _paused(scene: FakeRequest) -> FakeReply:
    text = "I am still searching." if scene.wire.dialect == "anthropic" else ""
    return replace(scene.say(), text=text, calls=(), thinking="", stop="pause")


def _long(scene: FakeRequest) -> FakeReply:
    return replace(scene.say(), text="x" * scene.settings.long_text, calls=(), stop="end")


def _mixed_up(scene: FakeRequest) -> FakeReply:
    said = scene.say()
    return replace(said, id=said.id[: -len(STALE_ID)] + STALE_ID, model="another-model")


async def _odd_text(scene: FakeRequest) -> None:
    said = replace(scene.say(), text=ODD_TEXT, calls=(), stop="end")
    hole = HOLE.encode()
    if scene.is_stream:
        frames = scene.frames(scene.wire.events(said, scene.n_deltas))
        data = b"".join(frames).replace(hole, rb"\ud800")
        scene.conn.send(scene.stream_head() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
    else:
        scene.conn.answer(
            200, scene.headers, encode(scene.wire.body(said)).replace(hole, rb"\ud800")
        )


async def _outage(scene: FakeRequest) -> None:
    """While it lasts: overload and resets in turn. The server begins it and ends it."""
    if scene.heard.n % 2:
        scene.refuse(troubles.overloaded(scene))
    else:
        scene.conn.reset()


async def _flap(scene: FakeRequest) -> None:
    raise NotImplementedError("the server draws what happens")


_ROWS: tuple[Fault, ...] = (
    Fault("F1", "rate limit, with the time to wait", "R", _status(troubles.rate_limit)),
    Fault("F2", "the quota is spent: 429 without a time to wait", "P", _status(troubles.spent)),
    Fault("F2b", "the bill is not paid: 402, 429 or 400", "P", _status(troubles.unpaid)),
    Fault("F2c", "no credit: 400 that says so in words", "P", _status(troubles.no_credit), CLAUDE),
    Fault("F3", "overloaded: 529 or 503", "R", _status(troubles.overloaded)),
    Fault("F3b", "503 slow_down", "R", _status(troubles.slow_down), OPENAI),
    Fault(
        "F4",
        "overloaded inside a stream that began with 200, after three deltas",
        "R",
        breaks.overloaded,
    ),
    Fault("F5", "an error event at the start of a stream", "R", breaks.broken),
    Fault("F6", "500 in the provider's shape", "R", _status(troubles.broken)),
    Fault("F7", "502, a page of a proxy", "R", _at_once(troubles.page, 502, "Bad Gateway")),
    Fault("F7b", "504, a page of a proxy", "R", _at_once(troubles.page, 504, "Gateway Time-out")),
    Fault(
        "F7c",
        "520, a page of a proxy",
        "R",
        _at_once(troubles.page, 520, "Web server is returning an unknown error"),
    ),
    Fault("F9", "504 in the provider's shape", "R", _status(troubles.timed_out)),
    Fault("F10", "the key is wrong", "P", _status(troubles.bad_key)),
    Fault(
        "F10b",
        "the key may not do this: 403, and the message repeats the key",
        "P",
        _status(troubles.forbidden),
    ),
    Fault("F11", "no such model", "T", _status(troubles.no_model)),
    Fault("F12", "the conversation is too long: 400", "S", _status(troubles.too_long)),
    Fault(
        "F12b",
        "the conversation is too long, said inside a stream",
        "S",
        breaks.too_long,
        RESPONSES,
    ),
    Fault(
        "F12c",
        "the conversation is too long, said with 500",
        "S",
        _status(troubles.too_long_and_broken),
        GEMINI,
    ),
    Fault("F13", "the body is too large: 413", "S", _status(troubles.too_large)),
    Fault(
        "F13b",
        "the body is too large: 413, a page",
        "S",
        _at_once(troubles.page, 413, "Payload Too Large"),
    ),
    Fault("F14", "a call without a result, so the provider says", "R", _status(troubles.orphan)),
    Fault(
        "F15",
        "a signature of a thought, or sealed reasoning, is refused",
        "R",
        _status(troubles.bad_seal),
    ),
    Fault("F16", "the schema of a tool is refused", "T", _status(troubles.bad_schema)),
    Fault("F18", "the request is taken and never answered", "R", breaks.never),
    Fault("F19", "reset before any header", "R", breaks.reset),
    Fault("F20", "three deltas, then silence", "R", breaks.stall),
    Fault("F22", "one byte at a time, slowly", "R", breaks.drip),
    Fault("F23", "the connection is closed before the last event", "R", breaks.early_end),
    Fault("F23b", "a complete body without the last event", "R", breaks.no_last_event),
    Fault("F24", "a chunk that is cut off", "R", breaks.cut_chunk),
    Fault("F24b", "fewer bytes than Content-Length says", "R", breaks.short_length),
    Fault("F25", "reset inside a call", "R", breaks.reset_in_call),
    Fault("F26", "one byte per write", "OK", breaks.one_byte),
    Fault(
        "F27",
        "odd, but allowed: comments, BOM, line ends, unknown events and fields",
        "OK",
        breaks.odd_events,
    ),
    Fault("F28", "an event that is no JSON; the rest is good", "R", breaks.bad_json),
    Fault("F30", "an event of 20 MiB", "T", breaks.huge),
    Fault("F31", "a compressed body that unpacks to 10 GiB", "T", breaks.bomb),
    Fault("F31b", "a body that says gzip and is not", "R", breaks.not_gzip),
    Fault(
        "F32",
        "the same delta twice; where events have numbers, so have the twins",
        "M",
        breaks.twice,
        differs={"openai_responses": "OK"},
    ),
    Fault("F34", "two ends", "OK", breaks.two_ends),
    Fault("F34b", "more text and a second end after the first", "OK", breaks.more_after_end),
    Fault("F35", "a redirect to another host", "T", _at_once(troubles.redirect)),
    Fault("F36", "a header of 1 MiB", "T", _at_once(troubles.giant_header)),
    Fault("F38", "an answer without content", "R", _reply(_empty)),
    Fault("F38b", "an empty content that says it is complete", "R", _reply(_empty_content), GEMINI),
    Fault("F39", "a call cut by the length limit", "M", _reply(_cut_call)),
    Fault("F39b", "a text cut by the length limit", "M", _reply(_cut_text)),
    Fault("F40", "a refusal", "T", _reply(_refused)),
    Fault("F40b", "stopped by a filter", "T", _reply(_stopped("filter")), (*OPENAI, *GEMINI)),
    Fault("F40c", "stopped for recitation", "T", _reply(_stopped("recitation")), GEMINI),
    Fault("F40d", "stopped for prohibited content", "T", _reply(_stopped("prohibited")), GEMINI),
    Fault("F41", "arguments that are no JSON", "M", _reply(_bad_args)),
    Fault("F42", "arguments that are a text of JSON", "OK", _reply(_text_for_args)),
    Fault("F42b", "a text of JSON where an object is declared", "OK", _reply(_text_for_object)),
    Fault("F44", "a call of `Shell`, which there is not", "M", _reply(_named("Shell"))),
    Fault(
        "F44b",
        "a call of a tool with `default_api.` before its name",
        "M",
        _reply(_named("default_api.*")),
    ),
    Fault(
        "F44c",
        "a call of a tool with `functions.` before its name",
        "M",
        _reply(_named("functions.*")),
    ),
    Fault("F44d", "a call without a name", "M", _reply(_named(""))),
    Fault("F46", "200 calls in one reply", "M", _reply(_storm)),
    Fault(
        "F48",
        "paused, queued or stopped for another reason",
        "R",
        _reply(_paused),
        (*CLAUDE, *RESPONSES, *GEMINI),
    ),
    Fault("F48b", "in progress at the end", "R", _reply(_stopped("waiting")), RESPONSES),
    Fault("F50", "half a surrogate pair, NUL, a right-to-left override", "OK", _odd_text),
    Fault("F50b", "a text of ten million characters", "OK", _reply(_long)),
    Fault("F51", "the id of an earlier reply, and another model's name", "OK", _reply(_mixed_up)),
    Fault("F53", "an outage: for half an hour every request fails", "R", _outage),
    Fault("F54", "flapping: half of all requests fail, each in another way", "R", _flap),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ROWS}
FLAPS: tuple[str, ...] = (
    "F1",
    "F3",
    "F4",
    "F5",
    "F6",
    "F7",
    "F9",
    "F19",
    "F23",
    "F24",
    "F25",
    "F26",
    "F27",
    "F28",
    "F34",
)
"""What a flapping provider does: everything that ends soon and that a second try repairs."""
