"""The catalog of provider faults, by number, and how a test asks for one.

A number with several forms has letters: `F2` is the first form, `F2b` the second. `outcome` says
what a good client does: R tries again, P waits for the provider without hammering it, T fails with
a typed error, M tells the model, S shrinks the conversation and tries once more, OK takes it as if
nothing had happened."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from retinue.testing.fake_llm import broken_bodies, broken_streams, error_answers, request_errors
from retinue.testing.fake_llm.dialect import DIALECTS, Dialect, FakeError, FakeReply
from retinue.testing.fake_llm.fake_request import FakeRequest
from retinue.testing.fake_llm.faulty_replies import (
    bad_args,
    cut_call,
    cut_text,
    empty,
    empty_content,
    flap,
    long,
    misnamed,
    mixed_up,
    odd_text,
    outage,
    paused,
    refused,
    stopped,
    storm,
    text_for_args,
    text_for_object,
)

Outcome = Literal["R", "P", "T", "M", "S", "OK"]
Act = Callable[[FakeRequest], Awaitable[None]]
ASKED = re.compile(r"fault-(F\d+[a-z]?)(-then-ok)?(?![\w])")

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


def fault_of_model(text: str) -> tuple[str, bool] | None:
    """The fault in a model's name like `fault-F4-then-ok`, and whether it is over after the first
    time."""
    match = ASKED.search(text)
    return (match[1], match[2] is not None) if match else None


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


_ROWS: tuple[Fault, ...] = (
    Fault("F1", "rate limit, with the time to wait", "R", _status(error_answers.rate_limit)),
    Fault(
        "F2", "the quota is spent: 429 without a time to wait", "P", _status(error_answers.spent)
    ),
    Fault("F2b", "the bill is not paid: 402, 429 or 400", "P", _status(error_answers.unpaid)),
    Fault(
        "F2c", "no credit: 400 that says so in words", "P", _status(error_answers.no_credit), CLAUDE
    ),
    Fault("F3", "overloaded: 529 or 503", "R", _status(error_answers.overloaded)),
    Fault("F3b", "503 slow_down", "R", _status(error_answers.slow_down), OPENAI),
    Fault(
        "F4",
        "overloaded inside a stream that began with 200, after three deltas",
        "R",
        broken_streams.overloaded,
    ),
    Fault("F5", "an error event at the start of a stream", "R", broken_streams.broken),
    Fault("F6", "500 in the provider's shape", "R", _status(error_answers.broken)),
    Fault("F7", "502, a page of a proxy", "R", _at_once(error_answers.page, 502, "Bad Gateway")),
    Fault(
        "F7b", "504, a page of a proxy", "R", _at_once(error_answers.page, 504, "Gateway Time-out")
    ),
    Fault(
        "F7c",
        "520, a page of a proxy",
        "R",
        _at_once(error_answers.page, 520, "Web server is returning an unknown error"),
    ),
    Fault("F9", "504 in the provider's shape", "R", _status(error_answers.timed_out)),
    Fault("F10", "the key is wrong", "P", _status(error_answers.bad_key)),
    Fault(
        "F10b",
        "the key is not allowed to do this: 403, and the message repeats the key",
        "P",
        _status(error_answers.forbidden),
    ),
    Fault("F11", "no such model", "T", _status(error_answers.no_model)),
    Fault("F12", "the conversation is too long: 400", "S", _status(request_errors.prompt_too_long)),
    Fault(
        "F12b",
        "the conversation is too long, said inside a stream",
        "S",
        broken_streams.too_long,
        RESPONSES,
    ),
    Fault(
        "F12c",
        "the conversation is too long, said with 500",
        "S",
        _status(request_errors.too_long_and_broken),
        GEMINI,
    ),
    Fault("F13", "the body is too large: 413", "S", _status(request_errors.too_large)),
    Fault(
        "F13b",
        "the body is too large: 413, a page",
        "S",
        _at_once(error_answers.page, 413, "Payload Too Large"),
    ),
    Fault(
        "F14", "a call without a result, so the provider says", "R", _status(request_errors.orphan)
    ),
    Fault(
        "F15",
        "a signature of a thought, or sealed reasoning, is refused",
        "R",
        _status(request_errors.bad_seal),
    ),
    Fault("F16", "the schema of a tool is refused", "T", _status(request_errors.bad_schema)),
    Fault("F18", "the request is taken and never answered", "R", broken_bodies.never),
    Fault("F19", "reset before any header", "R", broken_bodies.reset),
    Fault("F20", "three deltas, then silence", "R", broken_streams.stall),
    Fault("F22", "one byte at a time, slowly", "R", broken_streams.drip),
    Fault("F23", "the connection is closed before the last event", "R", broken_bodies.early_end),
    Fault("F23b", "a complete body without the last event", "R", broken_bodies.no_last_event),
    Fault("F24", "a chunk that is cut off", "R", broken_bodies.cut_chunk),
    Fault("F24b", "fewer bytes than Content-Length says", "R", broken_bodies.short_length),
    Fault("F25", "reset inside a call", "R", broken_streams.reset_in_call),
    Fault("F26", "one byte per write", "OK", broken_streams.one_byte),
    Fault(
        "F27",
        "odd, but allowed: comments, BOM, line ends, unknown events and fields",
        "OK",
        broken_streams.odd_events,
    ),
    Fault("F28", "an event that is no JSON; the rest is good", "R", broken_streams.bad_json),
    Fault("F30", "an event of 20 MiB", "T", broken_bodies.huge),
    Fault("F31", "a compressed body that unpacks to 10 GiB", "T", broken_bodies.bomb),
    Fault("F31b", "a body that says gzip and is not", "R", broken_bodies.not_gzip),
    Fault(
        "F32",
        "the same delta twice; where events have numbers, so have the twins",
        "M",
        broken_streams.twice,
        differs={"openai_responses": "OK"},
    ),
    Fault("F34", "two ends", "OK", broken_streams.two_ends),
    Fault(
        "F34b", "more text and a second end after the first", "OK", broken_streams.more_after_end
    ),
    Fault("F35", "a redirect to another host", "T", _at_once(error_answers.redirect)),
    Fault("F36", "a header of 1 MiB", "T", _at_once(error_answers.giant_header)),
    Fault("F38", "an answer without content", "R", _reply(empty)),
    Fault("F38b", "an empty content that says it is complete", "R", _reply(empty_content), GEMINI),
    Fault("F39", "a call cut by the length limit", "M", _reply(cut_call)),
    Fault("F39b", "a text cut by the length limit", "M", _reply(cut_text)),
    Fault("F40", "a refusal", "T", _reply(refused)),
    Fault("F40b", "stopped by a filter", "T", _reply(stopped("filter")), (*OPENAI, *GEMINI)),
    Fault("F40c", "stopped for recitation", "T", _reply(stopped("recitation")), GEMINI),
    Fault("F40d", "stopped for prohibited content", "T", _reply(stopped("prohibited")), GEMINI),
    Fault("F41", "arguments that are no JSON", "M", _reply(bad_args)),
    Fault("F42", "arguments that are a text of JSON", "OK", _reply(text_for_args)),
    Fault("F42b", "a text of JSON where an object is declared", "OK", _reply(text_for_object)),
    Fault("F44", "a call of `Shell`, which there is not", "M", _reply(misnamed("Shell"))),
    Fault(
        "F44b",
        "a call of a tool with `default_api.` before its name",
        "M",
        _reply(misnamed("default_api.*")),
    ),
    Fault(
        "F44c",
        "a call of a tool with `functions.` before its name",
        "M",
        _reply(misnamed("functions.*")),
    ),
    Fault("F44d", "a call without a name", "M", _reply(misnamed(""))),
    Fault("F46", "200 calls in one reply", "M", _reply(storm)),
    Fault(
        "F48",
        "paused, queued or stopped for another reason",
        "R",
        _reply(paused),
        (*CLAUDE, *RESPONSES, *GEMINI),
    ),
    Fault("F48b", "in progress at the end", "R", _reply(stopped("waiting")), RESPONSES),
    Fault("F50", "half a surrogate pair, NUL, a right-to-left override", "OK", odd_text),
    Fault("F50b", "a text of ten million characters", "OK", _reply(long)),
    Fault("F51", "the id of an earlier reply, and another model's name", "OK", _reply(mixed_up)),
    Fault("F53", "an outage: for half an hour every request fails", "R", outage),
    Fault("F54", "flapping: half of all requests fail, each in another way", "R", flap),
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
