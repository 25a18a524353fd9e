"""Doubles that ship: a scripted model, virtual time, a memory store, a cassette, a fake provider, a
context for a tool alone, crashes at every step. Test your own agents with them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from retinue.models.scripted import Line, Script, Scripted, call
from retinue.store.memory import MemoryStore
from retinue.testing.cassette import Cassette, CassetteError
from retinue.testing.virtual_clock import VirtualClock, VirtualLoop, run_virtual

if TYPE_CHECKING:
    from retinue.testing.fake_llm.fake_provider import FakeLLM, Violation
    from retinue.testing.fake_steps import fake_context, submit
    from retinue.testing.simulation import SimulationReport, simulate

__all__ = [
    "Cassette",
    "CassetteError",
    "FakeLLM",
    "Line",
    "MemoryStore",
    "Script",
    "Scripted",
    "SimulationReport",
    "Violation",
    "VirtualClock",
    "VirtualLoop",
    "call",
    "fake_context",
    "run_virtual",
    "simulate",
    "submit",
]

_HOME_OF = {
    "FakeLLM": "retinue.testing.fake_llm.fake_provider",
    "SimulationReport": "retinue.testing.simulation",
    "Violation": "retinue.testing.fake_llm.fake_provider",
    "fake_context": "retinue.testing.fake_steps",
    "simulate": "retinue.testing.simulation",
    "submit": "retinue.testing.fake_steps",
}
"""Names that are imported when they are first used."""


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'retinue.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)
