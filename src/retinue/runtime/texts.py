"""Texts that are too long to be shown whole: kept under their hash before anybody is told of them, then cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinue.core.text import clip

if TYPE_CHECKING:
    from retinue.runtime.engine import Engine


class Texts:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def most(self) -> int:
        return self._engine.trees.shared.rules.text_cap

    def fits(self, text: str, keep: int | None = None) -> bool:
        """Whether a text need not be kept: `spill` would say so too."""
        return keep is None and len(text) <= self.most

    def whole(self, text: str) -> str:
        """Without secrets, if it will be cut: half a secret would not be found any more."""
        return text if len(text) <= self.most else self._engine.redactor.clean(text)

    async def cut(self, text: str) -> str:
        text = self.whole(text)
        spilled = await self.spill(text)
        return text if spilled is None else clip(text, self.most, spilled[0])

    async def spill(self, text: str, keep: int | None = None) -> tuple[str, int] | None:
        """Keep an over-long text, or one of more than `keep` bytes: its hash and length, None when it is short."""
        data = text.encode("utf-8", "replace") if keep is not None else b""
        if len(text) <= self.most and (keep is None or len(data) <= keep):
            return None
        data = self._engine.redactor.clean_bytes(data or text.encode("utf-8", "replace"))
        artifact = await self._engine.with_space(lambda: self._engine.store.put_artifact(data))
        return artifact.sha256, artifact.bytes
