"""Texts too long to show in full: stored under their hash before any run or watcher sees them, then
shortened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from retinue.core.answer_fit import fit
from retinue.core.answer_layout import Laid
from retinue.core.spec import Actions, RunSpec
from retinue.formats.fair_cut import clip, cut
from retinue.formats.safe_text import clean

BESIDE = 6_000
"""Characters of a notice that are not the text it is about."""

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine


class Texts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def most(self) -> int:
        return self._engine.trees.shared.limits.text_cap

    def fits(self, text: str, keep: int | None = None) -> bool:
        """Whether a text need not be kept: `spill` would say so too."""
        most = self._engine.trees.shared.limits.text_cap
        return len(text) <= most and (keep is None or 4 * len(text) <= keep)

    def whole(self, text: str) -> str:
        """Without secrets, if it will be cut: half a secret would no longer be found."""
        return text if len(text) <= self.most else self._engine.redactor.clean(text)

    async def cut(self, text: str | Laid) -> str:
        if isinstance(text, Laid):
            return await fit(text, self.most, self.keep, self._engine.redactor.clean)
        text = self.whole(clean(text))
        spilled = await self.spill(text)
        return text if spilled is None else clip(text, self.most, spilled[0])

    def longest(self, spec: RunSpec) -> int | None:
        """The bytes of a reply that the parent or user can get without a cut: a longer one is
        kept."""
        if not spec.parent:
            return spec.request.artifact_above_bytes
        cap = self._engine.trees.shared.limits.mail_cap
        cap = max(cap // 2, cap - BESIDE)
        return (
            cap
            if spec.request.artifact_above_bytes is None
            else min(cap, spec.request.artifact_above_bytes)
        )

    async def spill(self, text: str, keep: int | None = None) -> tuple[str, int] | None:
        """Keep an over-long text, or one of more than `keep` bytes: its hash and length, None when
        it is short."""
        data = text.encode("utf-8", "replace") if keep is not None else b""
        if len(text) <= self.most and (keep is None or len(data) <= keep):
            return None
        return await self._put(data or text.encode("utf-8", "replace"))

    async def letters(self, actions: Actions) -> Actions:
        """What is sent to others, each in the room that a mailbox has for it."""
        most = self._engine.trees.shared.limits.mail_cap
        if all(len(send.text) <= most for send in actions.sends):
            return actions
        sends = []
        for send in actions.sends:
            text = (
                send.text
                if len(send.text) <= most
                else self._engine.redactor.clean(clean(send.text))
            )
            where = await self.keep(text) if len(text) > most else ""
            sends.append(replace(send, text=cut(text, most, where)))
        return replace(actions, sends=tuple(sends))

    async def keep(self, text: str) -> str:
        """Keep a text that will be cut: where it is, in words."""
        return f"artifact {(await self._put(text.encode('utf-8', 'replace')))[0]}"

    async def _put(self, data: bytes) -> tuple[str, int]:
        data = self._engine.redactor.clean_bytes(data)
        put = self._engine.store.put_artifact
        artifact = await self._engine.commits.with_space(lambda: put(data))
        return artifact.sha256, artifact.size
