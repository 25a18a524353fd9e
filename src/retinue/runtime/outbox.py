"""Sends announcements: formats them if needed, one at a time per channel, and reports the result to
the engine as an event."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from retinue.channels.base import Channel
from retinue.core.answer_layout import Laid
from retinue.core.children import child_outcome
from retinue.core.effects import SendDelivery
from retinue.core.events import Acked, Bounced, Sent
from retinue.core.notices import plain_page
from retinue.core.provenance import note_on
from retinue.core.state import Ended
from retinue.core.values import Delivery, Origin
from retinue.errors import Refused, RetinueError
from retinue.runtime.long_texts import Texts

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine
    from retinue.runtime.tool_runner import ToolRunner

log = logging.getLogger("retinue.runs")


class Outbox:
    """The way from a due delivery to its channel. Each target gets one announcement at a time, in
    order: one that is refused stays first in the queue until it is accepted or given up."""

    def __init__(self, engine: Engine, tools: ToolRunner, channels: Mapping[str, Channel]) -> None:
        self._engine, self._tools, self._channels = engine, tools, channels
        self._texts = Texts(engine)
        self._lines: dict[Origin, dict[str, asyncio.Event]] = {}
        self._places: dict[str, Origin] = {}

    def check(self, origin: Origin | None) -> None:
        """Raise `Refused` for a place that nothing can be delivered to."""
        if origin is not None and origin.channel and origin.channel not in self._channels:
            channels = ", ".join(sorted(self._channels)) or "none"
            raise Refused("channel", f"Unknown channel {origin.channel!r}. Known: {channels}")

    # who is next

    @property
    def n_lines(self) -> int:
        """How many targets have something waiting."""
        return len(self._lines)

    def line_up(self, key: str) -> None:
        """A delivery that was not in line yet is the last of those to its place."""
        delivery = self._find(key)
        if delivery is not None and key not in self._places:
            line = self._lines.setdefault(delivery.origin, {})
            line[key], self._places[key] = asyncio.Event(), delivery.origin
            self._call_first(line)

    def leave(self, key: str) -> None:
        """A delivery was taken or given up: it is the next one's turn."""
        origin = self._places.pop(key, None)
        if origin is not None:
            line = self._lines[origin]
            del line[key]
            self._call_first(line)
            if not line:
                del self._lines[origin]

    @staticmethod
    def _call_first(line: dict[str, asyncio.Event]) -> None:
        if (first := next(iter(line.values()), None)) is not None:
            first.set()

    async def deliver(self, key: str, at: int) -> None:
        await asyncio.sleep(max(0, at - self._engine.clock.now()) / 1000)
        if (origin := self._places.get(key)) is not None:
            await self._lines[origin][key].wait()
        delivery = self._find(key)
        if delivery is None or delivery.state not in ("pending", "sent"):
            self.leave(key)
            return
        text = note = ""
        if delivery.group and not delivery.text:
            text, note = await self._summary(delivery)
        self._engine.post("", Sent(key=key, text=text, note=note))

    def _find(self, key: str) -> Delivery | None:
        tree = self._engine.trees.index.deliveries.get(key)
        return None if tree is None else tree.deliveries.get(key)

    async def _summary(self, delivery: Delivery) -> tuple[str, str]:
        """What became of a group, and what the runtime says about it: all of its members have
        ended, so it is the same whenever it is asked for."""
        rows = [
            r
            for r in await self._engine.store.children(delivery.run)
            if r.spec.request.group == delivery.group
        ]
        ended = [
            (r.spec, r.run, r.run.state.ending) for r in rows if isinstance(r.run.state, Ended)
        ]
        outcomes = [child_outcome(spec, run, ending) for spec, run, ending in ended]
        parent = await self._engine.store.row(delivery.run)
        text: str | Laid | None = None
        try:
            if parent is not None:
                text = self._tools.summarize(
                    parent.spec.request.agent, delivery.tool, delivery.group, outcomes
                )
        except Exception:
            log.exception("tool %s could not write its summary", delivery.tool)
        text = (
            text or plain_page(tuple(outcomes))
            if outcomes
            else f"{delivery.group}: no results are left"
        )
        return self._engine.redactor.clean(await self._texts.cut(text)), note_on(outcomes)

    async def transmit(self, effect: SendDelivery) -> None:
        delivery = self._find(effect.key)
        if delivery is None:
            self.leave(effect.key)
            return
        channel = self._channels.get(delivery.origin.channel)
        try:
            if channel is None:
                raise RetinueError(f"unknown channel {delivery.origin.channel!r} in this process")
            async with asyncio.timeout(self._engine.trees.shared.limits.delivery_timeout_ms / 1000):
                await channel.send(delivery)
        except Exception as error:
            bounced = Bounced(key=effect.key, error=f"{type(error).__name__}: {error}")
            with contextlib.suppress(RetinueError):
                await self._engine.post_and_wait("", bounced)
            open_delivery = self._find(effect.key)
            if open_delivery is None or open_delivery.state not in ("pending", "sent"):
                self.leave(effect.key)
        else:
            self._engine.post("", Acked(key=effect.key))
            self.leave(effect.key)

    async def close(self) -> None:
        """Nothing more is sent: channels close what they have open."""
        for channel in {id(c): c for c in self._channels.values()}.values():
            if (close := getattr(channel, "close", None)) is not None:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(5):
                        await close()
