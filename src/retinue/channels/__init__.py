"""Channels: where results go that no one waits for. One port, `base.Channel`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.channels.base import Channel
    from retinue.channels.console import Console
    from retinue.channels.file import JsonLines
    from retinue.channels.webhook import Webhook
    from retinue.channels.webhook_signature import verify_webhook
    from retinue.core.values import Delivery, DeliveryState

__all__ = [
    "Channel",
    "Console",
    "Delivery",
    "DeliveryState",
    "JsonLines",
    "Webhook",
    "verify_webhook",
]

_HOME_OF = {
    "Channel": "retinue.channels.base",
    "Console": "retinue.channels.console",
    "Delivery": "retinue.core.values",
    "DeliveryState": "retinue.core.values",
    "JsonLines": "retinue.channels.file",
    "Webhook": "retinue.channels.webhook",
    "verify_webhook": "retinue.channels.webhook_signature",
}
"""Names that are imported when they are first used."""


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
