"""The return value of a tool's function, as the model reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from retinue.core.spec import Actions
from retinue.errors import ConfigError, ToolError
from retinue.tools.base import Ask, Delegation, Returned, Submission, ToolResult


def as_returned(tool: str, out: Any) -> Returned:
    """A text as it is, any other value as JSON."""
    if isinstance(out, Delegation):
        return out.actions
    if isinstance(out, Ask) and not str(out.question).strip():
        raise ConfigError(f"Tool {tool!r} returned Ask without a question.")
    if isinstance(out, (ToolResult, Actions, Submission, Ask)):
        return out
    if out is None:
        return ToolResult(text="Done.")
    if isinstance(out, str):
        return ToolResult(text=out)
    try:
        return ToolResult(text=_encode(out).decode())
    except (TypeError, ValueError) as error:
        raise ToolError(f"The result of {tool} cannot be written as JSON: {error}.") from None


def _plain(value: Any) -> Any:
    """For types that msgspec does not know: pydantic models, paths, other mappings and
    sequences. A tuple comes here as the key of a dict."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Sequence, Set)) and not isinstance(value, (tuple, frozenset)):
        return list(value)
    raise TypeError(f"it has a value of type {type(value).__name__}")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
