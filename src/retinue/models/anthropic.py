"""The codec for Anthropic's Messages API: content blocks, kept whole where the provider signed a
part of them.

What the API refuses and no schema says is settled here: empty texts, a thought at the end of a
message, a failed result with pictures, names and ids in a foreign alphabet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retinue.core.messages import AssistantMessage, Message, ModelReply, ToolMessage
from retinue.core.values import ToolSchema
from retinue.errors import ModelError
from retinue.models.anthropic_blocks import (
    DIALECT,
    message_blocks,
    parse_object,
    result_blocks,
    tool_field,
)
from retinue.models.anthropic_errors import failure_of
from retinue.models.anthropic_reply import AnthropicDecoder
from retinue.models.codec import Options, ReplyDecoder, encode_json
from retinue.models.provider_errors import MAX_WORDS

MIN_THOUGHT = 1024
MARK = b',"cache_control":{"type":"ephemeral"}}'
OURS = {"max_tokens", "messages", "model", "stream"}


class AnthropicCodec:
    """A cache breakpoint is on the last tool, on the system prompt, and where `unit` is asked
    for a mark."""

    dialect = DIALECT

    def head(
        self, model: str, instructions: str, tools: Sequence[ToolSchema], options: Options
    ) -> bytes:
        body: dict[str, Any] = {"model": model}
        if options.stream:
            body["stream"] = True
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.top_p is not None:
            body["top_p"] = options.top_p
        if options.stop:
            body["stop_sequences"] = list(options.stop)
        output: dict[str, Any] = {}
        if options.effort:
            output["effort"] = "low" if options.effort == "minimal" else options.effort
        if options.output_schema is not None:
            output["format"] = {"type": "json_schema", "schema": options.output_schema}
        if output:
            body["output_config"] = output
        cached = {"cache_control": {"type": "ephemeral"}} if options.cache else {}
        if tools:
            body["tools"] = [tool_field(tool) for tool in tools]
            body["tools"][-1] |= cached
        if instructions.strip():
            body["system"] = [{"type": "text", "text": instructions} | cached]
        body.update((name, value) for name, value in options.extra.items() if name not in OURS)
        return encode_json(body)[:-1] + b',"messages":['

    def unit(self, messages: Sequence[Message], *, mark: bool = False) -> bytes:
        results = [message for message in messages if isinstance(message, ToolMessage)]
        parts = [
            message_blocks(message) for message in messages if not isinstance(message, ToolMessage)
        ]
        if results:
            parts.append((b"user", result_blocks(results)))
        if mark:
            blocks = parts[-1][1]
            blocks[-1] = blocks[-1][:-1] + MARK
        return b",".join(
            b'{"role":"%b","content":[%b]}' % (role, b",".join(blocks)) for role, blocks in parts
        )

    def unsealed(self, message: AssistantMessage) -> AssistantMessage:
        return message

    def tail(self, max_output: int, options: Options | None = None) -> bytes:
        """The budget for thoughts is a part of the output: where it leaves no room for an answer,
        there are none."""
        body: dict[str, Any] = {"max_tokens": max_output}
        budget = None if options is None or "thinking" in options.extra else options.thinking_tokens
        if budget and options is not None and options.is_adaptive:
            body["thinking"] = {"type": "adaptive"}
        elif budget and max_output > MIN_THOUGHT:
            body["thinking"] = {
                "type": "enabled",
                "budget_tokens": min(max(budget, MIN_THOUGHT), max_output - 1),
            }
        elif budget == 0:
            body["thinking"] = {"type": "disabled"}
        return b"]," + encode_json(body)[1:]

    def path(self, model: str, options: Options) -> str:
        return "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "anthropic-version": "2023-06-01",
        }
        if key.startswith("sk-ant-oat"):
            # Without this flag the API says that it does not know such tokens.
            return headers | {
                "authorization": f"Bearer {key}",
                "anthropic-beta": "oauth-2025-04-20",
            }
        return headers | {"x-api-key": key}

    def decoder(self, options: Options) -> ReplyDecoder:
        return AnthropicDecoder(options.stream)

    def whole(self, body: bytes) -> ModelReply | None:
        return None

    def failure(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        lower = {name.lower(): value for name, value in headers.items()}
        plain = (
            {} if b"<" in body else {"message": body[: 8 * MAX_WORDS].decode("utf-8", "replace")}
        )
        problem = parse_object(body) or plain
        error = problem.get("error")
        return failure_of(
            status,
            error if isinstance(error, dict) else {"message": error or problem.get("message")},
            lower,
        )
