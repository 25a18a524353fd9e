"""Models: one port, `base.Model`, and the ways to speak to one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.core.messages import (
        AssistantMessage,
        Image,
        Message,
        ModelReply,
        ToolCall,
        ToolMessage,
        UserMessage,
    )
    from retinue.core.model_settings import ModelSettings
    from retinue.core.values import ModelInfo, ToolSchema
    from retinue.models.base import Model, ModelRequest
    from retinue.models.catalog import ModelStatus
    from retinue.models.declared import Provider
    from retinue.models.prices import Price

__all__ = [
    "AssistantMessage",
    "Image",
    "Message",
    "Model",
    "ModelInfo",
    "ModelReply",
    "ModelRequest",
    "ModelSettings",
    "ModelStatus",
    "Price",
    "Provider",
    "ToolCall",
    "ToolMessage",
    "ToolSchema",
    "UserMessage",
]

_HOME_OF = {
    "AssistantMessage": "retinue.core.messages",
    "Image": "retinue.core.messages",
    "Message": "retinue.core.messages",
    "Model": "retinue.models.base",
    "ModelInfo": "retinue.core.values",
    "ModelReply": "retinue.core.messages",
    "ModelRequest": "retinue.models.base",
    "ModelSettings": "retinue.core.model_settings",
    "ModelStatus": "retinue.models.catalog",
    "Price": "retinue.models.prices",
    "Provider": "retinue.models.declared",
    "ToolCall": "retinue.core.messages",
    "ToolMessage": "retinue.core.messages",
    "ToolSchema": "retinue.core.values",
    "UserMessage": "retinue.core.messages",
}
"""Names that are imported when they are first used."""


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
