"""Reads what a local server writes, piece by piece."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

from retinue.core.ids import digest
from retinue.core.messages import AssistantMessage, ModelReply, ToolCall
from retinue.core.values import ModelInfo, Usage
from retinue.errors import ModelError, ModelRejected, ModelUnavailable
from retinue.formats.safe_text import clean
from retinue.models.base import ModelRequest
from retinue.models.text_calls import TextPreview, Written, recover

_STOPS: Mapping[str, Literal["end", "calls", "length"]] = {
    "length": "length",
    "tool_calls": "calls",
}


class LocalListener:
    """One reply on its way from the engine's thread to the loop. The engine calls it with each
    chunk; it answers whether to stop."""

    def __init__(
        self, request: ModelRequest, emit: Callable[[str], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.stop = threading.Event()
        self._request, self._emit, self._loop = request, emit, loop
        self._names = frozenset(tool.name for tool in request.tools)
        self._preview = TextPreview()
        self._text: list[str] = []
        self._calls: dict[int, list[str]] = {}
        self._usage = Usage()
        self._reason = ""
        self._error: ModelError | None = None

    def __call__(self, chunk: Mapping[str, Any]) -> bool:
        if self.stop.is_set():
            return True
        try:
            self._take(chunk)
        except Exception as error:  # the engine would swallow it
            self._error = ModelUnavailable(
                f"cannot read the engine's output: {error}", kind="server_error"
            )
        return self._error is not None

    def _take(self, chunk: Mapping[str, Any]) -> None:
        if "error" in chunk:
            self._error = _failure(chunk["error"])
            return
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self._usage = Usage(
                input=usage["prompt_tokens"],
                output=usage["completion_tokens"],
                cache_read=cached,
                nanos=0,
            )
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            if text := delta.get("content"):
                self._text.append(text)
                self._show(self._preview.feed(text) if self._names else text)
            for part in delta.get("tool_calls") or ():
                call = self._calls.setdefault(part.get("index", 0), ["", ""])
                function = part.get("function") or {}
                call[0] += function.get("name") or ""
                call[1] += function.get("arguments") or ""
            self._reason = choice.get("finish_reason") or self._reason

    def so_far(self) -> Usage:
        """What was read and said until now, for a reply that is interrupted: it costs nothing but
        counts."""
        n_out = sum(map(len, self._text)) + sum(len(args) for _, args in list(self._calls.values()))
        n_in = len(self._request.instructions) + sum(len(m.text) for m in self._request.messages)
        return self._usage if self._usage.tokens else Usage(estimated=(n_in + n_out) // 4)

    def reply(self, info: ModelInfo) -> ModelReply:
        if self._error is not None:
            raise self._error
        if not self._reason:
            raise ModelUnavailable(
                "the engine stopped before the reply was complete", kind="server_error"
            )
        stop = _STOPS.get(self._reason, "end")
        text = "".join(self._text)
        call_list = [Written(name, args or "{}") for _, (name, args) in sorted(self._calls.items())]
        if not call_list and self._names:
            text, recovered_calls = recover(text, self._names, is_cut=stop == "length")
            call_list = list(recovered_calls)
            if not call_list:
                self._show(self._preview.rest())
        calls = [
            ToolCall(
                id=f"call_{digest(self._request.key, n)[:16]}",
                name=call.name,
                arguments_json=clean(call.args),
            )
            for n, call in enumerate(call_list)
        ]
        if stop != "length":
            stop = "calls" if calls else "end"
        return ModelReply(
            message=AssistantMessage(text=clean(text), calls=tuple(calls)),
            usage=self._usage,
            stop=stop,
            model=info.name,
        )

    def _show(self, text: str) -> None:
        if text:
            try:
                self._loop.call_soon_threadsafe(self._deliver, text)
            except RuntimeError:  # the loop is closed: no one waits
                self.stop.set()

    def _deliver(self, text: str) -> None:
        if not self.stop.is_set():
            self._emit(text)


def _failure(error: Any) -> ModelError:
    details = error if isinstance(error, Mapping) else {}
    message = str(details.get("message") or error)[:500]
    if details.get("type") == "exceed_context_size_error":
        return ModelRejected(
            (f"the conversation is longer than the context window: {message}"),
            kind="context_exhausted",
        )
    if details.get("code") in (400, 404, 501):
        return ModelRejected(message, kind="invalid_request")
    return ModelUnavailable(message, kind="server_error")
