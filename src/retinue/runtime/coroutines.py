"""A question about tasks: was this one cancelled by us?"""

from __future__ import annotations

import asyncio


def asked_to_stop() -> bool:
    """Whether this task was cancelled by us; a tool or a model may also raise the same exception by
    itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
