"""Shared by all trees of a store and changed by none: limits, agents, models."""

from __future__ import annotations

from dataclasses import dataclass, field

from retinue.core.values import Definition, Limits, ModelInfo


@dataclass(slots=True)
class Shared:
    """Read by every step, changed only between steps by what concerns the whole store."""

    limits: Limits
    epoch: int = 0
    definitions: dict[str, Definition] = field(default_factory=dict)
    models: dict[str, ModelInfo] = field(default_factory=dict)
