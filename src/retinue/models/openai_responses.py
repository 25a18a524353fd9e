"""The OpenAI Responses dialect, stateless: nothing is stored there, so what a model reasoned
travels with the messages.

A reply whose items say more than text and calls do (encrypted reasoning, phases) is kept whole and
goes back as it is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from retinue.core.messages import Assistant, Call, Image, Message, Reply, Result, User
from retinue.core.values import ToolSchema, Usage
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.formats.sse import SseParser
from retinue.models.codec import Options, arguments, count, keep_opaque, opaque_for
from retinue.models.provider_errors import MAX_WORDS, delay, failed, worded
from retinue.models.tool_limit import OPENAI
from retinue.models.usage_checks import grown

T = TypeVar("T")
Item = dict[str, Any]

DIALECT = "openai_responses"
MAX_BODY = 64 << 20
# The API refuses a smaller limit of output; longer call ids, names and cache keys; other characters
# in names.
MIN_OUTPUT = 16
MAX_ID = 64
NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")

# `extra` cannot set these: they stand in another part of the body, or the decoder depends on them.
RESERVED = ("input", "max_output_tokens", "stream")
# Items that may stand in a later input without an answer of ours.
REPLAYABLE = {
    "reasoning",
    "message",
    "function_call",
    "compaction",
    "web_search_call",
    "file_search_call",
    "mcp_call",
}
VISIBLE = ("response.output_text.delta", "response.refusal.delta")
TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
FILTERED = "The provider's content filter stopped this reply."
EMPTY = "(empty reply)"

# What an error is, by its code or its type or, where they say nothing, by the status.
CODES = {
    "auth": "401 403 invalid_api_key account_deactivated",
    "quota": "402 insufficient_quota billing_hard_limit_reached billing_not_active "
    "usage_limit_reached",
    "rate_limit": "429 rate_limit_exceeded",
    "overloaded": "503 529 server_is_overloaded slow_down",
    "server_error": "408 409 425 server_error vector_store_timeout",
    "not_found": "404 model_not_found",
    "context_exhausted": "context_length_exceeded",
    "too_large": "413 request_too_large",
    "bad_schema": "invalid_function_parameters invalid_json_schema",
    "content_filter": "content_filter content_policy_violation image_content_policy_violation "
    "invalid_prompt"
    " bio_policy cyber_policy misalignment_policy_violation",
}
KINDS = {code: kind for kind, codes in CODES.items() for code in codes.split()}
# These words go before a code: a request that is too large has the code of a rate limit, but
# waiting cannot help it.
WORDS = {
    "context_exhausted": re.compile(r"context window|maximum context length", re.I),
    "quota": re.compile(r"exceeded your current quota", re.I),
    "too_large": re.compile(r"request too large", re.I),
    "bad_schema": re.compile(r"invalid schema for", re.I),
    "auth": re.compile(r"incorrect api key", re.I),
    "content_filter": re.compile(r"input was flagged|requires moderation", re.I),
}

# Either a whole pair, or (group 1) half of one, or any other escape.
ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.S)

_encoder = msgspec.json.Encoder()


class _Event(msgspec.Struct):
    type: Any = ""
    sequence_number: Any = None
    output_index: Any = 0
    delta: Any = ""
    error: Any = None
    item: msgspec.Raw = msgspec.Raw(b"{}")
    response: msgspec.Raw = msgspec.Raw(b"{}")


class _Response(msgspec.Struct):
    status: Any = ""
    model: Any = ""
    usage: Any = None
    error: Any = None
    incomplete_details: Any = None
    output: msgspec.Raw = msgspec.Raw()

    def listed(self) -> list[bytes]:
        is_list = bytes(self.output).startswith(b"[")
        return [bytes(item) for item in _parsed(self.output, list[msgspec.Raw])] if is_list else []


class OpenAIResponsesCodec:
    """`organization` and `project` say who pays, where a key belongs to several."""

    dialect = DIALECT
    most_tools = OPENAI

    def __init__(self, organization: str = "", project: str = "") -> None:
        self._payer = {"openai-organization": organization, "openai-project": project}

    def head(
        self, model: str, instructions: str, tools: Sequence[ToolSchema], options: Options
    ) -> bytes:
        body: Item = {"model": model, "store": False, "stream": options.stream}
        if instructions:
            body["instructions"] = instructions
        if tools:
            body["tools"] = [_tool(tool) for tool in tools]
        # Models that do not reason refuse to be asked for it; those that do send it unasked.
        if options.effort or options.thinking_tokens:
            body["include"] = ["reasoning.encrypted_content"]
        if options.effort:
            body["reasoning"] = {"effort": options.effort}
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.output_schema is not None:
            form = {
                "type": "json_schema",
                "name": "output",
                "schema": options.output_schema,
                "strict": False,
            }
            body["text"] = {"format": form}
        if options.cache_key:
            body["prompt_cache_key"] = _short(options.cache_key)
        extra = {
            name: _joined(body.get(name), value)
            for name, value in options.extra.items()
            if name not in RESERVED
        }
        return _json(body | extra)[:-1] + b',"input":['

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        return b",".join(item for message in messages for item in _items(message))

    def unsealed(self, message: Assistant) -> Assistant:
        return message

    def tail(self, max_output: int, options: Options | None = None) -> bytes:
        return b'],"max_output_tokens":%d}' % max(MIN_OUTPUT, max_output)

    def path(self, model: str, options: Options) -> str:
        return "/responses"

    def headers(self, key: str) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
        }
        headers |= {name: value for name, value in self._payer.items() if value}
        return {**headers, "authorization": f"Bearer {key}"} if key else headers

    def decoder(self, options: Options) -> _Decoder:
        return _Decoder(options.stream)

    def whole(self, body: bytes) -> Reply | None:
        return None

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        if 300 <= status < 400:
            return ModelRejected(
                f"the provider redirected ({status}), which is not followed", kind="invalid_request"
            )
        try:
            told = _parsed(body, dict[str, Any])
        except ModelUnavailable:
            told = {"message": body[: 4 * MAX_WORDS].decode("utf-8", "replace")}
        return _fault(
            status,
            told.get("error") or told,
            {name.lower(): value for name, value in headers.items()},
        )


def _tool(tool: ToolSchema) -> Item:
    # A schema is refused unless it says that it is an object and has properties, be they none.
    parameters = {"type": "object", "properties": {}, **tool.parameters}
    about = {"type": "function", "name": tool.name, "description": tool.description}
    return {**about, "parameters": parameters, "strict": False}


def _joined(mine: Any, extra: Any) -> Any:
    if isinstance(mine, dict) and isinstance(extra, dict):
        return {**mine, **extra}
    return mine + extra if isinstance(mine, list) and isinstance(extra, list) else extra


def _items(message: Message) -> Iterator[bytes]:
    match message:
        case User():
            content = _content(message.text, message.images)
            yield _json({"type": "message", "role": "user", "content": content})
        case Assistant():
            if kept := _kept(message):
                yield kept
                return
            if message.text or not message.calls:
                yield _json(
                    {"type": "message", "role": "assistant", "content": message.text or EMPTY}
                )
            for call in message.calls:
                yield _json(_sound(call))
        case Result():
            # The dialect has no sign for a failure other than words.
            text = f"Error: {message.text}" if message.error else message.text
            output = _content(text, message.images) if message.images else text
            yield _json(
                {
                    "type": "function_call_output",
                    "call_id": _short(message.call_id),
                    "output": output,
                }
            )


def _content(text: str, images: Sequence[Image]) -> list[dict[str, str]]:
    parts = [{"type": "input_text", "text": text}] if text or not images else []
    urls = [f"data:{image.media_type};base64,{image.data}" for image in images]
    return parts + [{"type": "input_image", "detail": "auto", "image_url": url} for url in urls]


def _kept(message: Assistant) -> bytes:
    """The items as they came, their calls under the ids that they have by now: each of them must
    have its result."""
    kept = opaque_for(DIALECT, message).encode("utf-8", "replace")
    raws = [bytes(raw) for raw in _parsed(kept or b"[]", list[msgspec.Raw])]
    items = [_parsed(raw, Item) for raw in raws]
    places = [n for n, item in enumerate(items) if item.get("type") == "function_call"]
    if len(places) != len(message.calls):
        return b""
    for n, call in zip(places, message.calls, strict=True):
        if items[n].get("call_id") != _short(call.id):
            raws[n] = _json({**items[n], "call_id": _short(call.id)})
    return b",".join(raws)


def _sound(call: Call) -> dict[str, str]:
    """A call as an item that is accepted in a later input, whatever the model wrote."""
    try:
        value = arguments(call.args)
    except RecursionError:
        value = {"invalid_json": call.args}
    is_object = call.args.strip() and value != {"invalid_json": call.args}
    args = call.args if is_object else _json(value).decode()
    name = NOT_IN_NAMES.sub("_", call.name)[:MAX_ID] or "_"
    return {"type": "function_call", "call_id": _short(call.id), "name": name, "arguments": args}


def _short(text: str) -> str:
    return (
        text if len(text) <= MAX_ID else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    )


def _json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _paired(json.dumps(value, separators=(",", ":")).encode())


def _paired(data: bytes) -> bytes:
    """JSON whose escapes are all characters: half of a surrogate pair becomes the sign for a lost
    one."""
    return ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], data)


def _parsed(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    data = bytes(data).decode("utf-8", "replace").encode()
    try:
        return msgspec.json.decode(_paired(data) if rb"\ud" in data.lower() else data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise ModelUnavailable(
            "the provider sent JSON that cannot be read", kind="server_error"
        ) from None


class _Decoder:
    def __init__(self, stream: bool) -> None:
        self.contents = 0
        self.done = False
        self._events = SseParser()
        self._body = None if stream else bytearray()
        self._size = self._length = 0
        self._usage = Usage()
        self._said: list[str] = []
        self._items: dict[int, bytes] = {}
        self._numbers: dict[int, str] | None = {}
        self._model = ""
        self._reply: Reply | None = None

    def feed(self, data: bytes) -> list[str]:
        if self.done:
            return []
        self._size += len(data)
        if self._size > MAX_BODY:
            raise ModelRejected(
                "the provider sent a reply of more than 64 MiB", kind="response_too_large"
            )
        if self._body is not None:
            self._body += data
            self.contents += bool(data.strip())
            return []
        pieces = [self._take(name, payload) for name, payload in self._events.feed(data)]
        return [piece for piece in pieces if piece]

    def finish(self) -> Reply:
        if self._body is not None:
            return self._whole(bytes(self._body).strip())
        for name, payload in () if self.done else self._events.rest():
            try:
                _parsed(payload, _Event)
            except ModelUnavailable:
                break
            self._take(name, payload)
        if self._reply is None:
            raise ModelUnavailable("the stream ended before the reply did", kind="network")
        return self._reply

    def so_far(self) -> tuple[Usage, int]:
        return self._usage, self._length + len(self._body or b"")

    def _whole(self, body: bytes) -> Reply:
        try:
            response = _parsed(body, _Response)
        except ModelUnavailable:
            raise ModelUnavailable("the body is no whole reply", kind="network") from None
        status = _text(response.status) or (
            "completed" if bytes(response.output) and not response.error else "failed"
        )
        self._reply = _reply(status, response, response.listed())
        self.done = True
        return self._reply

    def _take(self, name: str, payload: bytes) -> str:
        if self.done or payload.strip() in (b"", b"[DONE]"):
            return ""
        event = _parsed(payload, _Event)
        kind = _text(event.type) or name
        if self._is_repeated(kind, event.sequence_number):
            return ""
        if kind in TERMINAL:
            self._end(kind, _parsed(event.response, _Response))
        elif kind == "error" or event.error:
            raise _fault(0, event.error or _parsed(payload, Item), {})
        elif kind in ("response.created", "response.in_progress"):
            begun = _parsed(event.response, _Response)
            self._model, self._usage = (
                _text(begun.model) or self._model,
                grown(self._usage, _usage(begun.usage)),
            )
        elif kind.endswith((".delta", ".done", ".added")):
            self.contents += 1
            self._length += len(_text(event.delta))
        if kind == "response.output_item.done":
            self._items[event.output_index if isinstance(event.output_index, int) else 0] = bytes(
                event.item
            )
        if kind in VISIBLE:
            self._said.append(_text(event.delta))
            return self._said[-1]
        return ""

    def _is_repeated(self, kind: str, number: Any) -> bool:
        """Numbers that stand on events of two kinds count nothing: some servers give all events the
        same."""
        if self._numbers is None or type(number) is not int:
            return False
        is_known = number in self._numbers
        if self._numbers.setdefault(number, kind) != kind:
            self._numbers = None
        return is_known and self._numbers is not None

    def _end(self, kind: str, response: _Response) -> None:
        """Servers differ in what they leave out: the last event's list of items counts where the
        stream had less."""
        listed, raws = response.listed(), [raw for _, raw in sorted(self._items.items())]
        if len(listed) > len(raws):
            raws = listed
        if not raws and self._said:
            raws = [
                _json(
                    {
                        "type": "message",
                        "content": [{"type": "output_text", "text": "".join(self._said)}],
                    }
                )
            ]
        response.model = response.model or self._model
        self._usage = grown(self._usage, _usage(response.usage))
        self._reply = _reply(_text(response.status) or TERMINAL[kind], response, raws)
        self.done = True


def _reply(status: str, response: _Response, raws: list[bytes]) -> Reply:
    if status == "failed":
        raise _fault(0, response.error, {})
    if status not in ("completed", "incomplete"):
        raise ModelUnavailable(
            f"the provider ended its answer while it was {worded(status)}", kind="server_error"
        )
    items = [_parsed(raw, Item) for raw in raws]
    contents = [item.get("content") for item in items if item.get("type") == "message"]
    parts = [
        part
        for content in contents
        if isinstance(content, list)
        for part in content
        if isinstance(part, dict)
    ]
    text = "".join(
        _text(part.get("refusal" if part.get("type") == "refusal" else "text")) for part in parts
    )
    calls = _calls(items)
    stop: Literal["end", "calls", "length", "refusal"] = "calls" if calls else "end"
    why = response.incomplete_details
    if status == "incomplete" and isinstance(why, dict) and why.get("reason") == "content_filter":
        text, stop = f"{text}\n\n{FILTERED}".strip(), "refusal"
    elif any(part.get("type") == "refusal" for part in parts):
        stop = "refusal"
    elif status == "incomplete" or any(item.get("status") == "incomplete" for item in items):
        stop = "length"
    kept = _keep(items, raws, calls) if stop in ("calls", "end") else ""
    message = Assistant(text=text, calls=tuple(calls), opaque=keep_opaque(DIALECT, kept))
    return Reply(
        message=message, usage=_usage(response.usage), stop=stop, model=_text(response.model)
    )


def _calls(items: list[Item]) -> list[Call]:
    """The calls, each with an id of its own: results are matched by it."""
    calls: dict[str, Call] = {}
    for item in items:
        if item.get("type") == "function_call":
            id = _text(item.get("call_id")) or _text(item.get("id")) or f"call_{len(calls)}"
            while id in calls:
                id = f"{id}_{len(calls)}"
            args = item.get("arguments") or "{}"
            args = args if isinstance(args, str) else _json(args).decode()
            calls[id] = Call(id=id, name=_text(item.get("name")), args=args)
    return list(calls.values())


def _keep(items: list[Item], raws: list[bytes], calls: list[Call]) -> str:
    """The items as JSON, if text and calls cannot stand for them and the API would take them back.

    It refuses reasoning that is not encrypted (it looks for the item, and nothing was stored) or
    that nothing follows."""
    while items and items[-1].get("type") == "reasoning":
        items = items[:-1]
    kinds = {_text(item.get("type")) for item in items}
    is_more = not kinds <= {"message", "function_call"} or any(item.get("phase") for item in items)
    is_bare = any(
        item.get("type") == "reasoning" and not item.get("encrypted_content") for item in items
    )
    if not is_more or is_bare or not kinds <= REPLAYABLE:
        return ""
    left = iter(calls)
    kept = []
    for item, raw in zip(items, raws, strict=False):
        if (
            item["type"] == "function_call"
            and not (sound := _sound(next(left))).items() <= item.items()
        ):
            raw = _json({**item, **sound})
        kept.append(raw.decode("utf-8", "replace"))
    return f"[{','.join(kept)}]"


def _usage(told: Any) -> Usage:
    def counted(of: Any, name: str) -> int:
        return count(of.get(name)) if isinstance(of, dict) else 0

    details = told.get("input_tokens_details") if isinstance(told, dict) else None
    return Usage(
        input=counted(told, "input_tokens"),
        output=counted(told, "output_tokens"),
        cache_read=counted(details, "cached_tokens"),
        cache_write=counted(details, "cache_write_tokens"),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _fault(status: int, error: Any, headers: Mapping[str, str]) -> ModelError:
    """A provider's error as ours. The status is 0 inside a stream."""
    told = error if isinstance(error, dict) else {"message": error}
    code, sort, param = (_text(told.get(name)) for name in ("code", "type", "param"))
    status = status or (told["code"] if type(told.get("code")) is int else 0)
    words = worded(_text(told.get("message") or told.get("detail")))
    kind = (
        next((name for name, sign in WORDS.items() if sign.search(words)), "")
        or KINDS.get(code)
        or KINDS.get(sort)
    )
    # An item of the input that is not found is no model that is not found.
    if not kind and (status, param) != (404, "input"):
        kind = KINDS.get(str(status))
    if not kind:
        is_ours = 400 <= status < 500 or (
            not status and (sort == "invalid_request_error" or "image" in code)
        )
        kind = "invalid_request" if is_ours else "server_error"
    if kind == "auth" and status != 403:
        words = "the provider refused the API key"
    words = words or (f"the provider answered {status}" if status else "the provider failed")
    notes = worded(", ".join(note for note in (code, param) if note and note not in words))[:100]
    message = (f"{words[: MAX_WORDS - 103]} ({notes})" if notes else words)[:MAX_WORDS]
    return failed(kind, message, delay(headers, words))
