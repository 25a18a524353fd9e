"""Doubles that ship: a scripted model, virtual time, a memory store, a cassette. Test your own
agents with them."""

from retinue.models.scripted import Scripted, call
from retinue.store.memory import MemoryStore
from retinue.testing.cassette import Cassette, CassetteError
from retinue.testing.virtual_clock import VirtualClock, VirtualLoop, run_virtual

__all__ = [
    "Cassette",
    "CassetteError",
    "MemoryStore",
    "Scripted",
    "VirtualClock",
    "VirtualLoop",
    "call",
    "run_virtual",
]
