"""The codec for OpenAI's Responses API, stateless: the provider stores nothing, so the reasoning is
sent with the messages.

A reply whose items say more than text and calls do (encrypted reasoning, phases) is kept whole and
goes back as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retinue.core.messages import AssistantMessage, Message, ModelReply
from retinue.core.values import ToolSchema
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.models.codec import Options
from retinue.models.openai_responses_errors import fault_of
from retinue.models.openai_responses_items import (
    DIALECT,
    Item,
    item_json,
    message_items,
    parse_as,
    short_name,
    tool_item,
)
from retinue.models.openai_responses_reply import OpenAIResponsesDecoder
from retinue.models.provider_errors import MAX_WORDS
from retinue.models.tool_limit import OPENAI

# The API refuses a smaller limit of output; longer call ids, names and cache keys; other characters
# in names.
MIN_OUTPUT = 16

# `extra` cannot set these: they are in another part of the body, or the decoder depends on them.
RESERVED = ("input", "max_output_tokens", "stream")


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
            body["tools"] = [tool_item(tool) for tool in tools]
        # Models that do not reason refuse to be asked for it; those that do send it unasked.
        if options.effort or options.thinking_tokens:
            body["include"] = ["reasoning.encrypted_content"]
        if options.effort:
            body["reasoning"] = {"effort": options.effort}
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.top_p is not None:
            body["top_p"] = options.top_p
        if options.output_schema is not None:
            form = {
                "type": "json_schema",
                "name": "output",
                "schema": options.output_schema,
                "strict": False,
            }
            body["text"] = {"format": form}
        if options.cache_key:
            body["prompt_cache_key"] = short_name(options.cache_key)
        extra = {
            name: _joined(body.get(name), value)
            for name, value in options.extra.items()
            if name not in RESERVED
        }
        return item_json(body | extra)[:-1] + b',"input":['

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        return b",".join(item for message in messages for item in message_items(message))

    def unsealed(self, message: AssistantMessage) -> AssistantMessage:
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

    def decoder(self, options: Options) -> OpenAIResponsesDecoder:
        return OpenAIResponsesDecoder(options.stream)

    def whole(self, body: bytes) -> ModelReply | None:
        return None

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        if 300 <= status < 400:
            return ModelRejected(
                f"the provider redirected ({status}), which is not followed", kind="invalid_request"
            )
        try:
            problem = parse_as(body, dict[str, Any])
        except ModelUnavailable:
            problem = {"message": body[: 4 * MAX_WORDS].decode("utf-8", "replace")}
        return fault_of(
            status,
            problem.get("error") or problem,
            {name.lower(): value for name, value in headers.items()},
        )


def _joined(mine: Any, extra: Any) -> Any:
    if isinstance(mine, dict) and isinstance(extra, dict):
        return {**mine, **extra}
    return mine + extra if isinstance(mine, list) and isinstance(extra, list) else extra
