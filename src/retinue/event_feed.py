"""Tells a sink of every event, once: what is recorded while this process has the store. It reads
the record like any other watcher, so that the engine neither knows of it nor waits for it."""

from __future__ import annotations

import asyncio
import logging

from retinue.core.redaction import Redactor
from retinue.event_translation import last_of
from retinue.option_types import EventSink
from retinue.steps import Steps

log = logging.getLogger("retinue.otel")


class EventFeed:
    """Follows the record from `position` of the log on, until it is closed."""

    def __init__(self, steps: Steps, sink: EventSink, position: int, redactor: Redactor) -> None:
        self._steps, self._sink = steps, sink
        self._is_broken = False
        sink.open(redactor.clean)
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._run(last_of(position)), name="retinue telemetry")

    async def close(self) -> None:
        """Returns when the sink has everything that is on record."""
        if not self._end.done():
            self._end.set_result(None)
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, after: int) -> None:
        try:
            async for event, is_new in self._steps.follow(after, self._end):
                self._send(event, is_new)
        except Exception:
            log.warning("telemetry has stopped; runs continue", exc_info=True)

    def _send(self, event: object, is_new: bool) -> None:
        """What a sink does wrong does not reach the runs, and is said once."""
        try:
            self._sink.take(event, is_new=is_new)
        except Exception:
            if not self._is_broken:
                log.warning("telemetry has failed on an event; runs continue", exc_info=True)
            self._is_broken = True
