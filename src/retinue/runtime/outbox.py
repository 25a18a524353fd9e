"""Announcements on their way out: put into words where they have none, sent one at a time to each place, and whatever
comes of it goes back to the engine as an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from retinue.channels.base import Channel
from retinue.core.effects import Transmit
from retinue.core.events import Acked, Bounced, Sent
from retinue.core.kin import child_outcome
from retinue.core.provenance import note_on
from retinue.core.state import Ended
from retinue.core.text import clean, clip
from retinue.core.values import Delivery, Origin
from retinue.core.words import plain_result
from retinue.errors import RetinueError

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine
    from retinue.runtime.perform import Tools

log = logging.getLogger("retinue")


class Outbox:
    """The way from a due delivery to its channel."""

    def __init__(self, engine: Engine, tools: Tools, channels: Mapping[str, Channel]) -> None:
        self._engine, self._tools, self._channels = engine, tools, channels
        self._turns: dict[Origin, tuple[asyncio.Lock, int]] = {}

    async def deliver(self, key: str, at: int) -> None:
        await asyncio.sleep(max(0, at - self._engine.clock.now()) / 1000)
        delivery = self._find(key)
        text = note = ""
        if delivery is not None and delivery.group and not delivery.text:
            if self._is_early(delivery):
                self._engine.performer.deliver_at(key, self._engine.clock.now() + 200)
                return
            text, note = await self._summary(delivery)
        self._engine.post("", Sent(key=key, text=text, note=note))

    def _is_early(self, summary: Delivery) -> bool:
        """What the members of a group have to announce comes before its summary, also when it is refused at first."""
        below, tree = f"{summary.path}/", self._engine.trees.index.deliveries.get(summary.key)
        others = tree.deliveries.values() if tree is not None else ()
        return any(d.path.startswith(below) and d.state in ("pending", "sent") for d in others)

    def _find(self, key: str) -> Delivery | None:
        tree = self._engine.trees.index.deliveries.get(key)
        return None if tree is None else tree.deliveries.get(key)

    async def _summary(self, delivery: Delivery) -> tuple[str, str]:
        """What became of a group, and what the runtime says about it: all of its members have ended, so it is the same
        whenever it is asked for."""
        rows = [r for r in await self._engine.store.children(delivery.run) if r.spec.order.group == delivery.group]
        ended = [(r.spec, r.run, r.run.state.ending) for r in rows if isinstance(r.run.state, Ended)]
        outcomes = [child_outcome(spec, run, ending) for spec, run, ending in ended]
        parent = await self._engine.store.row(delivery.run)
        text = None
        try:
            if parent is not None:
                text = self._tools.summarize(parent.spec.order.agent, delivery.tool, delivery.group, outcomes)
        except Exception:
            log.exception("tool %s could not put its summary into words", delivery.tool)
        text = text or plain_result(tuple(outcomes))[0] if outcomes else f"{delivery.group}: nothing is left of it"
        text = clip(self._engine.redactor.clean(clean(text)), self._engine.trees.shared.rules.text_cap)
        return text, note_on(outcomes)

    async def transmit(self, effect: Transmit) -> None:
        delivery = self._find(effect.key)
        if delivery is None:
            return
        channel = self._channels.get(delivery.origin.channel)
        try:
            if channel is None:
                raise RetinueError(f"no channel {delivery.origin.channel!r} in this process")
            async with self._in_turn(delivery.origin):
                async with asyncio.timeout(self._engine.trees.shared.rules.delivery_timeout_ms / 1000):
                    await channel.send(delivery)
        except Exception as error:
            self._engine.post("", Bounced(key=effect.key, error=f"{type(error).__name__}: {error}"))
        else:
            self._engine.post("", Acked(key=effect.key))

    @contextlib.asynccontextmanager
    async def _in_turn(self, origin: Origin) -> AsyncIterator[None]:
        """One place is told one thing at a time, in the order in which it was to be told."""
        turns, users = self._turns.get(origin) or (asyncio.Lock(), 0)
        self._turns[origin] = (turns, users + 1)
        try:
            async with turns:
                yield
        finally:
            turns, users = self._turns.pop(origin)
            if users > 1:
                self._turns[origin] = (turns, users - 1)

    async def close(self) -> None:
        """Nothing is sent any more: those that hold something open let go of it."""
        for channel in {id(c): c for c in self._channels.values()}.values():
            if (close := getattr(channel, "close", None)) is not None:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(5):
                        await close()
