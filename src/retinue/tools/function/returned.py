"""What a tool's function has returned, as the model reads it."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from retinue.core.spec import Actions
from retinue.errors import ToolError
from retinue.tools.base import Ask, Delegation, Returned, Submission, ToolResult


def as_returned(tool: str, out: Any) -> Returned:
    """A text as it is, any other value as JSON."""
    if isinstance(out, Delegation):
        return out.actions
    if isinstance(out, (ToolResult, Actions, Submission, Ask)):
        return out
    if out is None:
        return ToolResult(text="Done.")
    if isinstance(out, str):
        return ToolResult(text=out)
    try:
        return ToolResult(text=_encode(out).decode())
    except (TypeError, ValueError) as error:
        raise ToolError(
            f"{tool} returned a {type(out).__name__}, which cannot be written as text ({error})."
        ) from None


def _plain(value: Any) -> Any:
    """For types that msgspec does not know: pydantic models, paths, exceptions."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} in it has no form as JSON")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
